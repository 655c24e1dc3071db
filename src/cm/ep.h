/* SPDX-License-Identifier: MIT */
/* Endpoints: an id, its address and its QP in one call. No lock held. */
#ifndef CM_EP_H
#define CM_EP_H

#include <rdma/rdma_cma.h>

struct rcm_id;

/*
 * A synchronous id, bound or with its route resolved as *res says; with a QP if attr is not NULL, for a
 * listener one for each request. Waits for addresses and routes, and may be cancelled there.
 */
int rcm_ep_create(const struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
	struct rcm_id **out);
/* With its QP and its SRQ. */
void rcm_ep_destroy(struct rcm_id *id);
/* Waits for a request to a synchronous id, and may be cancelled there. The new id is synchronous too. */
int rcm_ep_get_request(struct rcm_id *listen, struct rcm_id **out);

#endif
