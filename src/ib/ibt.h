/* SPDX-License-Identifier: MIT */
/*
 * The IBA transport: RC, UC and UD, for RoCEv2 and InfiniBand alike. IBA volume 1, chapter 9.
 *
 *   requester.c   the send queue, in order
 *   packet.c      its packets; packet k of a request is computed from the request and k, so sending again
 *                 is computing again
 *   flight.c      what is in flight, and charged to the flows
 *   resend.c      what goes again by itself
 *   completer.c   acknowledges, NAKs, read responses: moves `acked` and `una`, completes or rewinds
 *   recovery.c    what does not come back: timers, the probe, going back
 *   responder.c   the peer's requests, as small checks in spec order that give a verdict
 *   execute.h     what a SEND or WRITE does there, by packets or as a whole
 *   answer.c      answers: read responses, atomic results, ACKs and NAKs, in the order of the requests
 *   ud.c          datagrams
 *   fastpath.c    the usual case on one host
 *   by_reference.c whole messages whose bytes the receiver fetches itself
 *   tally.c       what a fabric's ports would have counted of that
 *
 * PSNs of the send queue:
 *
 *        tail WQE                                      next WQE                head
 *     ...[una .......... acked) [acked ......... sent) [not sent yet ...... psn) ...
 *
 * [una, sent) is charged to the flows. The peer has executed everything before `acked`; what is missing
 * before it are READ and atomic responses, each asked for again by itself. [acked, sent) is in flight; a loss
 * there moves `sent` back, never below `acked`.
 */
#ifndef IB_IBT_H
#define IB_IBT_H

#include "base/streak.h"
#include "hca/flow.h"
#include "hca/port.h"
#include "hca/provider.h"
#include "hca/qp.h"
#include "wire/ibt.h"

/* What ibt_request_fast() says. */
enum ibt_fast {
	FAST_FRAME,   /* a frame is to be sent */
	FAST_IDLE,    /* there is nothing more, or nothing before something of ours is executed */
	FAST_DECLINE, /* this needs ibt_request() */
};

/*
 * Copies bytes [off, off + len) of the payload of a frame by reference out of the sender's memory, the last
 * ones last; false: that cannot be done, or not of all.
 */
typedef bool ibt_fetch_fn(void *arg, uint32_t off, const struct iovec *to, unsigned n, uint32_t len);

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

enum {
	IBT_ANSWERS = 2 * HCA_MAX_RD_ATOMIC,
	IBT_AHEAD =
		1024, /* responses that can be kept behind a missing one: a window of the smallest packets */
	IBT_BY_REF_COST = FLOW_PACKET,
	IBT_PSNS_OUT = 1 << 22, /* less than half of all, or nobody could tell old from new */
};

/* See recovery.c. */
struct ibt_recovery {
	uint64_t ack_by;   /* the spec's timer; 0: not running */
	uint64_t probe_at; /* the early one; 0: not running */
	uint64_t held;     /* see ibt_path_holds(): where it waits for its reader; 0: nowhere */
	uint64_t held_since;
	uint8_t probes; /* since the last progress: each doubles the wait for the next */
	bool probe_due;
	bool probe_again; /* at once, should the answer show that only acknowledges were lost up to there */
	bool cautious;    /* the spec's timer ran out: one packet at a time until something is acknowledged */
	uint32_t probe_psn;
	struct hca_flow *probe_flow; /* a probe is out, and charged here */
	uint32_t probe_cost;
	bool stuck;        /* the flow we wait for does not move: see ibt_timer() */
	uint64_t stuck_at; /* when to look again; 0: not waiting */
	uint64_t released; /* of that flow, when we last looked */
	bool timing;       /* timed_psn was sent at timed_at, once */
	uint32_t timed_psn;
	uint64_t timed_at;
	uint64_t srtt, rttvar; /* ns; srtt 0: never measured */
	bool moved;            /* by fastpath.c, since the timers were set */
	uint32_t nak_psn;      /* where a sequence NAK last made us go back, and when */
	uint64_t nak_at;
};

