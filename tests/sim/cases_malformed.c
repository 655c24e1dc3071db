/* SPDX-License-Identifier: MIT */
/* Packets that are wrong in themselves or out of place. */
#include "duo.h"

/* ---- refused: NAK, invalid request ---- */
struct wrong {
	const char *what;
	struct forged before; /* sent first, and right, when it has a payload */
	struct forged packet;
};

#define FIRST_OF_SEND                                                                                        \
	{                                                                                                    \
		.op = OP_SEND_FIRST, .payload = MTU                                                          \
	}
#define FIRST_OF_WRITE                                                                                       \
	{                                                                                                    \
		.op = OP_WRITE_FIRST, .payload = MTU, .dma_len = 2 * MTU + 4                                 \
	}
#define NEXT(o, ...)                                                                                         \
	{                                                                                                    \
		.op = o, .psn = 1, __VA_ARGS__                                                               \
	}

static void expect_refused(const struct wrong *c)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];
	struct ibv_wc wc;

	duo_connect(d);
	duo_more(d, other);
	post_recv(d, 1, 9, 65536, 8192);
	if (c->before.payload)
		forge_request(d, c->before);
	forge_request(d, c->packet);
	sim_run_idle(&d->w);
	if (naks(d, 1, AETH_NAK | NAK_INV_REQ, 0xff) != 1 || hca_qp_state(d->qp[1]) != IBV_QPS_ERR)
		fail_msg("not refused: %s", c->what);
	/* The receive completes once, as the one in hand or as one of those behind it. */
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.wr_id, 9);
	assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	expect_none(d, 1);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 3, 128, 64, 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 3, IBV_WC_SUCCESS);
	duo_end(d);
}

static void expect_all_refused(const struct wrong *c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		expect_refused(&c[i]);
}

static void packets_without_a_first_are_refused(void **state)
{
	static const struct wrong cases[] = {
		{"SEND_MIDDLE", {0}, {.op = OP_SEND_MIDDLE, .payload = MTU}},
		{"SEND_LAST", {0}, {.op = OP_SEND_LAST, .payload = 64}},
		{"SEND_LAST_IMM", {0}, {.op = OP_SEND_LAST_IMM, .payload = 64}},
		{"SEND_LAST_INV", {0}, {.op = OP_SEND_LAST_INV, .payload = 64}},
		{"WRITE_MIDDLE", {0}, {.op = OP_WRITE_MIDDLE, .payload = MTU}},
		{"WRITE_LAST", {0}, {.op = OP_WRITE_LAST, .payload = 64}},
		{"WRITE_LAST_IMM", {0}, {.op = OP_WRITE_LAST_IMM, .payload = 64}},
	};

	expect_all_refused(cases, sizeof(cases) / sizeof(cases[0]));
}

/* The receive of a message that is complete is the program's: nothing more goes there. */
static void packets_behind_a_whole_message_are_refused(void **state)
{
	static const uint8_t ops[] = {OP_SEND_MIDDLE, OP_SEND_LAST};
	uint8_t before[2 * MTU];

	for (unsigned i = 0; i < sizeof(ops); i++) {
		struct duo *d = duo_new();

		duo_connect(d);
		post_recv(d, 1, 9, 65536, 8192);
		forge_request(d, (struct forged){.op = OP_SEND_ONLY, .payload = 64});
		sim_run_idle(&d->w);
		expect_wc(d, 1, 9, IBV_WC_SUCCESS);
		memcpy(before, mem[1] + 65536, sizeof(before));
		forge_request(d, (struct forged){.op = ops[i], .psn = 1, .payload = MTU});
		sim_run_idle(&d->w);
		assert_int_equal(naks(d, 1, AETH_NAK | NAK_INV_REQ, 0xff), 1);
		assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
		expect_none(d, 1);
		assert_memory_equal(mem[1] + 65536, before, sizeof(before));
		duo_end(d);
	}
}

