/* SPDX-License-Identifier: MIT */
/*
 * The event loop of anyrdma-fabricd: descriptors and timers, one thread, asleep when nothing happens. Whoever
 * is called may add and remove anything, itself too; nobody is called for a descriptor that was removed
 * meanwhile.
 */
#ifndef FABRICD_LOOP_H
#define FABRICD_LOOP_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

struct loop;

/* events: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR */
typedef void loop_fn(void *arg, uint32_t events);
typedef void loop_timer_fn(void *arg, uint64_t now);

/* Lies in whatever it is for; loop_timer_init() comes first. */
struct loop_timer {
	struct list node;
	uint64_t at;
	loop_timer_fn *fn;
	void *arg;
};

struct loop *loop_open(void); /* NULL with errno */
void loop_close(struct loop *l);

/* Level-triggered. The descriptor stays the caller's: loop_remove() it before it is closed. 0 or -errno. */
int loop_add(struct loop *l, int fd, uint32_t events, loop_fn *fn, void *arg);
int loop_change(struct loop *l, int fd, uint32_t events);
void loop_remove(struct loop *l, int fd);

/* Sets or moves a timer, nanoseconds of the monotonic clock. UINT64_MAX: stops it. */
void loop_timer_init(struct loop_timer *t, loop_timer_fn *fn, void *arg);
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at);
void loop_timer_stop(struct loop_timer *t);

/* Called each time before the loop sleeps, in the order in which they were added; at most 8. */
void loop_before_sleep(struct loop *l, loop_timer_fn *fn, void *arg);

/* For functions that are called before the loop sleeps: this time it only looks. */
void loop_hurry(struct loop *l);

/* The time at which this round of the loop began. */
uint64_t loop_now(const struct loop *l);

/* Until loop_stop(): 0, or -errno when it cannot go on. */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);

#endif
