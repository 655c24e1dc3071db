/* SPDX-License-Identifier: MIT */
#ifndef BASE_BITS_H
#define BASE_BITS_H

#include <stdint.h>

/* The smallest power of two that is at least n; 1 for 0. n is at most 2^31. */
static inline uint32_t pow2_at_least(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

#endif
