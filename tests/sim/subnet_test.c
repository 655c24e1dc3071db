/* SPDX-License-Identifier: MIT */
/*
 * A fat tree of 1,344 nodes under its built-in subnet manager, with cables that are cut and mended, switches
 * that lose all of theirs, hosts that are unplugged, all drawn from a seed. After each round of these the
 * manager gets its turn, once, and then what must be is: a packet gets from one host to another exactly when
 * the cables that are whole connect them (a model of a few lines, which knows nothing of LIDs and tables),
 * and one to a group reaches exactly its other members there.
 *
 * Packets are sent as well, also before the manager had its turn, and at last through switches with entries
 * and partitions that nobody would write: each arrives where a walk through the tables ends, or nowhere.
 *
 *   subnet_test [--seed N] [--seeds COUNT] [--trace] [--digest]
 */
#include "draw.h"
#include "seeds.h"

#include "fabric/walk.h"
#include "subnet/packet.h"
#include "subnet/sa.h"
#include "subnet/topo_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, PAIRS = 4000, PACKETS = 500, MEMBERS = 12, ALL_PAIRS_EVERY = 50, CABLES_MAX = 60 };
#define SHAPE "fat-tree:16"

uint64_t draw_state;

static struct {
	struct subnet *s;
	struct subnet_sm *sm;
	struct subnet_port **host, **cable; /* ports of hosts; one end of each cable */
	unsigned nhosts, ncables;
	uint32_t *part; /* by node: the lowest node that whole cables connect it with */
	unsigned arrived;
	const struct subnet_port *at; /* where the last one did */
	unsigned member[MEMBERS];
	uint64_t now;
} w;

static void fail(const char *what, const struct subnet_port *a, const struct subnet_port *b, unsigned detail)
{
	fprintf(stderr, "seed %llu: %s, %s[%u] to %s[%u]: %u\nreplay: %s --seed %llu --trace\n",
		(unsigned long long)seeds.now, what, a->node->id, a->num, b->node->id, b->num, detail,
		seeds.program, (unsigned long long)seeds.now);
	exit(1);
}

/* ---- the subnet ---- */
static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	w.arrived += bth_dqpn(p->bth) > GSI_QPN;
	w.at = at;
}

static void list_parts(void)
{
	w.host = calloc(subnet_nodes(w.s), sizeof(struct subnet_port *));
	w.cable = calloc(subnet_table(w.s)->n.ports, sizeof(struct subnet_port *));
	w.part = calloc(subnet_nodes(w.s), sizeof(*w.part));
	w.nhosts = w.ncables = 0;
	for (unsigned i = 0; i < subnet_nodes(w.s); i++) {
		struct subnet_node *n = subnet_node(w.s, i);

		if (n->type == SUBNET_CA)
			w.host[w.nhosts++] = &n->port[1];
		for (unsigned k = 1; k <= n->nports; k++)
			if (n->port[k].peer && n->port[k].index < n->port[k].peer->index)
				w.cable[w.ncables++] = &n->port[k];
	}
}

static void open_all(uint64_t seed)
{
	static const struct subnet_ops ops = {.arrived = arrived};
	char err[TOPO_ERROR];

	draw_state = seed;
	w.now = 1000;
	w.s = subnet_open(&ops, NULL, seed);
	if (!w.s || topo_make(w.s, SHAPE, 1, err) || subnet_start(w.s, w.now))
		abort();
	list_parts();
	w.sm = subnet_sm_open(w.s, w.host[0]);
	for (unsigned i = 0; i < MEMBERS; i++)
		w.member[i] = (unsigned)draw(w.nhosts);
}

static void close_all(void)
{
	subnet_sm_close(w.sm);
	subnet_close(w.s);
	free(w.host);
	free(w.cable);
	free(w.part);
}

/* ---- what happens to it ---- */
static void flip(struct subnet_port *p)
{
	if (p->cut)
		subnet_mend(p, w.now);
	else
		subnet_cut(p, w.now);
	if (seeds.trace)
		printf("%s[%u] %s\n", p->node->id, p->num, p->cut ? "cut" : "whole");
}

static void unplug(struct subnet_node *n)
{
	for (unsigned k = 1; k <= n->nports; k++)
		if (n->port[k].peer && !n->port[k].cut)
			flip(&n->port[k]);
}

static void trouble(void)
{
	unsigned n = (unsigned)between(1, one_in(3) ? CABLES_MAX * 20 : CABLES_MAX);

	while (n--)
		flip(w.cable[draw(w.ncables)]);
	if (one_in(3))
		unplug(subnet_node(w.s, (unsigned)draw(subnet_nodes(w.s))));
	if (one_in(8)) /* all is well again */
		for (unsigned i = 0; i < w.ncables; i++)
			if (w.cable[i]->cut)
				flip(w.cable[i]);
}

