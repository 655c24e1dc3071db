/* SPDX-License-Identifier: MIT */
/*
 * A subnet on a stage: what tests build it from, a host that asks and hears, and a subnet manager of a few
 * lines, which brings everything up by real packets along directed routes.
 */
#ifndef SUBNET_STAGE_TEST_H
#define SUBNET_STAGE_TEST_H

#include "subnet/model.h"
#include "subnet/packet.h"
#include "fabric/shared.h"
#include "wire/smp.h"

#include <stdio.h>
#include <stdlib.h>

enum { STAGE_HOPS = 63, STAGE_NODES = 2048 };

struct stage {
	struct subnet *s;
	uint64_t now;
	/* what arrived last, and how often */
	unsigned arrived, seen, changed[SUBNET_REREGISTER + 1];
	struct subnet_port *at;
	struct packet_addr from;
	uint8_t mad[MAD_LEN];
	uint16_t status; /* of the last answer */
	uint32_t dqpn;
	uint32_t sent; /* SMPs */
};

static inline void stage_arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	struct stage *t = arg;
	const uint8_t *mad;

	t->arrived++;
	t->at = at;
	t->dqpn = bth_dqpn(p->bth);
	if (packet_mad_parse(p, &t->from, &mad))
		memcpy(t->mad, mad, MAD_LEN);
	else if (p->len == PACKET_MAD_LEN)
		memcpy(t->mad, packet_mad(p), MAD_LEN);
}

static inline void stage_seen(void *arg, struct subnet_port *from, const struct packet *p)
{
	((struct stage *)arg)->seen++;
}

static inline void stage_changed(void *arg, struct subnet_port *at, enum subnet_change what)
{
	((struct stage *)arg)->changed[what]++;
}

static inline void stage_open(struct stage *t, uint64_t seed)
{
	static const struct subnet_ops ops = {stage_arrived, stage_seen, stage_changed, NULL};

	*t = (struct stage){.now = 1000};
	t->s = subnet_open(&ops, t, seed);
}

static inline void stage_close(struct stage *t)
{
	subnet_close(t->s);
}

/* Two adapters with a switch of so many ports between them: S[1] and S[2]. */
static inline void stage_star(struct stage *t, unsigned hosts, unsigned ports)
{
	struct subnet_node *sw, *ca;
	char name[16];

	stage_open(t, 1);
	sw = subnet_add(t->s, SUBNET_SWITCH, ports, "S");
	for (unsigned i = 0; i < hosts; i++) {
		snprintf(name, sizeof(name), "H%u", i + 1);
		ca = subnet_add(t->s, SUBNET_CA, 1, name);
		subnet_join(subnet_port(sw, i + 1), subnet_port(ca, 1));
	}
	subnet_start(t->s, t->now);
}

static inline struct subnet_port *stage_port(const struct stage *t, const char *node, unsigned num)
{
	return subnet_port(subnet_find(t->s, node), num);
}

/* ---- asking ---- */
struct stage_route { /* the ports to leave by */
	uint8_t n, port[STAGE_HOPS];
};

static inline void stage_send(
	struct stage *t, struct subnet_port *from, const struct packet_addr *to, const uint8_t *mad)
{
	uint8_t room[PACKET_MAD_LEN];
	struct packet p;

	packet_mad_make(&p, room, to, mad);
	subnet_inject(t->s, from, &p, t->now);
}

