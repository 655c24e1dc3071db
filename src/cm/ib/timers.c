/* SPDX-License-Identifier: MIT */
#include "cm/ib/timers.h"

#include <stddef.h>

/* Joins two heaps: the later root becomes the earlier one's first child. */
static struct cm_timer *meld(struct cm_timer *a, struct cm_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->at < a->at) {
		struct cm_timer *swap = a;

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
static struct cm_timer *meld_siblings(struct cm_timer *t)
{
	struct cm_timer *pairs = NULL, *heap = NULL;

	while (t) {
		struct cm_timer *a = t, *b = t->next, *pair;

		t = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		pair = meld(a, b);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct cm_timer *pair = pairs;

		pairs = pair->next;
		pair->next = NULL;
		heap = meld(heap, pair);
	}
	return heap;
}

static void cut(struct cm_timer *t)
{
	if (t->prev->child == t)
		t->prev->child = t->next;
	else
		t->prev->next = t->next;
	if (t->next)
		t->next->prev = t->prev;
}

void cm_timer_clear(struct cm_timers *h, struct cm_timer *t)
{
	struct cm_timer *rest;

	if (!t->set)
		return;
	rest = meld_siblings(t->child);
	if (h->root == t) {
		h->root = rest;
	} else {
		cut(t);
		h->root = meld(h->root, rest);
	}
	*t = (struct cm_timer){0};
}

void cm_timer_set(struct cm_timers *h, struct cm_timer *t, uint64_t at)
{
	cm_timer_clear(h, t);
	t->at = at;
	t->set = true;
	h->root = meld(h->root, t);
}
