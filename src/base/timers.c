/* SPDX-License-Identifier: MIT */
#include "base/timers.h"

#include <stddef.h>

static uint64_t time_of(const struct timer *t)
{
	return atomic_load_explicit(&t->at, memory_order_relaxed);
}

/* Joins two heaps: the later root becomes the earlier one's first child. */
static struct timer *meld(struct timer *a, struct timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (time_of(b) < time_of(a)) {
		struct timer *swap = a;

		a = b;
		b = swap;
	}
	b->next = a->child;
	b->prev = a;
	if (a->child)
		a->child->prev = b;
	a->child = b;
	return a;
}

/* Siblings into one heap: in pairs from the left, then the pairs from the right. */
static struct timer *meld_siblings(struct timer *t)
{
	struct timer *pairs = NULL, *heap = NULL;

	while (t) {
		struct timer *a = t, *b = t->next, *pair;

		t = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		pair = meld(a, b);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct timer *pair = pairs;

		pairs = pair->next;
		pair->next = NULL;
		heap = meld(heap, pair);
	}
	return heap;
}

static void cut(struct timer *t)
{
	if (t->prev->child == t)
		t->prev->child = t->next;
	else
		t->prev->next = t->next;
	if (t->next)
		t->next->prev = t->prev;
}

void timer_clear(struct timers *h, struct timer *t)
{
	struct timer *rest;

	if (!timer_is_set(t))
		return;
	rest = meld_siblings(t->child);
	if (h->root == t) {
		h->root = rest;
	} else {
		cut(t);
		h->root = meld(h->root, rest);
	}
	t->child = t->next = t->prev = NULL;
	atomic_store_explicit(&t->at, 0, memory_order_relaxed);
}

void timer_set(struct timers *h, struct timer *t, uint64_t at)
{
	timer_clear(h, t);
	atomic_store_explicit(&t->at, at ? at : 1, memory_order_relaxed);
	h->root = meld(h->root, t);
}

struct timer *timers_take_due(struct timers *h, uint64_t now)
{
	struct timer *first = h->root;

	if (!first || time_of(first) > now)
		return NULL;
	timer_clear(h, first);
	return first;
}
