/* SPDX-License-Identifier: MIT */
/* Completion queues and completion channels. */
#ifndef HCA_CQ_H
#define HCA_CQ_H

#include "hca/evq.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>

struct hca_context;

struct hca_channel {
	struct ibv_comp_channel ibv;
	struct hca_evq q;
};

struct hca_cqe {
	struct ibv_wc wc;
	uint64_t ns; /* when it was made */
};

enum hca_cq_arm { CQ_NOT_ARMED, CQ_ARMED_SOLICITED, CQ_ARMED };

/*
 * `lock` guards the ring and the arming; it is the innermost lock but for the channel's, and nothing is
 * called with it held except hca_evq_signal.
 */
struct hca_cq {
	struct ibv_cq_ex ex; /* begins like struct ibv_cq; in use by everyone as ibv_cq */
	struct hca_context *ctx;
	struct hca_channel *channel;
	struct lock lock;
	struct hca_cqe *ring;
	uint32_t mask;               /* ring size - 1 */
	uint32_t capacity;           /* what the user was promised */
	_Atomic uint32_t head, tail; /* push at head, poll at tail */
	enum hca_cq_arm armed;
	uint64_t last_ns;    /* of the newest completion */
	uint32_t event_head; /* head when an event was last made */
	bool overrun;
	_Atomic bool streams;         /* of queue pairs whose requests are done when they have left */
	bool stamps;                  /* somebody will ask when completions were made */
	_Atomic unsigned empty_polls; /* in a row */
	_Atomic unsigned looks;       /* of polls that only looked, see hca_engine_poll() */
	unsigned queued_events;       /* in the channel, not yet read; under channel->q.lock */
	unsigned reported_events;     /* read, maybe not acknowledged; likewise */
	struct list event_node;
	struct hca_cqe cursor;  /* the CQE_EX reader's current entry */
	_Atomic unsigned users; /* QPs and SRQs */
};

static inline struct hca_cq *hca_cq(struct ibv_cq *c)
{
	return (struct hca_cq *)c;
}

struct hca_channel *hca_channel_create(struct hca_context *ctx);
int hca_channel_destroy(struct hca_channel *ch);
/* The next event's CQ, waiting as the descriptor's flags say: 0 or -errno */
int hca_channel_get(struct hca_channel *ch, struct hca_cq **cq);
void hca_cq_ack(struct hca_cq *cq, unsigned n);

struct hca_cq *hca_cq_create(
	struct hca_context *ctx, unsigned cqe, void *user, struct hca_channel *ch, int vector);
int hca_cq_resize(struct hca_cq *cq, unsigned cqe);
int hca_cq_destroy(struct hca_cq *cq);

/*
 * Adds a completion and wakes the channel when armed for it. false: the queue is full and the completion
 * lost; the first time raises the queue's event. now 0: nobody has looked at the clock.
 */
bool hca_cq_push(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited, uint64_t now);
/*
 * The same in two steps: a place to write the completion to, with the queue locked until hca_cq_put(); NULL:
 * there is none, and it is not locked.
 */
struct ibv_wc *hca_cq_place(struct hca_cq *cq);
void hca_cq_put(struct hca_cq *cq, bool solicited, uint64_t now);
/* Takes up to n completions; never drives the engine (hca/engine.h does). */
int hca_cq_take(struct hca_cq *cq, struct ibv_wc *wc, int n);
bool hca_cq_take_one(struct hca_cq *cq, struct hca_cqe *out);
void hca_cq_arm(struct hca_cq *cq, bool solicited_only);
/* Forgets completions of a QP that is destroyed or reset. */
void hca_cq_purge(struct hca_cq *cq, uint32_t qpn);

/* As far as one can see without the lock. */
static inline bool hca_cq_full(struct hca_cq *cq)
{
	return atomic_load_explicit(&cq->head, memory_order_relaxed) -
		       atomic_load_explicit(&cq->tail, memory_order_acquire) >=
	       cq->capacity;
}

static inline bool hca_cq_empty(struct hca_cq *cq)
{
	return atomic_load_explicit(&cq->head, memory_order_acquire) ==
	       atomic_load_explicit(&cq->tail, memory_order_relaxed);
}

#endif
