/* SPDX-License-Identifier: MIT */
#include "host/ports_own.h"

#include <stdlib.h>

void ports_own_init(struct ports_own *o)
{
	*o = (struct ports_own){0};
	lock_init(&o->lock);
}

void ports_own_fini(struct ports_own *o)
{
	lock_fini(&o->lock);
	free(o->claims);
}

/* A free place in the list; NULL: out of memory. */
static struct ports_own_claim *take(struct ports_own *o)
{
	enum { FIRST = 16 };
	struct ports_own_claim *more;

	for (uint32_t i = o->free_hint; i < o->count; i++) {
		if (!o->claims[i].at)
			return &o->claims[i];
	}
	if (o->count == o->room) {
		more = realloc(o->claims, (o->room ? 2 * o->room : FIRST) * sizeof(*more));
		if (!more)
			return NULL;
		o->claims = more;
		o->room = o->room ? 2 * o->room : FIRST;
	}
	o->claims[o->count].generation = 0;
	return &o->claims[o->count++];
}

host_port_id ports_own_add(struct ports_own *o, const struct host_port_claim *c, host_port_id at)
{
	struct ports_own_claim *own;
	host_port_id id = 0;

	lock_take(&o->lock);
	own = take(o);
	if (own) {
		uint32_t i = (uint32_t)(own - o->claims);

		*own = (struct ports_own_claim){.claim = *c, .at = at, .generation = own->generation + 1};
		o->free_hint = i + 1;
		id = (uint64_t)own->generation << 32 | (i + 1);
	}
	lock_drop(&o->lock);
	return id;
}

struct ports_own_claim *ports_own_find(struct ports_own *o, host_port_id id)
{
	uint32_t i = (uint32_t)id - 1;

	assert_locked(&o->lock);
	if (i >= o->count || !o->claims[i].at || o->claims[i].generation != id >> 32)
		return NULL;
	return &o->claims[i];
}

host_port_id ports_own_remove(struct ports_own *o, host_port_id id)
{
	struct ports_own_claim *own;
	host_port_id at = 0;

	lock_take(&o->lock);
	own = ports_own_find(o, id);
	if (own) {
		uint32_t i = (uint32_t)(own - o->claims);

		at = own->at;
		own->at = 0;
		if (i < o->free_hint)
			o->free_hint = i;
	}
	lock_drop(&o->lock);
	return at;
}
