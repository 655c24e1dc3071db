/* SPDX-License-Identifier: MIT */
/* Frames out: the requests of a QP, answers of all QPs together, and those who wait for a window. */
#include "hca/engine_parts.h"

#include "base/cancel.h"
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "hca/transport.h"
#include "link/link.h"
#include "local/direct.h"
#include "wire/ibt.h"
#include "wire/qpn.h"

#include <string.h>

enum {
	ROUND_BATCHES = 4, /* what one QP may send before others get their turn */
	DOUBT_EVERY = 256, /* requests, after which who posts looks at its signal mask */
};

void hca_engine_count_sent(struct hca_engine *e, unsigned n, uint64_t bytes)
{
	lock_take(&e->count_lock);
	e->adapter->count->tx_packets += n;
	e->adapter->count->tx_bytes += bytes;
	lock_drop(&e->count_lock);
}

/* Frames of the batch from `first` on are this QP's. */
static void count_frames(struct hca_engine *e, struct hca_qp *qp, const struct frame_batch *b, unsigned first)
{
	unsigned n = b->nframes - first;
	uint64_t bytes = 0;

	for (unsigned i = first; i < b->nframes; i++)
		bytes += frame_len(&b->frame[i]);
	qp->count->tx_packets += n;
	qp->count->tx_bytes += bytes;
	hca_engine_count_sent(e, n, bytes);
}

/* It did not go by the fast path after all. */
static void send_one(
	struct hca_engine *e, struct hca_qp *qp, const struct frame_out *f, const struct iovec *iov)
{
	CANCEL_SAFE;
	struct frame_batch b;

	b.dest = qp->dest;
	b.nframes = 1;
	b.niov = f->iov_count;
	b.wanted = false;
	b.frame[0] = *f;
	memcpy(b.iov, iov, f->iov_count * sizeof(*iov));
	e->link->ops->send(e->link, &b);
}

/* Whether there is something that could; SENDs are not asked twice. */
static bool may_go_direct(const struct hca_qp *qp)
{
	const struct hca_sq *sq = &qp->sq;

	return qp->direct_min_len ||
	       (sq->head != sq->tail &&
		       (local_can(hca_sq_at(sq, sq->tail)) || local_can(hca_sq_at(sq, sq->head - 1))));
}

bool hca_engine_fastpath(struct hca_engine *e, struct hca_qp *qp)
{
	struct frame_out f;
	struct iovec iov[HCA_MAX_SGE];
	enum hca_fast q;

	assert_locked(&qp->lock);
	if (!(qp->sq.head % DOUBT_EVERY))
		guard_doubt();
	if (may_go_direct(qp))
		hca_engine_direct(e, qp, 0);
	if (qp->moving)
		return false;
	while ((q = qp->transport->request_fast(qp, hca_clock_coarse, &f, iov)) == FAST_FRAME) {
		bool out = !e->link->ops->put(e->link, qp->flow->slot, &qp->dest, &f, iov);

		/* Counted afterwards: the peer is at it already. */
		qp->count->tx_packets++;
		qp->count->tx_bytes += frame_len(&f);
		hca_engine_count_sent(e, 1, frame_len(&f));
		if (!out)
			hca_engine_leave_ring(e, qp);
		if (!out && (f.by_ref || !qp->dest.local))
			qp->transport->by_ref_failed(qp); /* the slow path does it, in its own way */
		else if (!out)
			send_one(e, qp, &f, iov);
	}
	hca_engine_arm(e, qp);
	return q == FAST_IDLE;
}

/* Sends requests; qp->lock is held all the while, since they must leave in order whoever sends them. */
static bool send_requests(
	struct hca_engine *e, struct hca_qp *qp, struct frame_batch *b, unsigned rounds, uint64_t now)
{
	bool more = true;

	if (qp->dest.local && hca_engine_fastpath(e, qp))
		return false;
	if (qp->moving)
		return true; /* what follows waits for it */
	if (qp->dest.local)
		hca_engine_leave_ring(e, qp);
	qp->flow_closed = false; /* unless it asks and finds it so */
	while (more && rounds--) {
		frame_batch_begin(b);
		more = qp->transport->request(qp, now, b);
		if (!b->nframes)
			continue;
		count_frames(e, qp, b, 0);
		e->link->ops->send(e->link, b);
	}
	return more;
}

void hca_engine_kick(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	struct frame_batch b;
	int cancel;

	assert_locked(&qp->lock);
	if (!e->link)
		return; /* a child after fork: the parent's QP */
	cancel = cancel_off();
	/* Ends by itself: the window closes, or the queue is empty. */
	if (qp->transport->stream)
		hca_stream_out(e, qp, false, now);
	else if (!qp->connecting)
		send_requests(e, qp, &b, UINT32_MAX, now);
	if (qp->moving)
		hca_engine_defer(e, qp, now); /* the program goes on, and who drives with this */
	hca_engine_arm(e, qp);
	cancel_restore(cancel);
}

void hca_engine_make_runnable(struct hca_engine *e, struct hca_qp *qp)
{
	assert_locked(&e->drive);
	if (list_empty(&qp->runnable_node))
		list_add_tail(&e->runnable, &qp->runnable_node);
}

