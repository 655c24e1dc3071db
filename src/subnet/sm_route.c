/* SPDX-License-Identifier: MIT */
#include "subnet/sm_route.h"

#include "subnet/parts.h"

#include <stdlib.h>

#define FAR UINT32_MAX

struct cable { /* from one switch to another, by one of its ports */
	uint32_t to;
	uint8_t out;
	bool up;
};

struct sm_routes {
	struct subnet *s;
	uint32_t n; /* switches */
	struct subnet_node **node;
	uint32_t *first; /* [n + 1]: where a switch's cables begin */
	struct cable *cable;
	bool tree; /* heights are those of the description */
	uint32_t *
		height; /* a cable goes up to the higher one; of two as high, to the one of the lower index */
	uint32_t *order; /* the highest first */
	uint32_t *queue;

	/* towards one of them */
	uint32_t *down;  /* hops by going down alone; FAR: there is no such path */
	uint32_t *legal; /* hops by going up, then down */
	uint32_t *any;   /* hops to the next that has a legal path */
	uint8_t *port;   /* [cables]: the good ports of a switch, where its cables are */
	uint8_t *ports;  /* how many */
};

struct subnet_node *sm_routes_switch(const struct sm_routes *r, uint32_t index)
{
	return r->node[index];
}

/* ---- cables ---- */
static bool leads_to_switch(const struct subnet_port *p, bool described)
{
	if (!p->peer || !is_switch(p->peer->node) || p->peer->node == p->node)
		return false;
	return described || (p->shared->phys == PHYS_LINK_UP && p->peer->shared->phys == PHYS_LINK_UP);
}

/* Those that work, or all of the description. */
static void read_cables(struct sm_routes *r, bool described)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		r->first[i] = at;
		for (unsigned k = 1; k <= r->node[i]->nports; k++) {
			const struct subnet_port *p = &r->node[i]->port[k];

			if (leads_to_switch(p, described))
				r->cable[at++] = (struct cable){p->peer->node->sw->index, (uint8_t)k, false};
		}
	}
	r->first[r->n] = at;
}

static bool is_above(const struct sm_routes *r, uint32_t a, uint32_t b)
{
	return r->height[a] != r->height[b] ? r->height[a] > r->height[b] : a < b;
}

static void count_heights(const struct sm_routes *r, uint32_t *place)
{
	memset(place, 0, (r->n + 1) * sizeof(*place));
	for (uint32_t i = 0; i < r->n; i++)
		place[r->height[i]]++;
}

/* Directions of all cables, and the order in which legal paths are found; heights are below n. */
static void set_directions(struct sm_routes *r)
{
	uint32_t *place = r->queue, at = 0;

	count_heights(r, place);
	for (uint32_t h = r->n + 1; h--;) {
		uint32_t many = place[h];

		place[h] = at;
		at += many;
	}
	for (uint32_t i = 0; i < r->n; i++)
		r->order[place[r->height[i]]++] = i;
	for (uint32_t i = 0; i < r->n; i++)
		for (uint32_t c = r->first[i]; c < r->first[i + 1]; c++)
			r->cable[c].up = is_above(r, r->cable[c].to, i);
}

/* ---- towards one switch ---- */
/* Breadth first over cables, from what the queue has: hops[] is FAR where nobody has been. */
static void spread_out(struct sm_routes *r, uint32_t *hops, uint32_t queued, bool only_up)
{
	for (uint32_t i = 0; i < queued; i++) {
		uint32_t x = r->queue[i];

		for (uint32_t c = r->first[x]; c < r->first[x + 1]; c++) {
			uint32_t y = r->cable[c].to;

			if (hops[y] != FAR || (only_up && !r->cable[c].up))
				continue;
			hops[y] = hops[x] + 1;
			r->queue[queued++] = y;
		}
	}
}

