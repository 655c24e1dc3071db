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

/*
 * What to add to the monotonic clock's time for the time of day. Who is held up between the two readings
 * would be off by that long: of a few, those that lie closest together count. The result errs to the past.
 */
static inline uint64_t clock_real_offset(void)
{
	enum { READINGS = 4, CLOSE_ENOUGH_NS = 200 };
	uint64_t offset = 0, closest = UINT64_MAX;

	for (int i = 0; i < READINGS && closest > CLOSE_ENOUGH_NS; i++) {
		uint64_t before = clock_ns(), real = clock_read(CLOCK_REALTIME), after = clock_ns();

		if (after - before < closest) {
			closest = after - before;
			offset = real - after;
		}
	}
	return offset;
}

#endif
