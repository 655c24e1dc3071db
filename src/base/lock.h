/* SPDX-License-Identifier: MIT */
/*
 * Locks of the data path: short critical sections, seldom contended, never held across a wait.
 *
 * Most locks are taken by one thread nearly always: the one that posts and polls. A lock leans to a thread
 * that took it many times in a row; that thread then takes it by plain stores, without an instruction that
 * waits for all its stores to be seen, which is most of what a lock costs and what holds up a message that
 * was just written for another core. Any other thread first makes it upright again: it takes the lean away,
 * has the kernel run a barrier on every CPU where this process runs (membarrier), and sees whether the thread
 * is inside. That is slow, so each time it takes twice as many in a row to lean again. To a third it leans
 * only when the thread it leant to has found that it does not any more.
 *
 * Upright it is an adaptive mutex and not a spin lock: on a small machine the holder may be descheduled.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct lock {
	_Atomic uintptr_t leans_to; /* a thread; 0: upright */
	_Atomic bool inside;        /* written by that thread alone: it is inside, or about to see that not */
	bool leant;                 /* how it was taken; like all below, who holds it */
	bool upright;               /* for ever */
	uint32_t row, enough;       /* times in a row by `last`; how many let it lean */
	uintptr_t last;
	uintptr_t leaner; /* whom it leant to and who has not come since: it may be about to write `inside` */
	pthread_mutex_t m;
};

/* Who we are, without a call as pthread_self() is one: the address of this. */
extern __thread char lock_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

void lock_init(struct lock *l);
/* One that never leans: its mutex can be given to pthread_cond_wait(). */
void lock_init_upright(struct lock *l);
void lock_fini(struct lock *l);

void lock_take_upright(struct lock *l);
bool lock_try_upright(struct lock *l);

static inline bool lock_take_leant(struct lock *l)
{
	uintptr_t self = (uintptr_t)&lock_self;

	if (atomic_load_explicit(&l->leans_to, memory_order_relaxed) != self)
		return false;
	atomic_store_explicit(&l->inside, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst); /* who takes the lean away runs the rest of this fence */
	if (atomic_load_explicit(&l->leans_to, memory_order_relaxed) == self) {
		l->leant = true;
		atomic_signal_fence(memory_order_seq_cst);
		return true;
	}
	atomic_store_explicit(&l->inside, false, memory_order_release);
	return false;
}

static inline void lock_take(struct lock *l)
{
	if (!lock_take_leant(l))
		lock_take_upright(l);
}

static inline bool lock_try(struct lock *l)
{
	return lock_take_leant(l) || lock_try_upright(l);
}

static inline void lock_drop(struct lock *l)
{
	if (l->leant)
		atomic_store_explicit(&l->inside, false, memory_order_release);
	else
		pthread_mutex_unlock(&l->m);
}

#endif
