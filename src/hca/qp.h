/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: the send and receive queues, the state machine, completions and flushing. What goes on the
 * wire, and when a request is done, is the provider's business (hca/provider.h).
 *
 *            modify            modify            modify
 *   RESET ----------> INIT ----------> RTR ----------> RTS <------> SQD
 *     ^                                                 |  \
 *     | modify                          error (UC, UD)  v   \ error, modify
 *   any state                             also in SQD: SQE   `--> ERR  (from any state)
 *
 * Every arrow is hca_qp_set_state(). The table of attributes each arrow needs is in qp_attr.c.
 */
#ifndef HCA_QP_H
#define HCA_QP_H

#include "base/guard.h"
#include "fabric/tally.h"
#include "hca/cq.h"
#include "hca/engine.h"
#include "hca/mr.h"
#include "hca/path.h"
#include "hca/rq.h"
#include "hca/service.h"
#include "host/counters.h"
#include "local/export/export.h"

#include <infiniband/verbs.h>

struct hca_provider;
struct iwarp_conn;

enum {
	HCA_MAX_QP_WR = 16384,
	HCA_MAX_INLINE = 1024,
	HCA_MAX_RD_ATOMIC = 16,
	HCA_MAX_MSG = 0x80000000u, /* 2 GiB */
	HCA_DIRECT_MIN = 16384,    /* bytes that are worth a wait, see hca_qp.direct_min_len */
	HCA_BY_REF_MIN = 2048, /* bytes that a peer rather fetches than is sent, see hca_sge_goes_by_ref() */
};

struct hca_ah {
	struct ibv_ah ibv;
	struct hca_path path;
	struct ibv_ah_attr attr;
};

/*
 * One send descriptor. ibv_post_send and the ibv_wr_* builders both fill it through qp_send.c. The ring's
 * stride leaves room behind it for max_send_sge entries or max_inline_data bytes.
 */
struct hca_send_wqe {
	uint64_t wr_id;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint8_t flags;  /* IBV_SEND_*; IBV_SEND_INLINE: data[] holds the bytes */
	uint8_t nsge;
	uint8_t started; /* the transport has numbered its packets */
	uint32_t length;
	__be32 imm;          /* immediate data; or, host order, the rkey to invalidate */
	uint32_t psn, npkts; /* first PSN and number of PSNs, once started */
	bool by_ref;         /* it went as one frame by reference */
	uint32_t moved;      /* bytes of it that the initiator has moved by itself: ib/onesided.c */
	union {
		struct {
			uint64_t addr;
			uint32_t rkey;
			uint64_t compare_add, swap;
		} remote;
		struct {
			struct frame_dest dest; /* the handle's, which may be gone by now */
			uint32_t qpn, qkey;
		} ud;
		struct hca_bind bind;
	};
	union {
		struct ibv_sge sge[0];
		uint8_t data[0];
	};
};

static inline bool hca_wqe_is_read(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ;
}

static inline bool hca_wqe_is_atomic(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Whether the peer answers it with something of its own. */
static inline bool hca_wqe_has_response(const struct hca_send_wqe *w)
{
	return hca_wqe_is_read(w) || hca_wqe_is_atomic(w);
}

/* Whether no peer hears of it: see hca_qp_do_local(). */
static inline bool hca_wqe_is_local(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_BIND_MW || w->opcode == IBV_WR_LOCAL_INV;
}

/* What is wrong with it in itself, before any peer hears of it. depth: READs and atomics that may be out. */
static inline enum ibv_wc_status hca_wqe_check(const struct hca_send_wqe *w, unsigned depth)
{
	if (hca_wqe_has_response(w) && !depth)
		return IBV_WC_LOC_QP_OP_ERR;
	if (hca_wqe_is_atomic(w) && w->length != 8)
		return IBV_WC_LOC_LEN_ERR;
	return IBV_WC_SUCCESS;
}

/* head: next free; tail: oldest not completed. Free running; the transport has its own place between them. */
struct hca_sq {
	char *ring;
	size_t stride;
	uint32_t mask, max_wr, max_sge, max_inline;
	uint32_t head, tail;
};

/*
 * `lock` guards everything except the receive queue (its own lock) and the fields marked otherwise. Lock
 * order: drive lock, QP lock, then any of flow, rq, cq, channel.
 */
struct hca_qp {
	struct ibv_qp_ex ex; /* ex.qp_base is the program's struct ibv_qp */
	struct hca_context *ctx;
	struct hca_adapter *adapter;
	struct hca_pd *pd;
	struct hca_cq *send_cq, *recv_cq;
	struct hca_srq *srq;
	struct hca_provider *dev_provider; /* its device's */
	struct hca_provider *provider;     /* that one; or, of an iWARP connection whose ends are on one host,
					      that of frames. Changed under drive lock and lock */
	void *stream_state;                /* iWARP's: beside frame_state, since either may carry it */
	struct lock lock;
	struct lock post_lock; /* one poster at a time: guards free descriptors and wr_*; taken before lock */

	struct hca_service service;
	struct ibv_qp_attr attr; /* what modify set, as query reports it */
	struct ibv_qp_cap cap;
	bool by_modify; /* it is connected by modify, not by a manager of its provider: hca/kind.h */
	bool sig_all, wr_api, sqd_notify, sqd_drained_raised, last_wqe_raised, comm_est_raised;
	uint32_t direct_min_len; /* WRITEs and READs from this length on wait until they can be done without
			   the transport; 0: none does */
	bool direct_disabled;    /* it waited, and then could not; not again */
	bool moving;             /* the oldest request is being done by ourselves, and is not over */
	uint8_t generation;      /* counts resets, round and round */
	struct hca_path path; /* its port: until INIT the first, then as modify says; the rest: RC, UC: as at
				 RTR, UD: of the last datagram */
	struct local_seen seen;    /* RC, of a peer on this host: where we write to */
	struct local_seen source;  /* and fetch from */
	struct iwarp_conn *stream; /* its connection; changed under drive lock and lock; NULL: none */
	bool connecting;           /* which is not open yet: no request leaves */

	struct hca_sq sq;
	struct hca_rq rq;
	struct hca_recv recv;     /* the receive being filled */
	struct hca_key *last_key; /* of its own memory: the next is mostly the same */

	/* ibv_wr_*: descriptors between wr_start and wr_complete, from sq.head on */
	uint32_t wr_base, wr_head;
	int wr_err;
	struct hca_send_wqe *wr_wqe;

	/* engine's: timers (under the timer lock), list membership (under the drive lock) */
	uint64_t deadline;  /* the transport wants its timer at this time; 0: none */
	struct timer timer; /* comes then or before */
	struct list runnable_node, delayed_ack_node;
	bool more_answers;            /* than a round let out */
	struct list coalescing_node;  /* under the engine's coalesce_lock */
	uint32_t burst, burst_drives; /* see hca_engine_post(); lock */
	uint64_t burst_at;
	_Atomic uint64_t answer_at; /* the transport's: until then its acknowledge may wait for company */
	struct list flow_node;      /* under the lock of the flow below */
	struct hca_flow *waits_for;
	bool flow_closed; /* when it last asked */

	struct host_qp_counters *count;
	struct host_qp_counters own_count; /* when the registry has no record left */
	struct tally *tally;               /* on a fabric: of the way that it sent by last; NULL: none yet */

	_Alignas(64) char frame_state[];
};

static inline struct hca_qp *hca_qp(struct ibv_qp *qp)
{
	return (struct hca_qp *)qp;
}

static inline uint32_t hca_qpn(const struct hca_qp *qp)
{
	return qp->ex.qp_base.qp_num;
}

static inline enum ibv_qp_state hca_qp_state(const struct hca_qp *qp)
{
	return __atomic_load_n(&qp->ex.qp_base.state, __ATOMIC_RELAXED); /* posters look without the lock */
}

/* A probe of a QP, whose lock is held (observe/probe.h): counts, and tells who listens. */
#define hca_qp_probe(qp, name, ...)                                                                          \
	do {                                                                                                 \
		host_count_qp_##name((qp)->count);                                                           \
		PROBE(name, .qpn = hca_qpn(qp), ##__VA_ARGS__);                                              \
	} while (0)

/* What carries it, for who posts and has no lock; and its change, under drive lock and lock. */
static inline struct hca_provider *hca_qp_provider(const struct hca_qp *qp)
{
	return __atomic_load_n(&qp->provider, __ATOMIC_RELAXED);
}

static inline void hca_qp_set_provider(struct hca_qp *qp, struct hca_provider *p)
{
	__atomic_store_n(&qp->provider, p, __ATOMIC_RELAXED);
}

static inline enum ibv_qp_type hca_qp_type(const struct hca_qp *qp)
{
	return qp->ex.qp_base.qp_type;
}

static inline struct hca_send_wqe *hca_sq_at(const struct hca_sq *sq, uint32_t i)
{
	return (struct hca_send_wqe *)(sq->ring + (size_t)(i & sq->mask) * sq->stride);
}

/* The engine's timer comes early enough for qp->deadline, or is set; qp->lock held. */
static inline void hca_engine_arm(struct hca_engine *e, struct hca_qp *qp)
{
	if (qp->deadline && !timer_is_by(&qp->timer, qp->deadline))
		hca_engine_arm_now(e, qp);
}

/* ---- life (qp.c) ---- */
struct hca_qp *hca_qp_create(struct hca_context *ctx, struct ibv_qp_init_attr_ex *attr);
int hca_qp_destroy(struct hca_qp *qp);
int hca_qp_modify(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask);
int hca_qp_query(struct hca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);

/* It is connected: says and counts by which path. Drive lock held. */
void hca_qp_count_path(struct hca_qp *qp);

/* The one door for state changes; qp->lock held. Flushes on the way to ERR. */
void hca_qp_set_state(struct hca_qp *qp, enum ibv_qp_state to);

/* Checks `mask` against the table for this arrow: 0 or EINVAL (qp_attr.c). */
int hca_qp_check_attr(const struct hca_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask);
/* Whether the state machine has this arrow at all, by modify or by error. */
bool hca_qp_has_arrow(enum ibv_qp_state from, enum ibv_qp_state to);
const char *hca_qp_state_name(enum ibv_qp_state s);

/* What it sends by from now on; takes the reference. It waits for no other any more. qp->lock held. */
void hca_qp_set_flow(struct hca_qp *qp, struct hca_flow *f);
/* On a fabric: its P_Key is that of its index as the subnet manager has it now. Whether it was another;
 * qp->lock held. */
bool hca_qp_follow_pkey(struct hca_qp *qp);
/*
 * On a fabric: so many packets go past the switches, that way or back it. bytes: from the BTH to the pad;
 * qp->lock held. And it goes no way any more.
 */
void hca_qp_tally(struct hca_qp *qp, const struct frame_dest *to, enum tally_direction direction,
	uint64_t packets, uint64_t bytes);
void hca_qp_leave_tally(struct hca_qp *qp);
/*
 * Takes cost from the window of a flow; false: closed, and the engine calls request() again when it opens.
 * qp->lock held.
 */
bool hca_qp_flow_take(struct hca_qp *qp, struct hca_flow *f, uint32_t cost, bool stuck);
bool hca_qp_flow_take_unreliable(
	struct hca_qp *qp, struct hca_flow *f, uint32_t cost, uint64_t now, uint64_t *ask);

/* ---- posting (qp_send.c); the front calls these ---- */
int hca_qp_post_send(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int hca_qp_post_recv(struct hca_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int hca_qp_bind_mw(struct hca_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* Fills the ibv_wr_* pointers. */
void hca_qp_wr_init(struct hca_qp *qp, uint64_t send_ops);

/* ---- for transports; qp->lock held ---- */
/*
 * Ends the oldest send request with this status; a success is reported only when the program asked for it. A
 * report the CQ has no room for puts the QP into ERR.
 */
void hca_qp_complete_send(struct hca_qp *qp, enum ibv_wc_status status, uint64_t now);
/* A request or the queue failed: ends the oldest with `status`, then ERR (SQE for UC and UD). */
void hca_qp_fail_send(struct hca_qp *qp, enum ibv_wc_status status, uint64_t now);
/* A request that no peer hears of: binds a window or takes a key away. */
enum ibv_wc_status hca_qp_do_local(struct hca_qp *qp, const struct hca_send_wqe *w);
/* Takes a receive into qp->recv; false: none posted. */
bool hca_qp_take_recv(struct hca_qp *qp);
/* A completion found no room: ERR. */
void hca_qp_completion_lost(struct hca_qp *qp);
/*
 * Completes qp->recv. wc brings opcode, byte_len, flags and the like. false: the CQ had no room, and the QP
 * is in ERR.
 */
bool hca_qp_complete_recv(struct hca_qp *qp, struct ibv_wc *wc, bool solicited, uint64_t now);
/* The same written once, where it is read: all of *wc, which is recv_cq's until hca_cq_put(); NULL: no room.
 */
static inline struct ibv_wc *hca_qp_recv_wc(struct hca_qp *qp)
{
	struct ibv_wc *wc = hca_cq_place(qp->recv_cq);

	assert_locked(&qp->lock);
	qp->recv.valid = false;
	if (!wc)
		hca_qp_completion_lost(qp);
	return wc;
}

/* The responder met an error: the receive in hand, if any, ends with status; event; ERR. */
void hca_qp_fail_recv(struct hca_qp *qp, enum ibv_wc_status status, enum ibv_event_type event, uint64_t now);
void hca_qp_raise(struct hca_qp *qp, enum ibv_event_type event);
/* Nothing of the send queue is under way: a program that waits for that in SQD is told, once. */
void hca_qp_drained(struct hca_qp *qp);

/*
 * Points iov[0..*n) at bytes [off, off + len) of a list of entries, checking every key again, since a region
 * may be gone by now. false: local protection error.
 */
bool hca_sge_gather(struct hca_qp *qp, const struct ibv_sge *sge, unsigned nsge, uint32_t off, uint32_t len,
	unsigned access, struct iovec *iov, unsigned max, unsigned *n);
/* The same of a send request, whose bytes may also lie in the descriptor. */
static inline bool hca_wqe_gather(struct hca_qp *qp, struct hca_send_wqe *w, uint32_t off, uint32_t len,
	unsigned access, struct iovec *iov, unsigned max, unsigned *n)
{
	if (!(w->flags & IBV_SEND_INLINE))
		return hca_sge_gather(qp, w->sge, w->nsge, off, len, access, iov, max, n);
	iov[0] = (struct iovec){w->data + off, len};
	*n = len ? 1 : 0;
	return true;
}

/*
 * Whether it pays that a peer on this host fetches the bytes of a request itself (base/frame.h: by
 * reference), and it may: every key is right.
 */
bool hca_sge_goes_by_ref(struct hca_qp *qp, const struct hca_send_wqe *w);
/* Copies to where hca_sge_gather() points; false: memory is gone. */
static inline bool hca_iov_fill(const struct iovec *iov, unsigned n, const void *src)
{
	const char *from = src;

	for (unsigned i = 0; i < n; i++) {
		if (!guard_copy(iov[i].iov_base, from, iov[i].iov_len))
			return false;
		from += iov[i].iov_len;
	}
	return true;
}

/* Both: copies into a list of entries; false: local protection error. */
bool hca_sge_scatter(struct hca_qp *qp, const struct ibv_sge *sge, unsigned nsge, uint32_t off,
	const void *src, uint32_t len);

/* ---- what a peer may do with our memory; under the drive lock ---- */
/* Whether the queue pair lets its peer do that anywhere. */
static inline bool hca_qp_allows(const struct hca_qp *qp, unsigned right)
{
	return (qp->attr.qp_access_flags & right) == right;
}

/*
 * Where [addr, addr + len) of a key is in this process; NULL: the key is not known, of another PD or queue
 * pair, the range leaves it, or it does not give that right.
 */
static inline void *hca_qp_target(
	struct hca_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, unsigned right)
{
	void *at = hca_key_at(hca_key_find(qp->adapter, rkey), qp->pd, rkey, addr, len, right, hca_qpn(qp));

	if (!at)
		hca_key_refused(rkey, addr, len, right, hca_qpn(qp));
	return at;
}

/* Both, for a request that begins: one of no bytes needs no key (IBA C9-88). */
static inline bool hca_qp_grants(
	struct hca_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, unsigned right)
{
	return hca_qp_allows(qp, right) && (!len || hca_qp_target(qp, rkey, addr, len, right));
}

/*
 * A peer's atomic on an aligned word of ours: one step, whoever else acts there, that makes of it what
 * `result` says. *original: what was there. false: the memory is gone.
 */
typedef uint64_t hca_atomic_fn(const void *op, uint64_t original);
bool hca_atomic(uint64_t *at, hca_atomic_fn *result, const void *op, uint64_t *original);

#endif
