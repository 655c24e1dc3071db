/* SPDX-License-Identifier: MIT */
/*
 * Biased locks, for the data path: short critical sections, seldom contended, never held across a wait.
 *
 * Most locks are taken by one thread nearly always: the one that posts and polls. A lock becomes biased
 * towards a thread that took it many times in a row; that thread then takes it by plain stores, without an
 * instruction that waits for all its stores to be seen, which is most of what a lock costs and what holds up
 * a message that was just written for another core. Any other thread first revokes the bias: it takes it
 * away, has the kernel run a barrier on every CPU where this process runs (membarrier), and sees whether the
 * thread is inside. That is slow, so each time it takes twice as many in a row to bias the lock again.
 * Towards a third thread it is biased only when the one before has found that the bias was revoked.
 *
 * Unbiased it is an adaptive mutex and not a spin lock: on a small machine the holder may be descheduled. A
 * mutex is not fair: a thread that takes it again and again, as one that polls does, may have it again each
 * time before another that sleeps for it has woken. So who has waited for a millisecond says so, and then
 * others stand back until it has had its turn.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
	_Atomic uintptr_t biased_to; /* a thread; 0: unbiased */
	_Atomic bool inside; /* written by that thread alone: it is inside, or about to see that not */
	bool by_bias;        /* how it was taken; this and all below belong to the holder */
	bool never_biased;
	_Atomic bool starving;   /* somebody has waited for long; anybody's */
	uint32_t streak, enough; /* times in a row by `last`; how many bias it */
	uintptr_t last;
	uintptr_t revoked; /* from whom, and it has not come since: it may be about to write `inside` */
	pthread_mutex_t m;
#ifdef ANYRDMA_ASSERTS
	_Atomic pthread_t holder; /* 0: nobody */
#endif
};

/* Who we are, without a call as pthread_self() is one: the address of this. */
extern __thread char lock_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

void lock_init(struct lock *l);
/* One that is never biased: it can be waited with. */
void lock_init_unbiased(struct lock *l);
/* pthread_cond_wait() with such a one. */
void lock_wait(struct lock *l, pthread_cond_t *cond);
void lock_fini(struct lock *l);

void lock_take_mutex(struct lock *l);
bool lock_try_mutex(struct lock *l);

/*
 * Says, where the code relies on it, that this thread has the lock. Checked as base/asserts.h says; nothing
 * in other builds. Relaxed, since a fence would hide what the sanitizers look for.
 */
#ifdef ANYRDMA_ASSERTS
#define assert_locked(l) assert(atomic_load_explicit(&(l)->holder, memory_order_relaxed) == pthread_self())
#define LOCK_TAKEN(l)    atomic_store_explicit(&(l)->holder, pthread_self(), memory_order_relaxed)
#define LOCK_DROPS(l)    atomic_store_explicit(&(l)->holder, (pthread_t)0, memory_order_relaxed)
#else
#define assert_locked(l) ((void)(l))
#define LOCK_TAKEN(l)    ((void)(l))
#define LOCK_DROPS(l)    ((void)(l))
#endif

static inline bool lock_take_biased(struct lock *l)
{
	uintptr_t self = (uintptr_t)&lock_self;

	if (atomic_load_explicit(&l->biased_to, memory_order_relaxed) != self)
		return false;
	atomic_store_explicit(&l->inside, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* who revokes the bias runs the rest of this fence */
	if (atomic_load_explicit(&l->biased_to, memory_order_relaxed) == self) {
		l->by_bias = true;
		atomic_signal_fence(memory_order_seq_cst);
		return true;
	}
	atomic_store_explicit(&l->inside, false, memory_order_release);
	return false;
}

static inline void lock_take(struct lock *l)
{
	if (!lock_take_biased(l))
		lock_take_mutex(l);
	LOCK_TAKEN(l);
}

static inline bool lock_try(struct lock *l)
{
	if (!lock_take_biased(l) && !lock_try_mutex(l))
		return false;
	LOCK_TAKEN(l);
	return true;
}

static inline void lock_drop(struct lock *l)
{
	LOCK_DROPS(l);
	if (l->by_bias)
		atomic_store_explicit(&l->inside, false, memory_order_release);
	else
		pthread_mutex_unlock(&l->m);
}

#endif
