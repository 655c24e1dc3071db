/* SPDX-License-Identifier: MIT */
/*
 * Where decisions come from: a seed, or, for a fuzzer, bytes that it may bend. Bytes that have run out decide
 * 0 for ever.
 */
#ifndef TESTS_SIM_CHOICES_H
#define TESTS_SIM_CHOICES_H

#include "base/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct choices {
	const uint8_t *bytes; /* NULL: drawn from the seed */
	size_t left;
	uint64_t seed;
};

/* A number below `below`, which is not 0. */
static inline uint64_t choose(struct choices *c, uint64_t below)
{
	uint64_t v = 0;

	if (!c->bytes)
		return random_seeded(&c->seed) % below;
	for (uint64_t reach = below - 1; reach; reach >>= 8) {
		v = v << 8 | (c->left ? *c->bytes : 0);
		if (c->left) {
			c->bytes++;
			c->left--;
		}
	}
	return v % below;
}

static inline bool choose_one_in(struct choices *c, unsigned n)
{
	return choose(c, n) == n - 1; /* bytes that ran out say no */
}

#define CHOOSE_FROM(c, array) ((array)[choose(c, sizeof(array) / sizeof((array)[0]))])

#endif
