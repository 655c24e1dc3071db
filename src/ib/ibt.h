/* SPDX-License-Identifier: MIT */
/*
 * The IBA transport: RC, UC and UD, for RoCEv2 and InfiniBand alike. IBA volume 1, chapter 9.
 *
 *   requester.c   turns send descriptors into packets; packet k of a request is computed from the request
 *                 and k, so sending again is computing again
 *   completer.c   acknowledges, NAKs, read responses, timeouts: moves `una`, completes or rewinds
 *   responder.c   the peer's requests, as small checks in spec order that give a verdict
 *   respond.c     answers: read responses, atomic results, ACKs and NAKs, in the order of the requests
 *   ud.c          datagrams
 *
 * PSNs of the send queue:
 *
 *        tail WQE                   next WQE                head
 *     ...[una ............ sent) [not sent yet ...... psn) ...
 *
 * [una, sent) is in flight and charged to the flow; a loss moves `sent` back.
 */
#ifndef IB_IBT_H
#define IB_IBT_H

#include "hca/qp.h"
#include "hca/transport.h"
#include "wire/ibt.h"

extern const struct hca_transport ibt_transport;

/* An answer the responder owes, in the order it will be given. */
struct ibt_answer {
	enum { ANSWER_READ, ANSWER_ATOMIC } kind;
	bool first_time;           /* not to a duplicate, for which the peer may have no more use */
	uint32_t psn, npkts, sent; /* sent: packets of it already given */
	uint32_t msn;
	uint64_t va;
	uint32_t rkey, len;
	uint64_t original; /* an atomic's result */
};

struct ibt_atomic {
	bool valid;
	uint32_t psn;
	uint64_t original;
};

enum { IBT_ANSWERS = 2 * HCA_MAX_RD_ATOMIC };

struct ibt_requester {
	uint32_t next;                /* index of the WQE whose packets go next */
	uint32_t pkt;                 /* which of its packets */
	uint32_t psn;                 /* first PSN not given to any WQE */
	uint32_t una, sent, high;     /* oldest not acknowledged; next to send; first never sent */
	uint32_t reads;               /* READ and atomic requests in flight */
	uint32_t chunk;               /* packets one READ request asks for: see requester.c */
	uint32_t unasked;             /* cost sent since an acknowledge was last asked for */
	bool credits_used;            /* the peer counts credits */
	int32_t credits;              /* messages that may still take a receive there */
	uint8_t retries, rnr_retries; /* left */
	uint64_t rnr_until;           /* 0: not waiting */
	uint64_t ack_by;              /* 0: nothing in flight */
	enum ibv_wc_status failed;    /* of WQE `next`: reported once those before it are done */
	uint32_t gap_psn;             /* a missing read response was asked for again at this PSN */
	bool gap_asked;
	bool cautious; /* the timer ran out: one packet at a time until something is acknowledged */
	uint32_t msn;  /* requests the peer has done, as it last said */
	enum ibv_wc_status doubted; /* what a NAK said that may be forged: see completer.c */
};

struct ibt_responder {
	uint32_t epsn, msn;
	bool in_message, is_write; /* between FIRST and LAST */
	bool discard;              /* UC: the rest of a message whose start was lost */
	uint32_t off;              /* bytes of it that arrived */
	struct reth reth;
	bool nak_sent; /* for the packet that is missing: once */
	bool ack_due;
	uint64_t asked_at; /* when an acknowledge was last asked for; 0: a request of our own has followed */
	int riders;        /* how often in a row such a request followed at once; see respond.c */
	bool ack_leaving;  /* built, maybe not sent yet: the engine sends answers without the QP's lock */
	bool nak_due;
	uint8_t nak_syndrome;
	uint32_t nak_psn;
	uint32_t careful; /* READs whose payload is copied before it is sent: see put_read() */
	struct ibt_answer answer[IBT_ANSWERS];
	uint32_t answer_head, answer_tail;
	struct ibt_atomic atomic[HCA_MAX_RD_ATOMIC];
	uint32_t atomic_next;
};

struct ibt_qp {
	struct ibt_requester req;
	struct ibt_responder resp;
};

static inline struct ibt_qp *ibt_qp(struct hca_qp *qp)
{
	return (struct ibt_qp *)qp->transport_state;
}

static inline uint8_t ibt_service(const struct hca_qp *qp)
{
	return hca_qp_type(qp) == IBV_QPT_RC ? IBT_RC : hca_qp_type(qp) == IBV_QPT_UC ? IBT_UC : IBT_UD;
}

static inline uint32_t ibt_mtu(const struct hca_qp *qp)
{
	return 128u << qp->attr.path_mtu;
}

static inline uint32_t ibt_npkts(uint32_t len, uint32_t mtu)
{
	return len ? (len - 1) / mtu + 1 : 1;
}

/* A received request or response, taken apart. */
struct ibt_packet {
	const struct ibt_op_info *op;
	uint8_t opcode;
	uint32_t psn;
	bool ackreq, solicited;
	const uint8_t *ext; /* extension headers, behind DETH for UD */
	const uint8_t *payload;
	uint32_t len; /* of payload, without pad */
};

/* requester.c */
bool ibt_request(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
void ibt_requester_start(struct hca_qp *qp);
/* Next packet: opcode, header room and payload pointers; NULL when the batch is full. */
struct frame_out *ibt_frame(struct frame_batch *out, uint8_t hdr_len);
/* Charged cost of PSNs [from, to), returned to the flows. */
void ibt_release(struct hca_qp *qp, uint32_t from, uint32_t to);
/* Sends again from this PSN on. */
void ibt_rewind(struct hca_qp *qp, uint32_t psn, uint64_t now);

/* completer.c */
void ibt_complete(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now);
void ibt_timer(struct hca_qp *qp, uint64_t now);
/* Ends requests that are done, reports a failed one when its turn has come, sets the timer. */
void ibt_settle(struct hca_qp *qp, uint64_t now);

/* responder.c, respond.c */
void ibt_respond_to(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now);
bool ibt_respond(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
/* An acknowledge is due; it may wait a moment for a request of our own. */
void ibt_ack_later(struct hca_qp *qp, uint64_t now);
/* Puts the acknowledge that is due in front of requests, so that a reply never overtakes it. */
void ibt_ack_first(struct hca_qp *qp, uint64_t now, struct frame_batch *out);

/* ud.c */
bool ibt_ud_request(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
void ibt_ud_receive(struct hca_qp *qp, const struct frame_in *in, const struct ibt_packet *p, uint32_t qkey,
	uint32_t src_qpn, uint64_t now);

#endif
