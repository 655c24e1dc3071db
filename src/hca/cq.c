/* SPDX-License-Identifier: MIT */
#include "hca/cq.h"

#include "base/bits.h"
#include "base/fd.h"
#include "hca/context.h"
#include "hca/adapter.h"
#include "base/log.h"
#include "observe/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CQE = 1 << 22 };

/* ---- channels ---- */
struct hca_channel *hca_channel_create(struct hca_context *ctx)
{
	struct hca_channel *ch = calloc(1, sizeof(*ch));
	int err;

	if (!ch)
		return NULL;
	err = hca_evq_init(&ch->q);
	if (err) {
		log_error("cannot create a completion channel: %s", fd_reason(-err));
		free(ch);
		errno = -err;
		return NULL;
	}
	ch->ibv.context = &ctx->v.context;
	ch->ibv.fd = ch->q.fd;
	hca_context_get(ctx);
	return ch;
}

int hca_channel_destroy(struct hca_channel *ch)
{
	bool busy;

	lock_take(&ch->q.lock);
	busy = ch->ibv.refcnt > 0;
	lock_drop(&ch->q.lock);
	if (busy)
		return EBUSY;
	hca_context_put(hca_context(ch->ibv.context));
	hca_evq_fini(&ch->q);
	free(ch);
	return 0;
}

int hca_channel_get(struct hca_channel *ch, struct hca_cq **cq)
{
	struct list *n;

	do {
		int err = hca_evq_wait(&ch->q);

		if (err)
			return err;
		lock_take(&ch->q.lock);
		n = list_pop(&ch->q.events);
		if (n) {
			*cq = container_of(n, struct hca_cq, event_node);
			(*cq)->reported_events++;
			if (--(*cq)->queued_events)
				list_add_tail(&ch->q.events, n);
		}
		lock_drop(&ch->q.lock);
	} while (!n);
	return 0;
}

/* cq->lock held: an event overtaken by a second arming must not be lost, nor one be made twice. */
static void channel_put(struct hca_cq *cq)
{
	struct hca_channel *ch = cq->channel;

	assert_locked(&cq->lock);
	cq->event_head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	lock_take(&ch->q.lock);
	if (!cq->queued_events++)
		list_add_tail(&ch->q.events, &cq->event_node);
	hca_evq_signal(&ch->q);
	lock_drop(&ch->q.lock);
}

void hca_cq_ack(struct hca_cq *cq, unsigned n)
{
	struct ibv_cq *c = (struct ibv_cq *)&cq->ex;

	pthread_mutex_lock(&c->mutex);
	c->comp_events_completed += n;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->mutex);
}

/* ---- queues ---- */
struct hca_cq *hca_cq_create(
	struct hca_context *ctx, unsigned cqe, void *user, struct hca_channel *ch, int vector)
{
	struct hca_cq *cq;
	uint32_t size;