static void another_message_inside_a_message_is_refused(void **state)
{
	static const struct wrong cases[] = {
		{"WRITE_MIDDLE in SEND", FIRST_OF_SEND, NEXT(OP_WRITE_MIDDLE, .payload = MTU)},
		{"WRITE_LAST in SEND", FIRST_OF_SEND, NEXT(OP_WRITE_LAST, .payload = 64)},
		{"WRITE_ONLY in SEND", FIRST_OF_SEND, NEXT(OP_WRITE_ONLY, .payload = 64, .dma_len = 64)},
		{"SEND_FIRST in SEND", FIRST_OF_SEND, NEXT(OP_SEND_FIRST, .payload = MTU)},
		{"SEND_ONLY in SEND", FIRST_OF_SEND, NEXT(OP_SEND_ONLY, .payload = 64)},
		{"READ in SEND", FIRST_OF_SEND, NEXT(OP_READ_REQUEST, .dma_len = 64)},
		{"atomic in SEND", FIRST_OF_SEND, NEXT(OP_FETCH_ADD)},
		{"SEND_MIDDLE in WRITE", FIRST_OF_WRITE, NEXT(OP_SEND_MIDDLE, .payload = MTU)},
		{"SEND_LAST in WRITE", FIRST_OF_WRITE, NEXT(OP_SEND_LAST, .payload = 64)},
		{"SEND_ONLY in WRITE", FIRST_OF_WRITE, NEXT(OP_SEND_ONLY, .payload = 64)},
		{"WRITE_FIRST in WRITE", FIRST_OF_WRITE,
			NEXT(OP_WRITE_FIRST, .payload = MTU, .dma_len = 2 * MTU)},
		{"WRITE_ONLY in WRITE", FIRST_OF_WRITE, NEXT(OP_WRITE_ONLY, .payload = 64, .dma_len = 64)},
		{"READ in WRITE", FIRST_OF_WRITE, NEXT(OP_READ_REQUEST, .dma_len = 64)},
		{"atomic in WRITE", FIRST_OF_WRITE, NEXT(OP_CMP_SWAP)},
	};

	expect_all_refused(cases, sizeof(cases) / sizeof(cases[0]));
}

static void packets_of_a_wrong_size_are_refused(void **state)
{
	static const struct wrong cases[] = {
		{"SEND_FIRST below the MTU", {0}, {.op = OP_SEND_FIRST, .payload = MTU - 4}},
		{"SEND_FIRST above the MTU", {0}, {.op = OP_SEND_FIRST, .payload = MTU + 4}},
		{"SEND_FIRST with pad", {0}, {.op = OP_SEND_FIRST, .payload = MTU, .pad = 1}},
		{"SEND_FIRST empty", {0}, {.op = OP_SEND_FIRST}},
		{"SEND_MIDDLE below the MTU", FIRST_OF_SEND, NEXT(OP_SEND_MIDDLE, .payload = MTU - 4)},
		{"SEND_MIDDLE above the MTU", FIRST_OF_SEND, NEXT(OP_SEND_MIDDLE, .payload = MTU + 4)},
		{"SEND_LAST above the MTU", FIRST_OF_SEND, NEXT(OP_SEND_LAST, .payload = MTU + 4)},
		{"SEND_LAST empty", FIRST_OF_SEND, NEXT(OP_SEND_LAST)},
		{"SEND_LAST_IMM empty", FIRST_OF_SEND, NEXT(OP_SEND_LAST_IMM)},
		{"SEND_LAST_INV empty", FIRST_OF_SEND, NEXT(OP_SEND_LAST_INV)},
		{"SEND_ONLY above the MTU", {0}, {.op = OP_SEND_ONLY, .payload = MTU + 4}},
		{"WRITE_FIRST below the MTU", {0},
			{.op = OP_WRITE_FIRST, .payload = MTU - 4, .dma_len = 2 * MTU}},
		{"WRITE_FIRST above the MTU", {0},
			{.op = OP_WRITE_FIRST, .payload = MTU + 4, .dma_len = 2 * MTU}},
		{"WRITE_MIDDLE below the MTU", FIRST_OF_WRITE, NEXT(OP_WRITE_MIDDLE, .payload = MTU - 4)},
		{"WRITE_MIDDLE above the MTU", FIRST_OF_WRITE, NEXT(OP_WRITE_MIDDLE, .payload = MTU + 4)},
		{"WRITE_LAST empty", FIRST_OF_WRITE, NEXT(OP_WRITE_LAST)},
		{"WRITE_LAST_IMM empty", FIRST_OF_WRITE, NEXT(OP_WRITE_LAST_IMM)},
		{"WRITE_ONLY above the MTU", {0},
			{.op = OP_WRITE_ONLY, .payload = MTU + 4, .dma_len = MTU + 4}},
		{"READ with a payload", {0}, {.op = OP_READ_REQUEST, .payload = 4, .dma_len = 64}},
		{"atomic with a payload", {0}, {.op = OP_FETCH_ADD, .payload = 8}},
	};

	expect_all_refused(cases, sizeof(cases) / sizeof(cases[0]));
}

