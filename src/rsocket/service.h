/* SPDX-License-Identifier: MIT */
/*
 * One thread per process that does for rsockets what must happen while nobody calls: it watches descriptors
 * and times. It is there while there is something to watch.
 */
#ifndef RSOCKET_SERVICE_H
#define RSOCKET_SERVICE_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct rs_watch {
	int fd;       /* becomes readable */
	uint64_t due; /* or this time has come, in nanoseconds of CLOCK_MONOTONIC; UINT64_MAX: never */
	/*
	 * Called by the thread, without any lock of the service, whenever the descriptor is readable or the
	 * time has come. It may change due, and may call rs_unwatch for itself.
	 */
	void (*run)(struct rs_watch *w, uint64_t now);

	/* the service's own */
	struct list node;
	bool watched;
};

/* Begins watching. 0 or -errno. */
int rs_watch(struct rs_watch *w);
/* Ends it; run is not called any more and does not run any more. Harmless when it is not watched. */
void rs_unwatch(struct rs_watch *w);
/* Changes the time from another thread. */
void rs_watch_due(struct rs_watch *w, uint64_t due);
uint64_t rs_now(void);
/* After a fork, at once: later the numbers of its descriptors may be somebody else's. */
void rs_service_in_child(void);

#endif