/* ---- what must be ---- */
static uint32_t root_of(uint32_t n)
{
	while (w.part[n] != n)
		n = w.part[n] = w.part[w.part[n]];
	return n;
}

/* Hosts forward nothing, but each has one cable only. */
static void find_parts(void)
{
	for (unsigned i = 0; i < subnet_nodes(w.s); i++)
		w.part[i] = i;
	for (unsigned i = 0; i < w.ncables; i++) {
		uint32_t a = root_of(w.cable[i]->node->index), b = root_of(w.cable[i]->peer->node->index);

		if (!w.cable[i]->cut)
			w.part[a > b ? a : b] = a > b ? b : a;
	}
}

static bool connected(const struct subnet_port *a, const struct subnet_port *b)
{
	return root_of(a->node->index) == root_of(b->node->index);
}

static void check_pair(const struct subnet_port *a, const struct subnet_port *b)
{
	static const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 64};
	struct walk path = {0};
	enum walk_end end;

	if (a == b || !b->shared->lid)
		return;
	end = fabric_walk(subnet_table(w.s), a->index, b->shared->lid, &what, &path);
	if ((end == WALK_ARRIVED) != connected(a, b))
		fail(end ? "no path" : "a path where no cable is", a, b, end);
	if (!end && path.port != b->index)
		fail("a path to somebody else", a, b, path.port);
	seeds_note(&end, sizeof(end));
	seeds_note(&path.hops, sizeof(path.hops));
}

static void check_pairs(void)
{
	for (unsigned i = 0; i < PAIRS; i++) {
		const struct subnet_port *a = w.host[draw(w.nhosts)], *b = w.host[draw(w.nhosts)];

		check_pair(a, b);
	}
}

static void check_all_pairs(void)
{
	for (unsigned a = 0; a < w.nhosts; a++)
		for (unsigned b = 0; b < w.nhosts; b++)
			check_pair(w.host[a], w.host[b]);
}

/* ---- packets ---- */
static unsigned send_to(struct subnet_port *from, uint16_t dlid, uint16_t pkey)
{
	uint8_t bytes[BTH_LEN + DETH_LEN + 64] = {0};
	struct packet p = {.lrh = {.slid = from->shared->lid, .dlid = dlid, .lnh = LNH_LOCAL},
		.bth = bytes,
		.len = sizeof(bytes)};

	p.lrh.words = (uint16_t)((packet_size(&p) + ICRC_LEN) / 4);
	bth_put(bytes, IBT_UD | OP_SEND_ONLY, false, 0, pkey, 0x4711, false, 0);
	w.arrived = 0;
	subnet_inject(w.s, from, &p, w.now);
	return w.arrived;
}

static void check_packet(struct subnet_port *a, const struct subnet_port *b, uint16_t pkey)
{
	const struct walk_for what = {.pkey = pkey, .words = 64};
	struct walk path = {0};
	enum walk_end end;

	if (a == b || !b->shared->lid || !a->shared->lid)
		return;
	end = fabric_walk(subnet_table(w.s), a->index, b->shared->lid, &what, &path);
	if (send_to(a, b->shared->lid, pkey) != !end)
		fail("a packet is not where the tables lead", a, b, end);
	if (!end && w.at != b)
		fail("a packet that is somewhere else", a, b, w.at->index);
	if (!end && !connected(a, b))
		fail("a packet where no cable is", a, b, end);
	seeds_note(&end, sizeof(end));
}

static void check_packets(unsigned keys)
{
	for (unsigned i = 0; i < PACKETS; i++) {
		struct subnet_port *a = w.host[draw(w.nhosts)], *b = w.host[draw(w.nhosts)];
		uint16_t pkey = keys && one_in(3) ? (uint16_t)(0x8001 + draw(keys)) : PKEY_DEFAULT;

		check_packet(a, b, pkey);
	}
}

/* What nobody in his right mind would write: any entry in any switch, checks of P_Keys at any of its ports.
 */
