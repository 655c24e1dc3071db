/* SPDX-License-Identifier: MIT */
/* Golden bytes of DDP and RDMAP headers, and the tables. */
#include "wire/ddp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void headers_are_as_the_rfc_draws_them(void **state)
{
	static const uint8_t tagged[DDP_TAGGED_LEN] = {
		0xc1, 0x40, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8};
	static const uint8_t untagged[DDP_UNTAGGED_LEN] = {
		0x01, 0x46, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 2, 0, 0, 0, 9, 0, 1, 0, 0};
	uint8_t b[DDP_HDR_MAX];
	struct ddp_seg s = {.tagged = true,
		.last = true,
		.opcode = RDMAP_WRITE,
		.stag = 0xdeadbeef,
		.to = 0x0102030405060708};

	assert_int_equal(ddp_put(b, &s), DDP_TAGGED_LEN);
	assert_memory_equal(b, tagged, DDP_TAGGED_LEN);
	s = ddp_get(b);
	assert_true(s.tagged && s.last && s.dv == 1 && s.rv == 1 && s.opcode == RDMAP_WRITE);
	assert_true(s.stag == 0xdeadbeef && s.to == 0x0102030405060708);
	s = (struct ddp_seg){
		.opcode = RDMAP_SEND_SE_INV, .stag = 0x11223344, .qn = 2, .msn = 9, .mo = 0x10000};
	assert_int_equal(ddp_put(b, &s), DDP_UNTAGGED_LEN);
	assert_memory_equal(b, untagged, DDP_UNTAGGED_LEN);
	s = ddp_get(b);
	assert_true(
		!s.tagged && !s.last && s.stag == 0x11223344 && s.qn == 2 && s.msn == 9 && s.mo == 0x10000);
}

static void requests_come_back_as_they_went(void **state)
{
	struct rdmap_read r = {1, 2, 3, 4, 5};
	struct rdmap_atomic a = {RDMAP_CMP_SWAP, 1, 2, 3, 4, 5, 6, 7};
	uint8_t b[RDMAP_ATOMIC_LEN];

	rdmap_read_put(b, &r);
	assert_int_equal(get_be32(b), 1);      /* sink STag */
	assert_int_equal(get_be64(b + 4), 4);  /* sink TO */
	assert_int_equal(get_be32(b + 12), 2); /* size */
	assert_int_equal(get_be32(b + 16), 3); /* source STag */
	assert_int_equal(get_be64(b + 20), 5); /* source TO */
	r = rdmap_read_get(b);
	assert_true(
		r.sink_stag == 1 && r.size == 2 && r.source_stag == 3 && r.sink_to == 4 && r.source_to == 5);
	/* RFC 7306, as tshark dissects it. */
	rdmap_atomic_put(b, &a);
	assert_int_equal(get_be32(b), RDMAP_CMP_SWAP);
	assert_int_equal(get_be32(b + 4), 1);  /* request identifier */
	assert_int_equal(get_be32(b + 8), 2);  /* remote STag */
	assert_int_equal(get_be64(b + 12), 3); /* remote tagged offset */
	assert_int_equal(get_be64(b + 20), 4); /* data to add or swap in, and its mask */
	assert_int_equal(get_be64(b + 28), 5);
	assert_int_equal(get_be64(b + 36), 6); /* data to compare, and its mask */
	assert_int_equal(get_be64(b + 44), 7);
	a = rdmap_atomic_get(b);
	assert_true(a.op == RDMAP_CMP_SWAP && a.id == 1 && a.stag == 2 && a.to == 3);
	assert_true(a.data == 4 && a.data_mask == 5 && a.compare == 6 && a.compare_mask == 7);
}

