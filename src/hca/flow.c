/* SPDX-License-Identifier: MIT */
#include "hca/flow.h"

#include <string.h>

void hca_flow_init(struct hca_flow *f, const uint8_t dgid[16], uint32_t slot)
{
	memset(f, 0, sizeof(*f));
	memcpy(f->dgid, dgid, 16);
	f->slot = slot;
	f->window = f->cap_now = f->cap = FLOW_WINDOW;
	f->floor = FLOW_WINDOW_MIN;
	f->acked = FLOW_WINDOW;
	lock_init(&f->lock);
	list_init(&f->waiters);
	list_init(&f->node);
}

uint32_t hca_flow_limit(uint32_t rcvbuf)
{
	uint32_t w = rcvbuf / 4 * 3;

	return w < FLOW_WINDOW_MIN ? FLOW_WINDOW_MIN : w < FLOW_WINDOW_MAX ? w : FLOW_WINDOW_MAX;
}

/* f->lock held. */
static uint32_t unreliable(const struct hca_flow *f)
{
	uint64_t n = f->sent - f->echoed;

	assert_locked(&f->lock);
	return n < f->window / 2 ? (uint32_t)n : f->window / 2;
}

/*
 * f->lock held. An idle flow always lets one packet out. Unreliable traffic is only known to have arrived
 * when an echo says so, and nobody asks for one behind its last packets: it may hold back half of the window,
 * no more, and never the only packet whose acknowledge would move things on.
 */
static bool is_open(const struct hca_flow *f, uint32_t cost)
{
	assert_locked(&f->lock);
	return !f->in_flight || (!f->latched && f->in_flight + unreliable(f) + cost <= f->window);
}

/* Unreliable traffic itself sees all of it, but is let through when it has to ask for an echo first. */
static bool is_open_unreliable(const struct hca_flow *f, uint32_t cost)
{
	uint64_t busy = f->in_flight + (f->sent - f->echoed);

	return !busy || busy + cost <= f->window || (!f->echo_asked && f->in_flight + cost <= f->window);
}

/* f->lock held. */
static void let_wait(struct hca_flow *f, struct list *waiter)
{
	assert_locked(&f->lock);
	if (list_empty(waiter))
		list_add_tail(&f->waiters, waiter);
	atomic_store_explicit(&f->waited_for, true, memory_order_relaxed);
}

bool hca_flow_take(struct hca_flow *f, uint32_t cost, struct list *waiter, bool stuck)
{
	bool open;

	lock_take(&f->lock);
	open = is_open(f, cost) || (stuck && f->in_flight + cost <= f->window / 3 * 4);
	if (open) {
		f->in_flight += cost;
		list_del(waiter);
	} else {
		f->latched = true;
		let_wait(f, waiter);
	}
	lock_drop(&f->lock);
	return open;
}

uint32_t hca_flow_take_more(struct hca_flow *f, uint32_t cost, uint32_t n)
{
	uint32_t busy, fit;

	lock_take(&f->lock);
	busy = f->in_flight + unreliable(f);
	fit = f->latched || busy >= f->window ? 0 : (f->window - busy) / cost;
	if (n > fit)
		n = fit;
	f->in_flight += n * cost;
	lock_drop(&f->lock);
	return n;
}

/* f->lock held. A window that was found closed stays so until a quarter of it is open. */
static void give_back(struct hca_flow *f, uint32_t cost)
{
	assert_locked(&f->lock);
	f->in_flight -= cost <= f->in_flight ? cost : f->in_flight;
	f->released += cost;
	if (f->latched && f->in_flight + unreliable(f) <= f->window / 4 * 3)
		f->latched = false;
}

static uint32_t grow(uint32_t v, uint64_t by, uint32_t most)
{
	return v + by < most ? v + (uint32_t)by : most;
}

void hca_flow_release(struct hca_flow *f, uint32_t cost)
{
	lock_take(&f->lock);
	f->acked += cost;
	if (f->cap_now < f->cap)
		f->cap_now = grow(f->cap_now, cost / 16384, f->cap);
	if (f->window < f->cap_now) /* a division is dear */
		f->window = grow(f->window, (uint64_t)cost * FLOW_GROWTH / f->window + 1, f->cap_now);
	give_back(f, cost);
	lock_drop(&f->lock);
}