struct ibt_requester {
	uint32_t next;       /* index of the WQE whose packets go next */
	uint32_t pkt;        /* which of its packets */
	uint32_t psn;        /* first PSN not given to any WQE */
	uint32_t una, acked; /* oldest not done; first that the peer is not known to have executed */
	uint32_t sent, high; /* next to send; first never sent */
	uint32_t asked;      /* before it, what is missing was looked for */
	/* Responses in [una, acked) that have come, and that were asked for again; a bit per PSN, modulo. */
	uint64_t got[IBT_AHEAD / 64], again[IBT_AHEAD / 64];
	uint32_t reads;                    /* READ and atomic requests in flight */
	uint32_t chunk;                    /* packets one READ request asks for: see requester.c */
	uint32_t unasked;                  /* cost sent since an acknowledge was last asked for */
	uint32_t by_ref_pause;             /* looks at messages before one goes by reference again */
	bool credits_used;                 /* the peer counts credits */
	int32_t credits;                   /* messages that may still take a receive there */
	uint8_t retries, rnr_retries;      /* left */
	uint64_t rnr_until;                /* 0: not waiting */
	enum ibv_wc_status failed;         /* of WQE `next`: reported once those before it are done */
	uint32_t msn;                      /* requests the peer has done, as it last said */
	enum ibv_wc_status nak_unverified; /* what a NAK said that may be forged: see completer.c */
	uint32_t nak_unverified_psn;       /* and about what */
	struct ibt_recovery rec;
};

struct ibt_responder {
	uint32_t epsn, msn;
	uint32_t ack_psn;          /* what an acknowledge names: the last SEND or WRITE packet executed */
	bool in_message, is_write; /* between FIRST and LAST */
	bool discard;              /* UC: the rest of a message whose start was lost */
	uint32_t disorder;         /* UC: packets until the order can be relied on again; see is_late() */
	uint32_t last[2];          /* UC: PSN that came last, beside shared memory and through it */
	uint32_t overtaken;        /* UC: packets in a row that others had overtaken */
	uint32_t off;              /* bytes of it that arrived */
	struct reth reth;
	bool nak_sent; /* for the packet that is missing: once */
	bool gap;      /* gap_shown came ahead of its turn */
	bool gap_past; /* and others behind it */
	uint32_t gap_shown;
	bool ack_due;
	uint64_t ack_asked_at; /* when an acknowledge was last asked for; 0: a request of our own has followed
				*/
	struct streak piggyback; /* such a request follows at once; see answer.c */
	bool ack_leaving; /* built, maybe not sent yet: the engine sends answers without the QP's lock */
	bool nak_due;
	uint8_t nak_syndrome;
	uint32_t nak_psn;
	uint32_t stage_reads; /* READs whose payload is copied before it is sent: see put_one() */
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
	return (struct ibt_qp *)qp->frame_state;
}

static inline uint8_t ibt_service(const struct hca_qp *qp)
{
	return qp->service.opcodes;
}

static inline uint32_t ibt_mtu(const struct hca_qp *qp)
{
	return hca_mtu_bytes(qp->path.mtu);
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
	bool local;         /* through shared memory: nobody can have forged it */
	bool handed;        /* by another process (link/steer.h): others may overtake it, and it them */
	const uint8_t *ext; /* extension headers, behind DETH for UD */
	const uint8_t *payload;
	uint32_t len; /* of payload, without pad */
};

/* Whether an opcode is that of a message which may be executed as a whole: see execute.h. */
static inline bool ibt_is_whole(uint8_t opcode)
{
	enum {
		OPS = 1 << OP_SEND_ONLY | 1 << OP_SEND_ONLY_IMM | 1 << OP_WRITE_ONLY | 1 << OP_WRITE_ONLY_IMM
	};

	return (opcode & IBT_SERVICE_MASK) == IBT_RC && (OPS >> (opcode & 0x1f) & 1);
}

/*
 * Takes a frame apart once its opcode, p->op and p->opcode, and the place of its extension headers are known.
 * Bounds first: after this, every header the opcode promises is there. Lengths are read once: what lies in a
 * ring its sender may still change.
 */
static inline bool ibt_parse(const struct frame_in *in, uint32_t ext, struct ibt_packet *p)
{
	const uint8_t *b = in->bytes;
	uint32_t hdr = ext + p->op->ext_len, pad = bth_pad(b);

	if (in->len < hdr + pad)
		return false;
	if (in->payload_ext && hdr != in->head_len)
		return false;
	p->ext = b + ext;
	p->payload = in->payload_ext ? in->payload_ext : b + hdr;
	p->len = in->len - hdr - pad;
	p->psn = bth_psn(b);
	p->ackreq = bth_ackreq(b);
	p->solicited = bth_solicited(b);
	p->local = in->local;
	p->handed = in->handed;
	return true;
}

