/* SPDX-License-Identifier: MIT */
/*
 * Drawing from the seed. One draw per expression, since a compiler may evaluate operands in any order.
 */
#ifndef TESTS_SIM_DRAW_H
#define TESTS_SIM_DRAW_H

#include "base/random.h"

#include <stdbool.h>
#include <stdint.h>

extern uint64_t draw_state;

static inline uint64_t draw(uint64_t below)
{
	return random_seeded(&draw_state) % below;
}

static inline uint64_t between(uint64_t from, uint64_t to)
{
	return from + draw(to - from + 1);
}

static inline bool one_in(unsigned n)
{
	return !draw(n);
}

#endif
