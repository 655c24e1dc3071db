/* SPDX-License-Identifier: MIT */
/*
 * Locks of the data path: short critical sections, seldom contended, never held across a wait.
 * An adaptive mutex and not a spin lock: on a small machine the holder may be descheduled.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

struct lock {
	pthread_mutex_t m;
};

static inline void lock_init(struct lock *l)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&l->m, &a);
	pthread_mutexattr_destroy(&a);
}

static inline void lock_fini(struct lock *l)
{
	pthread_mutex_destroy(&l->m);
}

static inline void lock_take(struct lock *l)
{
	pthread_mutex_lock(&l->m);
}

static inline bool lock_try(struct lock *l)
{
	return pthread_mutex_trylock(&l->m) == 0;
}

static inline void lock_drop(struct lock *l)
{
	pthread_mutex_unlock(&l->m);
}

#endif
