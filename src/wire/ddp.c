/* SPDX-License-Identifier: MIT */
#include "wire/ddp.h"

const struct rdmap_op rdmap_ops[RDMAP_OPCODES] = {
#define X(code, name, text, qn, len, flags) [code] = {text, qn, len, flags},
	RDMAP_OPS(X)
#undef X
};

const struct rdmap_error_info rdmap_errors[RDMAP_ERROR_COUNT] = {
	[ERR_NONE] = {0xf, 0xf, 0xff, "an error without a name"},
#define X(name, layer, type, code, text) [ERR_##name] = {layer, type, code, text},
	RDMAP_ERRORS(X)
#undef X
};

/* The reserved bits mean something beside the opcode for experiments only. */
static uint8_t opcode_in(uint8_t control)
{
	return (control & 0xf) == RDMAP_SEND_IMM ? control & 0x1f : control & 0xf;
}

struct ddp_seg ddp_get(const uint8_t *b)
{
	struct ddp_seg s = {
		.tagged = b[0] & DDP_TAGGED,
		.last = b[0] & DDP_LAST,
		.dv = b[0] & 3,
		.rv = b[1] >> 6,
		.opcode = opcode_in(b[1]),
		.stag = get_be32(b + 2),
	};

	if (s.tagged) {
		s.to = get_be64(b + 6);
	} else {
		s.qn = get_be32(b + 6);
		s.msn = get_be32(b + 10);
		s.mo = get_be32(b + 14);
	}
	return s;
}

uint32_t ddp_put(uint8_t *b, const struct ddp_seg *s)
{
	b[0] = (uint8_t)((s->tagged ? DDP_TAGGED : 0) | (s->last ? DDP_LAST : 0) | DDP_VERSION);
	b[1] = (uint8_t)(RDMAP_VERSION << 6 | s->opcode);
	put_be32(b + 2, s->stag);
	if (s->tagged) {
		put_be64(b + 6, s->to);
		return DDP_TAGGED_LEN;
	}
	put_be32(b + 6, s->qn);
	put_be32(b + 10, s->msn);
	put_be32(b + 14, s->mo);
	return DDP_UNTAGGED_LEN;
}

struct rdmap_read rdmap_read_get(const uint8_t b[RDMAP_READ_LEN])
{
	return (struct rdmap_read){
		.sink_stag = get_be32(b),
		.sink_to = get_be64(b + 4),
		.size = get_be32(b + 12),
		.source_stag = get_be32(b + 16),
		.source_to = get_be64(b + 20),
	};
}

void rdmap_read_put(uint8_t b[RDMAP_READ_LEN], const struct rdmap_read *r)
{
	put_be32(b, r->sink_stag);
	put_be64(b + 4, r->sink_to);
	put_be32(b + 12, r->size);
	put_be32(b + 16, r->source_stag);
	put_be64(b + 20, r->source_to);
}

struct rdmap_atomic rdmap_atomic_get(const uint8_t b[RDMAP_ATOMIC_LEN])
{
	return (struct rdmap_atomic){
		.op = b[3] & 0xf,
		.id = get_be32(b + 4),
		.stag = get_be32(b + 8),
		.to = get_be64(b + 12),
		.data = get_be64(b + 20),
		.data_mask = get_be64(b + 28),
		.compare = get_be64(b + 36),
		.compare_mask = get_be64(b + 44),
	};
}

void rdmap_atomic_put(uint8_t b[RDMAP_ATOMIC_LEN], const struct rdmap_atomic *a)
{
	put_be32(b, a->op);
	put_be32(b + 4, a->id);
	put_be32(b + 8, a->stag);
	put_be64(b + 12, a->to);
	put_be64(b + 20, a->data);
	put_be64(b + 28, a->data_mask);
	put_be64(b + 36, a->compare);
	put_be64(b + 44, a->compare_mask);
}

uint64_t rdmap_atomic_result(const struct rdmap_atomic *a, uint64_t original)
{
	/* A bit of the add mask ends a field: no carry leaves it. */
	uint64_t top = a->data_mask;

	if (a->op == RDMAP_FETCH_ADD)
		return ((original & ~top) + (a->data & ~top)) ^ ((original ^ a->data) & top);
	if ((original ^ a->compare) & a->compare_mask)
		return original;
	return (original & ~a->data_mask) | (a->data & a->data_mask);
}

/* ---- TERMINATE ---- */
/* M, D and R. Linux's siw has them at the other end of the byte, where nothing else is. */
static uint8_t quoting(uint8_t b)
{
	if (b & 0xe0)
		return b;
	return (uint8_t)((b & 1) << 7 | (b & 2) << 5 | (b & 4) << 3);
}

bool rdmap_term_get(const uint8_t *b, uint32_t len, struct rdmap_term *t)
{
	uint32_t at = RDMAP_TERM_LEN, n;

	if (len < RDMAP_TERM_LEN)
		return false;
	*t = (struct rdmap_term){
		.layer = b[0] >> 4,
		.type = b[0] & 0xf,
		.code = b[1],
		.has_len = quoting(b[2]) & 0x80,
		.has_ddp = quoting(b[2]) & 0x40,
		.has_rdmap = quoting(b[2]) & 0x20,
	};
	if (t->has_len) {
		if (len - at < 2)
			return false;
		t->len = get_be16(b + at);
		at += 2;
	}
	if (t->has_ddp) {
		if (len - at < 2)
			return false;
		n = ddp_hdr_len(b[at]);
		if (len - at < n)
			return false;
		memcpy(t->ddp, b + at, n);
		at += n;
	}
	if (t->has_rdmap) {
		if (len - at < RDMAP_READ_LEN)
			return false;
		memcpy(t->rdmap, b + at, RDMAP_READ_LEN);
	}
	return true;
}

uint32_t rdmap_term_put(uint8_t b[RDMAP_TERM_MAX], const struct rdmap_term *t)
{
	uint32_t at = RDMAP_TERM_LEN;

	b[0] = (uint8_t)(t->layer << 4 | t->type);
	b[1] = t->code;
	b[2] = (uint8_t)((t->has_len ? 0x80 : 0) | (t->has_ddp ? 0x40 : 0) | (t->has_rdmap ? 0x20 : 0));
	b[3] = 0;
	if (t->has_len) {
		put_be16(b + at, t->len);
		at += 2;
	}
	if (t->has_ddp) {
		memcpy(b + at, t->ddp, ddp_hdr_len(t->ddp[0]));
		at += ddp_hdr_len(t->ddp[0]);
	}
	if (t->has_rdmap) {
		memcpy(b + at, t->rdmap, RDMAP_READ_LEN);
		at += RDMAP_READ_LEN;
	}
	return at;
}

enum rdmap_error rdmap_term_error(const struct rdmap_term *t)
{
	for (unsigned i = ERR_NONE + 1; i < RDMAP_ERROR_COUNT; i++) {
		const struct rdmap_error_info *e = &rdmap_errors[i];

		if (e->layer == t->layer && e->type == t->type && e->code == t->code)
			return (enum rdmap_error)i;
	}
	if (!t->layer && !t->type)
		return ERR_RDMAP_LOCAL; /* whatever its code */
	return ERR_NONE;
}
