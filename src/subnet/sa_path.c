/* SPDX-License-Identifier: MIT */
/*
 * PathRecords (IBA volume 1, 15.2.5.16): between two end ports, what every link on the path can carry. There
 * is one path between two LIDs; its MTU and rate may be made smaller to be what was asked for.
 */
#include "subnet/sm_parts.h"

#include "fabric/walk.h"

enum { SELECTOR_SHIFT = 6, VALUE_MASK = 0x3f, PACKET_LIFE = 18 };

/* ---- what a link carries ---- */
/* A switch's own port has none, and says 1x SDR. */
unsigned sm_port_rate(const struct subnet_port *p)
{
	static const uint16_t ext[] = {140, 250, 500, 1000}, plain[] = {25, 50, 100};
	static const uint8_t lanes[] = {1, 4, 8, 12, 2};
	const struct fabric_port *f = p->shared;
	unsigned lane = plain[0];

	if (f->speed_ext)
		lane = ext[__builtin_ctz(f->speed_ext) % 4];
	else if (f->speed)
		lane = plain[__builtin_ctz(f->speed) % 3];
	return lane * lanes[f->width ? __builtin_ctz(f->width) % 5 : 0];
}

struct measure {
	uint8_t mtu;
	unsigned tenths;
};

static void pass(struct measure *w, const struct subnet_port *out)
{
	unsigned tenths = sm_port_rate(out);

	w->mtu = out->shared->mtu < w->mtu ? out->shared->mtu : w->mtu;
	w->tenths = tenths < w->tenths ? tenths : w->tenths;
}

/* Along the forwarding tables: whether it gets there. */
static bool measure(const struct subnet_sm *m, struct subnet_port *from, struct subnet_port *to,
	uint16_t dlid, struct measure *w)
{
	struct subnet_port *at = from;

	*w = (struct measure){from->shared->mtu, sm_port_rate(from)};
	for (unsigned hops = 0; hops <= WALK_HOPS_MAX + 1; hops++) {
		uint8_t num = at->num;

		if (end_port(at) == to) {
			pass(w, to);
			return true;
		}
		if (is_switch(at->node))
			num = fabric_lft(m->s->table, at->node->sw->index, dlid);
		else if (hops)
			return false;
		if (!num || num > at->node->nports || at->node->port[num].shared->state != PORT_ACTIVE)
			return false;
		pass(w, &at->node->port[num]);
		at = at->node->port[num].peer;
		pass(w, at);
	}
	return false;
}

/* ---- what was asked for ---- */
unsigned sa_order_plain(uint8_t code)
{
	return code;
}

bool sa_select(
	uint64_t mask, unsigned selector_bit, uint8_t asked, uint8_t *value, unsigned (*order)(uint8_t))
{
	unsigned selector = mask & selector_bit ? asked >> SELECTOR_SHIFT : SA_EXACTLY;
	unsigned want = order(asked & VALUE_MASK), have = order(*value);

	if (!(mask & selector_bit << 1)) /* the value has the next bit */
		return true;
	switch (selector) {
	case SA_GREATER:
		return have > want;
	case SA_EXACTLY:
		if (have < want || !want)
			return false;
		*value = asked & VALUE_MASK;
		return true;
	case SA_LESS:
		while (order(*value) >= want && *value > 1)
			--*value;
		return order(*value) < want;
	}
	return true; /* the largest there is */
}

/* The next lower rate has any code. */
bool sa_select_rate(uint64_t mask, unsigned selector_bit, uint8_t asked, uint8_t *rate)
{
	unsigned want = sa_rate_tenths(asked & VALUE_MASK);

	if (mask & selector_bit && mask & selector_bit << 1 && asked >> SELECTOR_SHIFT == SA_LESS) {
		if (want && sa_rate_tenths(*rate) >= want)
			*rate = sa_rate_of(want - 1);
		return *rate && want;
	}
	return sa_select(mask, selector_bit, asked, rate, sa_rate_tenths);
}

/* The first key that both have, or the one that was asked for. 0: none. */
static uint16_t shared_pkey(
	const struct fabric_port *a, const struct fabric_port *b, bool asked, uint16_t pkey)
{
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		for (unsigned k = 0; k < FABRIC_PKEYS && a->pkey[i]; k++) {
			if (!b->pkey[k] || !pkey_matches(a->pkey[i], b->pkey[k]))
				continue;
			if (!asked || !((pkey ^ a->pkey[i]) & 0x7fff))
				return a->pkey[i];
		}
	return 0;
}