static void atomics_compute_with_their_masks(void **state)
{
	struct rdmap_atomic add = {.op = RDMAP_FETCH_ADD, .data = 0x01}, cas = {.op = RDMAP_CMP_SWAP,
										 .data = 0xaaaa,
										 .data_mask = UINT64_MAX,
										 .compare = 0x1234,
										 .compare_mask = UINT64_MAX};

	assert_true(rdmap_atomic_result(&add, UINT64_MAX) == 0);
	add.data_mask = 0x80; /* two fields: the lower of 8 bits */
	assert_true(rdmap_atomic_result(&add, 0xff) == 0);
	assert_true(rdmap_atomic_result(&add, 0x1ff) == 0x100);
	assert_true(rdmap_atomic_result(&cas, 0x1234) == 0xaaaa);
	assert_true(rdmap_atomic_result(&cas, 0x1235) == 0x1235);
	cas.compare_mask = 0xff00;
	cas.data_mask = 0x00ff;
	assert_true(rdmap_atomic_result(&cas, 0x1299) == 0x12aa);
}

static void terminate_comes_back_as_it_went(void **state)
{
	struct rdmap_term t = {.layer = 1,
				  .type = 2,
				  .code = 5,
				  .has_len = true,
				  .has_ddp = true,
				  .has_rdmap = true,
				  .len = 0x1234},
			  u;
	uint8_t b[RDMAP_TERM_MAX];

	ddp_put(t.ddp, &(struct ddp_seg){.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 3});
	memset(t.rdmap, 7, sizeof(t.rdmap));
	assert_int_equal(rdmap_term_put(b, &t), RDMAP_TERM_MAX);
	assert_int_equal(get_be32(b), 0x1205e000);
	assert_int_equal(get_be16(b + 4), 0x1234);
	assert_true(rdmap_term_get(b, RDMAP_TERM_MAX, &u));
	assert_int_equal(rdmap_term_error(&u), ERR_DDP_TOO_LONG);
	assert_memory_equal(u.ddp, t.ddp, DDP_UNTAGGED_LEN);
	assert_memory_equal(u.rdmap, t.rdmap, RDMAP_READ_LEN);
	for (uint32_t n = 0; n < RDMAP_TERM_MAX; n++)
		assert_false(rdmap_term_get(b, n, &u));
}

/* As Linux 6.1's siw refuses a READ and a WRITE with a wrong key. */
static void terminate_of_siw_is_understood(void **state)
{
	static const uint8_t read[] = {0x10, 0x00, 0x07, 0x00, 0x00, 0x00, 0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1,
		0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x32, 0xd3,
		0x20, 0x01, 0, 0, 0, 0x55, 0x2a, 0xab, 0xa4, 0x20};
	static const uint8_t write[] = {0x11, 0x00, 0x03, 0x00, 0x00, 0x40, 0xc1, 0x40, 0xeb, 0xd5, 0x52,
		0x01, 0, 0, 0, 0x55, 0x2a, 0xab, 0x63, 0x70};
	struct rdmap_term t;
	struct ddp_seg seg;

	assert_true(rdmap_term_get(read, sizeof(read), &t));
	assert_true(t.has_len && t.has_ddp && t.has_rdmap);
	assert_int_equal(rdmap_term_error(&t), ERR_DDP_LOCAL);
	seg = ddp_get(t.ddp);
	assert_true(seg.opcode == RDMAP_READ_REQUEST && seg.qn == QN_REQUEST);
	assert_int_equal(seg.msn, 0x40); /* which is its size */
	assert_int_equal(rdmap_read_get(t.rdmap).sink_stag, 1);
	assert_int_equal(rdmap_read_get(t.rdmap).source_stag, 0x32d32001);
	assert_true(rdmap_term_get(write, sizeof(write), &t));
	assert_true(t.has_len && t.has_ddp && !t.has_rdmap);
	assert_int_equal(rdmap_term_error(&t), ERR_DDP_STAG);
	assert_int_equal(ddp_get(t.ddp).stag, 0xebd55201);
}

