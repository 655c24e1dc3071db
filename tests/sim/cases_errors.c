/* SPDX-License-Identifier: MIT */
/* Errors: who is told what, in which order, and who lives on. */
#include "duo.h"

static void retry_exceeded_flushes_in_order(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 0, 100 + i, 4096, 64);
	sim_port_cut(d->w.net, 1, true);
	post_list(d, 0, IBV_WR_RDMA_WRITE, 5, 64);
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 0, OP_WRITE_ONLY), 5 + 7); /* once, then seven times the first alone */
	expect_wc(d, 0, 0, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < 5; i++)
		expect_wc(d, 0, i, IBV_WC_WR_FLUSH_ERR);
	for (unsigned i = 0; i < 3; i++)
		expect_wc(d, 0, 100 + i, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	assert_int_equal(d->qp[0]->flow->in_flight, 0);
	assert_int_equal(hca_qp_state(d->qp[0]), IBV_QPS_ERR);
	post(d, 0, IBV_WR_RDMA_WRITE, 5, 0, 64);
	expect_wc(d, 0, 5, IBV_WC_WR_FLUSH_ERR);
	duo_end(d);
}

static void two_writes_with_a_wrong_key_kill_one_queue_pair_once(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];

	duo_connect(d);
	duo_more(d, other);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, 64);
	d->mr[1]->ibv.rkey ^= 1;
	post_list(d, 0, IBV_WR_RDMA_WRITE, 2, 64);
	d->mr[1]->ibv.rkey ^= 1;
	post_recv(d, 1, 50, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_wc(d, 0, 0, IBV_WC_REM_ACCESS_ERR);
	expect_wc(d, 0, 1, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	expect_wc(d, 1, 50, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 1);
	assert_int_equal(naks(d, 1, AETH_NAK | NAK_ACCESS, 0xff), 1);
	assert_int_equal(events(&d->w.node[1], IBV_EVENT_QP_ACCESS_ERR), 1);
	assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 3, 128, 64, 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 3, IBV_WC_SUCCESS);
	duo_end(d);
}

static void region_gone_in_mid_read_is_refused(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 4 * MTU);
	sim_run(&d->w, SIM_MS);
	hca_mr_dereg(d->mr[1]);
	d->mr[1] = sim_mr(&d->w.node[1], mem[1], MEM, (uintptr_t)mem[1]);
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_REM_ACCESS_ERR);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(retry_exceeded_flushes_in_order),
		cmocka_unit_test(two_writes_with_a_wrong_key_kill_one_queue_pair_once),
		cmocka_unit_test(region_gone_in_mid_read_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