static void writes_of_another_length_than_they_said_are_refused(void **state)
{
	static const struct wrong cases[] = {
		{"ONLY, less than said", {0}, {.op = OP_WRITE_ONLY, .payload = 64, .dma_len = 65}},
		{"ONLY, more than said", {0}, {.op = OP_WRITE_ONLY, .payload = 64, .dma_len = 63}},
		{"FIRST, more than said", {0}, {.op = OP_WRITE_FIRST, .payload = MTU, .dma_len = MTU - 1}},
		{"LAST, too early", FIRST_OF_WRITE, NEXT(OP_WRITE_LAST, .payload = 64)},
		{"LAST, more than said", {.op = OP_WRITE_FIRST, .payload = MTU, .dma_len = MTU + 4},
			NEXT(OP_WRITE_LAST, .payload = 8)},
		{"MIDDLE, more than said", {.op = OP_WRITE_FIRST, .payload = MTU, .dma_len = MTU + 4},
			NEXT(OP_WRITE_MIDDLE, .payload = MTU)},
		{"ONLY, above 2 GiB", {0}, {.op = OP_WRITE_ONLY, .payload = 64, .dma_len = 0x80000001}},
		{"FIRST, above 2 GiB", {0}, {.op = OP_WRITE_FIRST, .payload = MTU, .dma_len = 0xffffffff}},
		{"READ, above 2 GiB", {0}, {.op = OP_READ_REQUEST, .dma_len = 0x80000001}},
	};

	expect_all_refused(cases, sizeof(cases) / sizeof(cases[0]));
}

/* ---- dropped without a word ---- */
static void expect_nothing_said(struct duo *d)
{
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < d->logged; i++)
		assert_int_equal(d->log[i].from, 0);
	expect_none(d, 1);
	expect_alive(d);
}

static bool is_ours(unsigned op)
{
	return op == OPCODE_ECHO_REQUEST || op == OPCODE_ECHO_REPLY || op == OPCODE_INDEX;
}

static void opcodes_of_no_meaning_here_are_dropped(void **state)
{
	struct duo *d = duo_new();
	unsigned n = 0;

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	for (unsigned op = 0; op < 256; op++) {
		if ((ibt_op_lookup((uint8_t)op) && (op & IBT_SERVICE_MASK) == IBT_RC) || is_ours(op))
			continue; /* reserved ones of RC, all of UC, RD, UD and XRC, other makers' */
		forge_request(d, (struct forged){.op = (uint8_t)op, .payload = 64});
		n++;
	}
	expect_nothing_said(d);
	assert_int_equal(d->qp[1]->count->dropped, n);
	duo_end(d);
}

static void packets_shorter_than_their_headers_are_dropped(void **state)
{
	struct duo *d = duo_new();
	unsigned n = 0;

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	for (uint8_t op = 0; op < OP_COUNT; op++) {
		for (uint32_t cut = 4; ibt_op_lookup(op) && cut <= ibt_op_table[op].ext_len; cut += 4, n++)
			forge_request(d, (struct forged){.op = op, .cut = cut});
	}
	assert_true(n > OP_COUNT);
	expect_nothing_said(d);
	assert_int_equal(d->qp[1]->count->dropped, n);
	duo_end(d);
}

/* What is no multiple of four long, or has no room for a BTH, is no packet at all. */
static void packets_of_odd_length_are_dropped_and_counted(void **state)
{
	struct duo *d = duo_new();
	unsigned n = 0;

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	for (uint32_t cut = 1; cut < BTH_LEN + 16; cut++) {
		if (cut % 4 || cut > 16) {
			forge_request(d, (struct forged){.op = OP_SEND_ONLY, .payload = 16, .cut = cut});
			n++;
		}
	}
	expect_nothing_said(d);
	assert_int_equal(d->w.node[1].adapter.count->bad_length, n);
	duo_end(d);
}

static void pad_larger_than_the_payload_is_dropped(void **state)
{
	struct duo *d = duo_new();
	unsigned n = 0;

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	for (uint8_t op = 0; op < OP_COUNT; op++) {
		for (uint8_t pad = 1; ibt_op_lookup(op) && pad < 4; pad++, n++)
			forge_request(d, (struct forged){.op = op, .pad = pad});
	}
	expect_nothing_said(d);
	assert_int_equal(d->qp[1]->count->dropped, n);
	duo_end(d);
}

static void another_header_version_is_dropped(void **state)
{
	struct duo *d = duo_new();
	uint8_t p[BTH_LEN];

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	for (unsigned version = 1; version < 16; version++) {
		bth_put(p, OP_SEND_ONLY, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), true, d->opts[0].psn);
		p[1] |= (uint8_t)version;
		forge(d, 0, 0, 1, p, sizeof(p));
	}
	expect_nothing_said(d);
	assert_int_equal(d->qp[1]->count->dropped, 15);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_without_a_first_are_refused),
		cmocka_unit_test(packets_behind_a_whole_message_are_refused),
		cmocka_unit_test(another_message_inside_a_message_is_refused),
		cmocka_unit_test(packets_of_a_wrong_size_are_refused),
		cmocka_unit_test(writes_of_another_length_than_they_said_are_refused),
		cmocka_unit_test(opcodes_of_no_meaning_here_are_dropped),
		cmocka_unit_test(packets_shorter_than_their_headers_are_dropped),
		cmocka_unit_test(packets_of_odd_length_are_dropped_and_counted),
		cmocka_unit_test(pad_larger_than_the_payload_is_dropped),
		cmocka_unit_test(another_header_version_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
