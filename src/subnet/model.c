/* SPDX-License-Identifier: MIT */
/* Nodes, their ports and the cables between them, as a description adds them. */
#include "subnet/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	NODES_MAX = 0xbfff, /* each needs a LID */
	PORTS_MAX = 1 << 18,
	ROWS_MAX = 1 << 26, /* a switch of n ports has (n + 1)^2; with PORTS_MAX, a GB in all */
	DEVICE_CA = 1,
	DEVICE_SWITCH = 2,
	REVISION = 1,
	GUID_NODE_SHIFT = 8,
};
#define GUID_FIRST ((uint64_t)SUBNET_VENDOR << 40) /* then 16 bits of site, 16 of node, 8 of port */

struct subnet *subnet_open(const struct subnet_ops *ops, void *arg, uint64_t seed)
{
	struct subnet *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->ops = *ops;
	s->arg = arg;
	s->seed = seed;
	return s;
}

static void free_node(struct subnet_node *n)
{
	if (!n)
		return;
	free(n->port);
	free(n);
}

void subnet_close(struct subnet *s)
{
	if (!s)
		return;
	subnet_stop(s);
	for (unsigned i = 0; i < s->nnodes; i++)
		free_node(s->node[i]);
	free(s->node);
	free(s);
}

/* ---- adding ---- */
static struct subnet_node **name_chain(const struct subnet *s, const char *id)
{
	uint32_t hash = 2166136261u; /* FNV-1a */

	for (; *id; id++)
		hash = (hash ^ (uint8_t)*id) * 16777619u;
	return (struct subnet_node **)&s->name[hash % SUBNET_NAMES];
}

struct subnet_node *subnet_find(const struct subnet *s, const char *id)
{
	struct subnet_node *n = *name_chain(s, id);

	while (n && strcmp(n->id, id))
		n = n->next;
	return n;
}

static int make_room(struct subnet *s)
{
	unsigned room = s->room ? s->room * 2 : 64;
	struct subnet_node **more;

	if (s->nnodes < s->room)
		return 0;
	more = realloc(s->node, room * sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->node = more;
	s->room = room;
	return 0;
}

static struct subnet_node *new_node(enum subnet_node_type type, unsigned nports, const char *id)
{
	struct subnet_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->port = calloc(nports + 1, sizeof(*n->port));
	if (!n->port) {
		free(n);
		return NULL;
	}
	n->type = type;
	n->nports = nports;
	strcpy(n->id, id); /* its length was looked at */
	strcpy(n->desc, id);
	n->vendor_id = SUBNET_VENDOR;
	n->device_id = type == SUBNET_SWITCH ? DEVICE_SWITCH : DEVICE_CA;
	n->revision = REVISION;
	return n;
}

static uint32_t rows_of(enum subnet_node_type type, unsigned nports)
{
	return type == SUBNET_SWITCH ? (nports + 1) * (nports + 1) : nports;
}

static bool is_full(const struct subnet *s, enum subnet_node_type type, unsigned nports)
{
	return s->nnodes == NODES_MAX || s->count.ports + nports + 1 > PORTS_MAX ||
	       s->count.rows + rows_of(type, nports) > ROWS_MAX;
}

static void init_ports(struct subnet *s, struct subnet_node *n)
{
	static const struct subnet_link_caps usual = {.width = 1 | 2, .speed = 7, .speed_ext = 7, .mtu = 5};

	for (unsigned i = 0; i <= n->nports; i++) {
		bool exists = i || is_switch(n);

		n->port[i] = (struct subnet_port){.node = n,
			.num = (uint8_t)i,
			.caps = usual,
			.index = exists ? s->count.ports++ : FABRIC_NONE};
	}
	s->count.rows += rows_of(n->type, n->nports);
	s->count.switches += is_switch(n);
}

struct subnet_node *subnet_add(struct subnet *s, enum subnet_node_type type, unsigned nports, const char *id)
{
	struct subnet_node *n, **chain;

	errno = EINVAL;
	if (s->table || type < SUBNET_CA || type > SUBNET_ROUTER || !nports || nports > SUBNET_MAX_PORTS ||
		!*id || strlen(id) >= SUBNET_NAME)
		return NULL;
	errno = EEXIST;
	if (subnet_find(s, id))
		return NULL;
	errno = ENOSPC;
	if (is_full(s, type, nports))
		return NULL;
	errno = ENOMEM;
	if (make_room(s) || !(n = new_node(type, nports, id)))
		return NULL;
	n->subnet = s;
	n->index = s->nnodes;
	s->node[s->nnodes++] = n;
	init_ports(s, n);
	subnet_set_guid(n, GUID_FIRST | (uint64_t)s->nnodes << GUID_NODE_SHIFT);
	chain = name_chain(s, id);
	n->next = *chain;
	*chain = n;
	return n;
}

void subnet_check_crcs(struct subnet *s)
{
	s->crcs = true;
}

bool subnet_checks_crcs(const struct subnet *s)
{
	return s->crcs;
}

int subnet_set_guid(struct subnet_node *n, uint64_t guid)
{
	if (!guid)
		return -EINVAL;
	n->guid = n->sys_guid = guid;
	for (unsigned i = 0; i <= n->nports; i++)
		n->port[i].guid =
			is_switch(n) ? guid : guid + i; /* all ports of a switch have that of port 0 */
	return 0;
}

int subnet_join(struct subnet_port *a, struct subnet_port *b)
{
	if (a == b || !a->num || !b->num || a->node->subnet != b->node->subnet)
		return -EINVAL;
	if (a->peer || b->peer)
		return -EBUSY;
	a->peer = b;
	b->peer = a;
	return 0;
}

/* ---- looking ---- */
unsigned subnet_nodes(const struct subnet *s)
{
	return s->nnodes;
}

struct subnet_node *subnet_node(const struct subnet *s, unsigned index)
{
	return index < s->nnodes ? s->node[index] : NULL;
}

struct subnet_port *subnet_port(const struct subnet_node *n, unsigned num)
{
	return num <= n->nports && (num || is_switch(n)) ? &n->port[num] : NULL;
}

struct fabric_table *subnet_table(const struct subnet *s)
{
	return s->table;
}

struct subnet_port *subnet_end_port(struct subnet_port *p)
{
	return is_switch(p->node) ? &p->node->port[0] : p;
}
