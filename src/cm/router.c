/* SPDX-License-Identifier: MIT */
/*
 * Answers carry the id that the process they are for drew itself, with its slot in it (wire/qpn.h); requests
 * carry a service id, which is a port space and a port, whose listener is in the file of claims. A MAD may
 * claim anything: the worst it gets is to another of our own processes, which looks at it as it would at any.
 *
 * One message names neither: the REJ of a peer that waited in vain for our REP. It names the id that its
 * request had. Who routed the request remembers whom it went to; the REJ comes to the same process, since the
 * kernel picks it by addresses and ports. Where it does not, all listeners are asked, but seldom: each costs
 * a wake-up, and what such a REJ ends ends by itself.
 */
#include "cm/router.h"

#include "host/ports.h"
#include "wire/cm_msg.h"

#include <string.h>

enum { REQUESTS = 256 };

/* Who got a request, for the REJ of a peer that gives up and knows no id of ours. */
struct request {
	uint8_t sgid[16];
	uint32_t comm_id, slot; /* the peer's; of ours, 0: none */
};

struct router {
	struct request request[REQUESTS]; /* the last ones, by hash */
	uint64_t asked_all_until;         /* see may_ask_all() */
};

static struct request *request_of(struct router *r, const uint8_t sgid[16], uint32_t comm_id)
{
	uint32_t h = comm_id;

	for (int i = 0; i < 16; i++)
		h = h * 31 + sgid[i];
	return &r->request[h % REQUESTS];
}

static void remember(struct router *r, const uint8_t sgid[16], uint32_t comm_id, uint32_t slot)
{
	struct request *q = request_of(r, sgid, comm_id);

	memcpy(q->sgid, sgid, 16);
	q->comm_id = comm_id;
	q->slot = slot;
}

/* The slot that got the request; 0: not known. */
static uint32_t recall(struct router *r, const uint8_t sgid[16], uint32_t comm_id)
{
	const struct request *q = request_of(r, sgid, comm_id);

	return q->comm_id == comm_id && !memcmp(q->sgid, sgid, 16) ? q->slot : 0;
}

/* Four at once, then one a second. */
static bool may_ask_all(struct router *r, uint64_t now)
{
	const uint64_t second = 1000000000ull, burst = 4;

	if (r->asked_all_until > now + (burst - 1) * second)
		return false;
	r->asked_all_until = (r->asked_all_until > now ? r->asked_all_until : now) + second;
	return true;
}

static enum mad_whom route_request(struct router *r, struct host_ports *ports, const struct cm_msg *m,
	uint64_t service, const struct mad_from *from, uint32_t *slot)
{
	int owner = service >> 32 ? 0
				  : host_ports_owner(ports, (uint16_t)cm_service_space(service), from->dgid,
					    cm_service_port(service));

	if (owner < 0)
		return MAD_LOST;
	*slot = (uint32_t)owner;
	if (*slot && m->attr == CM_REQ)
		remember(r, from->sgid, m->local_id, *slot);
	return *slot ? MAD_FOR_SLOT : MAD_FOR_NOBODY;
}

static enum mad_whom route(void *state, struct host_ports *ports, const uint8_t mad[MAD_LEN],
	const struct mad_from *from, uint64_t now, uint32_t *slot)
{
	struct router *r = state;
	uint64_t service;
	struct cm_msg m;
	int owner = cm_owner(mad, MAD_LEN, &service);

	if (owner == CM_OWNER_NONE || !cm_msg_parse(mad, MAD_LEN, &m))
		return MAD_FOR_NOBODY;
	if (owner == CM_OWNER_SERVICE)
		return route_request(r, ports, &m, service, from, slot);
	*slot = owner == CM_OWNER_ANY ? recall(r, from->sgid, m.local_id) : (uint32_t)owner;
	if (*slot)
		return MAD_FOR_SLOT;
	return owner == CM_OWNER_ANY && may_ask_all(r, now) ? MAD_FOR_LISTENERS : MAD_FOR_NOBODY;
}

static uint32_t addressee(const uint8_t mad[MAD_LEN])
{
	uint64_t service;
	int owner = cm_owner(mad, MAD_LEN, &service);

	return owner > 0 ? (uint32_t)owner : 0;
}

const struct mad_router cm_router = {.mgmt_class = MAD_CLASS_CM,
	.state_size = sizeof(struct router),
	.route = route,
	.addressee = addressee,
	.refuse = cm_refuse};
