/* SPDX-License-Identifier: MIT */
/*
 * In which order the bytes of a long copy go: forth and back in turn. Programs use their buffers again, and
 * of one that is about as large as the cache only the end is still there when the next copy begins. The last
 * page comes last all the same: programs look at the last bytes to see that all has come (local/copy.h).
 */
#ifndef LOCAL_WALK_H
#define LOCAL_WALK_H

#include <stdbool.h>
#include <stdint.h>

enum { WALK_LONG = 512 << 10, WALK_LAST = 4096, WALK_PIECES = 5 };

struct walk_piece {
	uint32_t off, len;
};

/* Turns round, of a copy that is long. Whether this one goes back. */
static inline bool walk_turns(bool *back, uint32_t len)
{
	return len >= WALK_LONG && (*back = !*back);
}

/* The pieces of one that goes back. */
static inline unsigned walk_back(uint32_t len, struct walk_piece *out)
{
	uint32_t end = len - WALK_LAST, step = end / (WALK_PIECES - 1) + 1;
	unsigned n = 0;

	while (end) {
		uint32_t from = end > step ? end - step : 0;

		out[n++] = (struct walk_piece){from, end - from};
		end = from;
	}
	out[n++] = (struct walk_piece){len - WALK_LAST, WALK_LAST};
	return n;
}

#endif
