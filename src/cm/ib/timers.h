/* SPDX-License-Identifier: MIT */
/*
 * Deadlines of any number of connections without allocation: a pairing heap whose nodes lie in what they
 * belong to. Setting is O(1), taking the earliest out O(log n) amortised.
 */
#ifndef CM_TIMERS_H
#define CM_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

struct cm_timer {
	struct cm_timer *child, *next;
	struct cm_timer *prev; /* left sibling; the parent's, when it is the first child */
	uint64_t at;
	bool set;
};

struct cm_timers {
	struct cm_timer *root;
};

/* Sets it, whether or not it was set before. */
void cm_timer_set(struct cm_timers *h, struct cm_timer *t, uint64_t at);
/* Harmless when it is not set. */
void cm_timer_clear(struct cm_timers *h, struct cm_timer *t);

/* The earliest, or NULL. */
static inline struct cm_timer *cm_timer_first(const struct cm_timers *h)
{
	return h->root;
}

#endif