/* Under which a link confirms our packets: this QP, since its last reset. */
static inline uint32_t ibt_cookie(const struct hca_qp *qp)
{
	return hca_qpn(qp) | (uint32_t)qp->generation << 24;
}

/* Nothing of it is open; one that has not begun is not done. */
static inline bool ibt_is_done(const struct ibt_requester *r, const struct hca_send_wqe *w)
{
	return w->started && psn_diff(r->una, psn_add(w->psn, w->npkts)) >= 0;
}

static inline bool ibt_got(const struct ibt_requester *r, uint32_t psn)
{
	return psn_diff(psn, r->una) < IBT_AHEAD && (r->got[psn % IBT_AHEAD / 64] >> psn % 64 & 1);
}

static inline void ibt_got_flip(struct ibt_requester *r, uint32_t psn)
{
	r->got[psn % IBT_AHEAD / 64] ^= 1ull << psn % 64;
}

static inline bool ibt_again(const struct ibt_requester *r, uint32_t psn)
{
	return r->again[psn % IBT_AHEAD / 64] >> psn % 64 & 1;
}

static inline void ibt_again_set(struct ibt_requester *r, uint32_t psn, bool on)
{
	uint64_t *word = &r->again[psn % IBT_AHEAD / 64], bit = 1ull << psn % 64;

	*word = on ? *word | bit : *word & ~bit;
}

/* requester.c */
bool ibt_request(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
void ibt_requester_start(struct hca_qp *qp);
static inline bool ibt_takes_receive(const struct hca_send_wqe *w)
{
	return w->opcode != IBV_WR_RDMA_WRITE && !hca_wqe_has_response(w) && !hca_wqe_is_local(w);
}

/* It is the next in number, and has begun. */
static inline void ibt_number(struct ibt_requester *r, struct hca_send_wqe *w, uint32_t npkts)
{
	w->psn = r->psn;
	w->npkts = npkts;
	w->started = 1;
	r->psn = psn_add(r->psn, npkts);
	r->pkt = 0;
	if (ibt_takes_receive(w))
		r->credits--;
}

/* Whether a request that has not begun may begin now. */
bool ibt_may_start(struct hca_qp *qp, const struct hca_send_wqe *w);

/* flight.c */
/* Charged cost of PSNs [from, to), returned to the flows. */
void ibt_release(struct hca_qp *qp, uint32_t from, uint32_t to);
/* Nothing is in flight any more: everything charged goes back to the flows. */
void ibt_release_all(struct hca_qp *qp);
/* The started request that has this PSN; NULL: none. */
struct hca_send_wqe *ibt_wqe_at(struct hca_qp *qp, uint32_t psn);
/* The next packet to send is this one: back for a loss, or ahead when it has arrived after all. */
void ibt_move_to(struct hca_qp *qp, uint32_t psn);

/* resend.c */
/* Everything that is missing is asked for once more. */
void ibt_ask_again(struct ibt_requester *r);

/* packet.c */
/* The opcode of a SEND or WRITE that is one packet, by enum ibv_wr_opcode; 0: it is neither. */
extern const uint8_t ibt_only_op[];
/* All headers of a packet of a SEND or WRITE; f->pad is known by now. */
static inline void ibt_put_headers(struct hca_qp *qp, const struct hca_send_wqe *w, uint8_t op, uint32_t psn,
	bool ask, struct frame_out *f)
{
	const struct ibt_op_info *info = &ibt_op_table[op];
	uint8_t *ext = f->hdr + BTH_LEN;

	bth_put(f->hdr, ibt_service(qp) | op, (info->flags & OPF_END) && (w->flags & IBV_SEND_SOLICITED),
		f->pad, qp->path.pkey, qp->attr.dest_qp_num, ask, psn);
	if (info->flags & OPF_RETH) {
		reth_put(ext, w->remote.addr, w->remote.rkey, w->length);
		ext += RETH_LEN;
	}
	if (info->flags & OPF_IMM)
		memcpy(ext, &w->imm, IMM_LEN);
	if (info->flags & OPF_IETH)
		put_be32(ext, w->imm);
	f->hdr_len = (uint8_t)(BTH_LEN + info->ext_len);
}

/* Next packet: header room and payload pointers; NULL when the batch is full. */
struct frame_out *ibt_frame(struct frame_batch *out, uint8_t hdr_len);
/* How many packets of a message of npkts, from k on, are in its middle and can leave as one piece. */
uint32_t ibt_middles(struct hca_qp *qp, uint32_t k, uint32_t npkts, const struct frame_batch *out);
/* Puts n such packets: nothing but a BTH, and a path MTU of bytes each, which follow each other in memory. */
void ibt_put_middles(
	struct hca_qp *qp, uint8_t op, uint32_t psn, char *from, uint32_t n, struct frame_batch *out);

/* completer.c */
/* Ends those that are done: all before `una`. */
static inline void ibt_complete_done(struct hca_qp *qp, uint64_t now)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;

	while (qp->sq.tail != r->next && ibt_is_done(r, hca_sq_at(&qp->sq, qp->sq.tail)))
		hca_qp_complete_send(qp, IBV_WC_SUCCESS, now);
}

