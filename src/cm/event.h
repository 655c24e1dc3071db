/* SPDX-License-Identifier: MIT */
/*
 * Event channels. The connection manager queues; the program's thread that takes an event does to the QP what
 * goes with it, as the stock library does.
 */
#ifndef CM_EVENT_H
#define CM_EVENT_H

#include "base/list.h"
#include "cm/id.h"
#include "hca/evq.h"

#include <stdatomic.h>

enum { RCM_PRIV_MAX = UINT8_MAX }; /* as much as a length tells */

struct rcm_event {
	struct rdma_cm_event pub;
	struct list node;
	struct rcm_id *counted; /* whose destruction waits for it */
	uint32_t join;          /* which, of a MULTICAST_JOIN */
	uint8_t priv[RCM_PRIV_MAX];
};

struct rcm_channel {
	struct rdma_event_channel pub;
	struct hca_evq q;      /* under the host's lock, not its own */
	_Atomic unsigned refs; /* the program's, and of each thread that waits there or may come back to */
};

static inline struct rcm_event *rcm_event(struct rdma_cm_event *e)
{
	return (struct rcm_event *)e;
}

static inline struct rcm_channel *rcm_channel(struct rdma_event_channel *ch)
{
	return (struct rcm_channel *)ch;
}

/* ---- channels ---- */
int rcm_channel_new(struct rcm_channel **out);
/* Never waits. It stays for a thread of the program that waits there, or had an event and may come back. */
void rcm_channel_free(struct rcm_channel *ch);

/* ---- queueing ---- */
/* An event to be filled in. NULL: no memory, and the event is lost. */
struct rcm_event *rcm_event_new(struct rcm_id *id, enum rdma_cm_event_type type, int status);
/* What both sides of a connection said, as its events have it. */
void rcm_event_put_conn(struct rcm_event *e, const struct rcm_path *p);
/* Queues it on the id's channel; host lock held. */
void rcm_event_queue(struct rcm_event *e, struct rcm_id *counted);
/* Both at once, for events with nothing but a status: host lock held, or not. 0 or -ENOMEM: it is lost. */
int rcm_tell_locked(struct rcm_id *id, enum rdma_cm_event_type type, int status);
int rcm_tell(struct rcm_id *id, enum rdma_cm_event_type type, int status);
/* Drops what is queued for the id, requests to it included; host lock held. */
void rcm_events_drop(struct rcm_id *id);

/* ---- taking; no lock held ---- */
/*
 * The channel's next event, which is the program's until it is acknowledged; what goes with it is done to the
 * QP. Waits for one unless the descriptor is non-blocking (-EAGAIN), and may be cancelled there.
 */
int rcm_event_take(struct rcm_channel *ch, struct rdma_cm_event **event);
/* Frees it, and wakes who waits to destroy its id. */
void rcm_event_ack(struct rcm_event *e);
/*
 * Synchronous ids: waits for the event of what was begun, as rcm_event_take() does, and keeps it in the id:
 * what it says, 0 or -errno. Otherwise nothing.
 */
int rcm_complete(struct rcm_id *id);
/* The event that a synchronous id keeps, if any. */
void rcm_own_event_ack(struct rcm_id *id);

#endif
