/* SPDX-License-Identifier: MIT */
/* The route of an id: a path record, which on RoCE follows from the interface, or is the program's. */
#include "cm/route.h"

#include "cm/event.h"
#include "cm/fabric.h"
#include "cm/id.h"
#include "cm/path.h"

#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <stdlib.h>
#include <string.h>

int rcm_fill_route(struct rcm_id *id)
{
	struct rdma_route *route = &id->pub.route;
	const struct rcm_path *p = &id->path;

	memcpy(route->addr.addr.ibaddr.sgid.raw, p->local, 16);
	memcpy(route->addr.addr.ibaddr.dgid.raw, p->remote, 16);
	route->addr.addr.ibaddr.pkey = htobe16(p->pkey);
	if (rcm_is_iwarp(id)) /* has no path records */
		return 0;
	if (!route->path_rec)
		route->path_rec = calloc(1, sizeof(*route->path_rec));
	if (!route->path_rec)
		return -ENOMEM;
	*route->path_rec = (struct ibv_sa_path_rec){
		.slid = htobe16(p->slid),
		.dlid = htobe16(p->dlid),
		.sl = p->sl,
		.flow_label = htobe32(p->flow_label),
		.hop_limit = p->hop_limit,
		.traffic_class = p->tclass,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htobe16(p->pkey),
		.mtu_selector = 2, /* exactly */
		.mtu = p->mtu,
		.rate_selector = 2,
		.rate = p->rate ? p->rate : IBV_RATE_100_GBPS,
		.packet_life_time_selector = 2,
		.packet_life_time = p->life ? p->life : RCM_PACKET_LIFE_TIME,
	};
	memcpy(route->path_rec->sgid.raw, p->local, 16);
	memcpy(route->path_rec->dgid.raw, p->remote, 16);
	route->num_paths = 1;
	return 0;
}

static int route_resolved(struct rcm_id *id)
{
	int err = rcm_fill_route(id);

	if (err)
		return err;
	id->state = RCM_ROUTE;
	return rcm_tell(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
}

int rcm_resolve_route(struct rcm_id *id, int timeout_ms)
{
	if (id->state != RCM_ADDR)
		return -EINVAL;
	return rcm_is_on_fabric(id) ? rcm_path_ask(id, timeout_ms) : route_resolved(id);
}

/* ---- a path that the program brings ---- */
static const struct ibv_path_record *primary(const struct ibv_path_data *d, size_t n)
{
	const uint32_t wanted = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;

	for (size_t i = 0; i < n; i++) {
		if (d[i].flags == wanted)
			return &d[i].path;
	}
	return NULL;
}

/* Addresses were resolved; of the rest we take what a packet here can carry. */
int rcm_set_path(struct rcm_id *id, const void *value, size_t len)
{
	const struct ibv_path_record *r = primary(value, len / sizeof(struct ibv_path_data));
	struct rcm_path *p = &id->path;

	if (!r || len % sizeof(struct ibv_path_data) || id->state != RCM_ADDR)
		return -EINVAL;
	if ((r->mtu & 0x3f) >= IBV_MTU_256 && (r->mtu & 0x3f) < p->mtu)
		p->mtu = r->mtu & 0x3f;
	if (rcm_is_on_fabric(id)) {
		p->slid = be16toh(r->slid);
		p->dlid = be16toh(r->dlid);
		p->sl = be16toh(r->qosclass_sl) & 15;
	}
	p->tclass = r->tclass;
	p->flow_label = be32toh(r->flowlabel_hoplimit) >> 8 & 0xfffff;
	if (r->packetlifetime & 0x3f && !id->has_ack_timeout)
		p->ack_timeout =
			(uint8_t)((r->packetlifetime & 0x3f) < 31 ? (r->packetlifetime & 0x3f) + 1 : 31);
	return route_resolved(id);
}
