/* SPDX-License-Identifier: MIT */
/*
 * LIDs. A port keeps the one that it has, whoever gave it, also while its cable is cut: programs know it. One
 * that has none, or another's, gets the number of its place among all end ports, so that the hosts of a new
 * fabric have 1, 2, 3, …; when that is taken, the next that is free.
 */
#include "subnet/sm_parts.h"

static bool is_free(const struct subnet_sm *m, unsigned first, unsigned n)
{
	for (unsigned lid = first; lid < first + n; lid++)
		if (lid >= FABRIC_LIDS || m->lid_owner[lid])
			return false;
	return first;
}

static void own(struct subnet_sm *m, unsigned end, unsigned first, unsigned n)
{
	for (unsigned lid = first; lid < first + n; lid++)
		m->lid_owner[lid] = end + 1;
	if (first + n - 1 > m->top)
		m->top = (uint16_t)(first + n - 1);
}

static bool keep(struct subnet_sm *m, unsigned end)
{
	const struct fabric_port *f = m->end[end]->shared;
	unsigned n = 1u << f->lmc, first = f->lid & ~(n - 1);

	/* Of two that have the same, the one that got it last: the fabric's table has one for each LID. */
	if (!f->lid || fabric_lid_port(m->s->table, f->lid) != m->end[end]->index || !is_free(m, first, n))
		return false;
	own(m, end, first, n);
	return true;
}

static uint16_t choose(const struct subnet_sm *m, unsigned end)
{
	if (is_free(m, end + 1, 1))
		return (uint16_t)(end + 1);
	for (unsigned lid = 1; lid < FABRIC_LIDS; lid++)
		if (is_free(m, lid, 1))
			return (uint16_t)lid;
	return 0;
}

static void set_lid(struct subnet_port *p, uint16_t lid)
{
	uint8_t data[SMP_DATA_LEN] = {0};
	struct port_info i;

	sma_do(p, MAD_METHOD_GET, SMP_PORT_INFO, p->num, data);
	i = port_info_get(data);
	i.lid = lid;
	i.lmc = i.state = i.phys = 0;
	port_info_put(data, &i);
	sma_do(p, MAD_METHOD_SET, SMP_PORT_INFO, p->num, data);
}

static void give(struct subnet_sm *m, unsigned end)
{
	uint16_t lid = choose(m, end);

	if (!lid)
		return; /* more ports than LIDs: it stays in INIT */
	own(m, end, lid, 1);
	set_lid(m->end[end], lid);
}

/* The home has one before its cable works, since all others are told of it. */
static bool needs_lid(const struct subnet_sm *m, const struct subnet_port *p)
{
	return is_switch(p->node) || sm_link_up(p) || p == m->home;
}

void sm_assign_lids(struct subnet_sm *m)
{
	m->top = 0;
	memset(m->lid_owner, 0, FABRIC_LIDS * sizeof(*m->lid_owner));
	for (unsigned i = 0; i < m->nends; i++)
		m->kept[i] = keep(m, i);
	for (unsigned i = 0; i < m->nends; i++)
		if (!m->kept[i] && needs_lid(m, m->end[i]))
			give(m, i);
}
