/* SPDX-License-Identifier: MIT */
/*
 * Random work between two processes of one host that reach each other through shared memory. What is posted
 * and what goes wrong is drawn from a seed as in the simulation, and the simulation's model says what must
 * come out. The two are real processes (two_test.c), or take turns in one (channel_test.c).
 *
 * The model lies in memory that both see, and neither holds it while it posts, deregisters or modifies
 * (model_leave). Each has its own sides' objects and memory, and checks them.
 */
#ifndef TESTS_SIM_TWO_H
#define TESTS_SIM_TWO_H

#include "life.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TWO = 2 };

/* What both see. */
struct two {
	struct model model;
	pthread_mutex_t lock; /* of real processes */
	struct weather weather;
	atomic_uint phase[TWO]; /* which barrier it has come to */
	atomic_bool killed;     /* one of them was, and is no more */
	uint32_t first_qpn[TWO];
	atomic_ullong requests, packets, direct;
};

extern struct two *two;
/* One of them will be killed: the other gets an error for everything it still had to do, soon, and its memory
 * is what some prefix of the dead one's work would have left. */
extern bool two_kills;
/* Queue pairs are destroyed, stopped and moved to the error state, memory is deregistered (trouble.c). */
extern bool two_troubles;
/* After so many looks, on average, one naps. */
extern unsigned two_looks;
/* Paths may leave shared memory, and come back. */
extern bool two_flaps;

/* From here on both have their queue pairs, and may be killed. */
enum { TWO_CONNECTS = 5 };

/* Before anything else, with the seed. */
void two_begin(uint64_t seed);
/* The life of one of them. */
void two_live(unsigned me);

/* ---- what the program has to say ---- */
void two_node_open(struct model *m, unsigned me);
void two_node_close(struct model *m, unsigned me);
/* Nothing happens for so long, or somebody else's turn is. */
void two_nap(uint64_t us);

#endif
