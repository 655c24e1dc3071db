/* SPDX-License-Identifier: MIT */
/*
 * Acknowledges of a ring: how far its reader is. They are written into the ring (`taken`), or piggybacked for
 * nothing on a frame the other way (`ack`).
 *
 * Writing costs both cores a cache line, just when one may wait for the reply. And a writer that has its
 * acknowledge before the reply comes may stop polling, and then has to be woken for it. So when each of the
 * last bursts of frames was followed by a frame of ours (base/streak.h), the next burst is acknowledged only
 * by piggybacking; when none follows within DEFER_NS, the acknowledge is written, and none is deferred for a
 * while. Somebody looks by then: who polls, the helper, or an alarm is set for who sleeps
 * (local_channel_events.promise).
 */
#include "local/channel_parts.h"

#include "base/clock.h"
#include "base/fence.h"
#include "base/log.h"
#include "local/handshake.h"

#include <time.h>

enum { DEFERRED_MOST = 16, DEFER_NS = 50 * 1000 };

/* ---- sending them ---- */
/*
 * Who goes to sleep says so and then looks; we the other way round. Once rung, it will look: it is not rung
 * again before it has. Should another thread take the bell, that one looks (local_bells_taken).
 */
void local_credit_wake(const struct local_channel *c, struct local_writer *w)
{
	uint32_t wakes;

	fence_light(c->bell->heavy && w->bell->heavy); /* ours: their fences reach us */
	/* Acquire: who is seen to sleep has woken as often by then as is read below, or more often. */
	if (!atomic_load_explicit(&w->bell->asleep, memory_order_acquire))
		return;
	wakes = atomic_load_explicit(&w->bell->wakes, memory_order_relaxed);
	if (wakes == w->rung)
		return;
	w->rung = wakes;
	handshake_ring(w->end.fd);
}

/* It was written: wakes who may sleep until then. */
static void wake_reverse(struct local_channel *c, struct local_reader *r)
{
	struct local_writer *w = r->reverse;
	bool rung = false;

	if (w) {
		lock_take(&w->lock);
		if (w->state == WRITER_UP) {
			local_credit_wake(c, w);
			rung = true;
		}
		lock_drop(&w->lock);
	}
	if (rung)
		return;
	/* We cannot see whether it sleeps. */
	lock_take(&c->handshake);
	if (r->end.fd >= 0)
		handshake_ring(r->end.fd);
	lock_drop(&c->handshake);
}

static void publish(struct local_channel *c, struct local_reader *r)
{
	ring_publish(&r->rx);
	wake_reverse(c, r);
}

static uint32_t due(const struct local_reader *r)
{
	return atomic_load_explicit(&r->rx.done, memory_order_relaxed) - r->rx.published;
}

/* The burst is acknowledged. */
static void settle_burst(struct local_channel *c, struct local_reader *r)
{
	r->batch_over = false;
	r->ack_at = 0;
	if (local_credit_was_piggybacked(r))
		r->rx.published = atomic_load_explicit(&r->rx.done, memory_order_relaxed);
	else if (ring_ack_is_due(&r->rx))
		publish(c, r);
}

/* Somebody looks: has the last burst been acknowledged, or must it be now? */
void local_credit_check(struct local_channel *c, struct local_reader *r)
{
	if (!r->batch_over)
		return;
	if (local_credit_was_piggybacked(r)) {
		streak_hit(&r->piggyback);
		settle_burst(c, r);
	} else if (ring_waiting(&r->rx)) {
		streak_break(&r->piggyback); /* the next burst, and no answer */
		settle_burst(c, r);
	} else if (ring_ack_is_due(&r->rx)) {
		uint64_t now = clock_ns();

		if (!r->ack_at) {
			r->ack_at = now + DEFER_NS;
		} else if (now >= r->ack_at) {
			streak_lose(&r->piggyback);
			settle_burst(c, r);
		}
	}
}

/* Then it sends no other before it has it, and a look for one fetches a line from the other core. */
bool local_credit_expects_reply(const struct local_reader *r)
{
	return streak_bets(&r->piggyback) && due(r) == 0;
}

void local_credit_flush(struct local_channel *c, struct local_reader *r)
{
	if (r->batch_over && ring_ack_is_due(&r->rx))
		settle_burst(c, r);
}

/* A burst of frames has ended. */
void local_credit_end_burst(struct local_channel *c, struct local_reader *r)
{
	r->batch_over = true;
	if (!r->reverse || !streak_bets(&r->piggyback) || due(r) >= DEFERRED_MOST) {
		publish(c, r);
		return;
	}
	/* Who goes to sleep says so and then looks whether something is deferred; we the other way round. */
	fence_light(c->bell->heavy);
	if (atomic_load_explicit(&c->bell->asleep, memory_order_relaxed) && c->events.promise)
		c->events.promise(c->events.promise_arg, DEFER_NS);
}

/* ---- taking them ---- */
static void collect(struct local_channel *c, struct local_writer *w, uint32_t taken, bool sure, void *arg)
{
	enum { NOTES = 32 };
	struct ring_note note[NOTES];
	int n;

	do {
		lock_take(&w->lock);
		n = w->state == WRITER_UP ? ring_collect(&w->tx, taken, note, NOTES) : 0;
		if (n < 0 && sure) {
			log_info("process in slot %u: corrupt ring, no more shared memory", w->slot);
			local_writer_drop(c, w);
		}
		lock_drop(&w->lock);
		for (int i = 0; i < n && c->events.executed; i++)
			c->events.executed(arg, note[i].cookie, note[i].psn, !note[i].refused);
	} while (n == NOTES);
}

/* The writer may have been asked for anew since, by which another process has it. */
static bool is_reverse(struct local_reader *r)
{
	return r->reverse && atomic_load(&r->reverse->reverse) == r;
}

/* A frame said how far its writer is with what we sent to it. */
void local_credit_take(struct local_channel *c, struct local_reader *r, void *arg)
{
	r->acked = r->rx.ack;
	if (is_reverse(r))
		collect(c, r->reverse, r->acked, false, arg);
}

static void reap(struct local_channel *c, struct local_writer *w)
{
	lock_take(&w->lock);
	if (w->ended)
		local_writer_drop(c, w);
	lock_drop(&w->lock);
}

int local_credit_collect(struct local_channel *c, void *arg)
{
	unsigned made = atomic_load_explicit(&c->nmade, memory_order_acquire);
	int n = 0;

	for (unsigned i = 0; i < made; i++) {
		struct local_writer *w = atomic_load_explicit(&c->made[i], memory_order_acquire);

		if (w && local_credit_is_acked(w)) {
			collect(c, w, atomic_load_explicit(&w->tx.ring->taken, memory_order_acquire), true,
				arg);
			n++;
		}
		if (w && atomic_load_explicit(&w->ended, memory_order_relaxed))
			reap(c, w);
	}
	return n;
}
