/* SPDX-License-Identifier: MIT */
#include "subnet/counters.h"
#include "subnet/parts.h"

#include "fabric/walk.h"

uint64_t subnet_counted(const struct subnet_port *p, enum port_counter which)
{
	return p->regs && which < CNT_COUNT ? p->regs->count.total[which] : 0;
}

void subnet_take_tallies(struct subnet *s)
{
	take_tallies(s);
}

/* ---- what went past the switches ---- */
static void count_sent(struct subnet_port *out, const struct subnet_traffic *t)
{
	uint64_t *total = out->regs->count.total;

	total[CNT_XMIT_PKTS] += t->packets;
	total[CNT_XMIT_DATA] += t->words;
	total[CNT_UNICAST_XMIT] += t->packets;
	total[CNT_XMIT_DATA_SL + (t->sl & 15)] += t->words;
}

static void count_received(struct subnet_port *in, const struct subnet_traffic *t)
{
	uint64_t *total = in->regs->count.total;

	total[CNT_RCV_PKTS] += t->packets;
	total[CNT_RCV_DATA] += t->words;
	total[CNT_UNICAST_RCV] += t->packets;
	total[CNT_RCV_DATA_SL + (t->sl & 15)] += t->words;
}

/* The port that it leaves by; NULL: it ends here. */
static struct subnet_port *next_port(struct subnet *s, struct subnet_port *in, uint16_t dlid)
{
	uint8_t num;

	if (!is_switch(in->node) || fabric_route(s->table, in->shared, dlid, &num) || !num)
		return NULL;
	return &in->node->port[num];
}

void subnet_count(struct subnet_port *from, uint16_t dlid, const struct subnet_traffic *t)
{
	struct subnet *s = from->node->subnet;
	struct subnet_port *out = from;

	if (fabric_port_has_lid(from->shared, dlid))
		return; /* to itself: nobody on the cable sees it */
	for (unsigned i = 0; out && out->shared->phys == PHYS_LINK_UP && i <= WALK_HOPS_MAX; i++) {
		count_sent(out, t);
		count_received(out->peer, t);
		out = next_port(s, out->peer, dlid);
	}
}
