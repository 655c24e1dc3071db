/* SPDX-License-Identifier: MIT */
/*
 * Which process a MAD on QP1 concerns. Answers of the connection manager carry the id that the process they
 * are for drew itself, with its slot in it (wire/qpn.h); requests carry a service id, which is a port space
 * and a port, whose listener is in the port file. A MAD may claim anything: the worst it gets is to another
 * of our own processes, which looks at it as it would at any.
 *
 * One message names neither: the REJ of a peer that waited in vain for our REP. It names the id that its
 * request had. Who routed the request remembers whom it went to; the REJ comes to the same process, since the
 * kernel picks it by addresses and ports. Where it does not, all listeners are asked, but seldom: each costs
 * a wake-up, and what such a REJ ends ends by itself.
 */
#include "hca/adapter.h"
#include "host/ports.h"
#include "wire/cm_msg.h"

#include <string.h>

static struct hca_gsi_request *request_of(struct hca_gsi *g, const uint8_t sgid[16], uint32_t comm_id)
{
	uint32_t h = comm_id;

	for (int i = 0; i < 16; i++)
		h = h * 31 + sgid[i];
	return &g->request[h % HCA_GSI_REQUESTS];
}

static void remember(struct hca_gsi *g, const uint8_t sgid[16], uint32_t comm_id, uint32_t slot)
{
	struct hca_gsi_request *r = request_of(g, sgid, comm_id);

	memcpy(r->sgid, sgid, 16);
	r->comm_id = comm_id;
	r->slot = slot;
}

/* The slot that got the request; 0: not known. */
static uint32_t recall(struct hca_gsi *g, const uint8_t sgid[16], uint32_t comm_id)
{
	const struct hca_gsi_request *r = request_of(g, sgid, comm_id);

	return r->comm_id == comm_id && !memcmp(r->sgid, sgid, 16) ? r->slot : 0;
}

/* Four at once, then one a second. */
static bool may_ask_all(struct hca_gsi *g, uint64_t now)
{
	const uint64_t second = 1000000000ull, burst = 4;

	if (g->asked_all_until > now + (burst - 1) * second)
		return false;
	g->asked_all_until = (g->asked_all_until > now ? g->asked_all_until : now) + second;
	return true;
}

static enum hca_gsi_whom route_request(struct hca_adapter *a, const struct cm_msg *m, uint64_t service,
	const uint8_t sgid[16], const uint8_t dgid[16], uint32_t *slot)
{
	int owner = service >> 32 ? 0
				  : host_ports_owner(a->ports, (uint16_t)cm_service_space(service), dgid,
					    cm_service_port(service));

	if (owner < 0)
		return GSI_LOST;
	*slot = (uint32_t)owner;
	if (*slot && m->attr == CM_REQ)
		remember(&a->gsi, sgid, m->local_id, *slot);
	return *slot ? GSI_SLOT : GSI_NOBODY;
}

enum hca_gsi_whom hca_gsi_route(struct hca_adapter *a, const uint8_t mad[MAD_LEN], const uint8_t sgid[16],
	const uint8_t dgid[16], uint64_t now, uint32_t *slot)
{
	uint64_t service;
	struct cm_msg m;
	int owner = cm_owner(mad, MAD_LEN, &service);

	if (owner == CM_OWNER_NONE || !cm_msg_parse(mad, MAD_LEN, &m))
		return GSI_NOBODY;
	if (owner == CM_OWNER_SERVICE)
		return route_request(a, &m, service, sgid, dgid, slot);
	*slot = owner == CM_OWNER_ANY ? recall(&a->gsi, sgid, m.local_id) : (uint32_t)owner;
	if (*slot)
		return GSI_SLOT;
	return owner == CM_OWNER_ANY && may_ask_all(&a->gsi, now) ? GSI_LISTENERS : GSI_NOBODY;
}

bool hca_gsi_refuse(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN])
{
	struct cm_msg m, no;

	if (!cm_msg_parse(mad, MAD_LEN, &m))
		return false;
	no = (struct cm_msg){.tid = m.tid};
	if (m.attr == CM_REQ) {
		no.attr = CM_REJ;
		no.remote_id = m.local_id;
		no.rej.about = CM_ABOUT_REQ;
		no.rej.reason = CM_REJ_INVALID_SERVICE_ID;
	} else if (m.attr == CM_SIDR_REQ) {
		no.attr = CM_SIDR_REP;
		no.local_id = m.local_id;
		no.sidr_rep.status = CM_SIDR_UNSUPPORTED;
		no.sidr_rep.service_id = m.sidr_req.service_id;
	} else {
		return false;
	}
	cm_msg_pack(&no, answer);
	return true;
}
