/* SPDX-License-Identifier: MIT */
/*
 * A queue of events behind a file descriptor that programs poll: one readable unit per event, so that poll,
 * epoll, select and non-blocking reads all see the truth. Under completion channels and async events.
 */
#ifndef HCA_EVQ_H
#define HCA_EVQ_H

#include "base/export.h"
#include "base/list.h"
#include "base/lock.h"

#include <stdbool.h>

struct hca_evq {
	int fd;           /* eventfd in semaphore mode: its value is the number of events in the queue */
	struct lock lock; /* guards events and what the owner links into it */
	struct list events;
};

EXPORTED int hca_evq_init(struct hca_evq *q);
EXPORTED void hca_evq_fini(struct hca_evq *q);
/* Adds one unit; the caller holds q->lock and has linked the event. Never blocks. */
EXPORTED void hca_evq_signal(struct hca_evq *q);
/* Takes a unit back without waiting; the caller holds q->lock and unlinks an event that was not read. */
EXPORTED void hca_evq_unsignal(struct hca_evq *q);
/* Waits for a unit as the descriptor's flags say: 0, or -EAGAIN, -EINTR. Called without the lock. */
EXPORTED int hca_evq_wait(struct hca_evq *q);

#endif