/* Answered or not: data becomes the attribute that came back, and t->status its status. */
static inline bool stage_smp(struct stage *t, struct subnet_port *from, const struct packet_addr *to,
	uint8_t class, const struct stage_route *r, uint8_t method, uint16_t attr, uint32_t mod,
	uint64_t mkey, uint8_t *data)
{
	const struct mad_hdr h = {MAD_BASE_VERSION, class, SMP_CLASS_VERSION, method, 0, 0,
		0x1234567800000000u + ++t->sent, attr, mod};
	uint8_t mad[MAD_LEN] = {0};
	unsigned before = t->arrived;

	mad_hdr_put(mad, &h);
	put_be64(mad + SMP_MKEY, mkey);
	put_be16(mad + SMP_DR_SLID, to->dlid == LID_PERMISSIVE ? LID_PERMISSIVE : to->slid);
	put_be16(mad + SMP_DR_DLID, LID_PERMISSIVE);
	if (data && method != MAD_METHOD_GET)
		memcpy(mad + SMP_DATA, data, SMP_DATA_LEN);
	mad[SMP_HOP_COUNT] = r ? r->n : 0;
	if (r)
		memcpy(mad + SMP_INITIAL_PATH + 1, r->port, r->n);
	stage_send(t, from, to, mad);
	if (t->arrived == before || t->at != from || get_be64(t->mad + 8) != h.tid)
		return false;
	if (data)
		memcpy(data, t->mad + SMP_DATA, SMP_DATA_LEN);
	t->status = get_be16(t->mad + 4) & 0x7fff;
	return t->mad[3] == MAD_METHOD_GET_RESP;
}

static inline bool stage_directed(struct stage *t, struct subnet_port *from, const struct stage_route *r,
	uint8_t method, uint16_t attr, uint32_t mod, uint8_t *data)
{
	static const struct packet_addr to = {
		.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT};

	return stage_smp(t, from, &to, MAD_CLASS_SUBN_DIRECTED, r, method, attr, mod, 0, data);
}

static inline bool stage_by_lid(struct stage *t, struct subnet_port *from, uint16_t dlid, uint8_t method,
	uint16_t attr, uint32_t mod, uint8_t *data)
{
	struct packet_addr to = {.slid = from->shared->lid, .dlid = dlid, .pkey = PKEY_DEFAULT};

	return stage_smp(t, from, &to, MAD_CLASS_SUBN, NULL, method, attr, mod, 0, data);
}

/* ---- a subnet manager of a few lines: LID of a node is its index + 1, of an adapter's further ports beyond
 * ---- */
static inline uint16_t stage_lid(const struct stage *t, const struct subnet_port *end)
{
	return (uint16_t)(end->num > 1 ? subnet_nodes(t->s) + end->index : end->node->index + 1);
}

static inline struct subnet_node *stage_other(const struct subnet_node *n, unsigned port)
{
	return n->port[port].peer && n->port[port].shared->phys == PHYS_LINK_UP ? n->port[port].peer->node
										: NULL;
}

/* Breadth first from a node: the order, and for each the port that leads one hop back. */
struct stage_tree {
	struct subnet_node *order[STAGE_NODES];
	unsigned n;
	uint8_t back[STAGE_NODES]; /* the port towards the root; 0: the root, 255: not reached */
	uint8_t via[STAGE_NODES];  /* the port of the parent */
};

static inline void stage_grow(struct stage_tree *tree, struct subnet_node *root)
{
	memset(tree->back, 255, sizeof(tree->back));
	tree->order[0] = root;
	tree->back[root->index] = 0;
	tree->n = 1;
	for (unsigned i = 0; i < tree->n; i++) {
		struct subnet_node *n = tree->order[i];

		if (i && n->type != SUBNET_SWITCH)
			continue;
		for (unsigned k = 1; k <= n->nports; k++) {
			struct subnet_node *other = stage_other(n, k);

			if (!other || tree->back[other->index] != 255)
				continue;
			tree->back[other->index] = n->port[k].peer->num;
			tree->via[other->index] = (uint8_t)k;
			tree->order[tree->n++] = other;
		}
	}
}

static inline struct stage_route stage_route_to(const struct stage_tree *tree, const struct subnet_node *n)
{
	struct stage_route r = {0}, back = {0};

	while (tree->back[n->index]) {
		back.port[back.n++] = tree->via[n->index];
		n = n->port[tree->back[n->index]].peer->node;
	}
	while (r.n < back.n) {
		r.port[r.n] = back.port[back.n - 1 - r.n];
		r.n++;
	}
	return r;
}

