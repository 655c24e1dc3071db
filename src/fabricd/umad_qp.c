/* SPDX-License-Identifier: MIT */
/*
 * QP0 and QP1 of adapters' ports. What reaches one and is no business of the SMA or PMA goes to an agent of
 * the MAD layer; a Get or Set that nobody wants is refused as Linux does it, and so is what a connection
 * manager that is not there would answer: none is left without an answer.
 *
 * MADs are sent at the end of a round, not where they are made: a packet's arrival may cause the next, and
 * the two ends of a transfer would otherwise call each other ever deeper.
 */
#include "fabricd/umad_parts.h"

#include "base/log.h"
#include "fabric/shared.h"
#include "subnet/packet.h"
#include "wire/rmpp.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct out {
	struct list node;
	struct subnet_port *from;
	struct packet_addr addr;
	uint8_t mad[MAD_LEN];
};

/* ---- out ---- */
static void enqueue(
	struct umad *u, struct subnet_port *from, const struct packet_addr *addr, const uint8_t *mad)
{
	struct out *o = u->nout < UMAD_OUT_QUEUE ? malloc(sizeof(*o)) : NULL;

	if (!o)
		return; /* lost, as a datagram may be */
	o->from = from;
	o->addr = *addr;
	memcpy(o->mad, mad, MAD_LEN);
	list_add_tail(&u->out, &o->node);
	u->nout++;
}

void umad_qp_flush(struct umad *u)
{
	for (struct list *l; (l = list_pop(&u->out));) {
		struct out *o = container_of(l, struct out, node);
		uint8_t room[PACKET_MAD_LEN];
		struct packet p;

		u->nout--;
		packet_mad_make(&p, room, &o->addr, o->mad);
		subnet_inject(u->d->subnet, o->from, &p, loop_now(u->d->loop));
		free(o);
	}
}

/* A route that is directed from its beginning to its end has no LIDs. */
static bool has_no_lids(const uint8_t *mad)
{
	return mad[1] == MAD_CLASS_SUBN_DIRECTED && get_be16(mad + 32) == LID_PERMISSIVE;
}

static void gid_of(const struct fabric_port *p, unsigned index, uint8_t gid[16])
{
	put_be64(gid, p->prefix);
	put_be64(gid + 8, p->guid[index < FABRIC_GUIDS ? index : 0]);
}

static struct packet_addr addr_to(
	const struct subnet_port *at, unsigned qp, const struct ibmad_addr *to, const uint8_t *mad)
{
	const struct fabric_port *port = at->shared;
	struct packet_addr a = {.dlid = to->lid,
		.sl = to->sl & 15,
		.pkey = port->pkey[to->pkey_index < FABRIC_PKEYS ? to->pkey_index : 0],
		.sqpn = qp,
		.dqpn = to->qpn & 0xffffff,
		.qkey = qp ? GSI_QKEY : 0,
		.has_grh = to->grh};

	a.slid = has_no_lids(mad) ? LID_PERMISSIVE
				  : (uint16_t)(port->lid | (to->path_bits & ((1u << port->lmc) - 1)));
	if (to->grh) {
		a.grh = (struct grh){.tclass = to->traffic_class,
			.hop_limit = to->hop_limit,
			.flow_label = to->flow_label & 0xfffff};
		gid_of(port, to->gid_index, a.grh.sgid);
		memcpy(a.grh.dgid, to->gid, 16);
	}
	return a;
}

void umad_qp_put_mad(struct umad *u, struct subnet_port *at, unsigned qp, const struct ibmad_addr *to,
	const uint8_t mad[MAD_LEN])
{
	struct packet_addr a = addr_to(at, qp, to, mad);

	enqueue(u, at, &a, mad);
}

static void on_send(void *arg, unsigned qp, const struct ibmad_addr *to, const uint8_t mad[MAD_LEN])
{
	struct umad_qp *q = arg;

	umad_qp_put_mad(q->umad, q->at, qp, to, mad);
}

static struct ibmad_addr decode(const struct fabric_mad *m)
{
	struct ibmad_addr a = {.qpn = be32toh(m->qpn),
		.qkey = be32toh(m->qkey),
		.lid = be16toh(m->lid),
		.sl = m->sl,
		.path_bits = m->path_bits,
		.pkey_index = m->pkey_index,
		.grh = m->grh_present,
		.gid_index = m->gid_index,
		.hop_limit = m->hop_limit,
		.traffic_class = m->traffic_class,
		.flow_label = be32toh(m->flow_label)};

	memcpy(a.gid, m->gid, 16);
	return a;
}

