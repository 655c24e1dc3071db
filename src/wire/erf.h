/* SPDX-License-Identifier: MIT */
/*
 * The record that wraps a captured InfiniBand packet (Endace's ERF, type 21), since tshark takes no captures
 * of the link type that InfiniBand has by itself:
 *
 *   timestamp(64, little-endian: seconds and 2^-32 seconds) | type(8) flags(8) rlen(16) | lctr(16) wlen(16) |
 * packet
 *
 * The packet is LRH to VCRC.
 */
#ifndef WIRE_ERF_H
#define WIRE_ERF_H

#include "base/bytes.h"

#include <stdint.h>

enum {
	ERF_LEN = 16,
	ERF_TYPE_INFINIBAND = 21,
	ERF_FLAG_VARYING = 4, /* records are as long as their packets */
	LINKTYPE_ERF = 197,
};

/* ns: since 1970. len: of the packet. */
static inline void erf_put(uint8_t p[ERF_LEN], uint64_t ns, uint16_t len)
{
	uint64_t seconds = ns / 1000000000, fraction = ((ns % 1000000000) << 32) / 1000000000;
	uint64_t stamp = seconds << 32 | fraction;

	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(stamp >> (8 * i));
	p[8] = ERF_TYPE_INFINIBAND;
	p[9] = ERF_FLAG_VARYING;
	put_be16(p + 10, (uint16_t)(ERF_LEN + len));
	put_be16(p + 12, 0);
	put_be16(p + 14, len);
}

#endif