/* Those below dest's ancestors: up to the nearest that has a path. Higher ones come first, so they know. */
static void find_legal(struct sm_routes *r)
{
	memcpy(r->legal, r->down, r->n * sizeof(*r->legal));
	for (uint32_t i = 0; i < r->n; i++) {
		uint32_t x = r->order[i];

		if (r->down[x] != FAR)
			continue;
		for (uint32_t c = r->first[x]; c < r->first[x + 1]; c++) {
			uint32_t y = r->cable[c].to;

			if (r->cable[c].up && r->legal[y] != FAR && r->legal[y] + 1 < r->legal[x])
				r->legal[x] = r->legal[y] + 1;
		}
	}
}

static void find_hops(struct sm_routes *r, uint32_t dest)
{
	uint32_t queued = 0;

	memset(r->down, 0xff, r->n * sizeof(*r->down));
	r->down[dest] = 0;
	r->queue[0] = dest;
	spread_out(r, r->down, 1, true);
	find_legal(r);
	for (uint32_t i = 0; i < r->n; i++) {
		r->any[i] = r->legal[i] == FAR ? FAR : 0;
		if (r->legal[i] != FAR)
			r->queue[queued++] = i;
	}
	if (queued < r->n)
		spread_out(r, r->any, queued, false);
}

static bool is_good(const struct sm_routes *r, uint32_t x, const struct cable *c)
{
	if (r->down[x] != FAR) /* what came down to here goes on down */
		return !c->up && r->down[c->to] == r->down[x] - 1;
	if (r->legal[x] != FAR)
		return c->up && r->legal[c->to] == r->legal[x] - 1;
	return r->any[x] != FAR && r->any[c->to] == r->any[x] - 1;
}

void sm_routes_to(struct sm_routes *r, uint32_t dest)
{
	find_hops(r, dest);
	for (uint32_t x = 0; x < r->n; x++) {
		r->ports[x] = 0;
		for (uint32_t c = r->first[x]; x != dest && c < r->first[x + 1]; c++)
			if (is_good(r, x, &r->cable[c]))
				r->port[r->first[x] + r->ports[x]++] = r->cable[c].out;
	}
}

/*
 * In a tree each level divides what the one below has not: a switch at height 1 gets those for whom all
 * switches below it chose the same, and must tell them apart by what is left of the number.
 */
uint8_t sm_routes_port(const struct sm_routes *r, uint32_t at, uint32_t spread)
{
	unsigned n = r->ports[at];

	if (!n)
		return FABRIC_NO_PORT;
	for (uint32_t h = r->tree ? r->height[at] : 0; h && spread; h--)
		spread /= n;
	return r->port[r->first[at] + spread % n];
}

/* ---- heights ---- */
static bool has_hosts(const struct subnet_node *n)
{
	for (unsigned k = 1; k <= n->nports; k++)
		if (n->port[k].peer && !is_switch(n->port[k].peer->node))
			return true;
	return false;
}

/* How far each is from the nearest that has hosts. */
static void measure_tree(struct sm_routes *r)
{
	uint32_t queued = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		r->height[i] = has_hosts(r->node[i]) ? 0 : FAR;
		if (!r->height[i])
			r->queue[queued++] = i;
	}
	spread_out(r, r->height, queued, false);
	for (uint32_t i = 0; i < r->n; i++)
		if (r->height[i] == FAR)
			r->height[i] = 0;
}

/* Levels all the way, and every two switches with hosts meet above. */
static bool is_tree(struct sm_routes *r)
{
	uint32_t highest = 0;

	for (uint32_t x = 0; x < r->n; x++) {
		highest = r->height[x] > highest ? r->height[x] : highest;
		for (uint32_t c = r->first[x]; c < r->first[x + 1]; c++)
			if (r->height[r->cable[c].to] == r->height[x])
				return false;
	}
	for (uint32_t dest = 0; highest && dest < r->n; dest++) {
		if (!has_hosts(r->node[dest]))
			continue;
		find_hops(r, dest);
		for (uint32_t x = 0; x < r->n; x++)
			if (r->legal[x] == FAR && r->any[x] != FAR && has_hosts(r->node[x]))
				return false;
	}
	return highest;
}

