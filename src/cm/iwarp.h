/* SPDX-License-Identifier: MIT */
/*
 * Connections over iWARP (iwarp/conn.h) with an id each, their events as rdma_cm has them. What listen.c and
 * connect.c ask for where an id has an iWARP device: 0 or -errno, no lock held where nothing else is said.
 */
#ifndef CM_IWARP_H
#define CM_IWARP_H

#include <rdma/rdma_cma.h>

struct rcm_id;

int rcm_iwarp_listen(struct rcm_id *id, int backlog);
int rcm_iwarp_connect(struct rcm_id *id, const struct rdma_conn_param *p);
int rcm_iwarp_accept(struct rcm_id *id, const struct rdma_conn_param *p);
int rcm_iwarp_reject(struct rcm_id *id, const void *data, uint8_t len);
int rcm_iwarp_disconnect(struct rcm_id *id);
/* The id and its connection, if it has one, go their own ways; host lock held. */
void rcm_iwarp_close(struct rcm_id *id);

#endif
