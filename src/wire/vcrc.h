/* SPDX-License-Identifier: MIT */
/*
 * The variant CRC that ends every InfiniBand packet (IBA 7.8.2): CRC-16 over the whole packet, LRH to ICRC,
 * as it is on this link; every hop makes a new one. Polynomial 0x100b, all ones before, complemented behind.
 */
#ifndef WIRE_VCRC_H
#define WIRE_VCRC_H

#include <stddef.h>
#include <stdint.h>

enum { VCRC_LEN = 2 };

/* Of a packet in one piece. Pure. */
uint16_t vcrc_packet(const uint8_t *pkt, size_t len);

/* Writes the two bytes that go on the wire. */
void vcrc_put(uint8_t out[VCRC_LEN], uint16_t crc);

#endif