/* ---- records ---- */
struct question {
	struct sa_path want;
	struct subnet_port *from, *to; /* NULL: any */
};

static bool add_path(
	struct sa_request *r, const struct question *q, struct subnet_port *from, struct subnet_port *to)
{
	uint16_t dlid = r->mask & PATH_DLID ? q->want.dlid : to->shared->lid;
	uint8_t record[64];
	struct sa_path p = {.dlid = dlid,
		.slid = r->mask & PATH_SLID ? q->want.slid : from->shared->lid,
		.reversible = true,
		.numb = r->mask & PATH_NUMB ? q->want.numb : 0,
		.pkey = shared_pkey(from->shared, to->shared, r->mask & PATH_PKEY, q->want.pkey),
		.life = from == to ? 0 : PACKET_LIFE};
	struct measure w;

	if (!p.pkey || !measure(r->m, from, to, dlid, &w))
		return true;
	p.mtu = w.mtu;
	p.rate = sa_rate_of(w.tenths);
	if (!sa_select(r->mask, PATH_MTU_SELECTOR, q->want.mtu, &p.mtu, sa_order_plain) ||
		!sa_select_rate(r->mask, PATH_RATE_SELECTOR, q->want.rate, &p.rate) ||
		!sa_select(r->mask, PATH_LIFE_SELECTOR, q->want.life, &p.life, sa_order_plain))
		return true;
	p.mtu |= SA_EXACTLY << SELECTOR_SHIFT;
	p.rate |= SA_EXACTLY << SELECTOR_SHIFT;
	p.life |= SA_EXACTLY << SELECTOR_SHIFT;
	sm_gid(from, p.sgid);
	sm_gid(to, p.dgid);
	if (r->mask & PATH_SGID)
		memcpy(p.sgid, q->want.sgid, 16);
	if (r->mask & PATH_DGID)
		memcpy(p.dgid, q->want.dgid, 16);
	sa_path_put(record, &p);
	if (r->mask & PATH_SL && q->want.sl)
		return true; /* all of them are on SL 0 */
	return sa_add(r, record);
}

/* An end that is named by GID, by LID or by both; NULL with a status: nobody is. */
static uint16_t find_end(const struct sa_request *r, bool by_gid, const uint8_t *gid, bool by_lid,
	uint16_t lid, struct subnet_port **end)
{
	*end = NULL;
	if (by_gid) {
		*end = sm_port_of_gid(r->m, gid);
		if (!*end)
			return SA_INVALID_GID;
	}
	if (by_lid && *end && sm_port_of_lid(r->m, lid) != *end)
		return SA_NO_RECORDS;
	if (by_lid && !*end)
		*end = sm_port_of_lid(r->m, lid);
	return by_lid && !*end ? SA_NO_RECORDS : MAD_STATUS_OK;
}

static bool add_from(struct sa_request *r, const struct question *q, struct subnet_port *from)
{
	if (q->to)
		return add_path(r, q, from, q->to);
	for (unsigned i = 0; i < r->m->nends; i++)
		if (sm_is_there(r->m->end[i]) && !add_path(r, q, from, r->m->end[i]))
			return false;
	return true;
}

/* A Get is for one path, so a question that leaves open from where is one from who asks. */
uint16_t sa_get_paths(struct sa_request *r)
{
	struct question q = {.want = sa_path_get(r->data)};
	uint16_t status =
		find_end(r, r->mask & PATH_SGID, q.want.sgid, r->mask & PATH_SLID, q.want.slid, &q.from);
	uint16_t none = r->h.method == SA_GET_TABLE ? MAD_STATUS_OK : SA_NO_RECORDS;

	if (!status)
		status = find_end(
			r, r->mask & PATH_DGID, q.want.dgid, r->mask & PATH_DLID, q.want.dlid, &q.to);
	if (status)
		return status == SA_NO_RECORDS ? none : status;
	if (r->mask & PATH_RAW && q.want.raw)
		return none;
	if (r->h.method == MAD_METHOD_GET && !q.from)
		q.from = r->asker;
	if (r->h.method == MAD_METHOD_GET && (!q.from || !q.to))
		return SA_FEW_COMPONENTS;
	if (q.from)
		return add_from(r, &q, q.from) ? MAD_STATUS_OK : SA_NO_RESOURCES;
	for (unsigned i = 0; i < r->m->nends; i++)
		if (sm_is_there(r->m->end[i]) && !add_from(r, &q, r->m->end[i]))
			return SA_NO_RESOURCES;
	return MAD_STATUS_OK;
}
