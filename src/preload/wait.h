/* SPDX-License-Identifier: MIT */
/* Waiting for rsockets and the kernel's descriptors together: each descriptor of the program becomes one or
 * more slots for rpoll(). */
#ifndef PRELOAD_WAIT_H
#define PRELOAD_WAIT_H

#include "preload/real.h"

#include <stdint.h>

struct sock;

struct wait {
	struct pollfd *slots;
	int *owners; /* whose slot it is, a number of the caller's; -1: a connect, for which add all anew */
	nfds_t n, room;
	struct sock **watched; /* connects that are waited for */
	int nwatched;
	int cancel;       /* the program's, where it sleeps */
	int64_t deadline; /* the first at which a connect gives up, or INT64_MAX */
	struct pollfd few[16];
	int few_owners[16];
};

/* Begin with CANCEL_SAFE: `cancel` is what that found. */
void wait_init(struct wait *w, int cancel);
void wait_fini(struct wait *w);
void wait_clear(struct wait *w);

/* wait_add_slot: one slot, for an rsocket or a descriptor of the kernel's. */
void wait_add_slot(struct wait *w, int owner, int fd, int events);

/* wait_add: slots for what a descriptor means to the program; connects that are due are moved on first. The
 * result is what is ready at once (FAILED), without a slot. */
int wait_add(struct wait *w, int owner, int fd, int events);

/* wait_sleep: rpoll until one is ready or the deadline. True when the connects have to be looked at: add all
 * anew. False: *n is rpoll's result. */
bool wait_sleep(struct wait *w, int64_t deadline, int *n);

/* Whether any of these is more than the kernel's. It changes none, but poll(), by its declaration, has
 * nothing to read. */
bool wait_needed(struct pollfd *fds, nfds_t n);

/* poll() for the program's descriptors, in ms of the monotonic clock (INT64_MAX: for ever). */
int wait_poll(struct pollfd *fds, nfds_t n, int64_t deadline);

/* The deadline of a time limit; NULL: for ever. */
int64_t wait_deadline(const struct timespec *t);

/* With the signal mask of ppoll and its kin around it. */
struct wait_mask {
	const sigset_t *mask;
	sigset_t saved;
};
/* True when a signal that the mask lets through was pending; its handler has run, EINTR is due. */
bool wait_mask_begin(struct wait_mask *m, const sigset_t *mask);
void wait_mask_end(struct wait_mask *m);

#endif