void ibt_complete(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now);
/* Ends requests that are done, reports a failed one when its turn has come, sets the timers. */
void ibt_settle(struct hca_qp *qp, uint64_t now);
/* The peer has executed everything before `to`; ends what is done. */
void ibt_acknowledge(struct hca_qp *qp, uint32_t to, uint64_t now);
/* The oldest request ends with this status, after those before `psn`. */
void ibt_fail_at(struct hca_qp *qp, uint32_t psn, enum ibv_wc_status status, uint64_t now);

/* path.c */
/*
 * Whether what was sent lies in memory where the peer, which is alive, has not got round to it: then it is
 * not lost. *mark: of what this is asked; 0: of all that lies there now.
 */
bool ibt_path_holds(struct hca_qp *qp, uint64_t *mark);

/* recovery.c */
void ibt_timer(struct hca_qp *qp, uint64_t now);
/* Brings qp->deadline in line with what is in flight; restart: the peer was just heard. */
void ibt_set_timers(struct hca_qp *qp, uint64_t now, bool restart);
/*
 * For a packet that leaves without a look at the clock: whether no timer runs that should; and it runs, from
 * a time that may be some milliseconds old, which it is late by.
 */
static inline bool ibt_lacks_timer(const struct hca_qp *qp)
{
	return !qp->deadline && qp->attr.timeout;
}
void ibt_set_lazy_timer(struct hca_qp *qp, uint64_t coarse);
/* `una` or `acked` has moved. */
void ibt_progress(struct hca_qp *qp, uint64_t now);
/* A packet leaves for the first time. */
void ibt_time_packet(struct ibt_requester *r, uint64_t now);
/* A NAK says that the peer waits for `psn`. */
void ibt_sequence_nak(struct hca_qp *qp, uint32_t psn, uint64_t now);
/* Whether this is what a probe would be answered by; then, once it has been taken in, what it means. */
bool ibt_answers_probe(const struct ibt_requester *r, const struct ibt_packet *p);
void ibt_probe_answered(struct hca_qp *qp, uint64_t now);
void ibt_probe_forget(struct ibt_requester *r);

