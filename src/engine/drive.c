/* SPDX-License-Identifier: MIT */
/*
 * The drive: providers receive, timers run, and who became runnable sends (send.c). What waits for company in
 * between is in coalesce.c, the helper thread in helper.c.
 */
#include "engine/parts.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "hca/adapter.h"
#include "hca/flow.h"
#include "hca/qp.h"

#include <string.h>

uint64_t hca_clock_monotonic(void *arg)
{
	return clock_ns();
}

uint64_t hca_clock_coarse(void)
{
	return clock_coarse_ns();
}

uint64_t hca_clock_now(struct hca_clock *c)
{
	if (!c->now)
		c->now = hca_engine_now(c->e);
	return c->now;
}

/* ---- life ---- */
void hca_engine_init(struct hca_engine *e, struct hca_adapter *a, uint64_t (*clock)(void *), void *arg)
{
	e->adapter = a;
	e->clock = clock ? clock : hca_clock_monotonic;
	e->clock_arg = arg;
	lock_init(&e->timer_lock);
	lock_init(&e->coalesce_lock);
	lock_init(&e->count_lock);
	list_init(&e->coalescing);
	list_init(&e->runnable);
	list_init(&e->delayed_acks);
	e->qp_timers = e->alarms = (struct timers){0};
	memset(e->alarm, 0, sizeof(e->alarm));
	atomic_init(&e->next_timer, UINT64_MAX);
	e->timerfd_at = UINT64_MAX;
	e->timer_fd = e->wake_fd = -1;
}

void hca_engine_open(struct hca_engine *e)
{
	__atomic_store_n(&e->open, true, __ATOMIC_RELEASE);
}

void hca_engine_fini(struct hca_engine *e)
{
	e->open = false;
	for (int i = HCA_CARRIERS - 1; i >= 0; i--) { /* what stands on another first */
		if (e->provider[i])
			e->provider[i]->ops.close(e->provider[i]);
		e->provider[i] = NULL;
	}
	lock_fini(&e->timer_lock);
	lock_fini(&e->coalesce_lock);
	lock_fini(&e->count_lock);
}

void hca_engine_abandon(struct hca_engine *e)
{
	e->open = false;
	for (int i = 0; i < HCA_CARRIERS; i++) {
		e->abandoned[i] = e->provider[i];
		e->provider[i] = NULL;
		if (e->abandoned[i])
			e->abandoned[i]->ops.abandon(e->abandoned[i]);
	}
	if (e->running)
		hca_engine_close_helper_fds(e);
	e->running = false;
}

bool hca_engine_poll(struct hca_engine *e, _Atomic unsigned *looks)
{
	enum { LOOKS = 16 };
	unsigned n = atomic_load_explicit(looks, memory_order_relaxed);

	if (n < LOOKS && engine_is_quiet(e) && !hca_engine_has_pending_tx(e)) {
		atomic_store_explicit(looks, n + 1, memory_order_relaxed);
		return false;
	}
	atomic_store_explicit(looks, 0, memory_order_relaxed);
	hca_engine_drive_overdue(e);
	return true;
}

void hca_engine_spin_for_write(struct hca_engine *e)
{
	enum { FROM = 4, MOST = 64, MISSED = 8, SPIN_NS = 20 * 1000 };
	uint32_t seen = atomic_load_explicit(&e->stream_writes, memory_order_relaxed);
	int before = atomic_load_explicit(&e->helper_writes, memory_order_relaxed);
	uint64_t until;

	if (before < FROM)
		return;
	until = hca_engine_now(e) + SPIN_NS;
	do {
		hca_engine_drive_overdue(e);
		if (atomic_load_explicit(&e->stream_writes, memory_order_relaxed) != seen) {
			atomic_store_explicit(
				&e->helper_writes, before < MOST ? before + 1 : before, memory_order_relaxed);
			return;
		}
	} while (hca_engine_now(e) < until);
	atomic_store_explicit(&e->helper_writes, before - MISSED, memory_order_relaxed);
	hca_engine_wake_helper(e); /* it took us for one who drives all the time */
}

