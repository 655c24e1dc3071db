/* SPDX-License-Identifier: MIT */
/* A subnet that runs: packets come in, time passes, hosts change what they say of themselves. */
#include "subnet/parts.h"

#include "wire/smp.h"

/* ---- packets ---- */
static bool is_smp(const struct packet *p)
{
	return p->len == PACKET_MAD_LEN && bth_dqpn(p->bth) == SMI_QPN;
}

struct subnet_port *originate(struct subnet *s, struct subnet_port *from, struct packet *p)
{
	if (is_smp(p) && smp_is_directed(packet_mad(p)) && p->lrh.dlid == LID_PERMISSIVE)
		return deliver_directed(s, from, p, true);
	if (fabric_port_has_lid(from->shared, p->lrh.dlid))
		return deliver(s, from, p); /* to itself: nobody on the cable sees it */
	return is_switch(from->node) ? forward_relay(s, from, p) : forward_send(s, from, 0, p);
}

void subnet_inject(struct subnet *s, struct subnet_port *from, struct packet *p, uint64_t now)
{
	unsigned copies = s->copies; /* those of a packet whose arrival this answers */

	if (end_port(from) != from || p->len < BTH_LEN)
		return;
	enter(s, now);
	s->copies = s->count.ports;
	p->hops = 0;
	p->has_crcs = false;
	p->lrh.vl = is_smp(p) ? VL_MANAGEMENT : 0;
	forward_travel(s, originate(s, from, p), p);
	s->copies = copies;
	leave(s);
}

/* ---- time ---- */
uint64_t subnet_deadline(const struct subnet *s)
{
	return s->table ? s->deadline : SUBNET_NEVER;
}

void agent_arm(struct subnet *s, struct port_agent *a, uint64_t due)
{
	if (list_empty(&a->timed))
		list_add_tail(&s->timed, &a->timed);
	set_deadline(s, due);
}

void subnet_expire(struct subnet *s, uint64_t now)
{
	struct list due;

	if (now < subnet_deadline(s))
		return;
	enter(s, now);
	s->deadline = SUBNET_NEVER;
	s->copies = s->count.ports;
	list_take(&due, &s->timed);
	for (struct list *at; (at = list_pop(&due));) {
		struct port_agent *a = container_of(at, struct port_agent, timed);

		mkey_expire(s, a); /* each arms it again for what is left */
		trap_expire(s, a);
	}
	fault_expire(s);
	leave(s);
}

/* ---- what hosts say of themselves ---- */
void subnet_set_capability(struct subnet_port *end, uint32_t mask, uint32_t bits, uint64_t now)
{
	struct subnet *s = end->node->subnet;
	uint32_t caps = (end->shared->cap_mask & ~mask) | (bits & mask);

	if (caps == end->shared->cap_mask)
		return;
	enter(s, now);
	table_changes(s);
	end->shared->cap_mask = caps;
	trap_local_changes(end, 0);
	leave(s);
}

void subnet_set_description(struct subnet_node *n, const char *desc, uint64_t now)
{
	size_t len = strnlen(desc, SUBNET_NAME);

	memset(n->desc, 0, sizeof(n->desc));
	memcpy(n->desc, desc, len);
	if (!n->subnet->table)
		return; /* it is part of the description still */
	enter(n->subnet, now);
	for (unsigned i = 0; i <= n->nports; i++)
		if (subnet_port(n, i) && &n->port[i] == end_port(&n->port[i]))
			trap_local_changes(&n->port[i], NOTICE_NODE_DESC);
	leave(n->subnet);
}
