/* SPDX-License-Identifier: MIT */
/* What a session moves follows from its seed alone, so both ends know each byte before it comes. */
#include "soak.h"

#include <string.h>

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

uint64_t random_next(uint64_t *state)
{
	return mix((*state)++);
}

/* As many small ones as large ones, and the edges: nothing at all, and all there is room for. */
static uint32_t pick_len(uint64_t r, uint32_t max)
{
	unsigned bits = 0;

	if (r % 16 == 0)
		return 0;
	if (r % 16 == 1)
		return max;
	while (bits < 31 && (2u << bits) <= max)
		bits++;
	return (uint32_t)((r >> 8) % (2ull << (r >> 4) % (bits + 1))) % (max + 1);
}

static enum op_kind pick_kind(const struct script *s, uint64_t r, bool takes_receive)
{
	static const enum op_kind takes[] = {OP_SEND, OP_SEND_IMM, OP_WRITE_IMM};
	static const enum op_kind leaves[] = {OP_WRITE, OP_READ, OP_READ, OP_ADD, OP_SWAP};

	if (s->type != IBV_QPT_RC) /* the immediate says which one it is: others may have been lost */
		return s->type == IBV_QPT_UC && r % 2 ? OP_WRITE_IMM : OP_SEND_IMM;
	return takes_receive ? takes[r % 3] : leaves[r % 5];
}

struct op script_op(const struct script *s, unsigned dir, uint32_t i)
{
	uint64_t r = mix(s->seed ^ mix((uint64_t)dir << 32 | i));
	struct op op = {.seed = mix(r)};

	/* The receiver looks at what came without its doing when a message follows: often enough. */
	op.takes_receive = s->type != IBV_QPT_RC || i % 4 == 3 || i + 1 == s->ops || r >> 63;
	op.kind = pick_kind(s, r >> 40, op.takes_receive);
	op.len = op.kind == OP_ADD || op.kind == OP_SWAP ? 8 : pick_len(mix(op.seed), s->max_len);
	op.offset = (uint32_t)((op.seed >> 16) % (s->max_len - op.len + 1)) & ~7u;
	op.is_inline = op.len <= s->inline_max && op.kind <= OP_WRITE_IMM && r >> 62 & 1;
	op.signaled = op.takes_receive || op.kind >= OP_READ || r >> 61 & 1;
	return op;
}

/* Offsets are multiples of eight: a word of content follows from the seed and its place. */
void content_fill(uint8_t *p, uint32_t len, uint64_t seed, uint32_t offset)
{
	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t word = mix(seed + offset + i);

		memcpy(p + i, &word, len - i < 8 ? len - i : 8);
	}
}

uint32_t content_check(const uint8_t *p, uint32_t len, uint64_t seed, uint32_t offset)
{
	for (uint32_t i = 0; i < len; i += 8) {
		uint64_t word = mix(seed + offset + i);
		uint32_t n = len - i < 8 ? len - i : 8;

		if (memcmp(p + i, &word, n)) {
			while (p[i] == ((uint8_t *)&word)[i % 8])
				i++;
			return i;
		}
	}
	return len;
}
