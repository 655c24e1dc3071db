/* SPDX-License-Identifier: MIT */
/*
 * The flows of an adapter, by address and process. A queue pair has a reference to the flow it sends by; a
 * flow that nobody has a reference to is idle and kept for a while: the next queue pair that sends to that
 * process should find the window it has learnt and know what is still in flight there. A datagram service may
 * have peers without number, so only so many are kept: the one that is idle for longest is freed, and its
 * window forgotten.
 *
 * Posting a datagram to a new destination takes a flow under locks, so nothing is allocated then: room for
 * idle ones is made with the table, as one piece which is touched when it is used, and room for one more with
 * each queue pair.
 *
 * The number of buckets is fixed, since to move all flows into a larger table would hold up whoever sends. As
 * many flows are in use as there are queue pairs (HCA_MAX_QP), so that chains stay short: five on average at
 * the very most.
 */
#ifndef HCA_FLOW_TABLE_H
#define HCA_FLOW_TABLE_H

#include "base/list.h"
#include "base/lock.h"

#include <stdbool.h>
#include <stdint.h>

struct hca_flow;

enum { FLOW_BUCKETS = 4096, FLOW_IDLE_MAX = 4096 };

struct hca_flow_chunk;

struct hca_flow_table {
	struct lock lock; /* guards all below, and users, node and next of the flows */
	struct hca_flow **bucket;
	struct list used;
	struct list idle;      /* the one that was let go of last is the last */
	unsigned count, nidle; /* in the table; idle */
	struct list free;
	struct hca_flow_chunk *chunks; /* what all of them lie in; the newest first */
	unsigned room, qps;            /* for so many; queue pairs that may have one */
};

/* 0 or -ENOMEM. */
int hca_flow_table_init(struct hca_flow_table *t);
/* Frees all of them, whoever has references. */
void hca_flow_table_fini(struct hca_flow_table *t);

/* A queue pair comes, which will have a reference: 0 or -ENOMEM. And it goes. */
int hca_flow_table_reserve(struct hca_flow_table *t);
void hca_flow_table_unreserve(struct hca_flow_table *t);

/* The flow towards a process, with a reference for the caller; NULL: there is none. */
struct hca_flow *hca_flow_table_get(struct hca_flow_table *t, const uint8_t dgid[16], uint32_t slot);
/*
 * The same, but makes one that is not there: here: on this host; limit: how far its window may grow, if that
 * is more than usual. NULL: all are in use, by more than there are queue pairs.
 */
struct hca_flow *hca_flow_table_add(
	struct hca_flow_table *t, const uint8_t dgid[16], uint32_t slot, bool here, uint32_t limit);
/* Another reference to one that somebody has a reference to. */
struct hca_flow *hca_flow_table_hold(struct hca_flow_table *t, struct hca_flow *f);
/* Gives a reference back; f may be gone afterwards. NULL is fine. */
void hca_flow_table_put(struct hca_flow_table *t, struct hca_flow *f);

/*
 * Walks those in use: the one behind `f`, or the first when that is NULL; NULL at the end. The caller gets a
 * reference and gives that to f back. One that comes into use or idles meanwhile may be passed over.
 */
struct hca_flow *hca_flow_table_next(struct hca_flow_table *t, struct hca_flow *f);

#endif
