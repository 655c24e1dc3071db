/* SPDX-License-Identifier: MIT */
#include "wire/ibt.h"

#include <stdio.h>

enum { RC = 1, UC = 2, UD = 4 };

#define REQ  OPF_REQUEST
#define RSP  OPF_RESPONSE
#define ST   OPF_START
#define EN   OPF_END
#define PAY  OPF_PAYLOAD
#define SEND (OPF_REQUEST | OPF_SEND | OPF_PAYLOAD)
#define WR   (OPF_REQUEST | OPF_WRITE | OPF_PAYLOAD)
#define RR   (OPF_RESPONSE | OPF_READ | OPF_PAYLOAD)

/* IBA table 38: a row per operation. */
const struct ibt_op_info ibt_op_table[OP_COUNT] = {
	/* name, flags, services, bytes of extension headers */
	[OP_SEND_FIRST] = {"SEND_FIRST", SEND | ST, RC | UC, 0},
	[OP_SEND_MIDDLE] = {"SEND_MIDDLE", SEND, RC | UC, 0},
	[OP_SEND_LAST] = {"SEND_LAST", SEND | EN, RC | UC, 0},
	[OP_SEND_LAST_IMM] = {"SEND_LAST_IMM", SEND | EN | OPF_IMM, RC | UC, IMM_LEN},
	[OP_SEND_ONLY] = {"SEND_ONLY", SEND | ST | EN, RC | UC | UD, 0},
	[OP_SEND_ONLY_IMM] = {"SEND_ONLY_IMM", SEND | ST | EN | OPF_IMM, RC | UC | UD, IMM_LEN},
	[OP_WRITE_FIRST] = {"WRITE_FIRST", WR | ST | OPF_RETH, RC | UC, RETH_LEN},
	[OP_WRITE_MIDDLE] = {"WRITE_MIDDLE", WR, RC | UC, 0},
	[OP_WRITE_LAST] = {"WRITE_LAST", WR | EN, RC | UC, 0},
	[OP_WRITE_LAST_IMM] = {"WRITE_LAST_IMM", WR | EN | OPF_IMM, RC | UC, IMM_LEN},
	[OP_WRITE_ONLY] = {"WRITE_ONLY", WR | ST | EN | OPF_RETH, RC | UC, RETH_LEN},
	[OP_WRITE_ONLY_IMM] = {"WRITE_ONLY_IMM", WR | ST | EN | OPF_RETH | OPF_IMM, RC | UC,
		RETH_LEN + IMM_LEN},
	[OP_READ_REQUEST] = {"READ_REQUEST", REQ | OPF_READ | ST | EN | OPF_RETH, RC, RETH_LEN},
	[OP_READ_RESP_FIRST] = {"READ_RESP_FIRST", RR | ST | OPF_AETH, RC, AETH_LEN},
	[OP_READ_RESP_MIDDLE] = {"READ_RESP_MIDDLE", RR, RC, 0},
	[OP_READ_RESP_LAST] = {"READ_RESP_LAST", RR | EN | OPF_AETH, RC, AETH_LEN},
	[OP_READ_RESP_ONLY] = {"READ_RESP_ONLY", RR | ST | EN | OPF_AETH, RC, AETH_LEN},
	[OP_ACK] = {"ACK", RSP | ST | EN | OPF_AETH, RC, AETH_LEN},
	[OP_ATOMIC_ACK] = {"ATOMIC_ACK", RSP | OPF_ATOMIC | ST | EN | OPF_AETH | OPF_ATOMICACK, RC,
		AETH_LEN + ATOMICACK_LEN},
	[OP_CMP_SWAP] = {"CMP_SWAP", REQ | OPF_ATOMIC | ST | EN | OPF_ATOMICETH, RC, ATOMICETH_LEN},
	[OP_FETCH_ADD] = {"FETCH_ADD", REQ | OPF_ATOMIC | ST | EN | OPF_ATOMICETH, RC, ATOMICETH_LEN},
	[OP_RESERVED] = {"RESERVED", 0, 0, 0},
	[OP_SEND_LAST_INV] = {"SEND_LAST_INV", SEND | EN | OPF_IETH, RC, IETH_LEN},
	[OP_SEND_ONLY_INV] = {"SEND_ONLY_INV", SEND | ST | EN | OPF_IETH, RC, IETH_LEN},
};

uint8_t ibt_op_at(uint8_t only, bool first, bool last)
{
	static const struct {
		uint8_t first, middle, last;
	} at[OP_COUNT] = {
		[OP_SEND_ONLY] = {OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST},
		[OP_SEND_ONLY_IMM] = {OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_IMM},
		[OP_SEND_ONLY_INV] = {OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_INV},
		[OP_WRITE_ONLY] = {OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST},
		[OP_WRITE_ONLY_IMM] = {OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST_IMM},
		[OP_READ_RESP_ONLY] = {OP_READ_RESP_FIRST, OP_READ_RESP_MIDDLE, OP_READ_RESP_LAST},
	};

	if (first)
		return last ? only : at[only].first;
	return last ? at[only].last : at[only].middle;
}

const struct ibt_op_info *ibt_op_lookup(uint8_t opcode)
{
	unsigned op = opcode & 0x1f;
	uint8_t bit;

	switch (opcode & IBT_SERVICE_MASK) {
	case IBT_RC:
		bit = RC;
		break;
	case IBT_UC:
		bit = UC;
		break;
	case IBT_UD:
		bit = UD;
		break;
	default:
		return NULL;
	}
	return op < OP_COUNT && (ibt_op_table[op].services & bit) ? &ibt_op_table[op] : NULL;
}

const char *ibt_op_name(uint8_t opcode, char buf[32])
{
	const struct ibt_op_info *op = ibt_op_lookup(opcode);
	const char *service = (opcode & IBT_SERVICE_MASK) == IBT_RC   ? "RC"
			      : (opcode & IBT_SERVICE_MASK) == IBT_UC ? "UC"
								      : "UD";

	if (op)
		snprintf(buf, 32, "%s %s", service, op->name);
	else
		snprintf(buf, 32, "opcode 0x%02x", opcode);
	return buf;
}

/* IBA table 45, in units of 10 us */
static const uint32_t rnr_10us[32] = {65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
	512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t ibt_rnr_ns(unsigned code)
{
	return rnr_10us[code & 31] * 10000ull;
}

/* IBA table 46 */
static const uint16_t credits[31] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
	768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

/* The table's largest that is not above n: from 2 on a power of two, 2^k, has the code 2k, and 3 * 2^(k-1)
 * the next. */
uint8_t ibt_credit_encode(uint32_t n)
{
	enum { MOST = 30 };
	unsigned log2;

	if (n < 2)
		return (uint8_t)n;
	if (n >= credits[MOST])
		return MOST;
	log2 = 31 - (unsigned)__builtin_clz(n);
	return (uint8_t)(2 * log2 + (n >> (log2 - 1) & 1));
}

uint32_t ibt_credit_decode(uint8_t code)
{
	return code < 31 ? credits[code] : UINT32_MAX;
}
