/* SPDX-License-Identifier: MIT */
/*
 * What waits for company: requests of a burst for each other, a delayed acknowledge for a request.
 * Whoever holds something back owes it: the helper, or a caller before it sleeps, sees to it that it leaves
 * in time.
 */
#include "hca/engine_parts.h"

#include "base/cancel.h"
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/qp.h"
#include "link/link.h"

#include <time.h>

enum { OWED_NS = 50 * 1000 };

/* What is held back must leave by then: the helper looks by itself (ticks), or its alarm is set. */
static void promise(struct hca_engine *e, uint64_t until)
{
	/* It says so before it looks whether anything is owed; we the other way round. A caller that sleeps
	 * on the sockets hears the alarm too, and looks before it sleeps. */
	if (atomic_load(&e->ticks) && !atomic_load(&e->blocked))
		return;
	lock_take(&e->timer_lock);
	hca_engine_alarm_by(e, until);
	lock_drop(&e->timer_lock);
}

static void owe(struct hca_engine *e, _Atomic bool *owing, uint64_t until)
{
	if (!atomic_load_explicit(owing, memory_order_relaxed))
		atomic_store(owing, true);
	promise(e, until);
}

void hca_engine_promise(void *arg, uint64_t ns)
{
	struct hca_engine *e = arg;

	promise(e, hca_engine_now(e) + ns);
}

bool hca_engine_link_holds(struct hca_engine *e)
{
	return e->link && e->link->ops->holds && e->link->ops->holds(e->link);
}

/* Only who drives says whether there is a backlog: said by anyone else, nobody would take it back. */
void hca_engine_pass_on_pending_tx(struct hca_engine *e)
{
	promise(e, hca_engine_now(e) + OWED_NS);
}

/* ---- requests that wait for more to go with ---- */
/*
 * A program that posts many small requests one by one would pay a system call for each. The first few of a
 * burst leave at once; then every BURST_BATCH of them leave together, or what there is when the program polls
 * or waits, or when OWED_NS have passed.
 */
enum { BURST_ALONE = 4, BURST_BATCH = 32, BURST_GAP_NS = 3 * 1000 };

static bool in_burst(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	uint32_t drives = atomic_load_explicit(&e->drives, memory_order_relaxed);
	bool goes_on = drives == qp->burst_drives && now - qp->burst_at < BURST_GAP_NS;

	qp->burst = goes_on ? qp->burst + 1 : 0;
	qp->burst_drives = drives;
	return qp->burst >= BURST_ALONE && qp->burst % BURST_BATCH;
}

void hca_engine_post(struct hca_engine *e, struct hca_qp *qp)
{
	uint64_t now;

	assert_locked(&qp->lock);
	if (qp->connecting)
		return;
	if (!e->running || qp->dest.local) { /* by memory there is no call to save */
		if (!qp->dest.local || !e->link || !hca_engine_fastpath(e, qp))
			hca_engine_kick(e, qp, hca_engine_now(e));
		return;
	}
	now = hca_engine_now(e);
	if (!in_burst(e, qp, now)) {
		hca_engine_kick(e, qp, now);
		qp->burst_at = hca_engine_now(e);
		return;
	}
	qp->burst_at = now;
	hca_engine_defer(e, qp, now + OWED_NS);
}

void hca_engine_defer(struct hca_engine *e, struct hca_qp *qp, uint64_t until)
{
	lock_take(&e->coalesce_lock);
	if (list_empty(&qp->coalescing_node))
		list_add_tail(&e->coalescing, &qp->coalescing_node);
	lock_drop(&e->coalesce_lock);
	owe(e, &e->any_coalescing, until);
}

void hca_engine_wake_coalesced(struct hca_engine *e)
{
	struct list all, *n;

	guard_doubt();
	lock_take(&e->coalesce_lock);
	list_take(&all, &e->coalescing);
	atomic_store(&e->any_coalescing, false);
	while ((n = list_pop(&all)))
		hca_engine_make_runnable(e, container_of(n, struct hca_qp, coalescing_node));
	lock_drop(&e->coalesce_lock);
}

/* ---- delayed acknowledges ---- */
/* The transport may name a time until which its acknowledge can wait. */
bool hca_engine_delay_ack(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	uint64_t until = atomic_load_explicit(&qp->answer_at, memory_order_relaxed);

	assert_locked(&e->drive);
	if (now >= until || !e->running)
		return false;
	if (list_empty(&qp->delayed_ack_node))
		list_add_tail(&e->delayed_acks, &qp->delayed_ack_node);
	owe(e, &e->any_delayed_acks, until);
	return true;
}

/* Those whose time is over, or whose acknowledge has left. */
void hca_engine_flush_delayed_acks(struct hca_engine *e, uint64_t now)
{
	list_for_each_safe(n, &e->delayed_acks)
	{
		struct hca_qp *qp = container_of(n, struct hca_qp, delayed_ack_node);

		if (now < atomic_load_explicit(&qp->answer_at, memory_order_relaxed))
			continue;
		list_del(n);
		hca_engine_make_runnable(e, qp);
	}
	if (list_empty(&e->delayed_acks))
		atomic_store_explicit(&e->any_delayed_acks, false, memory_order_relaxed);
}

void hca_engine_send_held(struct hca_engine *e)
{
	uint64_t now = hca_engine_now(e);

	if (!e->link)
		return;
	if (e->link->ops->let_go)
		e->link->ops->let_go(e->link);
	list_for_each(n, &e->delayed_acks)
	{
		container_of(n, struct hca_qp, delayed_ack_node)->answer_at = 1; /* long ago */
	}
	hca_engine_flush_delayed_acks(e, now);
	hca_engine_wake_coalesced(e);
	hca_engine_run_runnable(e, now);
}

void hca_engine_flush_pending_tx(struct hca_engine *e)
{
	int cancel;

	if (!hca_engine_has_pending_tx(e) && !hca_engine_link_holds(e))
		return;
	cancel = cancel_off();
	lock_take(&e->drive);
	hca_engine_send_held(e);
	lock_drop(&e->drive);
	cancel_restore(cancel);
}

/* Nobody is in the middle of what came last. */
static bool nobody_drives(struct hca_engine *e)
{
	bool free = lock_try(&e->drive);

	if (free)
		lock_drop(&e->drive);
	return free;
}

/*
 * What we owe leaves; what lies in our socket may be another process's: that of the port our last word went
 * to, when it is on this host. Nobody waits for a lock: exit() may have been called by whoever holds it, in a
 * signal handler.
 */
void hca_engine_at_exit(struct hca_engine *e)
{
	enum { TRIES = 10000, WAIT_NS = 50 * 1000 }; /* half a second, when nobody lets the helper run */
	struct timespec ts = {.tv_nsec = WAIT_NS};

	if (e->link && e->link->ops->part)
		e->link->ops->part(e->link);
	for (int i = 0; i < TRIES && e->running &&
			(hca_engine_has_pending_tx(e) || hca_engine_unread(e) || e->adapter->qp1.kept ||
				!nobody_drives(e));
		i++) {
		hca_engine_wake_helper(e);
		nanosleep(&ts, NULL);
	}
}
