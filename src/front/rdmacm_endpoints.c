/* SPDX-License-Identifier: MIT */
/* The calls about endpoints, and about addresses for them. */
#include "front/rdmacm_front.h"

#include "base/cancel.h"
#include "cm/addrinfo.h"
#include "cm/ep.h"
#include "cm/id.h"

/* As getaddrinfo() says it, but for arguments that are missing. */
int rdma_getaddrinfo(
	const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo nothing;

	if ((!node && !service && !hints) || !res)
		return rdmacm_result(-EINVAL);
	return rcm_addrinfo_get(node, service, hints ? hints : &nothing, res);
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	rcm_addrinfo_free(res);
}

int rdma_create_ep(
	struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rcm_id *new;
	int err = res ? rcm_ep_create(res, pd, attr, &new) : -EINVAL;

	if (!err)
		*id = &new->pub;
	return rdmacm_result(err);
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	CANCEL_SAFE;

	rcm_ep_destroy(rcm_id(id));
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct rcm_id *new;
	int err = rcm_ep_get_request(rcm_id(listen), &new);

	if (!err)
		*id = &new->pub;
	return rdmacm_result(err);
}
