/* SPDX-License-Identifier: MIT */
/* Everything is plugged in: memory for the tables, the values that ports have before anybody sets them. */
#include "subnet/parts.h"

#include "wire/smp.h"

#include <errno.h>
#include <stdlib.h>

#define GID_PREFIX 0xfe80000000000000ull

enum {
	CAPS_SWITCH = PORT_CAP_TRAP | PORT_CAP_NOTICE | PORT_CAP_SL_MAPPING | PORT_CAP_SYSTEM_IMAGE_GUID |
		      PORT_CAP_SWITCH_PKEY_TRAP | PORT_CAP_EXTENDED_SPEEDS | PORT_CAP_DR_NOTICE |
		      PORT_CAP_MASK_NOTICE | PORT_CAP_OTHER_NOTICE,
	CAPS_CA = (CAPS_SWITCH & ~PORT_CAP_SWITCH_PKEY_TRAP) | PORT_CAP_CM | PORT_CAP_REREGISTER,
	PHY_THRESHOLD = 8,
	OVERRUN_THRESHOLD = 8,
};

static void init_shared(struct subnet_port *p, uint32_t row)
{
	struct fabric_port *f = p->shared;

	f->node = p->node->index;
	f->sw = is_switch(p->node) ? p->node->sw->index : FABRIC_NONE;
	f->peer = p->peer ? p->peer->index : FABRIC_NONE;
	f->sl2vl = row;
	f->num = p->num;
	f->mtu = f->mtu_cap = p->caps.mtu; /* a subnet manager that finds another value bounces the link */
	f->vls = SUBNET_VL_CAP;
	f->timeout = SUBNET_TIMEOUT;
	f->flags = p->node->subnet->crcs ? 0 : FABRIC_PLAIN;
	f->prefix = GID_PREFIX;
	f->guid[0] = p->guid;
	f->pkey[0] = PKEY_DEFAULT;
	f->cap_mask = !is_switch(p->node) ? CAPS_CA : p->num ? 0 : CAPS_SWITCH;
}

static void init_regs(struct subnet_port *p)
{
	struct port_regs *r = p->regs;

	r->down_default = PHYS_POLLING;
	r->width_enabled = p->caps.width;
	r->speed_enabled = p->caps.speed;
	r->speed_ext_enabled = p->caps.speed_ext;
	r->phy_threshold = PHY_THRESHOLD;
	r->overrun_threshold = OVERRUN_THRESHOLD;
	r->random = p->node->subnet->seed ^ (uint64_t)p->index << 32;
}

static void init_agent(struct port_agent *a, struct subnet_port *p)
{
	a->port = p;
	a->lease_due = SUBNET_NEVER;
	list_init(&a->timed);
}

/* SL n to VL n, as often as there are VLs. */
static void init_row(struct fabric_row *row)
{
	for (unsigned i = 0; i < 8; i++)
		row->vl[i] = (uint8_t)((2 * i % 8) << 4 | ((2 * i + 1) % 8));
}

struct parts_used { /* while all of it is handed out */
	uint32_t agents, switches, rows;
	size_t mft;
};

static size_t mft_len(const struct subnet_node *n)
{
	return is_switch(n) ? (n->nports / 16 + 1) * (size_t)SUBNET_MLIDS : 0;
}

static void init_switch(struct subnet *s, struct subnet_node *n, struct parts_used *used)
{
	struct fabric_switch *f = fabric_switch(s->table, used->switches);

	n->sw = &s->switches[used->switches];
	*n->sw = (struct subnet_switch){.index = used->switches++,
		.default_mcast_primary = FABRIC_NO_PORT,
		.default_mcast_other = FABRIC_NO_PORT,
		.mft = s->mfts + used->mft};
	used->mft += mft_len(n);
	f->first = n->port[0].index;
	f->nports = (uint16_t)n->nports;
}

static void init_node(struct subnet *s, struct subnet_node *n, struct parts_used *used)
{
	uint32_t rows = is_switch(n) ? n->nports + 1 : 1;

	if (is_switch(n))
		init_switch(s, n, used);
	for (unsigned i = is_switch(n) ? 0 : 1; i <= n->nports; i++) {
		struct subnet_port *p = &n->port[i];

		p->shared = fabric_port(s->table, p->index);
		p->regs = &s->regs[p->index];
		if (p == end_port(p))
			init_agent(&s->agents[used->agents++], p);
		p->regs->agent = &s->agents[used->agents - 1];
		init_shared(p, used->rows);
		for (uint32_t r = 0; r < rows; r++)
			init_row(fabric_row(s->table, used->rows++));
		init_regs(p);
		link_init(p);
	}
}

static int get_memory(struct subnet *s)
{
	size_t len = fabric_table_size(&s->count), mfts = 0;
	void *table;

	for (unsigned i = 0; i < s->nnodes; i++)
		mfts += mft_len(s->node[i]);
	if (!s->ops.table)
		s->own_table = calloc(1, len);
	table = s->ops.table ? s->ops.table(s->arg, len) : s->own_table;
	s->regs = calloc(s->count.ports + 1, sizeof(*s->regs));
	s->agents = calloc(
		s->count.ports + 1, sizeof(*s->agents)); /* those behind the last one are never touched */
	s->switches = calloc(s->count.switches + 1, sizeof(*s->switches));
	s->mfts = calloc(mfts + 1, sizeof(*s->mfts));
	if (!table || !s->regs || !s->agents || !s->switches || !s->mfts)
		return -ENOMEM;
	s->table = fabric_table_init(table, &s->count);
	return 0;
}

void subnet_stop(struct subnet *s)
{
	if (s->table)
		fault_close(s);
	free(s->own_table);
	free(s->regs);
	free(s->agents);
	free(s->switches);
	free(s->mfts);
	s->table = s->own_table = NULL;
	s->regs = NULL;
	s->agents = NULL;
	s->switches = NULL;
	s->mfts = NULL;
}

int subnet_start(struct subnet *s, uint64_t now)
{
	struct parts_used used = {0};

	if (s->table)
		return -EALREADY;
	if (get_memory(s)) {
		subnet_stop(s);
		return -ENOMEM;
	}
	enter(s, now);
	s->deadline = SUBNET_NEVER;
	list_init(&s->timed);
	list_init(&s->held);
	for (unsigned i = 0; i < s->nnodes; i++)
		init_node(s, s->node[i], &used);
	for (unsigned i = 0; i < s->nnodes; i++)
		for (unsigned k = 1; k <= s->node[i]->nports; k++)
			link_train(&s->node[i]->port[k]);
	leave(s);
	return 0;
}