void hca_engine_drive_overdue(struct hca_engine *e)
{
	atomic_store_explicit(
		&e->drives, atomic_load_explicit(&e->drives, memory_order_relaxed) + 1, memory_order_relaxed);
	hca_engine_drive(e);
	if (atomic_load_explicit(&e->posts_since_rx, memory_order_relaxed))
		atomic_store_explicit(&e->posts_since_rx, 0,
			memory_order_relaxed); /* somebody else drives, or there are no streams left */
	if (atomic_load_explicit(&e->more_to_send, memory_order_relaxed))
		hca_engine_pass_on_pending_tx(e);
}

int hca_engine_drive(struct hca_engine *e)
{
	bool served_reads;

	return hca_engine_drive_serving(e, &served_reads);
}

/* Timers, and who has something to send. */
static void do_rest(struct hca_engine *e, uint64_t now)
{
	e->unlooked = 0;
	engine_run_timers(e, now);
	if (atomic_load_explicit(&e->any_delayed_acks, memory_order_relaxed))
		engine_flush_delayed_acks(e, now);
	if (atomic_load_explicit(&e->any_coalescing, memory_order_relaxed))
		engine_wake_coalesced(e);
	if (!list_empty(&e->runnable))
		hca_engine_run_runnable(e, now);
	if (atomic_load_explicit(&e->window_freed, memory_order_relaxed) &&
		atomic_exchange(&e->window_freed, false))
		engine_resume_all_waiters(e, now);
	for_each_provider(p, e)
	{
		p->ops.publish(p);
	}
}

/* Whether there is more to do than providers did by themselves, or may be by now. */
static bool has_work(struct hca_engine *e, const struct hca_clock *clock)
{
	enum { UNLOOKED = 16 };

	return clock->now || ++e->unlooked >= UNLOOKED || !list_empty(&e->runnable) ||
	       hca_engine_has_pending_tx(e) || atomic_load_explicit(&e->window_freed, memory_order_relaxed);
}

/* Bits of the providers with connections that take their bytes by a look at them. */
static unsigned busy_providers(struct hca_engine *e)
{
	unsigned busy = 0;

	for_each_provider(p, e)
	{
		if (p->ops.is_busy(p))
			busy |= p->bit;
	}
	return busy;
}

static int receive_all(struct hca_engine *e, struct hca_clock *clock)
{
	unsigned woken =
		atomic_load_explicit(&e->woken, memory_order_relaxed) ? atomic_exchange(&e->woken, 0) : 0;
	unsigned busy = busy_providers(e);
	int n = 0;

	for_each_provider(p, e)
	{
		if (p->ops.due(p, woken, busy & ~p->bit))
			n += p->ops.receive(p, woken, clock);
	}
	return n;
}

static int drive_locked(struct hca_engine *e, bool *served_reads)
{
	struct hca_clock clock = {.e = e};
	int n;

	if (!e->open)
		return 0;
	n = receive_all(e, &clock);
	if (!n || has_work(e, &clock))
		do_rest(e, hca_clock_now(&clock));
	for_each_provider(p, e)
	{
		p->ops.tidy(p, &clock);
	}
	*served_reads = e->served_reads;
	e->served_reads = false;
	return n;
}

int hca_engine_drive_serving(struct hca_engine *e, bool *served_reads)
{
	int n = -1, cancel;

	*served_reads = false;
	if (!e->open)
		return -1;
	cancel = cancel_off();
	if (lock_try(&e->drive)) {
		n = drive_locked(e, served_reads);
		lock_drop(&e->drive);
	}
	cancel_restore(cancel);
	return n;
}

void hca_engine_quiesce(struct hca_engine *e)
{
	lock_take(&e->drive);
	lock_drop(&e->drive);
	for_each_provider(p, e)
	{
		p->ops.quiesce(p);
	}
}

void hca_engine_forget(struct hca_engine *e, struct hca_qp *qp)
{
	lock_take(&e->drive);
	list_del(&qp->runnable_node);
	list_del(&qp->delayed_ack_node);
	lock_take(&e->coalesce_lock);
	list_del(&qp->coalescing_node);
	lock_drop(&e->coalesce_lock);
	engine_disarm(e, qp);
	lock_drop(&e->drive);
}
