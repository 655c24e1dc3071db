/* SPDX-License-Identifier: MIT */
/* What the files of mad/ib know of each other: agents.c, transact.c, segments.c, port.c. */
#ifndef MAD_IB_PORT_PARTS_H
#define MAD_IB_PORT_PARTS_H

#include "mad/ib/port.h"
#include "mad/ib/rmpp.h"

#define MS 1000000ull /* times are in nanoseconds */

enum {
	RMPP_ACK_MS = 2000,   /* a sender waits for an ACK */
	RMPP_RECV_MS = 40000, /* a receiver waits for the next segment */
	RMPP_DONE_MS = 10000, /* and answers segments that come again */
};

/* A message of an agent that waits for something: a response, an ACK. */
struct send {
	struct list node;
	struct ibmad_agent *agent;
	struct ibmad_addr to;
	uint64_t deadline;
	unsigned timeout_ms, retries, retries_left;
	bool segmented, acked; /* acked: all of it has arrived, a response is to come */
	struct rmpp_send rmpp; /* if segmented */
	size_t len;
	uint8_t msg[];
};

/* A message for an agent that comes in segments, or has come. */
struct recv {
	struct list node;
	struct ibmad_agent *agent;
	struct ibmad_addr from;
	uint64_t deadline;
	uint8_t first[MAD_HDR_LEN]; /* the header of its MADs */
	bool done;
	struct rmpp_recv rmpp;
};

static inline void ibmad_arm(struct ibmad_port *p, uint64_t deadline)
{
	if (deadline < p->deadline)
		p->deadline = deadline;
}

/* ---- agents.c ---- */
/* Whose a MAD is: a response by its transaction id, a request by class, version, method and OUI. NULL:
 * nobody's. */
struct ibmad_agent *ibmad_agent_of(struct ibmad_port *p, unsigned qp, const uint8_t mad[MAD_LEN]);
bool ibmad_is_response(const uint8_t *mad);
bool ibmad_same_peer(const struct ibmad_addr *a, const struct ibmad_addr *b);
static inline bool ibmad_does_rmpp(const struct ibmad_agent *a)
{
	return a->reg.rmpp_version && !a->reg.user_rmpp;
}

/* ---- transact.c ---- */
struct send *ibmad_send_find(struct ibmad_agent *a, const struct ibmad_addr *peer, const uint8_t *response);
void ibmad_send_free(struct send *s);
/* It got no answer: the agent is told. */
void ibmad_send_failed(struct send *s);
/* For a response, from now on. */
void ibmad_send_wait(struct send *s, uint64_t now);
void ibmad_send_expire(struct send *s, uint64_t now);

/* ---- segments.c: RMPP of a port ---- */
void ibmad_segments_start(struct send *s, uint64_t now);
void ibmad_segments_again(struct send *s, uint64_t now);
/* ACK, STOP or ABORT for something that is being sent: true, it was. */
bool ibmad_segments_answered(
	struct ibmad_port *p, const struct ibmad_addr *from, const uint8_t mad[MAD_LEN], uint64_t now);
/* DATA, or an ABORT of what is being received, for an agent that does RMPP. */
void ibmad_segments_receive(
	struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t mad[MAD_LEN], uint64_t now);
void ibmad_recv_free(struct recv *r);
void ibmad_recv_expire(struct recv *r, uint64_t now);

/* ---- port.c ---- */
/* A message or a MAD for this agent; a response ends the transaction it belongs to, or is dropped without
 * one. */
void ibmad_give(struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t *msg, size_t len);

#endif
