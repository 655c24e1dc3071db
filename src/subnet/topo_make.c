/* SPDX-License-Identifier: MIT */
#include "subnet/topo_make.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 3, NUMBER_MAX = 65535 };

struct maker {
	struct subnet *s;
	unsigned hca_ports;
	unsigned n[NUMBERS], count; /* of the word */
	unsigned hosts;             /* made so far */
	char *err;
	int status; /* the first thing that went wrong; from then on nothing is done */
};

__attribute__((format(printf, 2, 3))) static void fail(struct maker *m, const char *fmt, ...)
{
	va_list ap;

	if (m->status)
		return;
	m->status = -EINVAL;
	va_start(ap, fmt);
	vsnprintf(m->err, TOPO_ERROR, fmt, ap);
	va_end(ap);
}

static struct subnet_node *add(
	struct maker *m, enum subnet_node_type type, unsigned nports, const char *stem, unsigned number)
{
	struct subnet_node *n;
	char id[SUBNET_NAME];

	if (m->status)
		return NULL;
	if (nports > SUBNET_MAX_PORTS) {
		fail(m, "a switch of it would have %u ports; at most %d are possible", nports,
			SUBNET_MAX_PORTS);
		return NULL;
	}
	snprintf(id, sizeof(id), "%s%u", stem, number);
	n = subnet_add(m->s, type, nports, id);
	if (!n && errno == ENOMEM)
		m->status = -ENOMEM;
	else if (!n)
		fail(m, "%s cannot be added: %s", id, topo_why_not(errno));
	return n;
}

static struct subnet_node *add_switch(
	struct maker *m, const char *stem, unsigned index, unsigned cables, unsigned hosts)
{
	/* Multiplied in 64 bits: these come from the command line. */
	uint64_t ports = cables + (uint64_t)hosts * m->hca_ports;

	return add(m, SUBNET_SWITCH, ports > NUMBER_MAX ? NUMBER_MAX : (unsigned)ports, stem, index + 1);
}

static void cable(struct maker *m, struct subnet_node *a, unsigned ap, struct subnet_node *b, unsigned bp)
{
	if (m->status)
		return;
	if (subnet_join(subnet_port(a, ap), subnet_port(b, bp)))
		fail(m, "%s[%u] and %s[%u] cannot be joined", a->id, ap, b->id, bp);
}

/* Hosts at a switch, by its ports from `first` on. */
static void add_hosts(struct maker *m, struct subnet_node *sw, unsigned first, unsigned hosts)
{
	for (unsigned i = 0; i < hosts && !m->status; i++) {
		struct subnet_node *h = add(m, SUBNET_CA, m->hca_ports, "node", ++m->hosts);

		for (unsigned p = 1; p <= m->hca_ports; p++)
			cable(m, h, p, sw, first++);
	}
}

/* Refuses what is too large before anything is made. */
static bool fits(struct maker *m, uint64_t nodes)
{
	if (nodes > TOPO_MAX_NODES)
		fail(m, "it would have %llu nodes; at most %d are possible", (unsigned long long)nodes,
			TOPO_MAX_NODES);
	return !m->status;
}

static bool need(struct maker *m, bool is_so, const char *rule)
{
	if (!is_so)
		fail(m, "%s", rule);
	return !m->status;
}

static struct subnet_node **array(struct maker *m, uint64_t n)
{
	struct subnet_node **a = m->status ? NULL : calloc(n, sizeof(*a));

	if (!a && !m->status)
		m->status = -ENOMEM;
	return a;
}

static void make_pair(struct maker *m)
{
	struct subnet_node *a = add(m, SUBNET_CA, m->hca_ports, "node", 1);
	struct subnet_node *b = add(m, SUBNET_CA, m->hca_ports, "node", 2);

	for (unsigned p = 1; p <= m->hca_ports; p++)
		cable(m, a, p, b, p);
}

static void make_star(struct maker *m)
{
	struct subnet_node *sw;

	if (!need(m, m->n[0] >= 1, "a star has at least one host: star:4"))
		return;
	sw = add_switch(m, "S", 0, 0, m->n[0]);
	add_hosts(m, sw, 1, m->n[0]);
}

