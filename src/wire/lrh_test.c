/* SPDX-License-Identifier: MIT */
/* Golden bytes of LRH and GRH. */
#include "wire/lrh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* That of IBA's example packet, whose ICRC is 9625b75a, as far as its first six bytes go. */
static void lrh_is_as_the_spec_draws_it(void **state)
{
	static const uint8_t golden[LRH_LEN] = {0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2};
	struct lrh h = lrh_get(golden);
	uint8_t out[LRH_LEN];

	assert_true(h.vl == 7 && h.lver == 0 && h.sl == 1 && h.lnh == LNH_LOCAL);
	assert_true(h.dlid == 0x375c && h.words == 14 && h.slid == 0x17d2);
	lrh_put(out, &h);
	assert_memory_equal(out, golden, LRH_LEN);
	h = (struct lrh){.vl = 15, .sl = 15, .lnh = LNH_GLOBAL, .dlid = 0xffff, .words = 0x7ff, .slid = 1};
	lrh_put(out, &h);
	assert_int_equal(get_be64(out), 0xf0f3ffff07ff0001);
}

static void grh_is_as_the_spec_draws_it(void **state)
{
	static const uint8_t golden[GRH_LEN] = {0x6a, 0xb1, 0x23, 0x45, 0x01, 0x18, 0x1b,
		0x40, [8] = 0xfe, [9] = 0x80, [23] = 1, [24] = 0xff, [25] = 0x12, [39] = 2};
	struct grh h = grh_get(golden);
	uint8_t out[GRH_LEN];

	assert_true(h.tclass == 0xab && h.flow_label == 0x12345 && h.len == 280 && h.next == GRH_NXT_IBA);
	assert_true(h.hop_limit == 64 && h.sgid[0] == 0xfe && h.sgid[15] == 1 && h.dgid[0] == 0xff &&
		    h.dgid[15] == 2);
	grh_put(out, &h);
	assert_memory_equal(out, golden, GRH_LEN);
}

static void lids_and_mtus(void **state)
{
	assert_true(
		!lid_is_unicast(0) && lid_is_unicast(1) && lid_is_unicast(0xbfff) && !lid_is_unicast(0xc000));
	assert_true(lid_is_mcast(0xc000) && lid_is_mcast(0xfffe) && !lid_is_mcast(0xffff) &&
		    !lid_is_mcast(0xbfff));
	assert_int_equal(mtu_bytes(0), 0);
	assert_int_equal(mtu_bytes(1), 256);
	assert_int_equal(mtu_bytes(5), 4096);
	assert_int_equal(mtu_bytes(6), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lrh_is_as_the_spec_draws_it),
		cmocka_unit_test(grh_is_as_the_spec_draws_it),
		cmocka_unit_test(lids_and_mtus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