/* responder.c, answer.c */
/* A packet that is expected was lost on its way: it is asked for. */
void ibt_respond_lost(struct hca_qp *qp);
/* Whether it was executed, now or before. */
bool ibt_respond_to(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now);
bool ibt_respond(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
/* An acknowledge is due; it may wait a moment for a request of our own. */
void ibt_delay_ack(struct hca_qp *qp, uint64_t now);
/* Puts the acknowledge that is due in front of requests, so that a reply never overtakes it. */
void ibt_flush_ack(struct hca_qp *qp, uint64_t now, struct frame_batch *out);

/*
 * transport.c: what port.c calls. No I/O, no clock, no allocation: it is told the time, is handed frames, and
 * fills frames to send. Everything with qp->lock held. The first three as in hca/provider.h.
 */
void ibt_reset(struct hca_qp *qp);
void ibt_abort(struct hca_qp *qp);
void ibt_modified(struct hca_qp *qp, int mask, uint64_t now);
/*
 * Requests of our send queue. Fills `out` (which is empty) with frames to one destination; true: call again
 * after sending them. May run in the thread that posts, beside the responder of other QPs.
 */
bool ibt_requests(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
/* Answers to the peer's requests; only under the drive lock, since it reads the peer's targets. */
bool ibt_answers(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
/* What ibt_answers() filled has been sent. */
void ibt_answered(struct hca_qp *qp);
/*
 * A frame for this QP; under the drive lock. Answers and requests may follow from it. Whether it was
 * executed, now or before, as far as its sender can be told so.
 */
bool ibt_receive(struct hca_qp *qp, const struct frame_in *in, uint64_t now);
/* The same for a packet that is in a frame, or stands for a part of it. */
bool ibt_receive_packet(
	struct hca_qp *qp, const struct frame_in *in, const struct ibt_packet *p, uint64_t now);
/*
 * For requests that are done without packets (onesided.c): whether nothing of the send queue has begun, so
 * that the oldest request may be done elsewhere; and that it was, and is completed.
 */
bool ibt_nothing_started(struct hca_qp *qp);
void ibt_skip_oldest(struct hca_qp *qp);
/*
 * Nothing of it is on its way, neither requests nor answers that are known: another path may overtake
 * nothing. An acknowledge that is due has not left, and goes the other way. Two that stream to each other
 * always owe one: their requests carry it.
 */
bool ibt_is_idle(struct hca_qp *qp);
/* It is, and another path is taken: the acknowledge that left last goes once more, in front of a reply. */
void ibt_ack_again(struct hca_qp *qp);
/* Requests leave by another path from now on: none is done half by ourselves. */
void ibt_leave_onesided(struct hca_qp *qp);

/* by_reference.c */
/* For fastpath.c: puts a request that has not begun; false: it goes by packets. */
bool ibt_put_by_ref(struct hca_qp *qp, struct hca_send_wqe *w, struct frame_out *f, struct iovec *iov);
/* ibt_receive() for a frame by reference: a whole message. What cannot be fetched is asked for again. */
bool ibt_receive_by_ref(
	struct hca_qp *qp, const struct frame_in *in, ibt_fetch_fn *fetch, void *arg, uint64_t now);
/* The path does not take frames by reference: the last one is sent again, and there are no more. */
void ibt_by_ref_failed(struct hca_qp *qp);
/* The peer asks for this packet again: if it went by reference, that is not for it. */
void ibt_by_ref_refused(struct hca_qp *qp, uint32_t psn);

/*
 * fastpath.c: the usual case of a path that loses nothing, changes no order, and tells what was executed
 * (local_channel_put()): one frame, nothing unusual before it, no clock. What it leaves is for the functions
 * above.
 */
/* The packet of this number is the one that the responder waits for, and nothing is unusual about it. */
bool ibt_is_next(struct hca_qp *qp, const struct frame_in *in, uint32_t psn);
enum ibt_fast ibt_request_fast(struct hca_qp *qp, struct frame_out *f, struct iovec *iov);
/* Executed, and there is nothing to answer or to send. */
bool ibt_receive_fast(struct hca_qp *qp, const struct frame_in *in);
/*
 * The peer has executed what we sent under this cookie, up to this PSN; or (done false) has not. now 0:
 * nobody has looked at the clock; false: somebody has to, and call again.
 */
bool ibt_executed(struct hca_qp *qp, uint32_t cookie, uint32_t psn, bool done, uint64_t now);

/*
 * path.c: of the port, but it does no I/O either. The queue pair of a datagram sends to this destination from
 * now on. A process of this host that is not reached through shared memory yet is asked by the driving
 * thread, and meanwhile the datagram goes over UDP.
 */
void ibt_path_aim(struct hca_qp *qp, const struct frame_dest *dest, uint32_t qpn);

/* tally.c */
/* Frames of the batch from `first` on go through shared memory. */
void ibt_tally_frames(struct hca_qp *qp, const struct frame_batch *b, unsigned first);
/* A SEND or WRITE went as one frame. */
void ibt_tally_message(struct hca_qp *qp, const struct hca_send_wqe *w);
/* The initiator did it itself, and what the peer would have answered. */
void ibt_tally_onesided(struct hca_qp *qp, const struct hca_send_wqe *w);

/* ud.c */
bool ibt_ud_request(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
void ibt_ud_receive(struct hca_qp *qp, const struct frame_in *in, const struct ibt_packet *p, uint32_t qkey,
	uint32_t src_qpn, uint64_t now);

#endif
