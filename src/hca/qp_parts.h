/* SPDX-License-Identifier: MIT */
/* What the files of a queue pair know of each other: qp.c, qp_modify.c, qp_complete.c. */
#ifndef HCA_QP_PARTS_H
#define HCA_QP_PARTS_H

#include "hca/qp.h"

/* All with qp->lock held, once others can find it. */

/* iWARP has no P_Keys; its connections on one host, which frames carry, have the port's first. */
void hca_qp_set_port(struct hca_qp *qp, unsigned num, unsigned pkey_index);
/* As it was created, but for its state. */
void hca_qp_reset(struct hca_qp *qp);
/* It does not wait for room any more. */
void hca_qp_leave_flow(struct hca_qp *qp);

#endif
