/* SPDX-License-Identifier: MIT */
/*
 * DDP segments (RFC 5041) and the RDMAP messages in them (RFC 5040, RFC 7306).
 *
 *   tagged, 14 bytes                          untagged, 18 bytes
 *    0  T=1 L . . . . DV                       0  T=0 L . . . . DV
 *    1  RV . . opcode                          1  RV . . opcode
 *    2  STag                                   2  STag to invalidate, or nothing
 *    6  tagged offset, 8 bytes                 6  queue number
 *                                             10  message sequence number
 *                                             14  message offset
 */
#ifndef WIRE_DDP_H
#define WIRE_DDP_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	DDP_TAGGED_LEN = 14,
	DDP_UNTAGGED_LEN = 18,
	DDP_HDR_MAX = DDP_UNTAGGED_LEN,
	DDP_TAGGED = 0x80,
	DDP_LAST = 0x40,
	DDP_VERSION = 1,
	RDMAP_VERSION = 1,
};

enum { RDMAP_READ_LEN = 28, RDMAP_ATOMIC_LEN = 52, RDMAP_ATOMIC_RESPONSE_LEN = 12, RDMAP_IMMEDIATE_LEN = 8 };
/* A TERMINATE with everything it may quote. */
enum { RDMAP_TERM_LEN = 4, RDMAP_TERM_MAX = RDMAP_TERM_LEN + 2 + DDP_UNTAGGED_LEN + RDMAP_READ_LEN };

enum { QN_SEND, QN_REQUEST, QN_TERMINATE, QN_ATOMIC_RESPONSE, QN_COUNT };

enum {
	ROF_TAGGED = 1 << 0,
	ROF_DATA = 1 << 1,   /* payload of any length, in any number of segments; else exactly `len` in one */
	ROF_RECV = 1 << 2,   /* takes a receive */
	ROF_SE = 1 << 3,     /* solicited event */
	ROF_INV = 1 << 4,    /* invalidates */
	ROF_IMM = 1 << 5,    /* carries immediate data */
	ROF_EXT = 1 << 6,    /* only between ends that know each other to have it */
	ROF_VARIES = 1 << 7, /* one segment, up to `len` */
};

/*
 * A row per RDMAP opcode: RFC 5040, RFC 7306, as IANA lists them. The last two are
 * ours: verbs have SEND with immediate data, which no RFC knows. They share the opcode that is for
 * experiments (RFC 6580), and the solicited one has the lowest of the reserved bits beside it. The data
 * stands where others have the STag to invalidate.
 */
#define RDMAP_OPS(X)                                                                                         \
	X(0, WRITE, "Write", 0, 0, ROF_TAGGED | ROF_DATA)                                                    \
	X(1, READ_REQUEST, "Read Request", QN_REQUEST, RDMAP_READ_LEN, 0)                                    \
	X(2, READ_RESPONSE, "Read Response", 0, 0, ROF_TAGGED | ROF_DATA)                                    \
	X(3, SEND, "Send", QN_SEND, 0, ROF_DATA | ROF_RECV)                                                  \
	X(4, SEND_INV, "Send with Invalidate", QN_SEND, 0, ROF_DATA | ROF_RECV | ROF_INV)                    \
	X(5, SEND_SE, "Send with SE", QN_SEND, 0, ROF_DATA | ROF_RECV | ROF_SE)                              \
	X(6, SEND_SE_INV, "Send with SE and Invalidate", QN_SEND, 0, ROF_DATA | ROF_RECV | ROF_SE | ROF_INV) \
	X(7, TERMINATE, "Terminate", QN_TERMINATE, RDMAP_TERM_MAX, ROF_VARIES)                               \
	X(8, IMMEDIATE, "Immediate Data", QN_SEND, RDMAP_IMMEDIATE_LEN, ROF_RECV | ROF_IMM | ROF_EXT)        \
	X(9, IMMEDIATE_SE, "Immediate Data with SE", QN_SEND, RDMAP_IMMEDIATE_LEN,                           \
		ROF_RECV | ROF_IMM | ROF_SE | ROF_EXT)                                                       \
	X(10, ATOMIC_REQUEST, "Atomic Request", QN_REQUEST, RDMAP_ATOMIC_LEN, ROF_EXT)                       \
	X(11, ATOMIC_RESPONSE, "Atomic Response", QN_ATOMIC_RESPONSE, RDMAP_ATOMIC_RESPONSE_LEN, ROF_EXT)    \
	X(0x0f, SEND_IMM, "Send with Immediate", QN_SEND, 0, ROF_DATA | ROF_RECV | ROF_IMM | ROF_EXT)        \
	X(0x1f, SEND_SE_IMM, "Send with SE and Immediate", QN_SEND, 0,                                       \
		ROF_DATA | ROF_RECV | ROF_IMM | ROF_SE | ROF_EXT)

