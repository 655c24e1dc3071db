/* SPDX-License-Identifier: MIT */
#include "hca/flow_table.h"

#include "hca/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int hca_flow_table_init(struct hca_flow_table *t)
{
	memset(t, 0, sizeof(*t));
	lock_init(&t->lock);
	list_init(&t->used);
	list_init(&t->idle);
	t->bucket = calloc(FLOW_BUCKETS, sizeof(t->bucket[0]));
	return t->bucket ? 0 : -ENOMEM;
}

static void flow_free(struct hca_flow *f)
{
	if (!f)
		return;
	lock_fini(&f->lock);
	free(f);
}

static void free_all(struct list *flows)
{
	for (struct list *n; (n = list_pop(flows));)
		flow_free(container_of(n, struct hca_flow, node));
}

void hca_flow_table_fini(struct hca_flow_table *t)
{
	free_all(&t->used);
	free_all(&t->idle);
	free(t->bucket);
	lock_fini(&t->lock);
}

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

struct hca_flow *hca_flow_table_add(struct hca_flow_table *t, struct hca_flow *f)
{
	struct hca_flow *there;

	lock_take(&t->lock);
	there = use(t, find(t, f->dgid, f->slot));
	if (!there)
		insert(t, f);
	lock_drop(&t->lock);
	if (there)
		flow_free(f);
	return there ? there : f;
}

struct hca_flow *hca_flow_table_hold(struct hca_flow_table *t, struct hca_flow *f)
{
	lock_take(&t->lock);
	f->users++;
	lock_drop(&t->lock);
	return f;
}

/* lock held; takes the one that is idle for longest out. */
static struct hca_flow *take_oldest(struct hca_flow_table *t)
{
	struct hca_flow *f = container_of(list_pop(&t->idle), struct hca_flow, node);
	struct hca_flow **p = bucket_of(t, f->dgid, f->slot);

	assert_locked(&t->lock);
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	t->count--;
	t->nidle--;
	return f;
}

/* lock held; a reference is given back. Returns one to be freed, or NULL. */
static struct hca_flow *unuse(struct hca_flow_table *t, struct hca_flow *f)
{
	assert_locked(&t->lock);
	if (--f->users)
		return NULL;
	list_del(&f->node);
	list_add_tail(&t->idle, &f->node);
	return ++t->nidle > FLOW_IDLE_MAX ? take_oldest(t) : NULL;
}

void hca_flow_table_put(struct hca_flow_table *t, struct hca_flow *f)
{
	struct hca_flow *gone;

	if (!f)
		return;
	lock_take(&t->lock);
	gone = unuse(t, f);
	lock_drop(&t->lock);
	flow_free(gone);
}

struct hca_flow *hca_flow_table_next(struct hca_flow_table *t, struct hca_flow *f)
{
	struct hca_flow *next = NULL, *gone = NULL;
	struct list *n;

	lock_take(&t->lock);
	n = f ? f->node.next : t->used.next;
	if (n != &t->used)
		next = use(t, container_of(n, struct hca_flow, node));
	if (f)
		gone = unuse(t, f);
	lock_drop(&t->lock);
	flow_free(gone);
	return next;
}
