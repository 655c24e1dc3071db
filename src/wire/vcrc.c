/* SPDX-License-Identifier: MIT */
/* Four bits at a time: packets end in a VCRC when somebody looks at them, which is rare. */
#include "wire/vcrc.h"

/* The remainders of four bits, reflected: multiples of 0xd008. */
static const uint16_t nibble[16] = {0x0000, 0x1a01, 0x3402, 0x2e03, 0x6804, 0x7205, 0x5c06, 0x4607, 0xd008,
	0xca09, 0xe40a, 0xfe0b, 0xb80c, 0xa20d, 0x8c0e, 0x960f};

uint16_t vcrc_packet(const uint8_t *pkt, size_t len)
{
	uint16_t crc = 0xffff;

	for (size_t i = 0; i < len; i++) {
		crc ^= pkt[i];
		crc = (uint16_t)(crc >> 4 ^ nibble[crc & 15]);
		crc = (uint16_t)(crc >> 4 ^ nibble[crc & 15]);
	}
	return (uint16_t)~crc;
}

void vcrc_put(uint8_t out[VCRC_LEN], uint16_t crc)
{
	out[0] = (uint8_t)crc;
	out[1] = (uint8_t)(crc >> 8);
}
