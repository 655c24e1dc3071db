/* SPDX-License-Identifier: MIT */
/* The calls about addresses and routes. */
#include "front/rdmacm_front.h"

#include "base/cancel.h"
#include "cm/addr.h"
#include "cm/event.h"
#include "cm/route.h"

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return rcm_src_port(rcm_id(id));
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return rcm_dst_port(rcm_id(id));
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_bind(rcm_id(id), addr));
}

int rdma_resolve_addr(
	struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr, int timeout_ms)
{
	CANCEL_SAFE;
	int err = rcm_resolve_addr(rcm_id(id), src_addr, dst_addr, timeout_ms);

	CANCEL_WAITS;
	return rdmacm_result(err ? err : rcm_complete(rcm_id(id)));
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	CANCEL_SAFE;
	int err = rcm_resolve_route(rcm_id(id), timeout_ms);

	CANCEL_WAITS;
	return rdmacm_result(err ? err : rcm_complete(rcm_id(id)));
}
