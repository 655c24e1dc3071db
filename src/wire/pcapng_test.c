/* SPDX-License-Identifier: MIT */
#include "wire/pcapng.h"

#include "wire/erf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void blocks_have_golden_bytes(void **state)
{
	static const uint8_t section[] = {0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0,
		0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 28, 0, 0, 0};
	static const uint8_t interface[] = {1, 0, 0, 0, 44, 0, 0, 0, 197, 0, 0, 0, 0, 0, 0, 0, 2, 0, 5, 0,
		'S', '1', '[', '3', ']', 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0};
	static const uint8_t packet[] = {6, 0, 0, 0, 56, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xb2, 0xe6,
		0x0e, 22, 0, 0, 0, 22, 0, 0, 0,
		/* ERF: a quarter of a second */
		0, 0, 0, 0x40, 0, 0, 0, 0, 21, 4, 0, 22, 0, 0, 0, 6,
		/* the packet and its pad */
		1, 2, 3, 4, 5, 6, 0, 0, 56, 0, 0, 0};
	uint8_t out[128];

	assert_int_equal(pcapng_section(out, sizeof(out)), sizeof(section));
	assert_memory_equal(out, section, sizeof(section));
	assert_int_equal(pcapng_interface(out, sizeof(out), LINKTYPE_ERF, "S1[3]"), sizeof(interface));
	assert_memory_equal(out, interface, sizeof(interface));
	assert_int_equal(
		pcapng_infiniband(out, sizeof(out), 7, 250000000, (const uint8_t[]){1, 2, 3, 4, 5, 6}, 6),
		sizeof(packet));
	assert_memory_equal(out, packet, sizeof(packet));
}

static void nothing_is_written_where_it_does_not_fit(void **state)
{
	static uint8_t out[PCAPNG_BLOCK_MAX], pkt[PCAPNG_PACKET_MAX + 1];

	assert_int_equal(pcapng_section(out, 27), 0);
	assert_int_equal(pcapng_interface(out, 43, LINKTYPE_ERF, "S1[3]"), 0);
	assert_int_equal(pcapng_infiniband(out, 55, 0, 0, pkt, 6), 0);
	assert_int_equal(pcapng_infiniband(out, sizeof(out), 0, 0, pkt, PCAPNG_PACKET_MAX + 1), 0);
	assert_true(pcapng_infiniband(out, sizeof(out), 0, 0, pkt, PCAPNG_PACKET_MAX) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_have_golden_bytes),
		cmocka_unit_test(nothing_is_written_where_it_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
