/* SPDX-License-Identifier: MIT */
/*
 * The IBA transport's packet formats: BTH and extension headers as bytes with accessors, the table of BTH
 * operations, PSN arithmetic, and the spec's tables of timers and credits. IBA volume 1, chapter 9.
 *
 *   BTH (12)   opcode | SE M pad(2) tver(4) | P_Key(16) | rsvd(8) DestQP(24) | A rsvd(7) PSN(24)
 *   DETH (8)   Q_Key(32) | rsvd(8) SrcQP(24)
 *   RETH (16)  VA(64) | R_Key(32) | DMALen(32)
 *   AtomicETH (28)  VA(64) | R_Key(32) | SwapAdd(64) | Compare(64)
 *   AETH (4)   syndrome(8) | MSN(24)        AtomicAckETH (8)  original(64)
 *   ImmDt (4)                               IETH (4)  R_Key(32)
 */
#ifndef WIRE_IBT_H
#define WIRE_IBT_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	BTH_LEN = 12,
	DETH_LEN = 8,
	RETH_LEN = 16,
	ATOMICETH_LEN = 28,
	AETH_LEN = 4,
	ATOMICACK_LEN = 8,
	IMM_LEN = 4,
	IETH_LEN = 4,
	GRH_LEN = 40,
	ICRC_LEN = 4,
	ROCE_UDP_PORT = 4791,
	QP_GSI = 1,
	QP_MULTICAST = 0xffffff,
	PKEY_FULL = 0x8000, /* of a full member; the rest of a P_Key is the partition */
	PKEY_DEFAULT = 0xffff,
	PSN_MASK = 0xffffff,
};

enum ibt_service { IBT_RC = 0x00, IBT_UC = 0x20, IBT_UD = 0x60, IBT_SERVICE_MASK = 0xe0 };

/* Low five bits of the opcode: the same meaning for every service. */
enum ibt_op {
	OP_SEND_FIRST,
	OP_SEND_MIDDLE,
	OP_SEND_LAST,
	OP_SEND_LAST_IMM,
	OP_SEND_ONLY,
	OP_SEND_ONLY_IMM,
	OP_WRITE_FIRST,
	OP_WRITE_MIDDLE,
	OP_WRITE_LAST,
	OP_WRITE_LAST_IMM,
	OP_WRITE_ONLY,
	OP_WRITE_ONLY_IMM,
	OP_READ_REQUEST,
	OP_READ_RESP_FIRST,
	OP_READ_RESP_MIDDLE,
	OP_READ_RESP_LAST,
	OP_READ_RESP_ONLY,
	OP_ACK,
	OP_ATOMIC_ACK,
	OP_CMP_SWAP,
	OP_FETCH_ADD,
	OP_RESERVED,
	OP_SEND_LAST_INV,
	OP_SEND_ONLY_INV,
	OP_COUNT,
};

/*
 * Manufacturer opcodes (IBA leaves 0xc0..0xff to implementations), between anyrdma adapters only; others
 * drop them. ECHO lets a sender of unreliable traffic learn that the other end has drained its socket;
 * INDEX finds a socket's index in its SO_REUSEPORT group (link/steer.h); HERE, through shared memory alone,
 * tells a queue pair that its peer sends that way (ib/path.c).
 */
enum { OPCODE_ECHO_REQUEST = 0xc0, OPCODE_ECHO_REPLY = 0xc1, OPCODE_INDEX = 0xc2, OPCODE_HERE = 0xc3 };

enum ibt_op_flags {
	OPF_REQUEST = 1 << 0,
	OPF_RESPONSE = 1 << 1,
	OPF_START = 1 << 2, /* begins a message */
	OPF_END = 1 << 3,   /* ends it */
	OPF_SEND = 1 << 4,
	OPF_WRITE = 1 << 5,
	OPF_READ = 1 << 6,
	OPF_ATOMIC = 1 << 7,
	OPF_PAYLOAD = 1 << 8,
	OPF_RETH = 1 << 9,
	OPF_AETH = 1 << 10,
	OPF_ATOMICETH = 1 << 11,
	OPF_ATOMICACK = 1 << 12,
	OPF_IMM = 1 << 13,
	OPF_IETH = 1 << 14,
};

struct ibt_op_info {
	const char *name;
	uint16_t flags;
	uint8_t services; /* bit 0 RC, bit 1 UC, bit 2 UD */
	uint8_t ext_len;  /* extension headers behind the BTH, without DETH */
};

extern const struct ibt_op_info ibt_op_table[OP_COUNT];

/* The opcode of a packet by its place in a message whose opcode would be `only` were it one packet. */
uint8_t ibt_op_at(uint8_t only, bool first, bool last);

/* The row of a whole opcode byte, or NULL when that service has no such operation. */
const struct ibt_op_info *ibt_op_lookup(uint8_t opcode);
/* "RC SEND_ONLY", for people */
const char *ibt_op_name(uint8_t opcode, char buf[32]);

