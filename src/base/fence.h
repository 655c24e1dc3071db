/* SPDX-License-Identifier: MIT */
/*
 * Fences. A full one waits for this thread's writes, and those to a line that another core has take long.
 * Asymmetric ones are for two sides of whom one is in a hurry: that side runs a light fence, which costs
 * nothing, and the other a heavy one, for which the kernel makes all CPUs that run such processes fence
 * (membarrier).
 */
#ifndef BASE_FENCE_H
#define BASE_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* What this thread wrote before is seen by others before what it reads after. */
static inline void fence_full(void)
{
#ifdef __SANITIZE_THREAD__ /* knows no fences, but counts this as one */
	static _Atomic int word;

	atomic_fetch_add(&word, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Whether heavy fences of others reach this process, and it can run them; from the first call on. */
bool fence_heavy_works(void);
void fence_heavy(void);

/* Enough when whom we meet runs heavy ones. */
static inline void fence_light(bool they_are_heavy)
{
	if (they_are_heavy)
		atomic_signal_fence(memory_order_seq_cst);
	else
		fence_full();
}

/* What this thread read before was there before what it reads or writes after. */
static inline void fence_acquire(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
}

/* What this thread writes after is there after what it wrote before. */
static inline void fence_release(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_release);
#endif
}

#endif
