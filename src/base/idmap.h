/* SPDX-License-Identifier: MIT */
/*
 * A map from 32-bit ids, drawn at random, to pointers. Look-ups take no lock and may run beside one
 * writer; writers are serialised by the caller. A sequence number tells a reader that the table moved under
 * it, and it looks again. A table that was outgrown is kept until idmap_fini, since a reader may still be
 * in it: sizes double, so that costs at most as much again.
 *
 * The map does not keep its values alive: a caller that looks up without a lock must make sure that what it
 * finds is not freed under it (see hca/mr.h and hca/engine.h for how).
 */
#ifndef BASE_IDMAP_H
#define BASE_IDMAP_H

#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>

struct idmap_slot {
	_Atomic uint32_t id; /* 0: empty, ends a probe */
	_Atomic(void *) value;
};

struct idmap_table {
	struct idmap_table *outgrown;
	uint32_t mask;
	struct idmap_slot slot[];
};

struct idmap {
	_Atomic(struct idmap_table *) table;
	_Atomic uint32_t seq; /* odd while a writer is at work */
	uint32_t count;
};

int idmap_init(struct idmap *m);
void idmap_fini(struct idmap *m);
/* 0, -EEXIST when the id is taken (0 always is), -ENOMEM */
int idmap_add(struct idmap *m, uint32_t id, void *value);
void idmap_del(struct idmap *m, uint32_t id);
/* Calls fn for every value; writers are kept away by the caller. */
void idmap_each(struct idmap *m, void (*fn)(void *arg, void *value), void *arg);

static inline uint32_t idmap_hash(uint32_t id)
{
	return (id * 0x9e3779b1u) >> 7;
}

static inline void *idmap_probe(const struct idmap_table *t, uint32_t id)
{
	uint32_t i = idmap_hash(id);

	for (uint32_t n = 0; n <= t->mask; n++, i++) {
		const struct idmap_slot *s = &t->slot[i & t->mask];
		uint32_t sid = atomic_load_explicit(&s->id, memory_order_acquire);

		if (sid == id)
			return atomic_load_explicit(&s->value, memory_order_acquire);
		if (!sid)
			break;
	}
	return NULL;
}

static inline void *idmap_get(struct idmap *m, uint32_t id)
{
	uint32_t seq;
	void *v;

	do {
		seq = atomic_load_explicit(&m->seq, memory_order_acquire);
		v = idmap_probe(atomic_load_explicit(&m->table, memory_order_acquire), id);
	} while ((seq & 1) || atomic_load_explicit(&m->seq, memory_order_acquire) != seq);
	return v;
}

#endif