int umad_qp_send(struct umad_agent *a, const struct fabric_mad *mad, const uint8_t *msg, size_t len)
{
	struct ibmad_addr to = decode(mad);

	return ibmad_send(
		a->mad, &to, msg, len, mad->timeout_ms, mad->retries, loop_now(a->conn->umad->d->loop));
}

/* ---- in ---- */
static struct fabric_mad encode(const struct ibmad_addr *a)
{
	struct fabric_mad m = {.qpn = htobe32(a->qpn),
		.qkey = htobe32(a->qkey),
		.lid = htobe16(a->lid),
		.sl = a->sl,
		.path_bits = a->path_bits,
		.grh_present = a->grh,
		.gid_index = a->gid_index,
		.hop_limit = a->hop_limit,
		.traffic_class = a->traffic_class,
		.flow_label = htobe32(a->flow_label),
		.pkey_index = a->pkey_index};

	memcpy(m.gid, a->gid, 16);
	return m;
}

/* The program is told; its connection stays as it is, whatever happens, until the loop sees to it. */
static void on_deliver(void *arg, struct ibmad_agent *agent, const struct ibmad_addr *from, unsigned status,
	const uint8_t *msg, size_t len)
{
	struct umad_agent *a = agent->owner;
	struct fabric_mad m = encode(from);

	m.agent = (uint32_t)(a - a->conn->agent);
	m.status = status;
	m.length = (uint32_t)(sizeof(m) + len);
	umad_conn_write(a->conn, FABRIC_RECV, &m, sizeof(m), msg, len);
}

static const struct ibmad_ops mad_ops = {on_send, on_deliver};

static uint16_t pkey_index(const struct fabric_port *p, uint16_t pkey)
{
	for (uint16_t i = 0; i < FABRIC_PKEYS; i++) {
		if (p->pkey[i] == pkey)
			return i;
	}
	return 0;
}

static struct ibmad_addr addr_from(const struct subnet_port *at, const struct packet_addr *a)
{
	const struct fabric_port *port = at->shared;
	struct ibmad_addr from = {.qpn = a->sqpn,
		.qkey = a->qkey,
		.lid = a->slid,
		.sl = a->sl,
		.path_bits = a->dlid == LID_PERMISSIVE ? 0 : (uint8_t)(a->dlid & ((1u << port->lmc) - 1)),
		.pkey_index = pkey_index(port, a->pkey),
		.grh = a->has_grh};

	if (a->has_grh) {
		from.hop_limit = a->grh.hop_limit;
		from.traffic_class = a->grh.tclass;
		from.flow_label = a->grh.flow_label;
		memcpy(from.gid, a->grh.sgid, 16);
	}
	return from;
}

static struct umad_qp *find(struct umad *u, const struct subnet_port *at)
{
	list_for_each(pos, &u->qps)
	{
		struct umad_qp *q = container_of(pos, struct umad_qp, node);

		if (q->at == at)
			return q;
	}
	return NULL;
}

static void refuse(struct umad *u, struct subnet_port *at, unsigned qp, const struct ibmad_addr *from,
	const uint8_t *mad)
{
	uint8_t answer[MAD_LEN];

	if (ibmad_unsupported(mad, answer) ||
		(qp == GSI_QPN && gsi_refuse(u->d, mad, answer, loop_now(u->d->loop))))
		umad_qp_put_mad(u, at, qp, from, answer);
}

void umad_arrived(struct fabricd *d, struct subnet_port *at, const struct packet *p)
{
	struct packet_addr a;
	struct ibmad_addr from;
	const uint8_t *mad;
	struct umad_qp *q;

	if (!d->umad || !packet_mad_parse(p, &a, &mad))
		return;
	q = find(d->umad, at);
	from = addr_from(at, &a);
	if (q && ibmad_receive(&q->mad, a.dqpn, &from, mad, loop_now(d->loop)))
		return;
	if (!manager_arrived(d, at, a.dqpn, &from, mad))
		refuse(d->umad, at, a.dqpn, &from, mad);
}

/* ---- which there are ---- */
struct umad_qp *umad_qp_get(struct umad *u, struct subnet_port *at)
{
	struct umad_qp *q = find(u, at);

	if (!q) {
		q = calloc(1, sizeof(*q));
		if (!q)
			return NULL;
		q->umad = u;
		q->at = at;
		ibmad_port_init(&q->mad, &mad_ops, q);
		list_add_tail(&u->qps, &q->node);
	}
	q->users++;
	return q;
}

void umad_qp_put(struct umad_qp *q)
{
	if (--q->users)
		return;
	list_del(&q->node);
	ibmad_port_fini(&q->mad);
	free(q);
}
