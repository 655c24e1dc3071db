/* SPDX-License-Identifier: MIT */
/*
 * What programs tell of packets that went past the switches (fabric/tally.h): each port on the way counts
 * what there is more of it than when we looked last. The memory is the program's: its ways are read once, its
 * numbers only grow, and are those of ports of its own host and of those that it reaches from there.
 */
#include "fabricd/attach_parts.h"
#include "fabric/shared.h"
#include "subnet/counters.h"
#include "wire/lrh.h"

#include <stdlib.h>

enum { WORDS_MAX = (4096 + LINK_HEADERS_MAX) / 4 }; /* of a packet */
#define AT_ONCE (1ull << 40)                        /* packets; more is nonsense */

/* ---- ways ---- */
/* Those that it has by now; no memory: another time. */
static void find_ways(struct attach_conn *c)
{
	uint32_t n = atomic_load_explicit(&c->trunk->tallies.n, memory_order_acquire);
	struct tally_seen *seen;

	if (n > TALLIES)
		n = TALLIES;
	if (n <= c->ntallies)
		return;
	seen = realloc(c->tally, n * sizeof(*seen));
	if (!seen)
		return;
	c->tally = seen;
	for (; c->ntallies < n; c->ntallies++)
		seen[c->ntallies] = (struct tally_seen){
			.way = __atomic_load_n(&c->trunk->tallies.at[c->ntallies].way, __ATOMIC_RELAXED)};
}

static struct subnet_port *port_at(const struct attach *all, uint32_t index)
{
	return index < all->nports ? all->port[index] : NULL;
}

/* Where it begins: a port of the program's host that has the LID. */
static struct subnet_port *here(const struct attach_conn *c, uint64_t way)
{
	struct subnet_port *p = port_at(c->all, tally_port(way));

	return p && trunk_is_on(c, p) && fabric_port_has_lid(p->shared, tally_slid(way)) ? p : NULL;
}

/* Where it ends: an adapter's port. */
static struct subnet_port *there(const struct attach *all, uint64_t way)
{
	const struct fabric_table *t = subnet_table(all->d->subnet);
	struct subnet_port *p = port_at(all, fabric_lid_port(t, tally_dlid(way)));

	return p && p->node->type == SUBNET_CA && fabric_port_has_lid(p->shared, tally_dlid(way)) ? p : NULL;
}

/* ---- numbers ---- */
/* What there is more; false: nothing, or nothing that can be. */
static bool increase(struct tally_sum *sum, struct tally_sum_seen *seen, struct subnet_traffic *more)
{
	struct tally_sum_seen now;

	now.words = atomic_load_explicit(&sum->words, memory_order_acquire);
	now.packets = atomic_load_explicit(&sum->packets, memory_order_relaxed);
	if (now.packets < seen->packets || now.words < seen->words || now.packets - seen->packets > AT_ONCE ||
		now.words / WORDS_MAX > now.packets)
		return false;
	more->packets = now.packets - seen->packets;
	more->words = now.words - seen->words;
	*seen = now;
	return more->packets || more->words;
}

static void count(struct attach_conn *c, uint64_t way, enum tally_direction direction,
	const struct subnet_traffic *more)
{
	struct subnet_port *from = here(c, way), *to = there(c->all, way);

	if (!from || !to)
		return;
	if (direction == TALLY_THERE)
		subnet_count(from, tally_dlid(way), more);
	else
		subnet_count(to, tally_slid(way), more);
}

void tally_fold(struct attach_conn *c)
{
	if (!c->trunk || !c->host)
		return;
	find_ways(c);
	for (uint32_t i = 0; i < c->ntallies; i++) {
		struct tally_seen *seen = &c->tally[i];
		struct tally_sum *sum = c->trunk->tallies.at[i].sum;
		struct subnet_traffic more = {.sl = tally_sl(seen->way)};

		for (enum tally_direction d = TALLY_THERE; d <= TALLY_BACK; d++)
			if (increase(&sum[d], &seen->sum[d], &more))
				count(c, seen->way, d, &more);
	}
}

void attach_take_tallies(struct fabricd *d)
{
	if (!d->attach)
		return;
	list_for_each(n, &d->attach->conns)
	{
		tally_fold(container_of(n, struct attach_conn, node));
	}
}