static inline void stage_set_state(struct stage *t, struct subnet_port *sm, const struct stage_route *r,
	unsigned port, uint8_t state, uint16_t lid)
{
	uint8_t data[SMP_DATA_LEN] = {0};
	struct port_info i;

	if (!stage_directed(t, sm, r, MAD_METHOD_GET, SMP_PORT_INFO, port, data))
		return;
	i = port_info_get(data);
	if (lid) {
		i.lid = lid;
		i.sm_lid = stage_lid(t, sm);
	}
	if (i.state == PORT_DOWN || i.state > state)
		state = 0;
	i.state = state;
	i.phys = 0;
	port_info_put(data, &i);
	stage_directed(t, sm, r, MAD_METHOD_SET, SMP_PORT_INFO, port, data);
}

/* Forwarding tables: towards each node by the port that its own tree has; root first, so that the way is
 * known. */
static inline void stage_set_routes(struct stage *t, struct subnet_port *sm, const struct stage_tree *from_sm)
{
	unsigned blocks = subnet_nodes(t->s) / 64 + 1;
	uint8_t *lft = malloc((size_t)STAGE_NODES * blocks * 64);
	struct stage_tree *tree = malloc(sizeof(*tree));

	memset(lft, 255, (size_t)STAGE_NODES * blocks * 64);
	for (unsigned i = 0; i < from_sm->n; i++) {
		stage_grow(tree, from_sm->order[i]);
		for (unsigned k = 0; k < tree->n; k++)
			lft[tree->order[k]->index * blocks * 64 + from_sm->order[i]->index + 1] =
				tree->back[tree->order[k]->index];
	}
	for (unsigned i = 0; i < from_sm->n; i++) {
		struct subnet_node *n = from_sm->order[i];
		struct stage_route r = stage_route_to(from_sm, n);
		uint8_t data[SMP_DATA_LEN] = {0};
		struct switch_info info = {.linear_top = (uint16_t)(blocks * 64 - 1), .state_change = true};

		if (n->type != SUBNET_SWITCH)
			continue;
		switch_info_put(data, &info);
		stage_directed(t, sm, &r, MAD_METHOD_SET, SMP_SWITCH_INFO, 0, data);
		for (unsigned b = 0; b < blocks; b++) {
			memcpy(data, lft + n->index * blocks * 64 + b * 64, 64);
			stage_directed(t, sm, &r, MAD_METHOD_SET, SMP_LFT, b, data);
		}
	}
	free(tree);
	free(lft);
}

static inline void stage_bring_up(struct stage *t, struct subnet_port *sm)
{
	struct stage_tree *tree = malloc(sizeof(*tree));

	stage_grow(tree, sm->node);
	stage_set_routes(t, sm, tree);
	for (uint8_t state = PORT_ARMED; state <= PORT_ACTIVE; state++)
		for (unsigned i = 0; i < tree->n; i++) {
			struct subnet_node *n = tree->order[i];
			struct stage_route r = stage_route_to(tree, n);
			bool is_switch = n->type == SUBNET_SWITCH;

			if (is_switch)
				stage_set_state(t, sm, &r, 0, 0, (uint16_t)(n->index + 1));
			for (unsigned k = 1; k <= n->nports; k++)
				if (is_switch || n->port[k].peer)
					stage_set_state(t, sm, &r, k, state,
						is_switch ? 0 : stage_lid(t, &n->port[k]));
		}
	free(tree);
}

/* ---- data ---- */
/* A packet of so many bytes of payload from one end port to a LID, for a queue pair that the subnet has none
 * of. */
static inline bool stage_data(
	struct stage *t, struct subnet_port *from, uint16_t dlid, uint16_t pkey, uint8_t sl, unsigned len)
{
	static uint8_t bytes[PACKET_BODY_MAX];
	struct packet p = {.lrh = {.sl = sl, .slid = from->shared->lid, .dlid = dlid, .lnh = LNH_LOCAL},
		.bth = bytes,
		.len = BTH_LEN + DETH_LEN + len};
	unsigned before = t->arrived;

	p.lrh.words = (uint16_t)((packet_size(&p) + ICRC_LEN) / 4);
	bth_put(bytes, IBT_UD | OP_SEND_ONLY, false, 0, pkey, 0x4711, false, 0);
	subnet_inject(t->s, from, &p, t->now);
	return t->arrived > before;
}

#endif
