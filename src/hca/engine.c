/* SPDX-License-Identifier: MIT */
/*
 * The drive: frames in (engine_in.c), timers (engine_timers.c), frames out (engine_out.c), and what waits for
 * company in between (engine_post.c). The helper thread is in engine_helper.c.
 */
#include "hca/engine_parts.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "hca/adapter.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "link/link.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { DRIVE_FRAMES = 256 };

uint64_t hca_clock_monotonic(void *arg)
{
	return clock_ns();
}

uint64_t hca_clock_coarse(void)
{
	return clock_coarse_ns();
}

/* READs bring data to our own socket, whose size we know. */
static void size_read_window(struct hca_flow *f, uint32_t rcvbuf)
{
	f->window = f->most = f->limit = f->acked = hca_flow_limit(rcvbuf);
	/* A READ request always fits: what it brings is in our own hands, but not what the path holds. */
	f->least = f->limit < FLOW_WINDOW ? f->limit / 3 * 2 : FLOW_WINDOW;
	if (f->least < f->limit / 3)
		f->least = f->limit / 3;
}

/* ---- what the link calls while it receives ---- */
struct deliver_arg {
	struct hca_engine *e;
	uint64_t now; /* 0: nobody needed it yet; looking costs as much as a small message */
};

static uint64_t now_of(struct deliver_arg *d)
{
	if (!d->now)
		d->now = hca_engine_now(d->e);
	return d->now;
}

static void deliver(void *arg, const struct frame_in *in)
{
	struct deliver_arg *d = arg;

	if (!in->from)
		hca_engine_deliver(d->e, in, now_of(d));
	else if (in->by_ref)
		hca_engine_deliver_by_ref(d->e, in, now_of(d));
	else if (!hca_engine_deliver_fast(d->e, in))
		hca_engine_deliver(d->e, in, now_of(d));
}

static void executed(void *arg, uint32_t note, uint32_t psn, bool done)
{
	struct deliver_arg *d = arg;

	if (!hca_engine_executed(d->e, note, psn, done, d->now))
		hca_engine_executed(d->e, note, psn, done, now_of(d));
}

/* ---- life ---- */
int hca_engine_init(
	struct hca_engine *e, struct hca_adapter *a, struct link *link, uint64_t (*clock)(void *), void *arg)
{
	e->adapter = a;
	e->link = link;
	link->executed = executed;
	link->promise = hca_engine_promise;
	link->promise_arg = e;
	size_read_window(a->read_flow, link->rcvbuf);
	e->clock = clock ? clock : hca_clock_monotonic;
	e->clock_arg = arg;
	lock_init(&e->timer_lock);
	lock_init(&e->coalesce_lock);
	lock_init(&e->count_lock);
	list_init(&e->coalescing);
	list_init(&e->runnable);
	list_init(&e->delayed_acks);
	e->heap = NULL;
	e->heap_len = e->heap_size = 0;
	atomic_init(&e->next_timer, UINT64_MAX);
	e->timerfd_at = UINT64_MAX;
	for (int i = 0; i < HCA_ALARMS; i++)
		e->alarm_at[i] = UINT64_MAX;
	e->next_alarm = UINT64_MAX;
	e->timer_fd = e->wake_fd = -1;
	e->batch = malloc(sizeof(*e->batch));
	e->answers = malloc(sizeof(*e->answers));
	if (!e->batch || !e->answers) {
		free(e->batch);
		free(e->answers);
		return -ENOMEM;
	}
	frame_batch_begin(e->answers);
	e->nanswering = 0;
	return 0;
}

void hca_engine_fini(struct hca_engine *e)
{
	hca_streams_close(e);
	e->link->ops->close(e->link);
	e->link = NULL;
	free(e->batch);
	free(e->answers);
	free(e->heap);
	e->batch = e->answers = NULL;
	e->heap = NULL;
	lock_fini(&e->timer_lock);
	lock_fini(&e->coalesce_lock);
	lock_fini(&e->count_lock);
}

bool hca_engine_reach(struct hca_engine *e, const struct hca_flow *f, bool wait)
{
	return f->here && e->link && e->link->ops->reach && e->link->ops->reach(e->link, f->slot, wait);
}

int hca_engine_mcast(struct hca_engine *e, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	return e->link ? e->link->ops->mcast(e->link, mgid, ifindex, join) : -ENODEV;
}

int hca_engine_send(struct hca_engine *e, const struct frame_batch *b)
{
	return e->link ? e->link->ops->send(e->link, b) : -ENETDOWN;
}

int hca_engine_hand_over(struct hca_engine *e, uint32_t slot, const struct frame_in *in, bool wait)
{
	return e->link->ops->hand_over ? e->link->ops->hand_over(e->link, slot, in, wait) : -ESRCH;
}

static void publish_stats(struct hca_engine *e)
{
	struct host_adapter_counters *c = e->adapter->count;
	const struct link_stats *s = &e->link->stats;

	c->rx_packets = s->rx_packets;
	c->rx_bytes = s->rx_bytes;
	c->bad_icrc = s->bad_icrc;
	c->bad_length = s->bad_length;
	c->tx_errors = s->tx_errors;
	c->handed_over = s->handed_over;
}

/* Nothing to receive, as far as one can see for free, and nothing to send. */
static bool nothing_to_do(struct hca_engine *e)
{
	return e->link && e->link->ops->quiet && e->link->ops->quiet(e->link) &&
	       !hca_engine_has_pending_tx(e);
}

