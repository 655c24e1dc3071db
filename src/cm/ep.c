/* SPDX-License-Identifier: MIT */
/* Endpoints: an id, its address and its QP in one call. */
#include "base/cancel.h"
#include "cm/event.h"
#include "cm/id.h"

#include <errno.h>
#include <rdma/rdma_verbs.h>
#include <stdlib.h>
#include <string.h>

static int passive_ep(
	struct rcm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->pub, res->ai_src_addr))
		return -1;
	if (!attr)
		return 0;
	id->ep_attr = malloc(sizeof(*attr));
	if (!id->ep_attr)
		return rcm_result(-ENOMEM);
	*id->ep_attr = *attr;
	id->ep_attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	id->ep_pd = pd;
	return 0;
}

static int active_ep(
	struct rcm_id *id, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->pub, res->ai_src_addr, res->ai_dst_addr, 2000) ||
		rdma_resolve_route(&id->pub, 2000))
		return -1;
	if (attr) {
		attr->qp_type = (enum ibv_qp_type)res->ai_qp_type;
		if (rdma_create_qp(&id->pub, pd, attr))
			return -1;
	}
	if (res->ai_connect_len) {
		id->connect = malloc(res->ai_connect_len);
		if (!id->connect)
			return rcm_result(-ENOMEM);
		memcpy(id->connect, res->ai_connect, res->ai_connect_len);
		id->connect_len = (uint8_t)res->ai_connect_len;
	}
	return 0;
}

int rdma_create_ep(
	struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	int err;

	if (!res || rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)res->ai_port_space))
		return res ? -1 : rcm_result(-EINVAL);
	id->qp_type = (enum ibv_qp_type)res->ai_qp_type;
	if (res->ai_flags & RAI_PASSIVE)
		err = passive_ep(rcm_id(id), res, pd, attr);
	else
		err = active_ep(rcm_id(id), res, pd, attr);
	if (err) {
		err = -errno;
		rdma_destroy_ep(id);
		return rcm_result(err);
	}
	*out = id;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	CANCEL_SAFE;

	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* A request for a synchronous id, with the QP that its endpoint was promised. */
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rcm_id *by = rcm_id(listen);
	struct rdma_cm_event *event;
	int err;

	if (!by->sync)
		return rcm_result(-EINVAL);
	if (listen->event) {
		rdma_ack_cm_event(listen->event);
		listen->event = NULL;
	}
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->status || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		err = event->status ? -abs(event->status) : -EINVAL;
		listen->event = event;
		return rcm_result(err);
	}
	*id = event->id;
	err = rdma_migrate_id(*id, NULL) ? -errno : 0;
	if (!err && by->ep_attr) {
		struct ibv_qp_init_attr attr = *by->ep_attr;

		if (rdma_create_qp(*id, by->ep_pd, &attr))
			err = -errno;
	}
	if (err) {
		rdma_ack_cm_event(event);
		rdma_destroy_id(*id);
		return rcm_result(err);
	}
	(*id)->event = event; /* its private data is for the program */
	return 0;
}
