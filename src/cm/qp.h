/* SPDX-License-Identifier: MIT */
/* QPs of ids, with the queues and channels that the inline functions of rdma_verbs.h use. No lock held. */
#ifndef CM_QP_H
#define CM_QP_H

#include <infiniband/verbs.h>

struct rcm_id;

/* ---- as the program asks for it ---- */
/*
 * Makes the id's QP, with queues where the program brings none, and takes it as far as it comes without a
 * peer. What was chosen is put into *attr.
 */
int rcm_qp_create_ex(struct rcm_id *id, struct ibv_qp_init_attr_ex *attr);
int rcm_qp_create(struct rcm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init);
/* With the queues that were made for it. */
void rcm_qp_destroy(struct rcm_id *id);
/* What a QP of this id needs for attr->qp_state. */
int rcm_qp_attr(const struct rcm_id *id, struct ibv_qp_attr *attr, int *mask);

int rcm_srq_create_ex(struct rcm_id *id, struct ibv_srq_init_attr_ex *attr);
int rcm_srq_create(struct rcm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *init);
void rcm_srq_destroy(struct rcm_id *id);

/* ---- within rdma_cm ---- */
/* From any state before; the last also where there is no QP. */
int rcm_qp_to_rtr(struct rcm_id *id);
int rcm_qp_to_rts(struct rcm_id *id);
int rcm_qp_to_err(struct rcm_id *id);
void rcm_fill_ah(const struct rcm_id *id, const uint8_t dgid[16], struct ibv_ah_attr *ah);

#endif
