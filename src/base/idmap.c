/* SPDX-License-Identifier: MIT */
/* Open addressing, linear probing, deletion by shifting back: no tombstones, so it never wears out. */
#include "base/idmap.h"

#include <errno.h>
#include <stdlib.h>

static struct idmap_table *table_new(uint32_t size)
{
	struct idmap_table *t = calloc(1, sizeof(*t) + size * sizeof(t->slot[0]));

	if (t)
		t->mask = size - 1;
	return t;
}

int idmap_init(struct idmap *m)
{
	struct idmap_table *t = table_new(64);

	if (!t)
		return -ENOMEM;
	atomic_init(&m->table, t);
	atomic_init(&m->seq, 0);
	m->count = 0;
	return 0;
}

void idmap_fini(struct idmap *m)
{
	struct idmap_table *t = atomic_load(&m->table);

	while (t) {
		struct idmap_table *next = t->outgrown;

		free(t);
		t = next;
	}
	atomic_store(&m->table, NULL);
}

/* The slot that holds the id, or the empty one where it belongs. */
static uint32_t slot_of(const struct idmap_table *t, uint32_t id)
{
	uint32_t i = idmap_hash(id) & t->mask;

	for (;; i = (i + 1) & t->mask) {
		uint32_t sid = atomic_load_explicit(&t->slot[i].id, memory_order_relaxed);

		if (sid == id || !sid)
			return i;
	}
}

static void slot_set(struct idmap_slot *s, uint32_t id, void *value)
{
	atomic_store_explicit(&s->value, value, memory_order_release);
	atomic_store_explicit(&s->id, id, memory_order_release);
}

static int grow(struct idmap *m)
{
	struct idmap_table *old = atomic_load(&m->table), *t = table_new((old->mask + 1) * 2);

	if (!t)
		return -ENOMEM;
	for (uint32_t i = 0; i <= old->mask; i++) {
		uint32_t id = atomic_load(&old->slot[i].id);

		if (id)
			slot_set(&t->slot[slot_of(t, id)], id, atomic_load(&old->slot[i].value));
	}
	t->outgrown = old;
	atomic_store_explicit(&m->table, t, memory_order_release);
	return 0;
}

int idmap_add(struct idmap *m, uint32_t id, void *value)
{
	struct idmap_table *t = atomic_load(&m->table);
	uint32_t i;

	if (!id)
		return -EEXIST;
	if ((m->count + 1) * 2 > t->mask) {
		int err = grow(m);

		if (err)
			return err;
		t = atomic_load(&m->table);
	}
	i = slot_of(t, id);
	if (atomic_load_explicit(&t->slot[i].id, memory_order_relaxed))
		return -EEXIST;
	slot_set(&t->slot[i], id, value);
	m->count++;
	return 0;
}

void idmap_del(struct idmap *m, uint32_t id)
{
	struct idmap_table *t = atomic_load(&m->table);
	uint32_t hole = slot_of(t, id), i = hole;

	if (!atomic_load_explicit(&t->slot[hole].id, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&m->seq, 1, memory_order_acq_rel);
	for (;;) {
		uint32_t sid, home;

		i = (i + 1) & t->mask;
		sid = atomic_load_explicit(&t->slot[i].id, memory_order_relaxed);
		if (!sid)
			break;
		home = idmap_hash(sid) & t->mask;
		/* Move it into the hole unless its home lies behind the hole. */
		if (((i - home) & t->mask) >= ((i - hole) & t->mask)) {
			slot_set(&t->slot[hole], sid,
				atomic_load_explicit(&t->slot[i].value, memory_order_relaxed));
			hole = i;
		}
	}
	atomic_store_explicit(&t->slot[hole].id, 0, memory_order_release);
	atomic_store_explicit(&t->slot[hole].value, NULL, memory_order_release);
	m->count--;
	atomic_fetch_add_explicit(&m->seq, 1, memory_order_acq_rel);
}

void idmap_each(struct idmap *m, void (*fn)(void *arg, void *value), void *arg)
{
	struct idmap_table *t = m->table;

	for (uint32_t i = 0; i <= t->mask; i++) {
		if (t->slot[i].id && t->slot[i].value)
			fn(arg, t->slot[i].value);
	}
}
