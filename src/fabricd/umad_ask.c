/* SPDX-License-Identifier: MIT */
/* What libibumad asks: which adapters a host has, and what of their ports; agents that come and go. */
#include "fabricd/umad_parts.h"

#include "base/random.h"
#include "fabric/shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- who is meant ---- */
static bool ends(const char *text, size_t room)
{
	return memchr(text, '\0', room);
}

static struct topo_host *host_of(const struct fabricd *d, const struct fabric_where *w)
{
	if (!ends(w->host, sizeof(w->host)))
		return NULL;
	if (!w->host[0])
		return d->topo.nhosts ? &d->topo.host[0] : NULL;
	return topo_host(&d->topo, w->host);
}

static void name_of(unsigned index, char name[FABRIC_CA_NAME])
{
	memset(name, 0, FABRIC_CA_NAME);
	snprintf(name, FABRIC_CA_NAME, "ib%u", index);
}

/* The index of the adapter; -1: there is none of that name. */
static int ca_of(const struct topo_host *h, const struct fabric_where *w)
{
	for (unsigned i = 0; ends(w->ca, sizeof(w->ca)) && i < h->nhcas && i < FABRIC_CAS; i++) {
		char name[FABRIC_CA_NAME];

		name_of(i, name);
		if (!strcmp(name, w->ca))
			return (int)i;
	}
	return -1;
}

struct found {
	struct topo_host *host;
	int ca;
	struct subnet_node *node;
	struct subnet_port *port; /* NULL: no such port */
};

/* 0, ENODEV: no such host, ENXIO: no such adapter. */
static int find(const struct fabricd *d, const struct fabric_where *w, struct found *f)
{
	*f = (struct found){.host = host_of(d, w)};
	if (!f->host)
		return ENODEV;
	f->ca = ca_of(f->host, w);
	if (f->ca < 0)
		return ENXIO;
	f->node = f->host->hca[f->ca];
	if (w->port && w->port <= FABRIC_CA_PORTS)
		f->port = subnet_port(f->node, w->port);
	return 0;
}

/* ---- answers ---- */
static int answer_list(struct fabricd *d, const struct fabric_where *w, struct fabric_listed *l)
{
	const struct topo_host *h = host_of(d, w);

	if (!h)
		return ENODEV;
	snprintf(l->host, sizeof(l->host), "%s", h->name);
	for (; l->ncas < h->nhcas && l->ncas < FABRIC_CAS; l->ncas++)
		name_of(l->ncas, l->ca[l->ncas]);
	return 0;
}

/* Gb/s, as a whole number, as /sys has it: the signalling rate of a lane times lanes. */
static uint32_t rate_of(const struct fabric_port *p)
{
	static const uint16_t tenths[] = {25, 50, 100};      /* SDR, DDR, QDR */
	static const uint16_t ext[] = {140, 250, 500, 1000}; /* FDR, EDR, HDR, NDR */
	static const uint8_t lanes[] = {1, 4, 8, 12, 2};
	unsigned width = p->width ? (unsigned)__builtin_ctz(p->width) : 0, rate = 25;

	if (p->speed_ext)
		rate = ext[(unsigned)__builtin_ctz(p->speed_ext) & 3];
	else if (p->speed)
		rate = tenths[(unsigned)__builtin_ctz(p->speed) % 3];
	return rate * lanes[width % 5] / 10;
}

static struct fabric_ca_port port_of(const struct subnet_port *at)
{
	const struct fabric_port *p = at->shared;
	struct fabric_ca_port a = {.num = at->num,
		.lid = p->lid,
		.lmc = p->lmc,
		.sm_lid = p->sm_lid,
		.sm_sl = p->sm_sl,
		.state = p->state,
		.phys = p->phys,
		.rate = rate_of(p),
		.cap_mask = p->cap_mask,
		.npkeys = FABRIC_PKEYS,
		.prefix = p->prefix,
		.guid = at->guid};

	_Static_assert((int)FABRIC_PKEYS == (int)FABRIC_PORT_PKEYS, "one table of P_Keys");
	memcpy(a.pkey, p->pkey, sizeof(a.pkey));
	return a;
}

