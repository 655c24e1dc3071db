/* SPDX-License-Identifier: MIT */
/*
 * QP1 of programs. It is one for all programs of a host, so the fabric has it, and says whose a MAD is: a
 * message of the connection manager is for the program whose slot is in the id that it names, a request for
 * the one that listens. What a program sends must be its own, too: messages with ids of its slot, and
 * questions to the SA, which go through a client of the fabric's (sa_client.c).
 *
 * One message names neither: the REJ of a peer that waited in vain for our REP, which knows its own id alone.
 * It goes where the request went, as long as that is remembered; what it ends would end by itself.
 */
#include "fabricd/attach_parts.h"
#include "subnet/packet.h"
#include "wire/cm_msg.h"
#include "wire/qpn.h"

#include <string.h>

/* ---- who got which request ---- */
static struct attach_asked *asked(struct attach *all, uint16_t lid, uint32_t comm_id)
{
	return &all->asked[(comm_id * 31 + lid) % ATTACH_ASKED];
}

static uint32_t recall(struct attach *all, uint16_t lid, uint32_t comm_id)
{
	const struct attach_asked *a = asked(all, lid, comm_id);

	return a->lid == lid && a->comm_id == comm_id ? a->slot : 0;
}

/* ---- in ---- */
static struct attach_conn *of_slot(struct attach *all, const struct subnet_port *at, uint32_t slot)
{
	struct attach_conn *c = slot < SLOTS ? all->slot[slot] : NULL;

	return c && !c->broken && trunk_is_on(c, at) ? c : NULL;
}

static struct attach_conn *listener(
	struct attach *all, const struct subnet_port *at, uint16_t lid, const struct cm_msg *m)
{
	bool req = m->attr == CM_REQ;
	struct cm_ip ip;
	struct attach_conn *c = attach_listener(all, at, req ? m->req.service_id : m->sidr_req.service_id,
		cm_ip_parse(m->priv, &ip) ? ip.dst : NULL);

	if (c && req)
		*asked(all, lid, m->local_id) = (struct attach_asked){m->local_id, c->slot, lid};
	return c && !c->broken ? c : NULL;
}

/* Whose it is; NULL: nobody's. */
static struct attach_conn *owner_of(
	struct attach *all, const struct subnet_port *at, uint16_t lid, const uint8_t *mad)
{
	uint64_t service_id;
	struct cm_msg m;
	int owner = cm_owner(mad, MAD_LEN, &service_id);

	if (owner == CM_OWNER_NONE || !cm_msg_parse(mad, MAD_LEN, &m))
		return NULL;
	if (owner == CM_OWNER_SERVICE)
		return listener(all, at, lid, &m);
	return of_slot(all, at, owner == CM_OWNER_ANY ? recall(all, lid, m.local_id) : (uint32_t)owner);
}

bool gsi_arrived(struct fabricd *d, struct subnet_port *at, const struct packet *p)
{
	struct attach *all = d->attach;
	struct packet_addr a;
	const uint8_t *mad;
	struct attach_conn *c;

	if (!all || at->node->type != SUBNET_CA || !packet_mad_parse(p, &a, &mad) || a.dqpn != GSI_QPN)
		return false;
	if (mad[1] == MAD_CLASS_SA)
		return sa_client_arrived(all, at, p);
	c = mad[1] == MAD_CLASS_CM ? owner_of(all, at, a.slid, mad) : NULL;
	if (c)
		trunk_put(c, at, p);
	return c;
}

/* ---- out ---- */
/* Its sender's id: of an answer to SIDR_REQ it is the peer's, and a refusal has none. */
static bool is_own(const struct attach_conn *c, const uint8_t *mad)
{
	struct cm_msg m;

	if (!cm_msg_parse(mad, MAD_LEN, &m))
		return false;
	return m.attr == CM_SIDR_REP || (m.attr == CM_REJ && !m.local_id) ||
	       comm_id_slot(m.local_id) == c->slot;
}

bool gsi_send(struct attach_conn *c, struct subnet_port *from, struct packet *p, uint64_t now)
{
	struct packet_addr a;
	const uint8_t *mad;

	if (!packet_mad_parse(p, &a, &mad) || a.sqpn != GSI_QPN || a.qkey != GSI_QKEY)
		return false;
	if (mad[1] == MAD_CLASS_SA)
		return sa_client_ask(c, from, mad);
	if (mad[1] != MAD_CLASS_CM || !is_own(c, mad))
		return false;
	subnet_inject(c->all->d->subnet, from, p, now);
	return true;
}
