/* SPDX-License-Identifier: MIT */
/* The calls about QPs and SRQs of ids. */
#include "front/rdmacm_front.h"

#include "base/cancel.h"
#include "cm/id.h"
#include "cm/qp.h"

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_qp_create(rcm_id(id), pd, attr));
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_qp_create_ex(rcm_id(id), attr));
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	CANCEL_SAFE;

	rcm_qp_destroy(rcm_id(id));
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	CANCEL_SAFE;

	return rdmacm_result(id && attr && mask ? rcm_qp_attr(rcm_id(id), attr, mask) : -EINVAL);
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_srq_create(rcm_id(id), pd, attr));
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_srq_create_ex(rcm_id(id), attr));
}

void rdma_destroy_srq(struct rdma_cm_id *id)
{
	CANCEL_SAFE;

	rcm_srq_destroy(rcm_id(id));
}
