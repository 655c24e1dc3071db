/* SPDX-License-Identifier: MIT */
/*
 * What waits for company: requests of a burst for each other (post.c), a delayed acknowledge for a request.
 * Whoever holds something back promises a time: the helper, or a caller before it sleeps, sees to it that it
 * leaves by then.
 */
#include "engine/parts.h"

#include "base/cancel.h"
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/qp.h"

#include <time.h>

/* What is held back must leave by then: the helper looks by itself (ticks), or its alarm is set. */
void engine_promise(struct hca_engine *e, uint64_t until)
{
	/* It says so before it looks whether anything is owed; we the other way round. A caller that sleeps
	 * on the sockets hears the alarm too, and looks before it sleeps. */
	if (atomic_load(&e->helper_ticks) && !atomic_load(&e->blocked))
		return;
	lock_take(&e->timer_lock);
	engine_alarm_by(e, until);
	lock_drop(&e->timer_lock);
}

static void hold(struct hca_engine *e, _Atomic bool *any, uint64_t until)
{
	if (!atomic_load_explicit(any, memory_order_relaxed))
		atomic_store(any, true);
	engine_promise(e, until);
}

void hca_engine_drive_within(struct hca_engine *e, uint64_t ns)
{
	engine_promise(e, hca_engine_now(e) + ns);
}

/* Only who drives says whether there is more to send: said by anyone else, nobody would take it back. */
void hca_engine_pass_on_pending_tx(struct hca_engine *e)
{
	hca_engine_drive_within(e, ENGINE_HELD_NS);
}

/* ---- requests that wait for more to go with ---- */
void engine_defer(struct hca_engine *e, struct hca_qp *qp, uint64_t until)
{
	assert_locked(&qp->lock);
	lock_take(&e->coalesce_lock);
	if (list_empty(&qp->coalescing_node))
		list_add_tail(&e->coalescing, &qp->coalescing_node);
	lock_drop(&e->coalesce_lock);
	hold(e, &e->any_coalescing, until);
}

void engine_wake_coalesced(struct hca_engine *e)
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
/* The provider may name a time until which its acknowledge can wait. */
bool hca_engine_delay_ack(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	uint64_t until = atomic_load_explicit(&qp->answer_at, memory_order_relaxed);

	assert_locked(&e->drive);
	if (now >= until || !e->running)
		return false;
	if (list_empty(&qp->delayed_ack_node))
		list_add_tail(&e->delayed_acks, &qp->delayed_ack_node);
	hold(e, &e->any_delayed_acks, until);
	return true;
}

/* Those whose time is over, or whose acknowledge has left. */
void engine_flush_delayed_acks(struct hca_engine *e, uint64_t now)
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

/* ---- all of it leaves ---- */
void hca_engine_send_held(struct hca_engine *e)
{
	uint64_t now = hca_engine_now(e);

	if (!e->open)
		return;
	for_each_provider(p, e)
	{
		p->ops.flush_deferred(p);
	}
	list_for_each(n, &e->delayed_acks)
	{
		container_of(n, struct hca_qp, delayed_ack_node)->answer_at = 1; /* long ago */
	}
	engine_flush_delayed_acks(e, now);
	engine_wake_coalesced(e);
	hca_engine_run_runnable(e, now);
}

void hca_engine_flush_pending_tx(struct hca_engine *e)
{
	int cancel;

	if (!hca_engine_has_pending_tx(e) && !hca_engine_has_deferred(e))
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

	for_each_provider(p, e)
	{
		p->ops.at_exit(p);
	}
	for (int i = 0; i < TRIES && e->running &&
			(hca_engine_has_pending_tx(e) || hca_engine_unread(e) || e->adapter->qp1.kept ||
				!nobody_drives(e));
		i++) {
		hca_engine_wake_helper(e);
		nanosleep(&ts, NULL);
	}
}