/*
 * Members of the same partition hear each other, but for two limited ones; no partition has the number 0 (IBA
 * 10.9.3).
 */
static inline bool pkey_matches(uint16_t a, uint16_t b)
{
	return !((a ^ b) & ~PKEY_FULL) && (a & ~PKEY_FULL) && ((a | b) & PKEY_FULL);
}

/* ---- BTH ---- */
static inline uint8_t bth_opcode(const uint8_t *p)
{
	return p[0];
}
static inline bool bth_solicited(const uint8_t *p)
{
	return p[1] & 0x80;
}
static inline unsigned bth_pad(const uint8_t *p)
{
	return p[1] >> 4 & 3;
}
static inline unsigned bth_tver(const uint8_t *p)
{
	return p[1] & 0x0f;
}
static inline uint16_t bth_pkey(const uint8_t *p)
{
	return get_be16(p + 2);
}
static inline uint32_t bth_dqpn(const uint8_t *p)
{
	return get_be24(p + 5);
}
static inline bool bth_ackreq(const uint8_t *p)
{
	return p[8] & 0x80;
}
static inline uint32_t bth_psn(const uint8_t *p)
{
	return get_be24(p + 9);
}
/* M (MigReq) is always set: a QP that does not use path migration is in state Migrated (IBA 17.2.8). */
static inline void bth_put(uint8_t *p, uint8_t opcode, bool se, unsigned pad, uint16_t pkey, uint32_t dqpn,
	bool ackreq, uint32_t psn)
{
	/* By two words: who copies it right away (local/ring.c) need not wait for twelve bytes to come
	 * together. */
	uint32_t flags = (se ? 0x80u : 0) | 0x40 | pad << 4;

	put_be64(
		p, (uint64_t)opcode << 56 | (uint64_t)flags << 48 | (uint64_t)pkey << 32 | (dqpn & 0xffffff));
	put_be32(p + 8, (ackreq ? 0x80000000u : 0) | (psn & 0xffffff));
}

/* Asks for an acknowledge. */
static inline void bth_ask(uint8_t *p)
{
	p[8] |= 0x80;
}

/* ---- extension headers ---- */
struct reth {
	uint64_t va;
	uint32_t rkey, len;
};

static inline struct reth reth_get(const uint8_t *p)
{
	return (struct reth){get_be64(p), get_be32(p + 8), get_be32(p + 12)};
}
static inline void reth_put(uint8_t *p, uint64_t va, uint32_t rkey, uint32_t len)
{
	put_be64(p, va);
	put_be32(p + 8, rkey);
	put_be32(p + 12, len);
}

struct atomiceth {
	uint64_t va;
	uint32_t rkey;
	uint64_t swap_add, compare;
};

static inline struct atomiceth atomiceth_get(const uint8_t *p)
{
	return (struct atomiceth){get_be64(p), get_be32(p + 8), get_be64(p + 12), get_be64(p + 20)};
}
static inline void atomiceth_put(uint8_t *p, uint64_t va, uint32_t rkey, uint64_t swap_add, uint64_t compare)
{
	put_be64(p, va);
	put_be32(p + 8, rkey);
	put_be64(p + 12, swap_add);
	put_be64(p + 20, compare);
}

/* ---- AETH syndromes (IBA table 44) ---- */
enum {
	AETH_ACK = 0x00,
	AETH_RNR = 0x20,
	AETH_NAK = 0x60,
	AETH_TYPE_MASK = 0xe0,
	AETH_VALUE_MASK = 0x1f,
	AETH_CREDIT_NONE = 0x1f, /* end-to-end credits not used */
};
enum nak_code { NAK_SEQ, NAK_INV_REQ, NAK_ACCESS, NAK_OP, NAK_INV_RD };

static inline uint8_t aeth_syndrome(const uint8_t *p)
{
	return p[0];
}
static inline uint32_t aeth_msn(const uint8_t *p)
{
	return get_be24(p + 1);
}
static inline void aeth_put(uint8_t *p, uint8_t syndrome, uint32_t msn)
{
	p[0] = syndrome;
	put_be24(p + 1, msn);
}

/* ---- PSNs: 24 bits, compared within half the circle ---- */
static inline uint32_t psn_add(uint32_t a, uint32_t n)
{
	return (a + n) & PSN_MASK;
}
/* a - b, as a signed distance */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* ---- the spec's tables ---- */
/* RNR timer code (IBA table 45) in nanoseconds */
uint64_t ibt_rnr_ns(unsigned code);
/* Local ACK timeout 4.096 us * 2^t; 0 (t == 0) means no timeout. */
static inline uint64_t ibt_timeout_ns(unsigned t)
{
	return t ? 4096ull << t : 0;
}
/* Credit count encoding of an AETH (IBA table 46): the largest code not above n, and back. */
uint8_t ibt_credit_encode(uint32_t n);
uint32_t ibt_credit_decode(uint8_t code);

#endif
