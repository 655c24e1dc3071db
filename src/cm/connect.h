/* SPDX-License-Identifier: MIT */
/* Connecting, accepting, disconnecting. */
#ifndef CM_CONNECT_H
#define CM_CONNECT_H

#include <rdma/rdma_cma.h>

struct rcm_id;

/* As much as asked for; as much as there is, but not more than `most`, when the program leaves it to us. */
int rcm_choose_depths(
	struct rcm_id *id, const struct rdma_conn_param *p, uint8_t most_resources, uint8_t most_depth);

#endif
