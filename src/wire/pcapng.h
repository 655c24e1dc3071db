/* SPDX-License-Identifier: MIT */
/*
 * Blocks of a pcapng file, little-endian: a section header, a description per interface, then packets. Pure:
 * they are written to a buffer. Each function returns how many bytes it wrote, 0 when they do not fit.
 */
#ifndef WIRE_PCAPNG_H
#define WIRE_PCAPNG_H

#include <stddef.h>
#include <stdint.h>

enum {
	PCAPNG_PACKET_MAX = 4096 + 256,                /* of an InfiniBand packet, LRH to VCRC */
	PCAPNG_BLOCK_MAX = PCAPNG_PACKET_MAX + 16 + 36 /* ERF header; the block's own */
};

size_t pcapng_section(uint8_t *out, size_t room);
/* Interfaces have the numbers 0, 1, … in the order of their blocks. Timestamps are nanoseconds. */
size_t pcapng_interface(uint8_t *out, size_t room, uint16_t linktype, const char *name);
/* An InfiniBand packet, LRH to VCRC, as an ERF record. ns: since 1970. */
size_t pcapng_infiniband(
	uint8_t *out, size_t room, uint32_t interface, uint64_t ns, const uint8_t *pkt, size_t len);

#endif
