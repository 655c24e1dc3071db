/* SPDX-License-Identifier: MIT */
/* A sweep, as every subnet manager does it: LIDs, forwarding tables, then all links that are up to ACTIVE. */
#include "subnet/sm_parts.h"

#include <stdlib.h>

enum { SM_STATE_MASTER = 3, SM_INFO_LEN = 24, ANSWER_FIRST = 4096 };

/* ---- ports ---- */
static uint8_t lower(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* What a port is told: who manages, and what it agrees on with the other end of its cable. */
static void set_port(struct subnet_sm *m, struct subnet_port *p, uint8_t state)
{
	struct subnet_port *end = end_port(p);
	uint8_t data[SMP_DATA_LEN] = {0};
	struct port_info i;

	sma_do(end, MAD_METHOD_GET, SMP_PORT_INFO, p->num, data);
	i = port_info_get(data);
	i.reregister = p == end && !is_switch(p->node) && (m->fresh || state == PORT_ARMED);
	i.phys = 0;
	i.state = state;
	i.sm_lid = p == end ? m->home->shared->lid : 0;
	i.sm_sl = 0;
	if (sm_link_up(p))
		i.mtu = lower(p->shared->mtu_cap, p->peer->shared->mtu_cap);
	port_info_put(data, &i);
	sma_do(end, MAD_METHOD_SET, SMP_PORT_INFO, p->num, data);
}

static bool needs_set(const struct subnet_sm *m, struct subnet_port *p)
{
	const struct fabric_port *f = p->shared;

	if (p == end_port(p) && f->lid && (m->fresh || f->sm_lid != m->home->shared->lid))
		return true;
	return sm_link_up(p) && f->mtu != lower(f->mtu_cap, p->peer->shared->mtu_cap);
}

/* An adapter without a LID stays in INIT. */
static bool can_rise(const struct subnet_port *p, unsigned from)
{
	return sm_link_up(p) && p->shared->state == from && (is_switch(p->node) || p->shared->lid);
}

static void set_ports(struct subnet_sm *m, enum port_state from, uint8_t to)
{
	for (unsigned n = 0; n < subnet_nodes(m->s); n++) {
		struct subnet_node *node = subnet_node(m->s, n);

		for (unsigned k = is_switch(node) ? 0 : 1; k <= node->nports; k++) {
			struct subnet_port *p = &node->port[k];

			if (can_rise(p, from))
				set_port(m, p, to);
			else if (to == PORT_ARMED && needs_set(m, p))
				set_port(m, p, 0);
		}
	}
}

/* ---- sweeps ---- */
static void sweep(struct subnet_sm *m)
{
	m->seen = m->s->moved;
	m->sweeps++;
	sm_assign_lids(m);
	sm_write_routes(m);
	set_ports(m, PORT_INIT, PORT_ARMED);
	set_ports(m, PORT_ARMED, PORT_ACTIVE);
	sa_groups_sweep(m);
	sa_report_ports(m);
	m->fresh = false;
}

void subnet_sm_take(struct subnet_sm *m, uint64_t now)
{
	if (m->master || !sa_groups_init(m))
		return;
	m->master = m->fresh = true;
	enter(m->s, now);
	sweep(m);
	leave(m->s);
	subnet_set_capability(m->home, PORT_CAP_IS_SM, PORT_CAP_IS_SM, now);
}

static void sa_forget(struct subnet_sm *m)
{
	sa_groups_forget(m);
	sa_services_forget(m);
	sa_reports_forget(m);
}

void subnet_sm_step_aside(struct subnet_sm *m, uint64_t now)
{
	if (!m->master)
		return;
	m->master = false;
	m->seen = m->s->moved;
	sa_forget(m);
	subnet_set_capability(m->home, PORT_CAP_IS_SM, 0, now);
}

bool subnet_sm_has_work(const struct subnet_sm *m)
{
	return m->seen != m->s->moved;
}

void subnet_sm_run(struct subnet_sm *m, uint64_t now)
{
	if (!m->master || !subnet_sm_has_work(m))
		return;
	enter(m->s, now);
	sweep(m);
	leave(m->s);
}

bool subnet_sm_is_master(const struct subnet_sm *m)
{
	return m->master;
}

struct subnet_port *subnet_sm_home(const struct subnet_sm *m)
{
	return m->home;
}

uint32_t subnet_sm_sweeps(const struct subnet_sm *m)
{
	return m->sweeps;
}

/* ---- packets ---- */
void sm_info_put(const struct subnet_sm *m, uint8_t *data)
{
	memset(data, 0, SM_INFO_LEN);
	put_be64(data, m->home->guid);
	put_be32(data + 16, m->sweeps);
	data[20] = SM_STATE_MASTER; /* priority 0 */
}

static void answer(uint8_t *smp, uint16_t status)
{
	smp[3] = MAD_METHOD_GET_RESP;
	put_be16(smp + SMP_STATUS, (uint16_t)(status | (smp_is_directed(smp) ? SMP_RETURNING : 0)));
}

/* It has been heard. What it is about is seen where it happens, not by traps. */
static void repress(struct subnet_sm *m, uint16_t slid, uint8_t *smp)
{
	struct fabric_table *t = m->s->table;
	uint32_t owner = slid < FABRIC_LIDS ? m->lid_owner[slid] : 0;

	if (owner && fabric_lid_port(t, slid) == m->end[owner - 1]->index)
		put_be64(smp + SMP_MKEY, m->end[owner - 1]->regs->agent->mkey);
	smp[3] = MAD_METHOD_TRAP_REPRESS;
}

bool subnet_sm_receive(struct subnet_sm *m, uint16_t slid, uint8_t smp[MAD_LEN])
{
	struct mad_hdr h = mad_hdr_get(smp);

	if (!m->master || h.class_version != SMP_CLASS_VERSION)
		return false;
	if (h.method == MAD_METHOD_TRAP && h.attr == SMP_NOTICE && !smp_is_directed(smp)) {
		sa_report(m, smp + SMP_DATA);
		repress(m, slid, smp);
		return true;
	}
	if (h.method != MAD_METHOD_GET || h.attr != SMP_SM_INFO)
		return false;
	memset(smp + SMP_DATA, 0, SMP_DATA_LEN);
	sm_info_put(m, smp + SMP_DATA);
	answer(smp, MAD_STATUS_OK);
	return true;
}

/* ---- coming and going ---- */
static void list_ends(struct subnet_sm *m, bool switches)
{
	for (unsigned n = 0; n < subnet_nodes(m->s); n++) {
		struct subnet_node *node = subnet_node(m->s, n);

		if (is_switch(node) != switches)
			continue;
		for (unsigned k = switches ? 0 : 1; k <= (switches ? 0 : node->nports); k++)
			m->end[m->nends++] = &node->port[k];
	}
}

static unsigned count_ends(const struct subnet *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < subnet_nodes(s); i++)
		n += is_switch(subnet_node(s, i)) ? 1 : subnet_node(s, i)->nports;
	return n;
}

