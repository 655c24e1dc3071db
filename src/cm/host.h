/* SPDX-License-Identifier: MIT */
/*
 * The connection manager of a process: the core (conn.h) on QP1 of the adapter, with a lock and a clock.
 *
 * One lock guards the core and whatever its user ties to connections. The adapter calls in under its drive
 * lock and takes ours there, so under ours nothing may be done that takes the drive lock: no QP is
 * created, modified or destroyed with it.
 */
#ifndef CM_HOST_H
#define CM_HOST_H

#include "base/lock.h"
#include "cm/ib/conn.h"

#include <stdatomic.h>

struct hca_adapter;

enum { CM_HOST_BUCKETS = 1024 };

struct cm_host {
	struct hca_adapter *adapter;
	int agent; /* what QP1 calls us */
	int sa;    /* on a fabric, for answers of the subnet's administration */
	struct lock lock;
	int cancel;       /* of the thread that holds it: it sends, and must not be cancelled there */
	atomic_bool open; /* MADs that come before or after are nobody's */
	struct cm_core core;
	struct cm_link *bucket[CM_INDEXES * CM_HOST_BUCKETS];
	struct timers timers; /* of the user: struct cm_host_timer */
	uint64_t armed;       /* the deadline that the adapter knows */
	struct cm_ops ops;
	void (*changed)(struct cm_host *h);
	void (*answer)(struct cm_host *h, const uint8_t mad[MAD_LEN]);
};

/* What of the core's callbacks is the user's: called with the lock held, by any thread. */
struct cm_host_user {
	void (*event)(void *arg, struct cm_conn *c, const struct cm_event *e);
	struct cm_conn *(*incoming)(void *arg, struct cm_conn *listener, const struct cm_path *path,
		const struct cm_msg *m, uint16_t *refuse);
	void (*changed)(struct cm_host *h); /* devices, perhaps */
	/* On a fabric: an answer of the subnet's administration. */
	void (*answer)(struct cm_host *h, const uint8_t mad[MAD_LEN]);
};

/* Something of the user's that is to be looked at later: due() is called as the callbacks are. */
struct cm_host_timer {
	struct timer t;
	void (*due)(struct cm_host_timer *t, uint64_t now);
};
/* Both with the lock held. */
void cm_host_timer_set(struct cm_host *h, struct cm_host_timer *t, uint64_t at);
void cm_host_timer_clear(struct cm_host *h, struct cm_host_timer *t);

/* Brings the adapter up and takes the CM's MADs: 0 or -errno. The callbacks' argument is the host. */
int cm_host_open(struct cm_host *h, struct hca_adapter *a, const struct cm_host_user *user, uint64_t ca_guid);
/* Nobody is called any more; connections are forgotten. */
void cm_host_close(struct cm_host *h);

void cm_host_lock(struct cm_host *h);
/* Tells the adapter when the core wants to be called next. */
void cm_host_unlock(struct cm_host *h);
/* Waits for the condition with the lock let go. */
void cm_host_wait(struct cm_host *h, pthread_cond_t *cond);
uint64_t cm_host_now(const struct cm_host *h);

/* A path's `via`: the interface it leads through, the traffic class, and on InfiniBand the service level. */
struct cm_via {
	uint32_t ifindex;
	uint8_t tclass, sl;
};
void *cm_via_pack(struct cm_via v);
struct cm_via cm_via_of(const struct cm_path *path);

#endif
