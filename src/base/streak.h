/* SPDX-License-Identifier: MIT */
/*
 * Learning whether it pays to wait for something. When it came at once STREAK_BETS times in a row, the next
 * time we bet on it, and wait a moment; when it does not come we have lost, and do not bet again before it
 * came STREAK_LOST + STREAK_BETS times more. A wrong bet costs as much as several right ones bring.
 *
 * Any number of threads may learn from the same: one may undo what another has just learnt, which costs a
 * bet.
 */
#ifndef BASE_STREAK_H
#define BASE_STREAK_H

#include <stdatomic.h>
#include <stdbool.h>

enum { STREAK_BETS = 4, STREAK_LOST = 16 };

/* Zeroed: nothing is known. */
struct streak {
	_Atomic int n; /* times in a row; below 0: how many more before it is looked at again */
};

static inline int streak_count(const struct streak *s)
{
	return atomic_load_explicit(&s->n, memory_order_relaxed);
}

/* Whether to wait for it. */
static inline bool streak_bets(const struct streak *s)
{
	return streak_count(s) >= STREAK_BETS;
}

/* It came at once. */
static inline void streak_hit(struct streak *s)
{
	int n = streak_count(s);

	if (n < STREAK_BETS)
		atomic_store_explicit(&s->n, n + 1, memory_order_relaxed);
}

/* It did not, and nothing is lost by it. */
static inline void streak_break(struct streak *s)
{
	if (streak_count(s) > 0)
		atomic_store_explicit(&s->n, 0, memory_order_relaxed);
}

/* It did not, though we have waited for it. */
static inline void streak_lose(struct streak *s)
{
	atomic_store_explicit(&s->n, -STREAK_LOST, memory_order_relaxed);
}

#endif