static uint32_t most_cables(const struct sm_routes *r)
{
	uint32_t best = FAR, most = 0;

	for (uint32_t x = 0; x < r->n; x++)
		if (r->height[x] == FAR && (best == FAR || r->first[x + 1] - r->first[x] > most)) {
			best = x;
			most = r->first[x + 1] - r->first[x];
		}
	return best;
}

/* Distance from one switch, turned round; of each part of the subnet, if it has come apart. */
static void measure_from_roots(struct sm_routes *r)
{
	memset(r->height, 0xff, r->n * sizeof(*r->height));
	for (uint32_t root; (root = most_cables(r)) != FAR;) {
		r->height[root] = 0;
		r->queue[0] = root;
		spread_out(r, r->height, 1, false);
	}
	for (uint32_t x = 0; x < r->n; x++)
		r->height[x] = r->n - r->height[x];
}

void sm_routes_read(struct sm_routes *r)
{
	read_cables(r, false);
	if (!r->tree)
		measure_from_roots(r);
	set_directions(r);
}

/* ---- groups ---- */
void sm_routes_tree(struct sm_routes *r, uint32_t root, uint8_t *parent_port)
{
	memset(r->any, 0xff, r->n * sizeof(*r->any));
	r->any[root] = 0;
	r->queue[0] = root;
	spread_out(r, r->any, 1, false);
	for (uint32_t x = 0; x < r->n; x++)
		for (uint32_t c = r->first[x]; x != root && c < r->first[x + 1]; c++)
			if (r->any[x] != FAR && r->any[r->cable[c].to] == r->any[x] - 1) {
				parent_port[x] = r->cable[c].out;
				break;
			}
}

/* ---- coming and going ---- */
static bool get_memory(struct sm_routes *r)
{
	size_t n = r->n + 2, cables = 1;

	for (uint32_t i = 0; i < r->n; i++)
		cables += r->node[i]->nports;
	r->first = calloc(n, sizeof(*r->first));
	r->cable = calloc(cables, sizeof(*r->cable));
	r->height = calloc(n, sizeof(*r->height));
	r->order = calloc(n, sizeof(*r->order));
	r->queue = calloc(n, sizeof(*r->queue));
	r->down = calloc(n, sizeof(*r->down));
	r->legal = calloc(n, sizeof(*r->legal));
	r->any = calloc(n, sizeof(*r->any));
	r->port = calloc(cables, sizeof(*r->port));
	r->ports = calloc(n, sizeof(*r->ports));
	return r->first && r->cable && r->height && r->order && r->queue && r->down && r->legal && r->any &&
	       r->port && r->ports;
}

static bool list_switches(struct sm_routes *r)
{
	r->node = calloc(r->n + 1, sizeof(struct subnet_node *));
	for (unsigned i = 0; r->node && i < subnet_nodes(r->s); i++)
		if (is_switch(subnet_node(r->s, i)))
			r->node[subnet_node(r->s, i)->sw->index] = subnet_node(r->s, i);
	return r->node;
}

struct sm_routes *sm_routes_open(struct subnet *s)
{
	struct sm_routes *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->s = s;
	r->n = s->count.switches;
	if (!list_switches(r) || !get_memory(r)) {
		sm_routes_close(r);
		return NULL;
	}
	read_cables(r, true);
	measure_tree(r);
	set_directions(r);
	r->tree = is_tree(r);
	return r;
}

void sm_routes_close(struct sm_routes *r)
{
	if (!r)
		return;
	free(r->node);
	free(r->first);
	free(r->cable);
	free(r->height);
	free(r->order);
	free(r->queue);
	free(r->down);
	free(r->legal);
	free(r->any);
	free(r->port);
	free(r->ports);
	free(r);
}
