/* SPDX-License-Identifier: MIT */
/* Runnable queue pairs get their turn: answers of all queue pairs first, then the requests of each; and those
 * who wait for a window. */
#include "engine/parts.h"

#include "base/cancel.h"
#include "hca/adapter.h"
#include "hca/flow.h"
#include "hca/qp.h"

void hca_engine_count_sent(struct hca_engine *e, unsigned n, uint64_t bytes)
{
	lock_take(&e->count_lock);
	e->adapter->count->tx_packets += n;
	e->adapter->count->tx_bytes += bytes;
	lock_drop(&e->count_lock);
}

void hca_engine_kick(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	int cancel;

	assert_locked(&qp->lock);
	if (!e->open)
		return; /* a child after fork: the parent's QP */
	cancel = cancel_off();
	/* Ends by itself: the window closes, or the queue is empty. */
	qp->provider->ops.send(qp, false, now);
	if (qp->moving)
		engine_defer(e, qp, now); /* the program goes on, and who drives with this */
	hca_engine_arm(e, qp);
	cancel_restore(cancel);
}

void hca_engine_make_runnable(struct hca_engine *e, struct hca_qp *qp)
{
	assert_locked(&e->drive);
	if (list_empty(&qp->runnable_node))
		list_add_tail(&e->runnable, &qp->runnable_node);
}

/* qp->lock held. A reference to what it sends by, if others wait for that. */
static struct hca_flow *waited_for(struct hca_engine *e, struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	return qp->path.flow && hca_flow_is_waited_for(qp->path.flow)
		       ? hca_flow_table_hold(&e->adapter->flows, qp->path.flow)
		       : NULL;
}

/* Lets a QP send; flow: gets what others wait for then. false: it found a window closed and waits. */
static bool run_requests(struct hca_engine *e, struct hca_qp *qp, uint64_t now, struct hca_flow **flow)
{
	bool more, waits;

	lock_take(&qp->lock);
	more = qp->provider->ops.send(qp, true, now);
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
void engine_resume_all_waiters(struct hca_engine *e, uint64_t now)
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
		struct hca_provider *p = hca_qp_provider(qp);

		qp->more_answers = p->ops.answer(p, qp, now);
	}
	for_each_provider(p, e)
	{
		p->ops.flush_answers(p);
	}
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
