/* SPDX-License-Identifier: MIT */
/*
 * Deadlines of any number of things without allocation: a pairing heap whose nodes lie in what they belong
 * to. Setting is O(1), taking the earliest out O(log n) amortised. No clock and no lock: both are the
 * owner's.
 */
#ifndef BASE_TIMERS_H
#define BASE_TIMERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed: not set. */
struct timer {
	_Atomic uint64_t at; /* 0: not set */
	struct timer *child, *next;
	struct timer *prev; /* left sibling; the parent, when it is the first child */
};

/* Zeroed: none is set. */
struct timers {
	struct timer *root;
};

/* Sets it, whether or not it was set before. 0 is as good as 1. */
void timer_set(struct timers *h, struct timer *t, uint64_t at);
/* Harmless when it is not set. */
void timer_clear(struct timers *h, struct timer *t);
/* Clears and returns the earliest if its time has come, else NULL. */
struct timer *timers_take_due(struct timers *h, uint64_t now);

/* The earliest, which stays set; NULL: none is. */
static inline struct timer *timers_first(const struct timers *h)
{
	return h->root;
}

/* When it is due; UINT64_MAX: none is set. */
static inline uint64_t timers_next(const struct timers *h)
{
	return h->root ? atomic_load_explicit(&h->root->at, memory_order_relaxed) : UINT64_MAX;
}

/* Whether it is set to that time or an earlier one. Also for who does not have the owner's lock. */
static inline bool timer_is_by(const struct timer *t, uint64_t at)
{
	uint64_t set = atomic_load_explicit(&t->at, memory_order_relaxed);

	return set && set <= at;
}

static inline bool timer_is_set(const struct timer *t)
{
	return timer_is_by(t, UINT64_MAX);
}

#endif
