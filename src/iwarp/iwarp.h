/* SPDX-License-Identifier: MIT */
/*
 * The iWARP transport: RDMAP over DDP over MPA, a TCP connection per queue pair. No socket, no clock, no
 * allocation: the owner of the socket (port.h) asks where bytes go and which bytes to send (life.h), and says
 * how many moved.
 *
 *   connect.c   opening: MPA's request and reply
 *   reader.c    the stream coming in, cut into segments      writer.c    the stream going out
 *   segment.c   a segment that arrives: checks in the order of the RFCs, and where its payload goes
 *   deliver.c   a segment that is complete: what it does
 *   request.c   the send queue as segments                   answer.c    READ and atomic responses
 *   error.c     TERMINATE, sent and received; what an error means for requests, receives, the queue pair
 *   life.c      the life of the connection
 *
 * TCP does not lose, so nothing is acknowledged and nothing kept: a SEND or WRITE is done when the socket has
 * taken its last byte (RFC 5040), a READ or atomic when its response is there. Completions are in
 * the order of the requests.
 */
#ifndef IWARP_IWARP_H
#define IWARP_IWARP_H

#include "hca/qp.h"
#include "iwarp/connect.h"
#include "iwarp/life.h"
#include "iwarp/reader.h"
#include "iwarp/writer.h"

/* How far a request is: hca_send_wqe.started. `psn` is its message number, `npkts` the bytes of a READ that
 * have come. */
enum { WQE_NEW, WQE_SENDING, WQE_ASKED /* READ, atomic: waits for its response */, WQE_DONE };

enum { SOURCE_NONE, SOURCE_REQUEST, SOURCE_ANSWER };

/* A READ or atomic of the peer that is to be answered. */
struct iwarp_answer {
	bool atomic;
	uint32_t sink_stag, stag, size, built;
	uint64_t sink_to, to;
	uint32_t id;
	uint64_t original;
};

struct iwarp_tx {
	uint32_t next;             /* the request whose segments go next */
	uint32_t off;              /* bytes of it that are in segments */
	bool in_answer;            /* an answer has begun: nothing comes between its segments */
	bool answer_turn;          /* answers and requests take turns */
	bool held;                 /* nothing is said yet: IWARP_GRACE, or until the RTR is there */
	uint8_t rtr_due;           /* MPA_RTR_*: the initiator's first FPDU */
	uint32_t msn[QN_COUNT];    /* of the next message to each queue of the peer */
	uint32_t reads;            /* requests in WQE_ASKED */
	enum ibv_wc_status failed; /* of request `next`: reported once those before it are done */
};

struct iwarp_rx {
	struct ddp_seg seg; /* the segment in hand */
	const struct rdmap_op *op;
	uint32_t len;
	bool in_hand, whole; /* whole: with its payload */
	uint8_t hdr[DDP_HDR_MAX];
	uint8_t body[64];       /* its payload, when that is for us and not for the program */
	uint32_t msn[QN_COUNT]; /* expected next */
	uint8_t message;        /* opcode of the message to QN_SEND in hand, */
	bool in_message;        /* when there is one, */
	uint32_t off;           /* and its bytes that have come */
	uint32_t written;       /* bytes of the WRITE in hand, or the last one */
	uint32_t writes;        /* that have ended */
	bool in_write, got_any, rtr_read;
	bool waiting; /* no receive is posted */
	uint64_t give_up_at;
	uint32_t request_status; /* enum ibv_wc_status of our own request, when the error is about its
				    response */
};

struct iwarp_qp {
	enum iwarp_life life;
	bool silent; /* what still comes in is dropped */
	struct iwarp_params params;
	struct iwarp_reader reader;
	struct iwarp_writer writer;
	struct iwarp_tx tx;
	struct iwarp_rx rx;
	struct iwarp_answer answer[HCA_MAX_RD_ATOMIC];
	uint32_t answer_head, answer_next, answer_tail; /* free running: asked, built, gone */
	uint64_t now;                                   /* of the call we are in */
};

_Static_assert(sizeof(((struct iwarp_rx *)0)->body) >= RDMAP_TERM_MAX, "a TERMINATE fits");

static inline struct iwarp_qp *iwarp_qp(struct hca_qp *qp)
{
	return qp->stream_state;
}

/* request.c */
/* Adds segments of requests, and with `driving` of answers, as long as there is room. */
void iwarp_build(struct hca_qp *qp, bool driving);
/* Ends requests that are done, and the failed one when its turn has come. */
void iwarp_settle(struct hca_qp *qp);
/* The oldest request that waits for a response; NULL: none. */
struct hca_send_wqe *iwarp_oldest_asked(struct hca_qp *qp, uint32_t *index);

/* answer.c */
bool iwarp_answer_owed(const struct iwarp_qp *s);
/* The next segment of the oldest answer; false: no room. */
bool iwarp_answer_build(struct hca_qp *qp);
bool iwarp_answer_gather(struct hca_qp *qp, const struct iwarp_fpdu *f, uint32_t off, uint32_t len,
	struct iovec *iov, unsigned *n);
/* Begins an FPDU: its DDP header, with room for an RDMAP header behind it. */
void iwarp_fpdu_begin(struct iwarp_fpdu *f, const struct ddp_seg *seg);

/* segment.c, deliver.c */
extern const struct iwarp_reader_ops iwarp_segment_ops;
int iwarp_deliver(struct hca_qp *qp);
/* Whether the key gives that right there; else the error to say. rdmap: with the codes of that layer, else
 * DDP's. */
enum rdmap_error iwarp_check_key(
	struct hca_qp *qp, uint32_t stag, uint64_t to, uint32_t len, unsigned access, bool rdmap);

/* error.c */
/* The connection ends for this reason: TERMINATE, completions, events, ERR. */
void iwarp_end(struct hca_qp *qp, enum rdmap_error error);
/* The same about a READ that was taken: its region went away since, or the program has unmapped it. */
void iwarp_end_answer(struct hca_qp *qp, uint32_t index);
/* The peer's TERMINATE. */
void iwarp_terminated(struct hca_qp *qp, const struct rdmap_term *t);
/* Request `index` ends with this status after those before it; ERR. */
void iwarp_fail_request(struct hca_qp *qp, uint32_t index, enum ibv_wc_status status);

#endif
