/* SPDX-License-Identifier: MIT */
/*
 * Multicast forwarding tables. The members of a group hang on a tree of switches, the branches of a spanning
 * tree that have any: each cable of it is in the tables of both ends. Who only sends is connected and gets
 * nothing. Where the subnet has come apart each part has a tree of its own.
 */
#include "subnet/sm_parts.h"

static void set_bit(struct subnet_sm *m, uint32_t sw, unsigned port)
{
	m->ports[sw][port / 16] |= (uint16_t)(1u << port % 16);
}

/* From a switch up to what is connected already. */
static void climb(struct subnet_sm *m, uint32_t sw)
{
	while (!m->in_tree[sw]) {
		struct subnet_port *up = &sm_routes_switch(m->routes, sw)->port[m->parent[sw]];

		m->in_tree[sw] = true;
		set_bit(m, sw, up->num);
		set_bit(m, up->peer->node->sw->index, up->peer->num);
		sw = up->peer->node->sw->index;
	}
}

static void add_member(struct subnet_sm *m, const struct sa_group_member *member)
{
	struct subnet_node *sw = sm_switch_of(member->end);
	uint32_t at = sw ? sw->sw->index : 0;

	if (!sw)
		return;
	if (!m->in_tree[at] && m->parent[at] == FABRIC_NO_PORT) { /* the first of its part of the subnet */
		sm_routes_tree(m->routes, at, m->parent);
		m->in_tree[at] = true;
	}
	climb(m, at);
	if (member->join & (JOIN_FULL | JOIN_NON))
		set_bit(m, at, is_switch(member->end->node) ? 0 : member->end->peer->num);
}

/* A block has 32 MLIDs of 16 ports. */
static void write_entry(struct subnet_node *sw, uint16_t mlid, unsigned position, uint16_t ports)
{
	unsigned entry = mlid - LID_MCAST;
	uint32_t mod = position << 28 | entry / 32;
	uint8_t data[SMP_DATA_LEN] = {0};

	if (sw->sw->mft[position * SUBNET_MLIDS + entry] == ports)
		return;
	sma_do(&sw->port[0], MAD_METHOD_GET, SMP_MFT, mod, data);
	put_be16(data + 2 * (entry % 32), ports);
	sma_do(&sw->port[0], MAD_METHOD_SET, SMP_MFT, mod, data);
}

static void write_entries(struct subnet_sm *m, uint16_t mlid)
{
	for (uint32_t x = 0; x < m->s->count.switches; x++) {
		struct subnet_node *sw = sm_routes_switch(m->routes, x);

		for (unsigned position = 0; position <= sw->nports / 16; position++)
			write_entry(sw, mlid, position, m->ports[x][position]);
	}
}

static void begin(struct subnet_sm *m)
{
	memset(m->ports, 0, m->s->count.switches * sizeof(*m->ports));
	memset(m->in_tree, 0, m->s->count.switches * sizeof(*m->in_tree));
	memset(m->parent, FABRIC_NO_PORT, m->s->count.switches);
}

void sm_write_group(struct subnet_sm *m, const struct sa_group *g)
{
	begin(m);
	list_for_each(pos, &g->members) add_member(m, container_of(pos, struct sa_group_member, node));
	write_entries(m, g->what.mlid);
}

void sm_clear_group(struct subnet_sm *m, uint16_t mlid)
{
	begin(m);
	write_entries(m, mlid);
}
