/* SPDX-License-Identifier: MIT */
/*
 * The MAD layer of an InfiniBand port: what Linux has in ib_mad and ib_umad between a program and QP0 and
 * QP1. Agents register for requests of a class; what they send gets a transaction id by which the response
 * finds them, is repeated when none comes, and is cut into segments when it is longer than a MAD
 * (mad/ib/rmpp.h).
 *
 * No I/O, no clock, one thread: MADs and the time come in, MADs and messages go out through struct ibmad_ops.
 * MADs that come in while one of these functions runs must wait: ops->send may not call ibmad_receive().
 * Memory is bounded per port: what would exceed it is refused.
 *
 * mad/agent.h is for another place: who, inside one process, takes the MADs of a RoCE adapter's QP1. Nothing
 * there is waited for or repeated, since the connection manager does that itself; what they share is
 * wire/mad_class.h.
 */
#ifndef MAD_IB_PORT_H
#define MAD_IB_PORT_H

#include "base/list.h"
#include "wire/mad_class.h"

#include <stddef.h>

enum {
	IBMAD_MAX_MESSAGE = 32 << 20, /* bytes of one message */
	IBMAD_MAX_HELD = 128 << 20,   /* bytes of all messages on their way, for one port */
	IBMAD_MAX_SENDS = 16384,      /* waiting for a response, for one agent */
	IBMAD_MAX_RECVS = 64,         /* coming in segments, for one agent */
	IBMAD_MAX_DONE = 256,         /* come in segments a short while ago */
};

/* Where a MAD goes, or where it came from. */
struct ibmad_addr {
	uint32_t qpn, qkey;
	uint16_t lid; /* the other's */
	uint8_t sl, path_bits;
	uint16_t pkey_index;
	bool grh;
	uint8_t gid_index, hop_limit, traffic_class;
	uint32_t flow_label;
	uint8_t gid[16]; /* the other's */
};

struct ibmad_reg {
	struct mad_class takes; /* class 0: takes no requests, whatever the mask */
	uint8_t oui[3];         /* for vendors' classes 0x30 to 0x4f */
	uint8_t qp;             /* 0 or 1 */
	uint8_t rmpp_version;   /* 1: messages, 0: MADs */
	bool user_rmpp;         /* the agent does segments itself */
};

struct ibmad_agent {
	struct list node;
	struct ibmad_port *port;
	struct ibmad_reg reg;
	uint32_t tid_high; /* of its requests */
	void *owner;
	struct list sends, recvs; /* struct send, struct recv (port_parts.h) */
	unsigned nsends, nrecvs, ndone;
};

struct ibmad_ops {
	/* One MAD, to be sent from QP0 or QP1. */
	void (*send)(void *arg, unsigned qp, const struct ibmad_addr *to, const uint8_t mad[MAD_LEN]);
	/*
	 * A message for an agent: status 0, or ETIMEDOUT with the address and the 24 bytes of header of what
	 * got no answer.
	 */
	void (*deliver)(void *arg, struct ibmad_agent *a, const struct ibmad_addr *from, unsigned status,
		const uint8_t *msg, size_t len);
};

struct ibmad_port {
	const struct ibmad_ops *ops;
	void *arg;
	struct list agents;
	uint32_t last_tid_high;
	uint64_t deadline; /* nothing is due before */
	size_t held;
};

void ibmad_port_init(struct ibmad_port *p, const struct ibmad_ops *ops, void *arg);
/* Agents that are left go with it. */
void ibmad_port_fini(struct ibmad_port *p);

/*
 * 0; -EINVAL: no such class, version, queue pair, or RMPP where the class has none; -EPERM: another agent
 * takes one of these methods; -ENOMEM.
 */
int ibmad_register(
	struct ibmad_port *p, const struct ibmad_reg *reg, void *owner, struct ibmad_agent **agent);
void ibmad_unregister(struct ibmad_agent *a);

/*
 * Sends a message, len bytes. timeout_ms: how long to wait for a response, 0: none is expected; retries: how
 * often to send it again. 0; -EINVAL: no message, or its transaction id is in use; -ENOMEM.
 */
int ibmad_send(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *msg, size_t len,
	unsigned timeout_ms, unsigned retries, uint64_t now);

/* A MAD has arrived: false, it was nobody's. */
bool ibmad_receive(struct ibmad_port *p, unsigned qp, const struct ibmad_addr *from,
	const uint8_t mad[MAD_LEN], uint64_t now);
/* What Linux answers to a request that nobody wants: false, it wants no answer. */
bool ibmad_unsupported(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN]);

static inline uint64_t ibmad_deadline(const struct ibmad_port *p)
{
	return p->deadline;
}
void ibmad_expire(struct ibmad_port *p, uint64_t now);

#endif
