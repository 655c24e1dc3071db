/* SPDX-License-Identifier: MIT */
/*
 * Tallies: what a program sends through shared memory, past the switches, they would have counted. So it says
 * how much that was, per way, and the fabric adds the increase to each port of the way when somebody looks at
 * counters, and before it changes a route.
 *
 * They lie in memory that both share (trunk.h), and the program alone writes them. A way stays in its place
 * for good, and its numbers only grow. Each place has one writer at a time, a queue pair: when that goes
 * another way it leaves the place to the next one that goes this way.
 */
#ifndef FABRIC_TALLY_H
#define FABRIC_TALLY_H

#include "base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TALLIES = 32768 }; /* of a program: a queue pair has one, and others have been left */

/* From a port to a LID, on a service level, as one number; never 0. */
static inline uint64_t tally_way(uint32_t port, uint16_t slid, uint16_t dlid, uint8_t sl)
{
	return (uint64_t)port << 36 | (uint64_t)(sl & 15) << 32 | (uint32_t)slid << 16 | dlid;
}

static inline uint32_t tally_port(uint64_t way)
{
	return (uint32_t)(way >> 36);
}

static inline uint16_t tally_slid(uint64_t way)
{
	return (uint16_t)(way >> 16);
}

static inline uint16_t tally_dlid(uint64_t way)
{
	return (uint16_t)way;
}

static inline uint8_t tally_sl(uint64_t way)
{
	return way >> 32 & 15;
}

/* Words as PktLen has them: from the LRH to the ICRC. Written behind the packets, and read before them. */
struct tally_sum {
	_Atomic uint64_t packets, words;
};

enum tally_direction { TALLY_THERE, TALLY_BACK }; /* what we send; the answers to what we do ourselves */

struct tally {
	_Alignas(64) uint64_t way;
	struct tally_sum sum[2];
};

/* The shared memory. */
struct tallies {
	_Atomic uint32_t n; /* places that have a way */
	struct tally at[TALLIES];
};

/* By who has the place alone. */
static inline void tally_add(
	struct tally *t, enum tally_direction direction, uint64_t packets, uint64_t words)
{
	struct tally_sum *s = &t->sum[direction];

	atomic_store_explicit(&s->packets, atomic_load_explicit(&s->packets, memory_order_relaxed) + packets,
		memory_order_relaxed);
	atomic_store_explicit(&s->words, atomic_load_explicit(&s->words, memory_order_relaxed) + words,
		memory_order_release);
}

/* ---- the program's places ---- */
enum { TALLY_BUCKETS = 1024 };

struct tally_pool {
	struct lock lock;
	struct tallies *_Atomic shared; /* NULL: nobody counts */
	uint32_t bucket[TALLY_BUCKETS]; /* places that were left, by their way: the first one + 1 */
	uint32_t *next;                 /* the next of the bucket, + 1 */
};

void tally_pool_init(struct tally_pool *p);
void tally_pool_fini(struct tally_pool *p);
/*
 * The fabric is there, perhaps again: places are in this memory, which is zero. Who has one in another does
 * no harm there as long as that is mapped.
 */
void tally_pool_begin(struct tally_pool *p, struct tallies *shared);
/* The memory ceases to be. */
void tally_pool_end(struct tally_pool *p);

/* Whether a place is for this way, and the fabric's that is there now. NULL is none. */
static inline bool tally_is_for(struct tally_pool *p, const struct tally *t, uint64_t way)
{
	struct tallies *s = atomic_load_explicit(&p->shared, memory_order_acquire);

	return t && s && t >= s->at && t < s->at + TALLIES && t->way == way;
}

/* A place for this way, which the caller alone writes to until it leaves it; NULL: there is none left. */
struct tally *tally_take(struct tally_pool *p, uint64_t way);
/* NULL, or a place in memory of before, is fine. */
void tally_leave(struct tally_pool *p, struct tally *t);

#endif
