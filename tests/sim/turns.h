/* SPDX-License-Identifier: MIT */
/*
 * Processes that take turns in one thread, each with a stack of its own: a seed says after how many steps it
 * is whose turn. A step is an atomic access, or a copy to or from another's memory, of src/local/: the
 * compiler includes this file before its sources for sim.channel and sim.bells (CMakeLists.txt), as it
 * includes base/chaos.h for chaos. Sleeping, waiting and the clock come here by the linker. No source file of
 * the product mentions it.
 */
#ifndef TESTS_SIM_TURNS_H
#define TESTS_SIM_TURNS_H

#include "base/fence.h"
#include "base/lock.h" /* of one process alone: nobody else sees its steps */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A step of who runs: it may be somebody else's turn now. Nothing while none take turns. */
void turns_step(void);
/*
 * A store may stay in its core for a while, where others do not see it, until that core runs a fence, or a
 * locked instruction. Whether the test keeps this one; and that who runs has run such an instruction.
 */
bool turns_keeps(const volatile void *at, uint64_t value);
void turns_fence(void);

#ifdef __clang__
#define TURNS_LOAD(p, mo)     __c11_atomic_load(p, mo)
#define TURNS_STORE(p, v, mo) __c11_atomic_store(p, v, mo)
#else
#define TURNS_LOAD(p, mo)     __atomic_load_n(p, mo)
#define TURNS_STORE(p, v, mo) __atomic_store_n(p, v, mo)
#endif

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_compare_exchange_strong
#define atomic_load_explicit(p, mo) (turns_step(), TURNS_LOAD(p, mo))
#define atomic_store_explicit(p, v, mo)                                                                      \
	(turns_step(), turns_keeps(p, (uint64_t)(v)) ? (void)0 : (void)TURNS_STORE(p, v, mo))
#define atomic_load(p)     (turns_step(), TURNS_LOAD(p, memory_order_seq_cst))
#define atomic_store(p, v) (turns_fence(), turns_step(), TURNS_STORE(p, v, memory_order_seq_cst))
#define atomic_exchange(p, v)                                                                                \
	(turns_fence(), turns_step(), atomic_exchange_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_add(p, v)                                                                               \
	(turns_fence(), turns_step(), atomic_fetch_add_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_sub(p, v)                                                                               \
	(turns_fence(), turns_step(), atomic_fetch_sub_explicit(p, v, memory_order_seq_cst))
#define atomic_compare_exchange_strong(p, expected, v)                                                       \
	(turns_fence(), turns_step(),                                                                        \
		atomic_compare_exchange_strong_explicit(                                                     \
			p, expected, v, memory_order_seq_cst, memory_order_seq_cst))

/* ---- for the test ---- */
enum { TURNS_MOST = 4 };

struct turns_rules {
	unsigned steps;     /* a turn has at most so many; 0: it lasts until who runs waits */
	unsigned stall;     /* one turn in so many ends with a stall; 0: none does */
	uint64_t stall_max; /* ns */
	uint64_t (*now)(void);
	void (*move)(uint64_t now);
	void (*turn)(unsigned who); /* it is theirs now */
	/* As turns_keeps() and turns_fence(); NULL: a store is seen at once. */
	bool (*keep)(const volatile void *at, uint64_t value);
	void (*fence)(void);
};

/* Each runs live(its number) until all have returned. */
void turns_run(unsigned n, const struct turns_rules *r, void (*live)(unsigned me));
/* Who runs keeps its turn until it lets go; not across turns_wait(). */
void turns_hold(void);
void turns_release(void);
/* Who runs waits so long; meanwhile it is others' turn. */
void turns_wait(uint64_t ns);
/*
 * Who runs waits until the descriptor is readable, but not longer. Whether it is. The others may be stalled:
 * look again.
 */
bool turns_wait_fd(int fd, uint64_t ns);
/* May it be stalled? At first nobody may. */
void turns_may_stall(bool may);
/*
 * Once, `after` so many turns from now, this one dies in the middle of a step: `die` is called on its stack.
 * From then on it has no turns and waits for nobody, but goes on until turns_leave() ends it for good.
 */
void turns_kill(unsigned who, uint64_t after, void (*die)(unsigned who));
bool turns_is_dead(unsigned who);
_Noreturn void turns_leave(void);

#endif
