/* SPDX-License-Identifier: MIT */
/*
 * Which programs listen for which requests of connections. A host is one place for all its programs: what one
 * of them listens for no other can have, by whatever address.
 */
#include "fabricd/attach_parts.h"

#include "base/gid.h"
#include "fabric/shared.h"

#include <stdlib.h>
#include <string.h>

static bool is_any(const struct attach_listen *l)
{
	return gid_is_zero(l->addr);
}

static unsigned families_of(const struct attach_listen *l)
{
	if (is_any(l) || l->families & ATTACH_GID)
		return l->families;
	return gid_is_v4(l->addr) ? ATTACH_V4 : ATTACH_V6;
}

/* Whether some request would be for both. */
static bool overlap(const struct attach_listen *a, const struct attach_listen *b)
{
	if (a->service_id != b->service_id)
		return false;
	if ((a->families ^ b->families) & ATTACH_GID)
		return true; /* a request by GID has private data that may look like an IP address */
	if (!(families_of(a) & families_of(b)))
		return false;
	return is_any(a) || is_any(b) || gid_same(a->addr, b->addr);
}

static bool is_anothers(const struct attach_conn *c, const struct attach_listen *l)
{
	list_for_each(n, &c->all->conns)
	{
		const struct attach_conn *o = container_of(n, struct attach_conn, node);

		for (unsigned i = 0; o != c && o->host == c->host && i < o->nlisten; i++)
			if (overlap(&o->listen[i], l))
				return true;
	}
	return false;
}

/* Room for all of them is made at once: few programs listen at all. */
static bool add(struct attach_conn *c, const struct attach_listen *l)
{
	if (!c->listen)
		c->listen = calloc(ATTACH_LISTENERS, sizeof(*c->listen));
	if (!c->listen || c->nlisten == ATTACH_LISTENERS || is_anothers(c, l))
		return false;
	c->listen[c->nlisten++] = *l;
	return true;
}

static void drop(struct attach_conn *c, const struct attach_listen *l)
{
	for (unsigned i = 0; i < c->nlisten; i++) {
		if (c->listen[i].service_id != l->service_id || c->listen[i].families != l->families ||
			!gid_same(c->listen[i].addr, l->addr))
			continue;
		c->listen[i] = c->listen[--c->nlisten];
		return;
	}
}

void attach_listen(struct attach_conn *c, const struct attach_listen *l)
{
	if (l->type == ATTACH_UNLISTEN)
		drop(c, l);
	else if (!add(c, l))
		c->all->count.listeners++;
}

/* How well it fits: 0 not at all, 2 by its address. */
static int fits(
	const struct attach_listen *l, const struct subnet_port *at, uint64_t service_id, const uint8_t *ip)
{
	if (l->service_id != service_id)
		return 0;
	if (l->families & ATTACH_GID)
		return is_any(l) ? 1 : fabric_port_has_gid(at->shared, l->addr) ? 2 : 0;
	if (!ip)
		return 0;
	if (is_any(l))
		return l->families & (gid_is_v4(ip) ? ATTACH_V4 : ATTACH_V6) ? 1 : 0;
	return gid_same(l->addr, ip) ? 2 : 0;
}

struct attach_conn *attach_listener(
	struct attach *all, const struct subnet_port *at, uint64_t service_id, const uint8_t *ip)
{
	struct attach_conn *best = NULL;
	int how = 0;

	list_for_each(n, &all->conns)
	{
		struct attach_conn *c = container_of(n, struct attach_conn, node);

		for (unsigned i = 0; c->nlisten && trunk_is_on(c, at) && i < c->nlisten; i++) {
			int f = fits(&c->listen[i], at, service_id, ip);

			if (f > how) {
				how = f;
				best = c;
			}
		}
	}
	return best;
}