/* Ports of each switch: 1 to the next, 2 to the one before, then its host. */
static void make_ring(struct maker *m)
{
	unsigned n = m->n[0];
	struct subnet_node **sw;

	if (!need(m, n >= 3, "a ring has at least three switches: ring:6") || !fits(m, 2ull * n))
		return;
	sw = array(m, n);
	for (unsigned i = 0; i < n && !m->status; i++)
		sw[i] = add_switch(m, "S", i, 2, 1);
	for (unsigned i = 0; i < n && !m->status; i++) {
		cable(m, sw[i], 1, sw[(i + 1) % n], 2);
		add_hosts(m, sw[i], 3, 1);
	}
	free(sw);
}

/* Ports of a leaf: its spines in order, then its hosts. Of a spine: its leaves in order. */
static void make_tree(struct maker *m)
{
	unsigned leaves = m->n[0], spines = m->n[1], hosts = m->n[2];
	struct subnet_node **leaf, **spine;

	if (!need(m, leaves && spines && hosts, "a tree has leaves, spines and hosts per leaf: tree:4,2,8") ||
		!fits(m, spines + leaves * (1ull + hosts)))
		return;
	spine = array(m, spines);
	leaf = array(m, leaves);
	for (unsigned i = 0; i < spines && !m->status; i++)
		spine[i] = add_switch(m, "spine", i, leaves, 0);
	for (unsigned i = 0; i < leaves && !m->status; i++)
		leaf[i] = add_switch(m, "leaf", i, spines, hosts);
	for (unsigned i = 0; i < leaves && !m->status; i++) {
		for (unsigned k = 0; k < spines; k++)
			cable(m, leaf[i], k + 1, spine[k], i + 1);
		add_hosts(m, leaf[i], spines + 1, hosts);
	}
	free(leaf);
	free(spine);
}

/* One pod: each edge switch to each aggregation switch, whose j-th goes up to the j-th block of cores. */
static void make_pod(struct maker *m, unsigned pod, unsigned half, struct subnet_node *const *core)
{
	struct subnet_node **edge = array(m, half), **agg = array(m, half);

	for (unsigned i = 0; i < half && !m->status; i++)
		agg[i] = add_switch(m, "agg", pod * half + i, 2 * half, 0);
	for (unsigned i = 0; i < half && !m->status; i++)
		edge[i] = add_switch(m, "edge", pod * half + i, half, half);
	for (unsigned i = 0; i < half && !m->status; i++) {
		for (unsigned k = 0; k < half; k++) {
			cable(m, edge[i], k + 1, agg[k], half + i + 1);
			cable(m, agg[i], k + 1, core[i * half + k], pod + 1);
		}
		add_hosts(m, edge[i], half + 1, half);
	}
	free(edge);
	free(agg);
}

static void make_fat_tree(struct maker *m)
{
	uint64_t k = m->n[0], half = k / 2;
	struct subnet_node **core;

	if (!need(m, k >= 2 && k % 2 == 0, "a fat tree is k-ary with an even k: fat-tree:4") ||
		!fits(m, 5 * half * half + 2 * half * half * half))
		return;
	core = array(m, half * half);
	for (unsigned i = 0; i < half * half && !m->status; i++)
		core[i] = add_switch(m, "core", i, (unsigned)k, 0);
	for (unsigned pod = 0; pod < k && !m->status; pod++)
		make_pod(m, pod, (unsigned)half, core);
	free(core);
}

/* Ports of each switch: 2d+1 up and 2d+2 down dimension d, then its host. A dimension of 2 has one cable. */
static void make_torus(struct maker *m)
{
	unsigned dims = m->count;
	uint64_t points = 1, step = 1;
	struct subnet_node **sw;

	for (unsigned d = 0; d < dims; d++) {
		if (!need(m, m->n[d] >= 2, "a torus has at least two switches each way: torus:3x3"))
			return;
		points *= m->n[d];
		if (!fits(m, 2 * points))
			return;
	}
	sw = array(m, points);
	for (unsigned i = 0; i < points && !m->status; i++)
		sw[i] = add_switch(m, "S", i, 2 * dims, 1);
	for (unsigned d = 0; d < dims; step *= m->n[d++])
		for (unsigned i = 0; i < points && !m->status; i++) {
			unsigned at = (unsigned)(i / step % m->n[d]);
			bool last = at + 1 == m->n[d];

			if (!last || m->n[d] > 2)
				cable(m, sw[i], 2 * d + 1, sw[last ? i - (m->n[d] - 1) * step : i + step],
					2 * d + 2);
		}
	for (unsigned i = 0; i < points && !m->status; i++)
		add_hosts(m, sw[i], 2 * dims + 1, 1);
	free(sw);
}

