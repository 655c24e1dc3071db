/* SPDX-License-Identifier: MIT */
/*
 * Forwarding tables, 64 LIDs at a time as a Set writes them: for each of these LIDs what all switches do with
 * it, then the block of every switch.
 */
#include "subnet/sm_parts.h"

enum { BLOCK = 64, LIFE_TIME = 18 }; /* of a packet in a switch: a second, as OpenSM sets it */

/* What all switches do with a LID. `behind`: the last switch that routes were asked for. */
static void fill_column(struct subnet_sm *m, unsigned lid, struct subnet_node **behind)
{
	uint32_t end = m->lid_owner[lid] - 1;
	struct subnet_port *p = m->lid_owner[lid] ? m->end[end] : NULL;
	struct subnet_node *dest = p ? sm_switch_of(p) : NULL;

	if (!dest)
		return;
	if (dest != *behind)
		sm_routes_to(m->routes, dest->sw->index);
	*behind = dest;
	for (uint32_t x = 0; x < m->s->count.switches; x++)
		m->columns[x * BLOCK + lid % BLOCK] = sm_routes_port(m->routes, x, end);
	m->columns[dest->sw->index * BLOCK + lid % BLOCK] = is_switch(p->node) ? 0 : p->peer->num;
}

static void write_block(struct subnet_sm *m, unsigned block)
{
	for (uint32_t x = 0; x < m->s->count.switches; x++)
		sma_do(&sm_routes_switch(m->routes, x)->port[0], MAD_METHOD_SET, SMP_LFT, block,
			m->columns + x * BLOCK);
}

/* Where the table ends; that the switch's links have moved has been seen. */
static void write_top(const struct subnet_sm *m, struct subnet_node *sw)
{
	uint8_t data[SMP_DATA_LEN] = {0};
	struct switch_info info;

	sma_do(&sw->port[0], MAD_METHOD_GET, SMP_SWITCH_INFO, 0, data);
	info = switch_info_get(data);
	info.linear_top = m->top;
	info.life_time = LIFE_TIME;
	info.state_change = true;
	switch_info_put(data, &info);
	sma_do(&sw->port[0], MAD_METHOD_SET, SMP_SWITCH_INFO, 0, data);
}

void sm_write_routes(struct subnet_sm *m)
{
	struct subnet_node *behind = NULL;

	sm_routes_read(m->routes);
	for (unsigned block = 0; block <= m->top / BLOCK; block++) {
		memset(m->columns, FABRIC_NO_PORT, (size_t)m->s->count.switches * BLOCK);
		for (unsigned lid = block * BLOCK; lid < (block + 1) * BLOCK; lid++)
			fill_column(m, lid, &behind);
		write_block(m, block);
	}
	for (uint32_t x = 0; x < m->s->count.switches; x++)
		write_top(m, sm_routes_switch(m->routes, x));
}
