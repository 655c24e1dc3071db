/* SPDX-License-Identifier: MIT */
/* The input of a fuzz target as a list of moves, each a byte and what it needs. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline void must(bool ok)
{
	if (!ok)
		abort();
}

struct input {
	const uint8_t *at, *end;
};

/* The next n bytes; zeroes where the input ends. */
static inline void draw(struct input *in, void *to, size_t n)
{
	size_t have = (size_t)(in->end - in->at), part = have < n ? have : n;

	memset(to, 0, n);
	memcpy(to, in->at, part);
	in->at += part;
}

static inline uint8_t draw_u8(struct input *in)
{
	uint8_t v;

	draw(in, &v, sizeof(v));
	return v;
}

static inline uint16_t draw_u16(struct input *in)
{
	uint16_t v;

	draw(in, &v, sizeof(v));
	return v;
}

static inline uint32_t draw_u32(struct input *in)
{
	uint32_t v;

	draw(in, &v, sizeof(v));
	return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
