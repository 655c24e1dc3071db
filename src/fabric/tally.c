/* SPDX-License-Identifier: MIT */
#include "fabric/tally.h"

#include <stdlib.h>
#include <string.h>

void tally_pool_init(struct tally_pool *p)
{
	*p = (struct tally_pool){.next = NULL};
	lock_init(&p->lock);
}

void tally_pool_fini(struct tally_pool *p)
{
	free(p->next);
	p->next = NULL;
	lock_fini(&p->lock);
}

void tally_pool_begin(struct tally_pool *p, struct tallies *shared)
{
	lock_take(&p->lock);
	if (!p->next)
		p->next = calloc(TALLIES, sizeof(*p->next));
	memset(p->bucket, 0, sizeof(p->bucket));
	atomic_store(&p->shared, p->next ? shared : NULL);
	lock_drop(&p->lock);
}

void tally_pool_end(struct tally_pool *p)
{
	lock_take(&p->lock);
	atomic_store(&p->shared, NULL);
	lock_drop(&p->lock);
}

/* ---- places ---- */
static uint32_t *bucket_of(struct tally_pool *p, uint64_t way)
{
	return &p->bucket[(way * 0x9e3779b97f4a7c15) >> 54];
}
_Static_assert(TALLY_BUCKETS == 1 << 10, "the upper bits of a product are a bucket");

static struct tally *take_left(struct tally_pool *p, struct tallies *s, uint64_t way)
{
	for (uint32_t *at = bucket_of(p, way); *at; at = &p->next[*at - 1]) {
		uint32_t i = *at - 1;

		if (s->at[i].way != way)
			continue;
		*at = p->next[i];
		return &s->at[i];
	}
	return NULL;
}

/* The fabric sees a place when it has its way. */
static struct tally *take_new(struct tallies *s, uint64_t way)
{
	uint32_t n = atomic_load_explicit(&s->n, memory_order_relaxed);

	if (n >= TALLIES)
		return NULL;
	s->at[n].way = way;
	atomic_store_explicit(&s->n, n + 1, memory_order_release);
	return &s->at[n];
}

struct tally *tally_take(struct tally_pool *p, uint64_t way)
{
	struct tally *t = NULL;
	struct tallies *s;

	lock_take(&p->lock);
	s = atomic_load_explicit(&p->shared, memory_order_relaxed);
	if (s)
		t = take_left(p, s, way);
	if (s && !t)
		t = take_new(s, way);
	lock_drop(&p->lock);
	return t;
}

void tally_leave(struct tally_pool *p, struct tally *t)
{
	lock_take(&p->lock);
	if (t && tally_is_for(p, t, t->way)) {
		uint32_t *first = bucket_of(p, t->way);
		uint32_t i = (uint32_t)(t - atomic_load(&p->shared)->at);

		p->next[i] = *first;
		*first = i + 1;
	}
	lock_drop(&p->lock);
}