static void every_error_has_a_code_of_its_own(void **state)
{
	for (unsigned i = ERR_NONE + 1; i < RDMAP_ERROR_COUNT; i++) {
		struct rdmap_term t = {.layer = rdmap_errors[i].layer,
			.type = rdmap_errors[i].type,
			.code = rdmap_errors[i].code};

		assert_int_equal(rdmap_term_error(&t), i);
	}
	assert_int_equal(rdmap_term_error(&(struct rdmap_term){.layer = 9}), ERR_NONE);
}

static void operation_rows_are_consistent(void **state)
{
	for (unsigned i = 0; i < RDMAP_OPCODES; i++) {
		const struct rdmap_op *op = &rdmap_ops[i];

		if (!op->name)
			continue;
		assert_int_equal(!!(op->flags & ROF_DATA), !op->len);
		assert_true(op->qn < QN_COUNT);
		assert_true(!(op->flags & (ROF_SE | ROF_INV | ROF_IMM)) || (op->flags & ROF_RECV));
		assert_int_equal(!!(op->flags & ROF_EXT), i >= 8);
	}
}

/* By IANA's registry "Remote Direct Data Placement", typed from there and not from our tables. */
static void numbers_are_those_iana_lists(void **state)
{
	static const char *const operations[] = {"Write", "Read Request", "Read Response", "Send",
		"Send with Invalidate", "Send with SE", "Send with SE and Invalidate", "Terminate",
		"Immediate Data", "Immediate Data with SE", "Atomic Request", "Atomic Response"};
	static const uint8_t queues[] = {0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 1, 3};
	static const uint8_t errors[][3] = {{0, 1, 0}, {0, 1, 1}, {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 1, 9},
		{0, 1, 0xff}, {0, 2, 5}, {0, 2, 6}, {0, 2, 7}, {0, 2, 8}, {0, 2, 9}, {0, 2, 0xff}, {1, 0, 0},
		{1, 1, 0}, {1, 1, 1}, {1, 1, 2}, {1, 1, 3}, {1, 1, 4}, {1, 2, 1}, {1, 2, 2}, {1, 2, 3},
		{1, 2, 4}, {1, 2, 5}, {1, 2, 6}, {2, 0, 1}, {2, 0, 2}, {2, 0, 3}, {2, 0, 4}, {2, 0, 5},
		{2, 0, 6}, {2, 0, 7}};

	for (unsigned i = 0; i < 12; i++) {
		assert_string_equal(rdmap_ops[i].name, operations[i]);
		assert_int_equal(rdmap_ops[i].qn, queues[i]);
	}
	for (unsigned i = 12; i < 15; i++)
		assert_null(rdmap_ops[i].name); /* unassigned */
	assert_int_equal(RDMAP_FETCH_ADD, 0);
	assert_int_equal(RDMAP_CMP_SWAP, 2);
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		struct rdmap_term t = {.layer = errors[i][0], .type = errors[i][1], .code = errors[i][2]};

		assert_int_not_equal(rdmap_term_error(&t), ERR_NONE);
	}
	for (unsigned code = 0; code < 256; code++)
		assert_int_equal(
			rdmap_term_error(&(struct rdmap_term){.code = (uint8_t)code}), ERR_RDMAP_LOCAL);
}

/* The bits beside the opcode are to be ignored (RFC 5040), but where we use one. */
static void reserved_bits_change_no_opcode(void **state)
{
	for (unsigned op = 0; op < 15; op++) {
		uint8_t b[DDP_UNTAGGED_LEN] = {0x41, (uint8_t)(0x70 | op)};

		assert_int_equal(ddp_get(b).opcode, op);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_those_iana_lists),
		cmocka_unit_test(reserved_bits_change_no_opcode),
		cmocka_unit_test(headers_are_as_the_rfc_draws_them),
		cmocka_unit_test(requests_come_back_as_they_went),
		cmocka_unit_test(atomics_compute_with_their_masks),
		cmocka_unit_test(terminate_comes_back_as_it_went),
		cmocka_unit_test(terminate_of_siw_is_understood),
		cmocka_unit_test(every_error_has_a_code_of_its_own),
		cmocka_unit_test(operation_rows_are_consistent),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
