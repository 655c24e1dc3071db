/* SPDX-License-Identifier: MIT */
/*
 * Chaos: threads that yield or sleep where they could be preempted, so that races are met in seconds that a
 * scheduler arranges once in a million times. Only in a build with -DANYRDMA_CHAOS=ON, where the compiler
 * includes this before every file of src/ and the linker puts chaos.c before locks and system calls; no
 * source file mentions it.
 *
 * ANYRDMA_CHAOS_SEED draws where and how long; without it one is drawn and printed.
 */
#ifndef BASE_CHAOS_H
#define BASE_CHAOS_H

#include <stdatomic.h>

/*
 * The calling thread may be late from here on. errno stays, and it is no cancellation point. The shim and the
 * command are linked without it, and have nobody to be late for.
 */
__attribute__((visibility("hidden"), weak)) void chaos(void);
#define CHAOS() (chaos ? chaos() : (void)0)

/* Atomics in their sequentially consistent form, by which threads tell each other things, and fences, which
 * stand between the others. */
#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_compare_exchange_strong
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_or
#undef atomic_fetch_and
#undef atomic_thread_fence
#undef atomic_signal_fence
#define atomic_load(p)          (CHAOS(), atomic_load_explicit(p, memory_order_seq_cst))
#define atomic_store(p, v)      (CHAOS(), atomic_store_explicit(p, v, memory_order_seq_cst))
#define atomic_exchange(p, v)   (CHAOS(), atomic_exchange_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_add(p, v)  (CHAOS(), atomic_fetch_add_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_sub(p, v)  (CHAOS(), atomic_fetch_sub_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_or(p, v)   (CHAOS(), atomic_fetch_or_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_and(p, v)  (CHAOS(), atomic_fetch_and_explicit(p, v, memory_order_seq_cst))
#define atomic_thread_fence(mo) (CHAOS(), __atomic_thread_fence(mo))
#define atomic_signal_fence(mo) (CHAOS(), __atomic_signal_fence(mo))
#define atomic_compare_exchange_strong(p, expected, v)                                                       \
	(CHAOS(), atomic_compare_exchange_strong_explicit(                                                   \
			  p, expected, v, memory_order_seq_cst, memory_order_seq_cst))

#endif
