/* SPDX-License-Identifier: MIT */
/* Connecting, accepting, disconnecting, as the program asks for it. No lock held; QPs are moved here. */
#ifndef CM_CONNECT_H
#define CM_CONNECT_H

#include <rdma/rdma_cma.h>

struct rcm_id;

/* Begins to connect an id whose route is resolved: ESTABLISHED follows, or why not. */
int rcm_connect(struct rcm_id *id, const struct rdma_conn_param *p);
/* Of an id without a QP, after CONNECT_RESPONSE. */
int rcm_establish(struct rcm_id *id);
/* An id made for a request: ESTABLISHED follows, but for datagrams. */
int rcm_accept(struct rcm_id *id, const struct rdma_conn_param *p);
/* Of an id made for a request, or after CONNECT_RESPONSE; reason: enum cm_rej_reason. */
int rcm_reject(struct rcm_id *id, uint16_t reason, const void *data, uint8_t len);
/* DISCONNECTED follows. Whoever is not connected any more has nothing to say: no error, as in Linux. */
int rcm_disconnect(struct rcm_id *id);
/* The program was told this of its QP. */
int rcm_notify(struct rcm_id *id, enum ibv_event_type event);

/* As much as asked for; as much as there is, but not more than `most`, when the program leaves it to us. */
int rcm_choose_depths(
	struct rcm_id *id, const struct rdma_conn_param *p, uint8_t most_resources, uint8_t most_depth);

#endif