bool hca_engine_poll(struct hca_engine *e, _Atomic unsigned *looks)
{
	enum { LOOKS = 16 };
	unsigned n = atomic_load_explicit(looks, memory_order_relaxed);

	if (n < LOOKS && nothing_to_do(e)) {
		atomic_store_explicit(looks, n + 1, memory_order_relaxed);
		return false;
	}
	atomic_store_explicit(looks, 0, memory_order_relaxed);
	hca_engine_drive_overdue(e);
	return true;
}

void hca_engine_spin_for_write(struct hca_engine *e)
{
	enum { WATCHES = 4, MOST = 64, MISSED = 8, LINGER_NS = 20 * 1000 };
	uint32_t seen = atomic_load_explicit(&e->written, memory_order_relaxed);
	int watches = atomic_load_explicit(&e->watches, memory_order_relaxed);
	uint64_t until;

	if (watches < WATCHES)
		return;
	until = hca_engine_now(e) + LINGER_NS;
	do {
		hca_engine_drive_overdue(e);
		if (atomic_load_explicit(&e->written, memory_order_relaxed) != seen) {
			atomic_store_explicit(
				&e->watches, watches < MOST ? watches + 1 : watches, memory_order_relaxed);
			return;
		}
	} while (hca_engine_now(e) < until);
	atomic_store_explicit(&e->watches, watches - MISSED, memory_order_relaxed);
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
	bool asked;

	return hca_engine_drive_asked(e, &asked);
}

/* Timers, and who has something to send. */
static void do_rest(struct hca_engine *e, uint64_t now)
{
	e->unlooked = 0;
	hca_engine_run_timers(e, now);
	if (atomic_load_explicit(&e->any_delayed_acks, memory_order_relaxed))
		hca_engine_flush_delayed_acks(e, now);
	if (atomic_load_explicit(&e->any_coalescing, memory_order_relaxed))
		hca_engine_wake_coalesced(e);
	if (!list_empty(&e->runnable))
		hca_engine_run_runnable(e, now);
	if (atomic_load_explicit(&e->window_freed, memory_order_relaxed) &&
		atomic_exchange(&e->window_freed, false))
		hca_engine_resume_all_waiters(e, now);
	publish_stats(e);
}

/* Whether there is more to do than the link did by itself, or may be by now. */
static bool has_work(struct hca_engine *e, const struct deliver_arg *d)
{
	enum { UNLOOKED = 16 };

	return d->now || ++e->unlooked >= UNLOOKED || !list_empty(&e->runnable) ||
	       hca_engine_has_pending_tx(e) || atomic_load_explicit(&e->window_freed, memory_order_relaxed);
}

/* A look at sockets is a system call: where streams are and the link has been quiet, it is taken now and
 * then. */
static bool may_skip_link(struct hca_engine *e, unsigned woken)
{
	enum { QUIET = 64, EVERY = 16 };

	if (!hca_streams_carry(e) || (woken & WOKEN_LINK) ||
		(e->link->ops->quiet && !e->link->ops->quiet(e->link)))
		return false;
	return woken || (e->link_quiet >= QUIET && ++e->link_skipped % EVERY);
}

int hca_engine_drive_asked(struct hca_engine *e, bool *asked)
{
	struct deliver_arg d = {.e = e};
	int n = 0, cancel;
	unsigned woken;

	*asked = false;
	if (!e->link)
		return -1;
	cancel = cancel_off();
	if (!lock_try(&e->drive)) {
		cancel_restore(cancel);
		return -1;
	}
	if (e->link) {
		woken = atomic_load_explicit(&e->woken, memory_order_relaxed) ? atomic_exchange(&e->woken, 0)
									      : 0;
		if (!may_skip_link(e, woken)) {
			n = e->link->ops->receive(e->link, woken ? 0 : DRIVE_FRAMES, deliver, &d);
			e->link_quiet = n ? 0 : e->link_quiet + 1;
		}
		if (hca_streams_due(e, woken))
			n += hca_streams_drive(e, woken, now_of(&d));
		if (!n || has_work(e, &d))
			do_rest(e, now_of(&d));
		if (hca_streams_nudged(e))
			hca_streams_tidy(e, now_of(&d));
		*asked = e->asked;
		e->asked = false;
	}
	lock_drop(&e->drive);
	cancel_restore(cancel);
	return n;
}

void hca_engine_drain(struct hca_engine *e)
{
	enum { ROUNDS = 256 }; /* many full rings; others who never stop do not keep us here */
	struct deliver_arg d = {.e = e};

	for (int i = 0; i < ROUNDS && e->link->ops->receive(e->link, DRIVE_FRAMES, deliver, &d); i++)
		;
}

void hca_engine_quiesce(struct hca_engine *e)
{
	lock_take(&e->drive);
	lock_drop(&e->drive);
	if (e->link && e->link->ops->settle)
		e->link->ops->settle(e->link);
}

void hca_engine_forget(struct hca_engine *e, struct hca_qp *qp)
{
	lock_take(&e->drive);
	list_del(&qp->runnable_node);
	list_del(&qp->delayed_ack_node);
	lock_take(&e->coalesce_lock);
	list_del(&qp->coalescing_node);
	lock_drop(&e->coalesce_lock);
	hca_engine_disarm(e, qp);
	lock_drop(&e->drive);
}