enum rdmap_opcode {
#define X(code, name, text, qn, len, flags) RDMAP_##name = code,
	RDMAP_OPS(X)
#undef X
		RDMAP_OPCODES = 32,
};

struct rdmap_op {
	const char *name; /* NULL: no such opcode */
	uint8_t qn, len;
	uint16_t flags;
};

extern const struct rdmap_op rdmap_ops[RDMAP_OPCODES];

struct ddp_seg {
	bool tagged, last;
	uint8_t dv, rv, opcode;
	uint32_t stag; /* tagged: where to; untagged: what to invalidate, or immediate data */
	uint64_t to;
	uint32_t qn, msn, mo;
};

/* How long the header that begins with this byte is. */
static inline uint32_t ddp_hdr_len(uint8_t control)
{
	return control & DDP_TAGGED ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN;
}

/* b holds ddp_hdr_len() bytes. */
struct ddp_seg ddp_get(const uint8_t *b);
/* Writes the header, with the versions this code speaks; its length. */
uint32_t ddp_put(uint8_t *b, const struct ddp_seg *s);

struct rdmap_read {
	uint32_t sink_stag, size, source_stag;
	uint64_t sink_to, source_to;
};
struct rdmap_read rdmap_read_get(const uint8_t b[RDMAP_READ_LEN]);
void rdmap_read_put(uint8_t b[RDMAP_READ_LEN], const struct rdmap_read *r);

/* RFC 7306; 1 is reserved. */
enum { RDMAP_FETCH_ADD = 0, RDMAP_CMP_SWAP = 2 };

/* RFC 7306. Verbs have no masks: FetchAdd has 0, CmpSwap all ones. */
struct rdmap_atomic {
	uint8_t op;
	uint32_t id, stag;
	uint64_t to, data, data_mask, compare, compare_mask;
};
struct rdmap_atomic rdmap_atomic_get(const uint8_t b[RDMAP_ATOMIC_LEN]);
void rdmap_atomic_put(uint8_t b[RDMAP_ATOMIC_LEN], const struct rdmap_atomic *a);
/* What an atomic makes of a value. */
uint64_t rdmap_atomic_result(const struct rdmap_atomic *a, uint64_t original);