void hca_flow_cancel(struct hca_flow *f, uint32_t cost)
{
	lock_take(&f->lock);
	give_back(f, cost);
	lock_drop(&f->lock);
}

uint64_t hca_flow_released(struct hca_flow *f)
{
	uint64_t n;

	lock_take(&f->lock);
	n = f->released;
	lock_drop(&f->lock);
	return n;
}

void hca_flow_charge(struct hca_flow *f, uint32_t cost)
{
	lock_take(&f->lock);
	f->in_flight += cost;
	lock_drop(&f->lock);
}

void hca_flow_loss(struct hca_flow *f)
{
	lock_take(&f->lock);
	if (f->acked >= f->window) {
		f->acked = 0;
		/* It may be the peer's buffer, smaller than we took it for: not up there again soon. */
		f->cap_now = f->window - f->window / 16;
		if (f->cap_now < FLOW_WINDOW && f->cap >= FLOW_WINDOW)
			f->cap_now = FLOW_WINDOW;
		f->window -= f->window / 8;
		if (f->window < f->floor)
			f->window = f->floor;
	}
	lock_drop(&f->lock);
}

struct list *hca_flow_pop(struct hca_flow *f)
{
	struct list *node = NULL;

	/* Who waits said so before our release, or saw what it gave back: no lock for the usual case. */
	if (!hca_flow_is_waited_for(f))
		return NULL;
	lock_take(&f->lock);
	if (is_open(f, FLOW_PACKET))
		node = list_pop(&f->waiters);
	if (list_empty(&f->waiters))
		atomic_store_explicit(&f->waited_for, false, memory_order_relaxed);
	lock_drop(&f->lock);
	return node;
}

/* ---- unreliable traffic ---- */
enum {
	ECHO_FIRST_NS = 20 * 1000000, /* to one that never answered */
	ECHO_NS = 50 * 1000000,       /* to one that did: it may be descheduled */
	ECHO_MISSES = 4,
	NO_ECHO_NS = 1000 * 1000 * 1000,
};

bool hca_flow_take_unreliable(
	struct hca_flow *f, uint32_t cost, struct list *waiter, uint64_t now, uint64_t *ask)
{
	bool open;

	lock_take(&f->lock);
	open = is_open_unreliable(f, cost) || now < f->no_echo_until;
	if (open) {
		f->sent += cost;
		list_del(waiter);
		*ask = 0;
		if (!f->echo_asked && now >= f->no_echo_until && f->sent - f->echoed > f->window / 4) {
			*ask = f->echo_asked = f->sent;
			f->echo_at = now;
		}
	} else {
		let_wait(f, waiter);
	}
	lock_drop(&f->lock);
	return open;
}

void hca_flow_echoed(struct hca_flow *f, uint64_t sent)
{
	lock_take(&f->lock);
	if (sent > f->echoed && sent <= f->sent) {
		f->echoed = sent;
		f->echo_asked = 0;
		f->echo_misses = 0;
		f->echo_heard = true;
		f->no_echo_until = 0;
	}
	lock_drop(&f->lock);
}

uint64_t hca_flow_echo_deadline(struct hca_flow *f)
{
	uint64_t at;

	lock_take(&f->lock);
	at = f->echo_asked ? f->echo_at + (f->echo_heard ? ECHO_NS : ECHO_FIRST_NS) : 0;
	lock_drop(&f->lock);
	return at;
}

bool hca_flow_echo_timeout(struct hca_flow *f, uint64_t now)
{
	uint64_t at = hca_flow_echo_deadline(f);

	if (!at || now < at)
		return false;
	lock_take(&f->lock);
	/* Whatever was in flight has arrived or is lost by now; the next packets ask again. */
	f->echoed = f->sent;
	f->echo_asked = 0;
	if (!f->echo_heard || ++f->echo_misses >= ECHO_MISSES) {
		f->no_echo_until = now + NO_ECHO_NS;
		f->echo_heard = false;
	}
	lock_drop(&f->lock);
	return true;
}