static int answer_ca(struct fabricd *d, const struct fabric_where *w, uint8_t *answer, size_t *len)
{
	struct fabric_ca ca = {.node_type = SUBNET_CA};
	struct found f;
	int err = find(d, w, &f);

	if (err)
		return err;
	memcpy(ca.name, w->ca, sizeof(ca.name));
	snprintf(ca.fw_ver, sizeof(ca.fw_ver), "%s", ANYRDMA_VERSION);
	snprintf(ca.hw_ver, sizeof(ca.hw_ver), "0x%x", f.node->revision);
	snprintf(ca.type, sizeof(ca.type), "anyrdma");
	ca.nports = f.node->nports < FABRIC_CA_PORTS ? f.node->nports : FABRIC_CA_PORTS;
	ca.node_guid = f.node->guid;
	ca.system_guid = f.node->sys_guid;
	memcpy(answer, &ca, sizeof(ca));
	*len = sizeof(ca);
	for (uint32_t i = 1; i <= ca.nports; i++) {
		struct fabric_ca_port p = port_of(subnet_port(f.node, i));

		memcpy(answer + *len, &p, sizeof(p));
		*len += sizeof(p);
	}
	return 0;
}

static int answer_issm(struct fabricd *d, const struct fabric_where *w, struct fabric_path *path)
{
	struct found f;
	int err = find(d, w, &f);

	if (!err && !f.port)
		err = ENXIO;
	if (!err)
		err = -trees_issm_path(d, f.host, (unsigned)f.ca, w->port, path->path, sizeof(path->path));
	return err;
}

static int answer_open(struct umad_conn *c, const struct fabric_where *w, struct fabric_opened *o)
{
	struct found f;
	int err = find(c->umad->d, w, &f);

	if (err || c->qp)
		return err ? err : EINVAL;
	if (!f.port)
		return ENXIO;
	c->qp = umad_qp_get(c->umad, f.port);
	if (!c->qp)
		return ENOMEM;
	random_bytes(&c->secret, sizeof(c->secret));
	o->secret = c->secret;
	return 0;
}

/* ---- agents ---- */
static struct umad_conn *port_with(struct umad *u, uint64_t secret)
{
	list_for_each(pos, &u->conns)
	{
		struct umad_conn *c = container_of(pos, struct umad_conn, node);

		if (c->qp && c->secret == secret && !c->gone)
			return c;
	}
	return NULL;
}

static int add_agent(struct umad_conn *c, const struct fabric_register *r)
{
	struct umad_agent *a = &c->agent[r->agent];
	struct ibmad_reg reg = {
		.takes = {r->mgmt_class, r->class_version, {r->methods[0], r->methods[1]}},
		.oui = {r->oui[0], r->oui[1], r->oui[2]},
		.qp = r->qp,
		.rmpp_version = r->rmpp_version,
		.user_rmpp = r->flags & FABRIC_USER_RMPP,
	};

	if (a->mad)
		return EINVAL;
	a->conn = c;
	return -ibmad_register(&c->qp->mad, &reg, a, &a->mad);
}

/* What it has sent before it goes is sent. */
static int remove_agent(struct umad_conn *c, const struct fabric_register *r)
{
	struct umad_agent *a = &c->agent[r->agent];

	umad_conn_read(c);
	if (!a->mad)
		return EINVAL;
	ibmad_unregister(a->mad);
	a->mad = NULL;
	return 0;
}

static int answer_agent(struct umad *u, enum fabric_umad_type type, const struct fabric_register *r)
{
	struct umad_conn *c = port_with(u, r->secret);

	if (!c || r->agent >= FABRIC_AGENTS)
		return EINVAL;
	return type == FABRIC_REGISTER ? add_agent(c, r) : remove_agent(c, r);
}

/* ---- all of them ---- */
size_t umad_answer(
	struct umad_conn *c, enum fabric_umad_type type, const void *request, size_t len, void *answer)
{
	struct fabricd *d = c->umad->d;
	union {
		struct fabric_where where;
		struct fabric_register agent;
	} r;
	bool agent = type == FABRIC_REGISTER || type == FABRIC_UNREGISTER;
	size_t alen = sizeof(struct fabric_done);
	struct fabric_done done = {0};

	memset(answer, 0, UMAD_ANSWER);
	if (len != (agent ? sizeof(r.agent) : sizeof(r.where))) {
		done.error = EPROTO;
	} else {
		memcpy(&r, request, len);
		switch (type) {
		case FABRIC_LIST:
			alen = sizeof(struct fabric_listed);
			done.error = answer_list(d, &r.where, answer);
			break;
		case FABRIC_CA:
			done.error = answer_ca(d, &r.where, answer, &alen);
			break;
		case FABRIC_ISSM:
			alen = sizeof(struct fabric_path);
			done.error = answer_issm(d, &r.where, answer);
			break;
		case FABRIC_OPEN:
			alen = sizeof(struct fabric_opened);
			done.error = answer_open(c, &r.where, answer);
			break;
		case FABRIC_REGISTER:
		case FABRIC_UNREGISTER:
			done.error = answer_agent(c->umad, type, &r.agent);
			break;
		default:
			done.error = EPROTO;
		}
	}
	memcpy(answer, &done, sizeof(done));
	return done.error ? sizeof(done) : alen;
}
