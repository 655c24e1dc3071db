/* SPDX-License-Identifier: MIT */
/* Endpoints: an id, its address and its QP in one call. Their ids are synchronous. */
#include "cm/ep.h"

#include "base/cancel.h"
#include "cm/addr.h"
#include "cm/event.h"
#include "cm/id.h"
#include "cm/qp.h"
#include "cm/route.h"
#include "cm/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int new_id(const struct rdma_addrinfo *res, struct rcm_id **id)
{
	struct rcm *cm;
	int err = rcm_get(&cm);

	if (!err)
		err = rcm_id_create(cm, NULL, NULL, (enum rdma_port_space)res->ai_port_space, id);
	if (!err)
		(*id)->pub.qp_type = (enum ibv_qp_type)res->ai_qp_type;
	return err;
}

static int passive_ep(struct rcm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
	const struct ibv_qp_init_attr *attr)
{
	int err = rcm_bind(id, res->ai_src_addr);

	if (err || !attr)
		return err;
	id->ep_attr = malloc(sizeof(*attr));
	if (!id->ep_attr)
		return -ENOMEM;
	*id->ep_attr = *attr;
	id->ep_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	id->ep_pd = pd;
	return 0;
}

/* Waits for what was begun, and may be cancelled there when the program has it so. */
static int complete(struct rcm_id *id, int cancel)
{
	int err;

	cancel_restore(cancel);
	err = rcm_complete(id);
	cancel_off();
	return err;
}

static int resolve(struct rcm_id *id, const struct rdma_addrinfo *res, int cancel)
{
	enum { RESOLVE_MS = 2000 };
	int err = rcm_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS);

	if (!err)
		err = complete(id, cancel);
	if (!err)
		err = rcm_resolve_route(id, RESOLVE_MS);
	return err ? err : complete(id, cancel);
}

static int active_ep(struct rcm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
	struct ibv_qp_init_attr *attr, int cancel)
{
	int err = resolve(id, res, cancel);

	if (!err && attr) {
		attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		err = rcm_qp_create(id, pd, attr);
	}
	if (err || !res->ai_connect_len)
		return err;
	id->connect = malloc(res->ai_connect_len);
	if (!id->connect)
		return -ENOMEM;
	memcpy(id->connect, res->ai_connect, res->ai_connect_len);
	id->connect_len = (uint8_t)res->ai_connect_len;
	return 0;
}

int rcm_ep_create(const struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
	struct rcm_id **out)
{
	CANCEL_SAFE;
	struct rcm_id *id;
	int err = new_id(res, &id);

	if (err)
		return err;
	if (res->ai_flags & RAI_PASSIVE)
		err = passive_ep(id, res, pd, attr);
	else
		err = active_ep(id, res, pd, attr, cancel_before);
	if (err)
		rcm_ep_destroy(id);
	else
		*out = id;
	return err;
}

void rcm_ep_destroy(struct rcm_id *id)
{
	if (id->pub.qp)
		rcm_qp_destroy(id);
	rcm_srq_destroy(id);
	rcm_id_destroy(id);
}

/* ---- requests ---- */
/* Makes the id of a request synchronous, with the QP that its endpoint was promised. */
static int complete_request(const struct rcm_id *listen, struct rcm_id *id)
{
	struct ibv_qp_init_attr attr;
	int err = rcm_id_migrate(id, NULL);

	if (err || !listen->ep_attr)
		return err;
	attr = *listen->ep_attr;
	return rcm_qp_create(id, listen->ep_pd, &attr);
}

int rcm_ep_get_request(struct rcm_id *listen, struct rcm_id **out)
{
	CANCEL_SAFE;
	struct rdma_cm_event *event;
	int err;

	if (!listen->sync)
		return -EINVAL;
	rcm_own_event_ack(listen);
	CANCEL_WAITS;
	err = rcm_event_take(rcm_channel(listen->pub.channel), &event);
	cancel_off();
	if (err)
		return err;
	if (event->status || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		listen->pub.event = event;
		return event->status ? -abs(event->status) : -EINVAL;
	}
	*out = rcm_id(event->id);
	err = complete_request(listen, *out);
	if (!err) {
		(*out)->pub.event = event; /* its private data is for the program */
		return 0;
	}
	rcm_event_ack(rcm_event(event));
	rcm_id_destroy(*out);
	return err;
}