/*
 * Answers of all QPs that go to one place leave together. They leave in order because only who holds the
 * drive lock sends them, so qp->lock is not held during the system call: the program, woken by what just
 * arrived, wants to post now.
 */
static void flush_answers(struct hca_engine *e)
{
	struct frame_batch *b = e->answers;

	if (b->nframes)
		e->link->ops->send(e->link, b);
	frame_batch_begin(b);
	while (e->nanswering) {
		struct hca_qp *qp = e->answering[--e->nanswering];

		lock_take(&qp->lock);
		qp->transport->answered(qp);
		lock_drop(&qp->lock);
	}
}

/* qp->lock held. By memory each process has a ring of its own: what is for two goes by the wire. */
static bool goes_with(const struct frame_batch *b, const struct hca_qp *qp)
{
	return frame_dest_same(&b->dest, &qp->dest) && b->dest.local == qp->dest.local &&
	       (!qp->dest.local || qpn_slot(bth_dqpn(b->frame[0].hdr)) == qpn_slot(qp->attr.dest_qp_num));
}

static bool put_answers(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	struct frame_batch *b = e->answers;
	unsigned before;
	bool more;

	lock_take(&qp->lock);
	if (b->nframes && (frame_batch_full(b, 1) || !goes_with(b, qp))) {
		lock_drop(&qp->lock); /* it takes the locks of those who answered */
		flush_answers(e);
		lock_take(&qp->lock);
	}
	before = b->nframes;
	b->wanted = false;
	more = qp->transport->respond(qp, now, b);
	count_frames(e, qp, b, before);
	lock_drop(&qp->lock);
	if (b->nframes == before)
		return more;
	e->asked |= b->wanted;
	e->answering[e->nanswering++] = qp; /* once per frame at most: there is room */
	return more;
}

/* Puts a QP's answers with the others'. Whether it has more. */
static bool collect_answers(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	bool more = !hca_engine_delay_ack(e, qp, now);

	for (unsigned i = 0; i < ROUND_BATCHES && more; i++) {
		more = put_answers(e, qp, now);
		if (more)
			flush_answers(e);
	}
	return more;
}

/* qp->lock held. A reference to what it sends by, if others wait for that. */
static struct hca_flow *waited_for(struct hca_engine *e, struct hca_qp *qp)
{
	return qp->flow && hca_flow_is_waited_for(qp->flow)
		       ? hca_flow_table_hold(&e->adapter->flows, qp->flow)
		       : NULL;
}

/* Lets a QP ask; flow: gets what others wait for then. false: it found a window closed and waits. */
static bool run_requests(struct hca_engine *e, struct hca_qp *qp, uint64_t now, struct hca_flow **flow)
{
	bool more, waits;

	lock_take(&qp->lock);
	if (qp->transport->stream)
		more = hca_stream_out(e, qp, true, now);
	else
		more = !qp->connecting && send_requests(e, qp, e->batch, ROUND_BATCHES, now);
	hca_engine_arm(e, qp);
	if (flow)
		*flow = waited_for(e, qp);
	waits = qp->flow_closed;
	lock_drop(&qp->lock);
	if (more)
		hca_engine_make_runnable(e, qp);
	return !waits;
}

void hca_engine_resume_waiters(struct hca_engine *e, struct hca_flow *f, uint64_t now)
{
	struct list *n;

	/* When one waits again the window is as good as closed. */
	while (f && (n = hca_flow_pop(f)) &&
		run_requests(e, container_of(n, struct hca_qp, flow_node), now, NULL))
		;
}

/* A QP went away and gave its share of windows back: everyone may wait for that. */
void hca_engine_resume_all_waiters(struct hca_engine *e, uint64_t now)
{
	struct hca_adapter *a = e->adapter;

	for (struct hca_flow *f = NULL; (f = hca_flow_table_next(&a->flows, f));)
		hca_engine_resume_waiters(e, f, now);
	hca_engine_resume_waiters(e, a->read_flow, now);
}

void hca_engine_window_freed(struct hca_engine *e)
{
	if (!atomic_exchange(&e->window_freed, true))
		hca_engine_wake_helper(e);
}

void hca_engine_run_runnable(struct hca_engine *e, uint64_t now)
{
	struct list round, *n;

	assert_locked(&e->drive);
	list_take(&round, &e->runnable);
	list_for_each(m, &round)
	{
		struct hca_qp *qp = container_of(m, struct hca_qp, runnable_node);

		qp->more_answers = collect_answers(e, qp, now);
	}
	flush_answers(e);
	while ((n = list_pop(&round))) {
		struct hca_qp *qp = container_of(n, struct hca_qp, runnable_node);
		struct hca_flow *flow;

		if (qp->more_answers)
			hca_engine_make_runnable(e, qp);
		run_requests(e, qp, now, &flow);
		hca_engine_resume_waiters(e, flow, now);
		hca_adapter_flow_put(e->adapter, flow);
	}
	hca_engine_resume_waiters(e, e->adapter->read_flow, now);
	atomic_store(&e->more_to_send, !list_empty(&e->runnable));
}