/*
 * Ports of each switch: the a-1 others of its group, h global ones, then hosts. Global cable j of group i,
 * out of a*h, goes to the group j+1 further on, whose cable back is counted from the other end.
 */
static void make_dragonfly(struct maker *m)
{
	unsigned a = m->n[0], h = m->n[1], hosts = m->n[2];
	uint64_t globals = (uint64_t)a * h, groups = globals + 1;
	struct subnet_node **sw;

	if (!need(m, a && h && hosts,
		    "a dragonfly has switches per group, global cables and hosts: dragonfly:4,2,2") ||
		!need(m, globals < NUMBER_MAX, "a dragonfly of that size is not possible") ||
		!fits(m, groups * a * (1ull + hosts)))
		return;
	sw = array(m, groups * a);
	for (unsigned i = 0; i < groups * a && !m->status; i++)
		sw[i] = add_switch(m, "S", i, a - 1 + h, hosts);
	for (unsigned g = 0; g < groups && !m->status; g++) {
		struct subnet_node **own = sw + g * a;

		for (unsigned i = 0; i < a; i++)
			for (unsigned k = i + 1; k < a; k++)
				cable(m, own[i], k, own[k], i + 1);
		for (unsigned j = 0; j < globals; j++) {
			unsigned to = (unsigned)((g + j + 1) % groups), back = (unsigned)globals - 1 - j;

			if (g < to)
				cable(m, own[j / h], a + j % h, sw[to * a + back / h], a + back % h);
		}
		for (unsigned i = 0; i < a; i++)
			add_hosts(m, own[i], a + h, hosts);
	}
	free(sw);
}

static const struct kind {
	const char *name;
	unsigned min, max; /* numbers behind the colon */
	const char *form;
	void (*make)(struct maker *m);
} kinds[] = {
	{"pair", 0, 0, "pair", make_pair},
	{"star", 1, 1, "star:4", make_star},
	{"ring", 1, 1, "ring:6", make_ring},
	{"fat-tree", 1, 1, "fat-tree:4", make_fat_tree},
	{"tree", 3, 3, "tree:4,2,8", make_tree},
	{"torus", 2, 3, "torus:3x3", make_torus},
	{"dragonfly", 3, 3, "dragonfly:4,2,2", make_dragonfly},
};

static const struct kind *find_kind(const char *spec)
{
	size_t len = strcspn(spec, ":");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strlen(kinds[i].name) == len && !strncmp(kinds[i].name, spec, len))
			return &kinds[i];
	return NULL;
}

bool topo_is_spec(const char *spec)
{
	return find_kind(spec) != NULL;
}

/* Numbers with ',' or 'x' between them, up to NUMBERS. False: something else. */
static bool read_numbers(struct maker *m, const char *at)
{
	for (m->count = 0;; at++) {
		unsigned long v;
		char *end;

		if (m->count == NUMBERS || *at < '0' || *at > '9')
			return false;
		v = strtoul(at, &end, 10);
		if (v > NUMBER_MAX)
			v = NUMBER_MAX;
		m->n[m->count++] = (unsigned)v;
		at = end;
		if (!*at)
			return true;
		if (*at != ',' && *at != 'x')
			return false;
	}
}

int topo_make(struct subnet *s, const char *spec, unsigned hca_ports, char err[TOPO_ERROR])
{
	struct maker m = {.s = s, .hca_ports = hca_ports, .err = err};
	const struct kind *kind = find_kind(spec);
	const char *colon = strchr(spec, ':');

	if (!hca_ports || hca_ports > SUBNET_MAX_PORTS)
		fail(&m, "an adapter has 1 to %d ports", SUBNET_MAX_PORTS);
	else if (!kind)
		fail(&m, "there is no topology '%.40s'; for example: star:4, fat-tree:4, or a file", spec);
	else if ((colon && !read_numbers(&m, colon + 1)) || m.count < kind->min || m.count > kind->max)
		fail(&m, "'%.40s' is not understood; for example: %s", spec, kind->form);
	else
		kind->make(&m);
	return m.status;
}
