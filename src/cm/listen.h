/* SPDX-License-Identifier: MIT */
/* Listening, and ids for requests that come in. */
#ifndef CM_LISTEN_H
#define CM_LISTEN_H

#include "base/list.h"
#include "cm/id.h"

/* One per service id; ids tell requests apart by address. Host lock. */
struct rcm_listener {
	struct list node, ids;
	struct cm_conn *conn;
};

/* An id for a request to this listener that came from `port` there; host lock held. NULL: no memory. */
struct rcm_id *rcm_id_for_request(struct rcm_id *listener, enum ibv_qp_type type, const uint8_t local[16],
	const uint8_t remote[16], uint32_t ifindex, uint16_t port);

#endif
