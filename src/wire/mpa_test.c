/* SPDX-License-Identifier: MIT */
/* Golden bytes of MPA's frames, its arithmetic, its CRC. */
#include "wire/mpa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void frames_are_as_the_rfc_draws_them(void **state)
{
	static const uint8_t golden[MPA_FRAME_LEN] = "MPA ID Req Frame\xd0\x02\x01\x00";
	struct mpa_frame f = {
		.flags = MPA_MARKERS | MPA_CRC | MPA_ENHANCED, .revision = 2, .private_len = 256};
	uint8_t b[MPA_FRAME_LEN];

	mpa_frame_put(b, &f);
	assert_memory_equal(b, golden, sizeof(golden));
	memset(&f, 0, sizeof(f));
	assert_true(mpa_frame_get(b, &f));
	assert_true(!f.reply && f.flags == 0xd0 && f.revision == 2 && f.private_len == 256);
	memcpy(b, "MPA ID Rep Frame", 16);
	assert_true(mpa_frame_get(b, &f));
	assert_true(f.reply);
}

static void other_keys_and_too_much_private_data_are_refused(void **state)
{
	struct mpa_frame f = {.revision = 1, .private_len = MPA_PRIVATE_MAX};
	uint8_t b[MPA_FRAME_LEN];

	mpa_frame_put(b, &f);
	assert_true(mpa_frame_get(b, &f));
	put_be16(b + 18, MPA_PRIVATE_MAX + 1);
	assert_false(mpa_frame_get(b, &f));
	for (unsigned i = 0; i < 16; i++) {
		mpa_frame_put(b, &(struct mpa_frame){.revision = 1});
		b[i] ^= 0x80;
		assert_false(mpa_frame_get(b, &f));
	}
}

static void meeting_of_two_on_one_host(void **state)
{
	static const uint8_t golden[MPA_UPGRADE_LEN] = "anyrdma\1\1\0\0\0\0\x12\x34\x56"
						       "\0\xab\xcd\xef\x10\xe1\x20\xfb"
						       "\x01\x23\x45\x67\x89\xab\xcd\xef"
						       "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1"
						       "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\2";
	struct mpa_upgrade m = {.ok = true,
		.qpn = 0x123456,
		.psn = 0xabcdef,
		.port = 0x10e1,
		.other_port = 0x20fb,
		.identity = 0x0123456789abcdef,
		.gid = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1},
		.other_gid = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2}};
	struct mpa_upgrade back = {0};
	uint8_t b[MPA_UPGRADE_LEN], again[MPA_UPGRADE_LEN];

	mpa_upgrade_put(b, &m);
	assert_memory_equal(b, golden, sizeof(golden));
	assert_true(mpa_upgrade_get(b, &back));
	mpa_upgrade_put(again, &back);
	assert_memory_equal(again, golden, sizeof(golden));
	b[7]++;
	assert_true(mpa_upgrade_get(b, &back)); /* of a later version: nothing is known of it */
	assert_false(back.ok);
	b[0] ^= 1;
	assert_false(mpa_upgrade_get(b, &back));
}

/* What siw sends with and without peer-to-peer mode, and every bit by itself. */
static void words_of_revision_2(void **state)
{
	static const struct {
		uint8_t bytes[MPA_V2_LEN];
		struct mpa_v2 v;
	} rows[] = {
		{{0x00, 0x01, 0x00, 0x01}, {1, 1, false, 0}},
		{{0x80, 0x01, 0xc0, 0x01}, {1, 1, true, MPA_RTR_WRITE | MPA_RTR_READ}},
		{{0x80, 0x01, 0x80, 0x01}, {1, 1, true, MPA_RTR_WRITE}},
		{{0xc0, 0x10, 0x40, 0x20}, {16, 32, true, MPA_RTR_ZERO | MPA_RTR_READ}},
		{{0x3f, 0xff, 0x3f, 0xff}, {MPA_DEPTH_UNTOLD, MPA_DEPTH_UNTOLD, false, 0}},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct mpa_v2 v = mpa_v2_get(rows[i].bytes);
		uint8_t b[MPA_V2_LEN];

		assert_int_equal(v.ird, rows[i].v.ird);
		assert_int_equal(v.ord, rows[i].v.ord);
		assert_int_equal(v.peer_to_peer, rows[i].v.peer_to_peer);
		assert_int_equal(v.rtr, rows[i].v.rtr);
		mpa_v2_put(b, &v);
		assert_memory_equal(b, rows[i].bytes, MPA_V2_LEN);
	}
}

static void an_fpdu_is_a_multiple_of_four(void **state)
{
	assert_int_equal(mpa_fpdu_len(0), 8);
	assert_int_equal(mpa_fpdu_len(14), 20);
	assert_int_equal(mpa_fpdu_len(18), 24);
	for (uint32_t n = 0; n <= MPA_ULPDU_MAX; n++) {
		assert_int_equal(mpa_fpdu_len(n) % 4, 0);
		assert_true(mpa_pad(n) < 4);
	}
}

/* Byte by byte, as the RFC tells it. */
static uint32_t span_by_hand(uint64_t pos, uint32_t n)
{
	uint64_t at = pos;

	for (; n; n--, at++) {
		if (at % MPA_MARKER_EVERY == 0)
			at += MPA_MARKER_LEN;
	}
	return (uint32_t)(at - pos);
}

static void markers_lie_at_every_512th_byte(void **state)
{
	for (uint64_t pos = 0; pos < 1028; pos += 4) {
		for (uint32_t n = 0; n < 2100; n += n < 1100 ? 4 : 508)
			assert_int_equal(mpa_span(pos, n), span_by_hand(pos, n));
	}
	assert_int_equal(
		mpa_span(0, mpa_fpdu_len(MPA_ULPDU_MAX)), span_by_hand(0, mpa_fpdu_len(MPA_ULPDU_MAX)));
}

/* RFC 3720 B.4: the same CRC, with its test vectors. */
static void crc_is_that_of_iscsi(void **state)
{
	static const uint8_t expect[][MPA_CRC_LEN] = {
		{0xaa, 0x36, 0x91, 0x8a}, {0x43, 0xab, 0xa8, 0x62}, {0x4e, 0x79, 0xdd, 0x46}};
	uint8_t data[3][32], b[MPA_CRC_LEN];

	memset(data[0], 0, 32);
	memset(data[1], 0xff, 32);
	for (unsigned i = 0; i < 32; i++)
		data[2][i] = (uint8_t)i;
	for (unsigned i = 0; i < 3; i++) {
		mpa_crc_end(mpa_crc_add(MPA_CRC_INIT, data[i], 32), b);
		assert_memory_equal(b, expect[i], MPA_CRC_LEN);
		mpa_crc_end(mpa_crc_add(mpa_crc_add(MPA_CRC_INIT, data[i], 7), data[i] + 7, 25), b);
		assert_memory_equal(b, expect[i], MPA_CRC_LEN);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_are_as_the_rfc_draws_them),
		cmocka_unit_test(other_keys_and_too_much_private_data_are_refused),
		cmocka_unit_test(meeting_of_two_on_one_host),
		cmocka_unit_test(words_of_revision_2),
		cmocka_unit_test(an_fpdu_is_a_multiple_of_four),
		cmocka_unit_test(markers_lie_at_every_512th_byte),
		cmocka_unit_test(crc_is_that_of_iscsi),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
