/* SPDX-License-Identifier: MIT */
/* Numbers nobody can guess: keys, QP numbers, first PSNs. From the kernel's random source. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

void random_bytes(void *buf, size_t len);

static inline uint32_t random_u32(void)
{
	uint32_t v;

	random_bytes(&v, sizeof(v));
	return v;
}

/* A small seeded generator (splitmix64) for simulations; never for keys. */
static inline uint64_t random_seeded(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

#endif
