/* SPDX-License-Identifier: MIT */
/*
 * What the code relies on, said so that it is checked in the builds that tests run (ANYRDMA_ASSERTS), and
 * costs nothing in others: no user's program dies of a state that we did not think of. Of locks:
 * assert_locked(), base/lock.h. Nobody in src/ calls assert() itself (tests/tree/check.py asserts).
 */
#ifndef BASE_ASSERTS_H
#define BASE_ASSERTS_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#ifdef ANYRDMA_ASSERTS
#define assert_that(x) assert(x)
#else
#define assert_that(x) ((void)(0 && (x)))
#endif

/* For these alone: somebody has it, though it is not seen who. */
static inline bool mutex_is_locked(pthread_mutex_t *m)
{
	return pthread_mutex_trylock(m) == EBUSY;
}

#endif
