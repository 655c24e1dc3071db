/* SPDX-License-Identifier: MIT */
/*
 * A program may cancel its threads (pthread_cancel). Calls that hold our locks must not be a place where that
 * happens: a lock would die with the thread. Three rules:
 *
 * - An entry point that is not on the data path begins with CANCEL_SAFE: it is not cancelled at all
 *   (tests/tree/check.py cancel).
 * - One that waits, as its manual page says, is cancelled where it waits and nowhere else: with no lock held,
 * or with a handler that lets go of it.
 * - On the data path the two calls that switch cancellation off and on would be a tenth of a small message.
 * There a system call under a lock goes past libc (syscall() is no cancellation point), or is switched off
 * around.
 */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <pthread.h>

static inline int cancel_off(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void cancel_restore(int before)
{
	pthread_setcancelstate(before, &before);
}

static inline void cancel_leave(const int *before)
{
	cancel_restore(*before);
}

/* From here to the end of the block the thread is not cancelled. */
#define CANCEL_SAFE __attribute__((cleanup(cancel_leave), unused)) const int cancel_before = cancel_off()
/* Behind CANCEL_SAFE: what follows may wait, and holds nothing. */
#define CANCEL_WAITS cancel_restore(cancel_before)

#endif