struct subnet_sm *subnet_sm_open(struct subnet *s, struct subnet_port *home)
{
	struct subnet_sm *m = calloc(1, sizeof(*m));
	unsigned ends = count_ends(s) + 1;

	if (!m)
		return NULL;
	m->s = s;
	m->home = home;
	m->seen = s->moved;
	m->routes = sm_routes_open(s);
	m->end = calloc(ends, sizeof(struct subnet_port *));
	m->kept = calloc(ends, sizeof(*m->kept));
	m->lid_owner = calloc(FABRIC_LIDS, sizeof(*m->lid_owner));
	m->columns = calloc(s->count.switches + 1, SMP_DATA_LEN);
	m->parent = calloc(s->count.switches + 1, 1);
	m->in_tree = calloc(s->count.switches + 1, sizeof(*m->in_tree));
	m->ports = calloc(s->count.switches + 1, sizeof(*m->ports));
	m->there = calloc(ends, sizeof(*m->there));
	m->sa.answer = malloc(ANSWER_FIRST);
	m->sa.room = ANSWER_FIRST;
	list_init(&m->sa.groups);
	list_init(&m->sa.services);
	list_init(&m->sa.informs);
	list_init(&m->sa.reports);
	if (!m->routes || !m->end || !m->kept || !m->lid_owner || !m->columns || !m->parent || !m->in_tree ||
		!m->ports || !m->there || !m->sa.answer) {
		subnet_sm_close(m);
		return NULL;
	}
	list_ends(m, false);
	list_ends(m, true);
	return m;
}

void subnet_sm_close(struct subnet_sm *m)
{
	if (!m)
		return;
	sa_forget(m);
	sm_routes_close(m->routes);
	free(m->sa.answer);
	free(m->in_tree);
	free(m->ports);
	free(m->there);
	free(m->end);
	free(m->kept);
	free(m->lid_owner);
	free(m->columns);
	free(m->parent);
	free(m);
}
