/* SPDX-License-Identifier: MIT */
#include "hca/flow_table.h"

#include "hca/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Flows that were allocated together, used from the first on. */
struct hca_flow_chunk {
	struct hca_flow_chunk *next;
	unsigned n, used;
	struct hca_flow flow[];
};

enum { CHUNK = 64 };

/* ---- life ---- */
/* Memory that nobody has used yet is not written to: most programs have few flows. */
static struct hca_flow_chunk *chunk_new(unsigned n)
{
	struct hca_flow_chunk *c = calloc(1, sizeof(*c) + n * sizeof(c->flow[0]));

	if (c)
		c->n = n;
	return c;
}

static void chunk_add(struct hca_flow_table *t, struct hca_flow_chunk *c)
{
	c->next = t->chunks;
	t->chunks = c;
	t->room += c->n;
}

int hca_flow_table_init(struct hca_flow_table *t)
{
	struct hca_flow_chunk *idle = chunk_new(FLOW_IDLE_MAX);

	memset(t, 0, sizeof(*t));
	lock_init(&t->lock);
	list_init(&t->used);
	list_init(&t->idle);
	list_init(&t->free);
	t->bucket = calloc(FLOW_BUCKETS, sizeof(t->bucket[0]));
	if (idle)
		chunk_add(t, idle);
	return idle && t->bucket ? 0 : -ENOMEM;
}

static void fini_all(struct list *flows)
{
	for (struct list *n; (n = list_pop(flows));)
		lock_fini(&container_of(n, struct hca_flow, node)->lock);
}

void hca_flow_table_fini(struct hca_flow_table *t)
{
	fini_all(&t->used);
	fini_all(&t->idle);
	for (struct hca_flow_chunk *c = t->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(t->bucket);
	lock_fini(&t->lock);
}

/* ---- room ---- */
/* Whoever comes when there is none left brings the next chunk, which two may do at once. */
int hca_flow_table_reserve(struct hca_flow_table *t)
{
	struct hca_flow_chunk *c = NULL;
	bool full;

	lock_take(&t->lock);
	full = ++t->qps + FLOW_IDLE_MAX > t->room;
	lock_drop(&t->lock);
	if (!full)
		return 0;
	c = chunk_new(CHUNK);
	lock_take(&t->lock);
	if (c)
		chunk_add(t, c);
	else
		t->qps--;
	lock_drop(&t->lock);
	return c ? 0 : -ENOMEM;
}

void hca_flow_table_unreserve(struct hca_flow_table *t)
{
	lock_take(&t->lock);
	t->qps--;
	lock_drop(&t->lock);
}

/* lock held; one that was never used. */
static struct hca_flow *take_fresh(struct hca_flow_table *t)
{
	assert_locked(&t->lock);
	for (struct hca_flow_chunk *c = t->chunks; c; c = c->next) {
		if (c->used < c->n)
			return &c->flow[c->used++];
	}
	return NULL;
}

/* ---- the table ---- */

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 32) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 32;
}

/* Addresses of one network differ in few bits: all of them decide. */
static struct hca_flow **bucket_of(struct hca_flow_table *t, const uint8_t dgid[16], uint32_t slot)
{
	uint64_t v[2], h;

	memcpy(v, dgid, 16);
	h = mix(mix(v[0] ^ slot) ^ v[1]);
	return &t->bucket[h & (FLOW_BUCKETS - 1)];
}

/* lock held */
static struct hca_flow *find(struct hca_flow_table *t, const uint8_t dgid[16], uint32_t slot)
{
	struct hca_flow *f = *bucket_of(t, dgid, slot);

	assert_locked(&t->lock);
	while (f && !hca_flow_is_to(f, dgid, slot))
		f = f->next;
	return f;
}

/* lock held */
static struct hca_flow *use(struct hca_flow_table *t, struct hca_flow *f)
{
	assert_locked(&t->lock);
	if (f && !f->users++) {
		list_del(&f->node);
		list_add_tail(&t->used, &f->node);
		t->nidle--;
	}
	return f;
}

struct hca_flow *hca_flow_table_get(struct hca_flow_table *t, const uint8_t dgid[16], uint32_t slot)
{
	struct hca_flow *f;

	lock_take(&t->lock);
	f = use(t, find(t, dgid, slot));
	lock_drop(&t->lock);
	return f;
}

/* lock held */
static void insert(struct hca_flow_table *t, struct hca_flow *f)
{
	struct hca_flow **bucket = bucket_of(t, f->dgid, f->slot);

	assert_locked(&t->lock);
	f->next = *bucket;
	*bucket = f;
	f->users = 1;
	list_add_tail(&t->used, &f->node);
	t->count++;
}

/* lock held; the one that is idle for longest is free. */
static void let_go_oldest(struct hca_flow_table *t)
{
	struct hca_flow *f = container_of(list_pop(&t->idle), struct hca_flow, node);
	struct hca_flow **p = bucket_of(t, f->dgid, f->slot);

	assert_locked(&t->lock);
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	t->count--;
	t->nidle--;
	lock_fini(&f->lock);
	list_add_tail(&t->free, &f->node);
}

/* lock held; NULL: all are in use. */
static struct hca_flow *take_free(struct hca_flow_table *t)
{
	struct list *n = list_pop(&t->free);
	struct hca_flow *f = n ? container_of(n, struct hca_flow, node) : take_fresh(t);

	assert_locked(&t->lock);
	if (f || list_empty(&t->idle))
		return f;
	let_go_oldest(t);
	return container_of(list_pop(&t->free), struct hca_flow, node);
}

struct hca_flow *hca_flow_table_add(
	struct hca_flow_table *t, const uint8_t dgid[16], uint32_t slot, bool here, uint32_t limit)
{
	struct hca_flow *f;

	lock_take(&t->lock);
	f = use(t, find(t, dgid, slot));
	if (!f && (f = take_free(t))) {
		hca_flow_init(f, dgid, slot);
		f->on_this_host = here;
		if (limit > f->cap)
			f->cap_now = f->cap = limit;
		insert(t, f);
	}
	lock_drop(&t->lock);
	return f;
}

struct hca_flow *hca_flow_table_hold(struct hca_flow_table *t, struct hca_flow *f)
{
	lock_take(&t->lock);
	f->users++;
	lock_drop(&t->lock);
	return f;
}

/* lock held; a reference is given back. */
static void unuse(struct hca_flow_table *t, struct hca_flow *f)
{
	assert_locked(&t->lock);
	if (--f->users)
		return;
	list_del(&f->node);
	list_add_tail(&t->idle, &f->node);
	if (++t->nidle > FLOW_IDLE_MAX)
		let_go_oldest(t);
}

void hca_flow_table_put(struct hca_flow_table *t, struct hca_flow *f)
{
	if (!f)
		return;
	lock_take(&t->lock);
	unuse(t, f);
	lock_drop(&t->lock);
}

struct hca_flow *hca_flow_table_next(struct hca_flow_table *t, struct hca_flow *f)
{
	struct hca_flow *next = NULL;
	struct list *n;

	lock_take(&t->lock);
	n = f ? f->node.next : t->used.next;
	if (n != &t->used)
		next = use(t, container_of(n, struct hca_flow, node));
	if (f)
		unuse(t, f);
	lock_drop(&t->lock);
	return next;
}
