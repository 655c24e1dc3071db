/* SPDX-License-Identifier: MIT */
/* How many READs and atomics may be under way, and what waits for them. */
#include "duo.h"

static void read_depth_is_never_exceeded(void **state)
{
	struct duo *d = duo_new();
	int out = 0, most = 0;

	d->opts[0].rd_atomic = 3;
	duo_connect(d);
	post_list(d, 0, IBV_WR_RDMA_READ, 20, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 20);
	for (unsigned i = 0; i < d->logged; i++) {
		out += d->log[i].op == OP_READ_REQUEST;
		out -= d->log[i].op == OP_READ_RESP_ONLY;
		most = out > most ? out : most;
	}
	assert_int_equal(most, 3);
	duo_end(d);
}

/* However many old READs come again at once, a new one is not refused because of them. */
static void duplicate_reads_do_not_crowd_out_new_ones(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rd_atomic = 16;
	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 40; i++)
		forge(d, 0, 0, 1, nth(d, 0, OP_READ_REQUEST, 0)->bytes, BTH_LEN + RETH_LEN);
	post_list(d, 0, IBV_WR_RDMA_READ, 16, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 16);
	assert_memory_equal(mem[0], mem[1], 16 * 64);
	duo_end(d);
}

static void fence_waits_for_reads(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 64);
	post_on(d, d->qp[0], 0, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_FENCE);
	post_on(d, d->qp[0], 0, IBV_WR_RDMA_WRITE, 2, 128, 64, 0);
	sim_run_idle(&d->w);
	expect_all(d, 0, 3);
	assert_true(nth(d, 0, OP_WRITE_ONLY, 0)->at >= nth(d, 1, OP_READ_RESP_ONLY, 0)->arrives);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_depth_is_never_exceeded),
		cmocka_unit_test(duplicate_reads_do_not_crowd_out_new_ones),
		cmocka_unit_test(fence_waits_for_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
