/* SPDX-License-Identifier: MIT */
/* VCRC and ICRC of InfiniBand packets against the example of the specification and a bit-by-bit reference. */
#include "wire/icrc.h"
#include "wire/vcrc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* IBA volume 1, 7.8.1: a packet and its ICRC. The VCRC is our own word, and that of the reference below. */
static const uint8_t example[] = {0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87,
	0x00, 0x87, 0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38,
	0xf2, 0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b,
	0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00, 0x96, 0x25, 0xb7, 0x5a};
enum { EXAMPLE_COVERED = sizeof(example) - 4 };

static uint16_t reference(const uint8_t *p, size_t len)
{
	unsigned crc =
		0xffff; /* not reflected: the polynomial as the specification writes it, bits last first */

	for (size_t i = 0; i < len; i++)
		for (int bit = 0; bit < 8; bit++) {
			unsigned top = (crc >> 15 ^ p[i] >> bit) & 1;

			crc = (crc << 1 ^ (top ? 0x100b : 0)) & 0xffff;
		}
	unsigned reflected = 0;
	for (int bit = 0; bit < 16; bit++)
		reflected |= (crc >> bit & 1) << (15 - bit);
	return (uint16_t)~reflected;
}

static void example_of_the_specification(void **state)
{
	static const uint8_t vcrc[] = {0x45, 0xfa};
	uint8_t out[4];

	icrc_put(out, icrc_iba(example, EXAMPLE_COVERED));
	assert_memory_equal(out, example + EXAMPLE_COVERED, 4);
	vcrc_put(out, vcrc_packet(example, sizeof(example)));
	assert_memory_equal(out, vcrc, 2);
}

static void vcrc_is_that_of_the_reference(void **state)
{
	uint8_t noise[300];
	unsigned seed = 1;

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(rand_r(&seed) >> 8);
	for (size_t len = 0; len <= sizeof(noise); len++)
		assert_int_equal(vcrc_packet(noise, len), reference(noise, len));
}

/* The VL, the GRH's mutable fields and the BTH's byte 4 may change on the way; nothing else may. */
static void icrc_covers_what_it_should(void **state)
{
	uint8_t pkt[8 + 40 + 12 + 20] = {0x00, 0x03};
	unsigned seed = 2;
	uint32_t crc;

	for (size_t i = 2; i < sizeof(pkt); i++)
		pkt[i] = (uint8_t)(rand_r(&seed) >> 8);
	crc = icrc_iba(pkt, sizeof(pkt));
	for (size_t bit = 0; bit < 8 * sizeof(pkt); bit++) {
		size_t at = bit / 8;
		uint8_t mask = (uint8_t)(1u << bit % 8);
		bool masked = (at == 0 && mask > 8) || (at == 8 && mask < 16) || (at > 8 && at < 12) ||
			      at == 8 + 7 || at == 8 + 40 + 4;

		if (at == 1 && mask < 4)
			continue; /* another LNH: another packet altogether */
		pkt[at] ^= mask;
		assert_int_equal(icrc_iba(pkt, sizeof(pkt)) == crc, masked);
		pkt[at] ^= mask;
	}
	for (size_t len = 8; len < 8 + 40 + 12; len++)
		assert_int_equal(icrc_iba(pkt, len), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(example_of_the_specification),
		cmocka_unit_test(vcrc_is_that_of_the_reference),
		cmocka_unit_test(icrc_covers_what_it_should),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
