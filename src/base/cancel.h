/* SPDX-License-Identifier: MIT */
/*
 * A program may cancel its threads (pthread_cancel). Calls that hold our locks must not be a place where that
 * happens: a lock would die with the thread.
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

#endif
