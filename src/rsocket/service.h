/* SPDX-License-Identifier: MIT */
/*
 * One thread per process that does for rsockets what must happen while nobody calls: it watches descriptors
 * and times. It is there while there is something to watch.
 */
#ifndef RSOCKET_SERVICE_H
#define RSOCKET_SERVICE_H

#include "base/list.h"
#include "base/timers.h"

#include <stdbool.h>
#include <stdint.h>

struct rs_watch {
	int fd; /* becomes readable */
	/*
	 * Called by the thread, without any lock of the service, whenever the descriptor is readable or the
	 * time has come, which it then changes. It may call rs_unwatch for itself.
	 */
	void (*run)(struct rs_watch *w, uint64_t now);

	/* the service's own */
	struct list node;
	struct timer timer; /* while it is watched */
	uint64_t due;       /* 0: never */
	bool watched;
};

/* Begins watching. 0 or -errno. */
int rs_watch(struct rs_watch *w);
/* Ends it; run is not called any more and does not run any more. Harmless when it is not watched. */
void rs_unwatch(struct rs_watch *w);
/* It is due at this time, in nanoseconds of CLOCK_MONOTONIC, or never (UINT64_MAX). Any thread. */
void rs_watch_due(struct rs_watch *w, uint64_t at);
/* Whether that time has come. */
static inline bool rs_watch_is_due(const struct rs_watch *w, uint64_t now)
{
	return timer_is_by(&w->timer, now);
}
uint64_t rs_now(void);
/* After a fork, at once: later the numbers of its descriptors may be somebody else's. */
void rs_service_in_child(void);

#endif
