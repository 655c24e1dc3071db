/* SPDX-License-Identifier: MIT */
/*
 * Eight bytes at a time, each four bits of them by a table of their own: no look-up waits for another. Where
 * CRCs are checked at each hop a packet has some ten of them.
 */
#include "wire/vcrc.h"

/* The remainders of sixteen values from those of their bits: a CRC is linear. */
#define ROW(a, b, c, d)                                                                                      \
	{                                                                                                    \
		0, a, b, a ^ b, c, a ^ c, b ^ c, a ^ b ^ c, d, a ^ d, b ^ d, a ^ b ^ d, c ^ d, a ^ c ^ d,    \
			b ^ c ^ d, a ^ b ^ c ^ d                                                             \
	}

/* The first row is for the four bits that come first, with 60 behind them; the last has none behind. */
static const uint16_t remainder[16][16] = {
	ROW(0x49cf, 0x939e, 0x872d, 0xae4b), ROW(0xfc87, 0x591f, 0xb23e, 0xc46d),
	ROW(0x28cb, 0x5196, 0xa32c, 0xe649), ROW(0x6c83, 0xd906, 0x121d, 0x243a),
	ROW(0x4874, 0x90e8, 0x81c1, 0xa393), ROW(0xe737, 0x6e7f, 0xdcfe, 0x19ed),
	ROW(0x33da, 0x67b4, 0xcf68, 0x3ec1), ROW(0x7d82, 0xfb04, 0x5619, 0xac32),
	ROW(0xf875, 0x50fb, 0xa1f6, 0xe3fd), ROW(0x67eb, 0xcfd6, 0x3fbd, 0x7f7a),
	ROW(0xfef4, 0x5df9, 0xbbf2, 0xd7f5), ROW(0x0ffb, 0x1ff6, 0x3fec, 0x7fd8),
	ROW(0xffb0, 0x5f71, 0xbee2, 0xddd5), ROW(0x1bbb, 0x3776, 0x6eec, 0xddd8),
	ROW(0x1ba1, 0x3742, 0x6e84, 0xdd08),
	ROW(0x1a01, 0x3402, 0x6804, 0xd008), /* multiples of 0xd008, which is 0x100b reflected */
};

/* Those of one byte, with so many behind it in the eight. */
static uint16_t one_byte(unsigned behind, uint8_t byte)
{
	return remainder[14 - 2 * behind][byte & 15] ^ remainder[15 - 2 * behind][byte >> 4];
}

static uint16_t eight_bytes(uint16_t crc, const uint8_t *p)
{
	return one_byte(7, p[0] ^ (uint8_t)crc) ^ one_byte(6, p[1] ^ (uint8_t)(crc >> 8)) ^
	       one_byte(5, p[2]) ^ one_byte(4, p[3]) ^ one_byte(3, p[4]) ^ one_byte(2, p[5]) ^
	       one_byte(1, p[6]) ^ one_byte(0, p[7]);
}

uint16_t vcrc_packet(const uint8_t *pkt, size_t len)
{
	uint16_t crc = 0xffff;
	size_t i = 0;

	for (; len - i >= 8; i += 8)
		crc = eight_bytes(crc, pkt + i);
	for (; i < len; i++)
		crc = crc >> 8 ^ one_byte(0, pkt[i] ^ (uint8_t)crc);
	return (uint16_t)~crc;
}

void vcrc_put(uint8_t out[VCRC_LEN], uint16_t crc)
{
	out[0] = (uint8_t)crc;
	out[1] = (uint8_t)(crc >> 8);
}
