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

/* Binds where the program did not, and listens; no lock held. CONNECT_REQUEST follows, for each request. */
int rcm_listen(struct rcm_id *id, int backlog);

/* What the core calls a service: the id's port space and a port. */
uint64_t rcm_service_of(const struct rcm_id *id, __be16 port);
/* Ends what the id listens to at the core, if it does; host lock held. */
void rcm_listen_stop(struct rcm_id *id, uint64_t now);
/* A connection for a request to this listener, as struct cm_ops has it; host lock held. */
struct cm_conn *rcm_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse);
/* An id for a request to this listener that came from `port` there; host lock held. NULL: no memory. */
struct rcm_id *rcm_id_for_request(struct rcm_id *listener, enum ibv_qp_type type, const uint8_t local[16],
	const uint8_t remote[16], uint32_t ifindex, uint16_t port);

#endif
