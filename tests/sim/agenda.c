/* SPDX-License-Identifier: MIT */
/* A binary heap. */
#include "agenda.h"

#include <stdbool.h>
#include <stdlib.h>

static bool sooner(const struct happening *a, const struct happening *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void agenda_add(struct agenda *a, struct happening h)
{
	size_t i = a->count++;

	if (a->count > a->room) {
		a->room = a->room ? a->room * 2 : 1024;
		a->heap = realloc(a->heap, a->room * sizeof(*a->heap));
		if (!a->heap)
			abort();
	}
	h.order = a->order++;
	for (; i && sooner(&h, &a->heap[(i - 1) / 2]); i = (i - 1) / 2)
		a->heap[i] = a->heap[(i - 1) / 2];
	a->heap[i] = h;
}

uint64_t agenda_due(const struct agenda *a)
{
	return a->count ? a->heap[0].at : UINT64_MAX;
}

struct happening agenda_next(struct agenda *a)
{
	struct happening first = a->heap[0], last = a->heap[--a->count];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < a->count; i = child) {
		if (child + 1 < a->count && sooner(&a->heap[child + 1], &a->heap[child]))
			child++;
		if (sooner(&last, &a->heap[child]))
			break;
		a->heap[i] = a->heap[child];
	}
	a->heap[i] = last;
	return first;
}

void agenda_fini(struct agenda *a)
{
	free(a->heap);
	*a = (struct agenda){0};
}
