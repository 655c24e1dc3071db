/* SPDX-License-Identifier: MIT */
/* The route of an id: a path record, which on RoCE follows from the interface, or is the program's. */
#ifndef CM_ROUTE_H
#define CM_ROUTE_H

#include <stddef.h>

struct rcm_id;

enum {
	RCM_PACKET_LIFE_TIME = 16, /* as Linux since 5.15 or so; the ACK timeout is twice that, 0.5 s */
	RCM_ACK_DELAY = 15         /* what an adapter takes to answer, 0.13 s */
};

/* The path record and GIDs of the route. */
int rcm_fill_route(struct rcm_id *id);
/* Of an id whose address is resolved: event ROUTE_RESOLVED, or of a fabric ROUTE_ERROR. */
int rcm_resolve_route(struct rcm_id *id, int timeout_ms);
/* RDMA_OPTION_IB_PATH in the place of rcm_resolve_route(): the same event. */
int rcm_set_path(struct rcm_id *id, const void *value, size_t len);

#endif