	if (!cqe || cqe > MAX_CQE || vector < 0 || vector >= ctx->v.context.num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	size = pow2_at_least(cqe);
	cq->ring = malloc(size * sizeof(cq->ring[0]));
	if (!cq->ring) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->mask = size - 1;
	cq->capacity = size;
	cq->ctx = ctx;
	cq->channel = ch;
	lock_init(&cq->lock);
	list_init(&cq->event_node);
	cq->ex.context = &ctx->v.context;
	cq->ex.channel = ch ? &ch->ibv : NULL;
	cq->ex.cq_context = user;
	cq->ex.cqe = (int)size;
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	if (ch) {
		lock_take(&ch->q.lock);
		ch->ibv.refcnt++;
		lock_drop(&ch->q.lock);
	}
	hca_context_get(ctx);
	return cq;
}

int hca_cq_resize(struct hca_cq *cq, unsigned cqe)
{
	uint32_t size, n, i = 0;
	struct hca_cqe *ring;
	int err = 0;

	if (!cqe || cqe > MAX_CQE)
		return EINVAL;
	size = pow2_at_least(cqe);
	ring = malloc(size * sizeof(ring[0]));
	if (!ring)
		return ENOMEM;
	lock_take(&cq->lock);
	n = cq->head - cq->tail;
	if (n > size) {
		err = EINVAL; /* what is in it must fit */
	} else {
		struct hca_cqe *old = cq->ring;

		for (; i < n; i++)
			ring[i] = old[(cq->tail + i) & cq->mask];
		cq->ring = ring;
		ring = old;
		cq->mask = size - 1;
		cq->capacity = size;
		cq->event_head -= cq->tail; /* indexes start anew */
		cq->tail = 0;
		cq->head = n;
		cq->ex.cqe = (int)size;
	}
	lock_drop(&cq->lock);
	free(ring);
	return err;
}

int hca_cq_destroy(struct hca_cq *cq)
{
	struct hca_channel *ch = cq->channel;

	if (cq->users)
		return EBUSY;
	hca_async_forget(cq->ctx, &cq->ex);
	if (ch) {
		unsigned reported;

		lock_take(&ch->q.lock);
		for (; cq->queued_events; cq->queued_events--)
			hca_evq_unsignal(&ch->q);
		list_del(&cq->event_node);
		reported = cq->reported_events;
		lock_drop(&ch->q.lock);
		pthread_mutex_lock(&cq->ex.mutex);
		while (cq->ex.comp_events_completed != reported)
			pthread_cond_wait(&cq->ex.cond, &cq->ex.mutex);
		pthread_mutex_unlock(&cq->ex.mutex);
		lock_take(&ch->q.lock);
		ch->ibv.refcnt--;
		lock_drop(&ch->q.lock);
	}
	pthread_mutex_destroy(&cq->ex.mutex);
	pthread_cond_destroy(&cq->ex.cond);
	hca_context_put(cq->ctx);
	lock_fini(&cq->lock);
	free(cq->ring);
	free(cq);
	return 0;
}

/* cq->lock held, which it drops. */
static void overrun(struct hca_cq *cq)
{
	bool first = !cq->overrun;

	assert_locked(&cq->lock);
	cq->overrun = true;
	lock_drop(&cq->lock);
	if (!first)
		return;
	log_warn("a completion queue of %u entries overflowed: its queue pairs end; poll it more often or "
		 "create it larger",
		cq->capacity);
	hca_async_raise(cq->ctx, IBV_EVENT_CQ_ERR, &cq->ex);
}

static struct hca_cqe *next_entry(struct hca_cq *cq)
{
	return &cq->ring[atomic_load_explicit(&cq->head, memory_order_relaxed) & cq->mask];
}

struct ibv_wc *hca_cq_place(struct hca_cq *cq)
{
	lock_take(&cq->lock);
	if (!hca_cq_full(cq))
		return &next_entry(cq)->wc;
	overrun(cq);
	return NULL;
}

/* Apart, as are others on the data path: what it takes to tell takes nothing of those who do not. */
static void __attribute__((cold, noinline)) tell_cqe(const struct ibv_wc *wc)
{
	PROBE(CQE, .qpn = wc->qp_num, .wr_id = wc->wr_id, .opcode = wc->opcode, .status = wc->status,
		.length = wc->byte_len);
}

void hca_cq_put(struct hca_cq *cq, bool solicited, uint64_t now)
{
	struct hca_cqe *e = next_entry(cq);

	if (!now && cq->stamps)
		now = hca_engine_now(&cq->ctx->adapter->engine);
	/* Who drives looks at the clock once, and somebody else may have told of something since. */
	cq->last_ns = now > cq->last_ns ? now : cq->last_ns;
	e->ns = cq->last_ns;
	if (probe_is_on(CQE))
		tell_cqe(&e->wc);
	atomic_store_explicit(
		&cq->head, atomic_load_explicit(&cq->head, memory_order_relaxed) + 1, memory_order_release);
	if (cq->armed == CQ_ARMED ||
		(cq->armed == CQ_ARMED_SOLICITED && (solicited || e->wc.status != IBV_WC_SUCCESS))) {
		cq->armed = CQ_NOT_ARMED;
		if (cq->channel)
			channel_put(cq);
	}
	lock_drop(&cq->lock);
}

bool hca_cq_push(struct hca_cq *cq, const struct ibv_wc *wc, bool solicited, uint64_t now)
{
	struct ibv_wc *to = hca_cq_place(cq);

	if (!to)
		return false;
	*to = *wc;
	hca_cq_put(cq, solicited, now);
	return true;
}

int hca_cq_take(struct hca_cq *cq, struct ibv_wc *wc, int n)
{
	uint32_t tail, have;

	if (hca_cq_empty(cq))
		return 0;
	lock_take(&cq->lock);
	tail = cq->tail;
	have = atomic_load_explicit(&cq->head, memory_order_acquire) - tail;
	if (n > (int)have)
		n = (int)have;
	for (int i = 0; i < n; i++)
		wc[i] = cq->ring[(tail + (uint32_t)i) & cq->mask].wc;
	atomic_store_explicit(&cq->tail, tail + (uint32_t)n, memory_order_release);
	lock_drop(&cq->lock);
	return n;
}

bool hca_cq_take_one(struct hca_cq *cq, struct hca_cqe *out)
{
	bool got;

	lock_take(&cq->lock);
	got = cq->head != cq->tail;
	if (got)
		*out = cq->ring[cq->tail++ & cq->mask];
	lock_drop(&cq->lock);
	return got;
}

void hca_cq_arm(struct hca_cq *cq, bool solicited_only)
{
	lock_take(&cq->lock);
	/*
	 * Completions that came since the last event and were not polled make an event at once, as cards do:
	 * some programs (UCX) arm and sleep without polling once more.
	 */
	if (!solicited_only && cq->channel && cq->head != cq->tail && cq->head != cq->event_head) {
		cq->armed = CQ_NOT_ARMED;
		channel_put(cq);
	} else if (!solicited_only)
		cq->armed = CQ_ARMED;
	else if (cq->armed == CQ_NOT_ARMED)
		cq->armed = CQ_ARMED_SOLICITED;
	lock_drop(&cq->lock);
}

void hca_cq_purge(struct hca_cq *cq, uint32_t qpn)
{
	uint32_t to, told = 0;

	lock_take(&cq->lock);
	to = cq->tail;
	for (uint32_t from = cq->tail; from != cq->head; from++) {
		struct hca_cqe *e = &cq->ring[from & cq->mask];

		if (e->wc.qp_num != qpn)
			cq->ring[to++ & cq->mask] = *e;
		else if ((int32_t)(from - cq->event_head) < 0)
			told++;
	}
	cq->event_head -= told; /* what an event told of moves down with the rest */
	atomic_store_explicit(&cq->head, to, memory_order_release);
	lock_drop(&cq->lock);
}
