/* SPDX-License-Identifier: MIT */
/* Golden bytes of the headers, and the spec's tables. */
#include "wire/ibt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void bth_is_as_the_specification_draws_it(void **state)
{
	static const uint8_t golden[BTH_LEN] = {
		0x0a, 0xf0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef};
	uint8_t b[BTH_LEN];

	bth_put(b, IBT_RC | OP_WRITE_ONLY, true, 3, 0xffff, 0x123456, true, 0xabcdef);
	assert_memory_equal(b, golden, BTH_LEN);
	assert_int_equal(bth_dqpn(b), 0x123456);
	assert_int_equal(bth_psn(b), 0xabcdef);
	assert_int_equal(bth_pad(b), 3);
	assert_true(bth_ackreq(b) && bth_solicited(b));
	assert_int_equal(bth_tver(b), 0);
}

static void extension_headers_come_back_as_they_went(void **state)
{
	static const uint8_t golden[RETH_LEN] = {
		1, 2, 3, 4, 5, 6, 7, 8, 0xde, 0xad, 0xbe, 0xef, 0x00, 0x10, 0x00, 0x01};
	uint8_t b[ATOMICETH_LEN];
	struct atomiceth a;
	struct reth r;

	reth_put(b, 0x0102030405060708, 0xdeadbeef, 0x100001);
	assert_memory_equal(b, golden, RETH_LEN);
	r = reth_get(b);
	assert_true(r.va == 0x0102030405060708 && r.rkey == 0xdeadbeef && r.len == 0x100001);
	atomiceth_put(b, 1, 2, 3, 4);
	a = atomiceth_get(b);
	assert_true(a.va == 1 && a.rkey == 2 && a.swap_add == 3 && a.compare == 4);
}

static void psns_compare_around_the_circle(void **state)
{
	assert_int_equal(psn_diff(0, 0xffffff), 1);
	assert_int_equal(psn_diff(0xffffff, 0), -1);
	assert_int_equal(psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(psn_diff(5, 5), 0);
	assert_int_equal(psn_add(0xfffffe, 3), 1);
}

static void every_service_has_its_operations_and_no_others(void **state)
{
	unsigned rc = 0, uc = 0, ud = 0, other = 0;

	for (unsigned op = 0; op < 256; op++) {
		unsigned known = ibt_op_lookup((uint8_t)op) != NULL;

		switch (op & IBT_SERVICE_MASK) {
		case IBT_RC:
			rc += known;
			break;
		case IBT_UC:
			uc += known;
			break;
		case IBT_UD:
			ud += known;
			break;
		default:
			other += known;
		}
	}
	assert_int_equal(rc, 23);
	assert_int_equal(uc, 12);
	assert_int_equal(ud, 2);
	assert_int_equal(other, 0);
}

static void timer_and_credit_tables_are_the_specifications(void **state)
{
	assert_int_equal(ibt_rnr_ns(0), 655360000);
	assert_int_equal(ibt_rnr_ns(1), 10000);
	assert_int_equal(ibt_rnr_ns(14), 1280000);
	assert_int_equal(ibt_rnr_ns(31), 491520000);
	assert_int_equal(ibt_timeout_ns(0), 0);
	assert_int_equal(ibt_timeout_ns(14), 67108864);
	assert_int_equal(ibt_credit_decode(0x1f), UINT32_MAX);
	assert_int_equal(ibt_credit_encode(0), 0);
	assert_int_equal(ibt_credit_encode(5), 4);
	assert_int_equal(ibt_credit_encode(1000000), 30);
	for (uint32_t n = 0; n < 40000; n++) {
		uint8_t code = ibt_credit_encode(n);

		assert_true(ibt_credit_decode(code) <= n);
		assert_true(code == 30 || ibt_credit_decode(code + 1) > n);
	}
	assert_int_equal(ibt_credit_encode(UINT32_MAX), 30);
}

/* First and last set START and END; what a message is, and brings at its end, stays. */
static void opcodes_follow_the_place_in_the_message(void **state)
{
	static const uint8_t only[] = {OP_SEND_ONLY, OP_SEND_ONLY_IMM, OP_SEND_ONLY_INV, OP_WRITE_ONLY,
		OP_WRITE_ONLY_IMM, OP_READ_RESP_ONLY};
	const unsigned kind = OPF_SEND | OPF_WRITE | OPF_READ, end = OPF_END | OPF_IMM | OPF_IETH;

	for (unsigned i = 0; i < sizeof(only); i++) {
		unsigned whole = ibt_op_table[only[i]].flags;

		for (unsigned place = 0; place < 4; place++) {
			unsigned f = ibt_op_table[ibt_op_at(only[i], place & 1, place & 2)].flags;

			assert_int_equal(f & kind, whole & kind);
			assert_int_equal(f & OPF_START, place & 1 ? OPF_START : 0);
			assert_int_equal(f & end, place & 2 ? whole & end : 0);
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(bth_is_as_the_specification_draws_it),
		cmocka_unit_test(extension_headers_come_back_as_they_went),
		cmocka_unit_test(psns_compare_around_the_circle),
		cmocka_unit_test(every_service_has_its_operations_and_no_others),
		cmocka_unit_test(opcodes_follow_the_place_in_the_message),
		cmocka_unit_test(timer_and_credit_tables_are_the_specifications),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
