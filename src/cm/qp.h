/* SPDX-License-Identifier: MIT */
/* QPs of ids, with the queues and channels that the inline functions of rdma_verbs.h use. No lock held. */
#ifndef CM_QP_H
#define CM_QP_H

#include <infiniband/verbs.h>

struct rcm_id;

int rcm_qp_to_rtr(struct rcm_id *id);
int rcm_qp_to_rts(struct rcm_id *id);
int rcm_qp_to_err(struct rcm_id *id);
void rcm_fill_ah(const struct rcm_id *id, const uint8_t dgid[16], struct ibv_ah_attr *ah);

#endif