/* ---- TERMINATE ---- */
/* Layer, error type, error code (RFC 5040, RFC 5041, RFC 5044, RFC 6581; all of IANA's list). */
#define RDMAP_ERRORS(X)                                                                                      \
	X(RDMAP_LOCAL, 0, 0, 0x00, "local catastrophic error")                                               \
	X(RDMAP_STAG, 0, 1, 0x00, "invalid STag")                                                            \
	X(RDMAP_BOUNDS, 0, 1, 0x01, "base or bounds violation")                                              \
	X(RDMAP_ACCESS, 0, 1, 0x02, "access rights violation")                                               \
	X(RDMAP_STREAM, 0, 1, 0x03, "STag not associated with RDMAP stream")                                 \
	X(RDMAP_WRAP, 0, 1, 0x04, "TO wrap")                                                                 \
	X(RDMAP_CANNOT_INV, 0, 1, 0x09, "STag cannot be invalidated")                                        \
	X(RDMAP_PROTECTION, 0, 1, 0xff, "unspecific protection error")                                       \
	X(RDMAP_RV, 0, 2, 0x05, "invalid RDMAP version")                                                     \
	X(RDMAP_OPCODE, 0, 2, 0x06, "unexpected opcode")                                                     \
	X(RDMAP_CATASTROPHIC, 0, 2, 0x07, "catastrophic error, localized to RDMAP stream")                   \
	X(RDMAP_GLOBAL, 0, 2, 0x08, "catastrophic error, global")                                            \
	X(RDMAP_OP_CANNOT_INV, 0, 2, 0x09, "operation error: STag cannot be invalidated")                    \
	X(RDMAP_UNSPECIFIC, 0, 2, 0xff, "unspecific error")                                                  \
	X(DDP_LOCAL, 1, 0, 0x00, "DDP: local catastrophic error")                                            \
	X(DDP_STAG, 1, 1, 0x00, "tagged: invalid STag")                                                      \
	X(DDP_BOUNDS, 1, 1, 0x01, "tagged: base or bounds violation")                                        \
	X(DDP_STREAM, 1, 1, 0x02, "tagged: STag not associated with DDP stream")                             \
	X(DDP_WRAP, 1, 1, 0x03, "tagged: TO wrap")                                                           \
	X(DDP_TAGGED_DV, 1, 1, 0x04, "tagged: invalid DDP version")                                          \
	X(DDP_QN, 1, 2, 0x01, "untagged: invalid QN")                                                        \
	X(DDP_NO_BUFFER, 1, 2, 0x02, "untagged: no buffer available")                                        \
	X(DDP_MSN, 1, 2, 0x03, "untagged: invalid MSN")                                                      \
	X(DDP_MO, 1, 2, 0x04, "untagged: invalid MO")                                                        \
	X(DDP_TOO_LONG, 1, 2, 0x05, "untagged: message too long for the buffer")                             \
	X(DDP_UNTAGGED_DV, 1, 2, 0x06, "untagged: invalid DDP version")                                      \
	X(LLP_CLOSED, 2, 0, 0x01, "TCP connection lost")                                                     \
	X(LLP_CRC, 2, 0, 0x02, "MPA CRC error")                                                              \
	X(LLP_MARKER, 2, 0, 0x03, "MPA marker and length do not agree")                                      \
	X(LLP_FRAME, 2, 0, 0x04, "invalid MPA request or reply")                                             \
	X(LLP_LOCAL, 2, 0, 0x05, "MPA: local catastrophic error")                                            \
	X(LLP_IRD, 2, 0, 0x06, "insufficient IRD resources")                                                 \
	X(LLP_RTR, 2, 0, 0x07, "no matching RTR option")

enum rdmap_error {
	ERR_NONE,
#define X(name, layer, type, code, text) ERR_##name,
	RDMAP_ERRORS(X)
#undef X
		RDMAP_ERROR_COUNT,
};

struct rdmap_error_info {
	uint8_t layer, type, code;
	const char *text;
};

extern const struct rdmap_error_info rdmap_errors[RDMAP_ERROR_COUNT];

/* A TERMINATE, and what it quotes of the segment it is about. */
struct rdmap_term {
	uint8_t layer, type, code;
	bool has_len, has_ddp, has_rdmap; /* the bits M, D, R */
	uint16_t len;                     /* of the DDP segment */
	uint8_t ddp[DDP_HDR_MAX];
	uint8_t rdmap[RDMAP_READ_LEN]; /* of a Read Request */
};

/* false: it says it quotes what is not there */
bool rdmap_term_get(const uint8_t *b, uint32_t len, struct rdmap_term *t);
uint32_t rdmap_term_put(uint8_t b[RDMAP_TERM_MAX], const struct rdmap_term *t);
/* ERR_NONE: a code without a name */
enum rdmap_error rdmap_term_error(const struct rdmap_term *t);

#endif