static void spoil(unsigned keys)
{
	struct fabric_table *t = subnet_table(w.s);

	fabric_change_begin(t);
	for (unsigned i = 0; i < t->n.switches; i++) {
		const struct fabric_switch *sw = fabric_switch(t, i);

		for (unsigned n = one_in(2) ? (unsigned)draw(400) : 0; n; n--)
			fabric_lft_set(t, i, (uint16_t)between(1, 2 * t->n.switches + w.nhosts),
				one_in(4) ? FABRIC_NO_PORT : (uint8_t)draw(sw->nports + 2u));
		for (unsigned n = one_in(4) ? (unsigned)draw(4) : 0; n; n--) {
			struct fabric_port *p = fabric_port(t, sw->first + 1 + (uint32_t)draw(sw->nports));

			p->flags |= one_in(2) ? FABRIC_PKEY_IN : FABRIC_PKEY_OUT;
			p->pkey[1] = (uint16_t)(0x8001 + draw(keys));
			if (one_in(2))
				p->pkey[0] = 0;
		}
	}
	fabric_change_end(t);
}

/* ---- groups ---- */
static const uint8_t mgid[16] = {0xff, 0x12, 0x60, 0x1b, [15] = 1};

static uint16_t join(const struct subnet_port *p)
{
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_SA, SA_CLASS_VERSION, MAD_METHOD_SET, 0, 0, 1, SA_MC_MEMBER, 0};
	struct sa_member m = {.qkey = 1, .pkey = PKEY_DEFAULT, .join = JOIN_FULL};
	uint8_t mad[MAD_LEN] = {0};
	const uint8_t *answer;

	memcpy(m.mgid, mgid, 16);
	put_be64(m.port_gid, p->shared->prefix);
	put_be64(m.port_gid + 8, p->guid);
	mad_hdr_put(mad, &h);
	put_be64(mad + SA_MASK, MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE | MEMBER_QKEY |
					MEMBER_PKEY | MEMBER_SL | MEMBER_FLOW_LABEL | MEMBER_TCLASS);
	sa_member_put(mad + SA_DATA, &m);
	if (subnet_sa_answer(w.sm, p->shared->lid, mad, MAD_LEN, w.now, &answer) != MAD_LEN ||
		get_be16(answer + 4))
		fail("no group", p, p, get_be16(answer + 4));
	return sa_member_get(answer + SA_DATA).mlid;
}

static bool is_new(unsigned i)
{
	for (unsigned k = 0; k < i; k++)
		if (w.member[k] == w.member[i])
			return false;
	return !w.host[w.member[i]]->cut;
}

static void check_group(void)
{
	uint16_t mlid = 0;
	unsigned want[MEMBERS] = {0};

	for (unsigned i = 0; i < MEMBERS; i++)
		if (is_new(i))
			mlid = join(w.host[w.member[i]]);
	for (unsigned i = 0; i < MEMBERS && mlid; i++) {
		unsigned got = is_new(i) ? send_to(w.host[w.member[i]], mlid, PKEY_DEFAULT) : 0;

		for (unsigned k = 0; k < MEMBERS; k++)
			want[i] += k != i && is_new(i) && is_new(k) &&
				   connected(w.host[w.member[i]], w.host[w.member[k]]);
		if (got != want[i])
			fail("members that a packet reached", w.host[w.member[i]], w.host[w.member[i]], got);
		seeds_note(&got, sizeof(got));
	}
}

/* ---- the digest ---- */
/* All that the manager has set, of ports and of switches. */
static void note_table(void)
{
	const struct fabric_table *t = subnet_table(w.s);

	seeds_note(&t->epoch, sizeof(t->epoch));
	for (uint32_t i = 0; seeds.digests && i < t->n.ports; i++)
		seeds_note(fabric_port(t, i), sizeof(struct fabric_port));
	for (uint32_t i = 0; seeds.digests && i < t->n.rows; i++)
		seeds_note(fabric_row(t, i), sizeof(struct fabric_row));
	for (uint32_t i = 0; seeds.digests && i < t->n.switches; i++)
		for (uint16_t lid = 1; lid <= fabric_switch(t, i)->top; lid++) {
			uint8_t to = fabric_lft(t, i, lid);

			seeds_note(&to, sizeof(to));
		}
}

static void run_seed(uint64_t seed)
{
	enum { KEYS = 5 };

	open_all(seed);
	subnet_sm_take(w.sm, w.now);
	for (unsigned round = 0; round <= ROUNDS; round++) {
		find_parts();
		check_pairs();
		check_group();
		note_table();
		if (round == ROUNDS)
			break;
		trouble();
		find_parts();
		check_packets(0);
		w.now += 1000000;
		subnet_sm_run(w.sm, w.now);
	}
	if (seed % ALL_PAIRS_EVERY == 0)
		check_all_pairs();
	spoil(KEYS);
	check_packets(KEYS);
	close_all();
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	for (uint64_t i = 0; i < seeds.count; i++) {
		seeds.now = seeds.first + i;
		run_seed(seeds.now);
	}
	printf("%llu seeds\n", (unsigned long long)seeds.count);
	return 0;
}
