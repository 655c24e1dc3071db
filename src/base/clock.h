/* SPDX-License-Identifier: MIT */
/* The monotonic clock. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

/* Some milliseconds old, for a fifth of the price. */
static inline uint64_t clock_coarse_ns(void)
{
	return clock_read(CLOCK_MONOTONIC_COARSE);
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

#endif
