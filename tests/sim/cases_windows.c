/* SPDX-License-Identifier: MIT */
/* What may be in flight to one process: see hca/flow.h. */
#include "duo.h"

static void paused_receiver_costs_no_packet(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *more[3][2];

	d->opts[0].timeout = 14; /* 67 ms */
	d->opts[0].mtu = d->opts[1].mtu = IBV_MTU_4096;
	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		duo_more(d, more[i]);
	sim_port_buffer(d->w.net, 1, FLOW_RCVBUF);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, MEM);
	for (unsigned i = 0; i < 3; i++)
		post_on(d, more[i][0], 0, IBV_WR_RDMA_WRITE, 0, 0, MEM, 0);
	sim_run(&d->w, 20 * SIM_MS);
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < 4; i++)
		expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	assert_int_equal(sim_count(d->w.net, SIM_OVERRUN), 0);
	assert_int_equal(d->qp[0]->count->retransmits, 0);
	assert_true(sim_port_peak(d->w.net, 1) < FLOW_RCVBUF);
	duo_end(d);
}

/* Datagrams nobody asked an echo for must not keep a window shut that shrank behind them. */
static void datagrams_do_not_shut_the_window_for_ever(void **state)
{
	struct duo *d = duo_new();
	struct sim_qp_opts ud = d->opts[0];
	struct hca_ah *ah = sim_ah(&d->w.node[0], &d->w.node[1]);
	struct hca_qp *qp;

	duo_connect(d);
	ud.type = IBV_QPT_UD;
	qp = d->more[d->nmore++] = sim_qp(&d->w.node[0], &ud);
	sim_connect(qp, &ud, NULL, NULL);
	for (unsigned i = 0; i < 30; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = request(d, 0, IBV_WR_SEND, &sge, 0, MTU), *bad;

		wr.wr.ud.ah = &ah->ibv;
		wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
		assert_int_equal(hca_qp_post_send(qp, &wr, &bad), 0);
	}
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < 30; i++)
		expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	d->qp[0]->path.flow->window = FLOW_WINDOW_MIN;
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	sim_ah_free(ah);
	duo_end(d);
}

/* What a QP that is taken away had in flight is room for others. */
static void destroyed_queue_pair_gives_its_window_back(void **state)
{
	struct duo *d;
	struct hca_qp *other[2];

	d = duo_new();
	duo_connect(d);
	duo_more(d, other);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, MEM);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 1, 0, MEM, 0);
	sim_run(&d->w, SIM_MS);
	hca_qp_destroy(d->qp[0]);
	d->qp[0] = NULL;
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

/* The peer's QP is gone and its requests fill the window; another pair of the same two processes goes on. */
static void healthy_queue_pair_is_not_held_up_by_a_dead_one(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];

	duo_connect(d);
	duo_more(d, other);
	hca_qp_destroy(d->qp[1]);
	d->qp[1] = NULL;
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, MEM);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 1, 0, 4 * MTU, 0);
	post_on(d, other[0], 0, IBV_WR_RDMA_READ, 2, 0, 4 * MTU, 0);
	/* It waits a millisecond for the window of the other, then goes on without it. */
	sim_run(&d->w, sim_now(&d->w) + 2 * SIM_MS);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_RETRY_EXC_ERR);
	duo_end(d);
}

static void local_error_in_mid_message_gives_its_window_back(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[2];
	struct ibv_send_wr wr, *bad;
	struct hca_flow *flow;

	d->opts[0].sge = 2;
	duo_connect(d);
	flow = d->qp[0]->path.flow;
	wr = request(d, 0, IBV_WR_RDMA_WRITE, &sge[0], 0, 16 * MTU);
	sge[1] = (struct ibv_sge){.addr = 4096, .length = 64, .lkey = sge[0].lkey + 1};
	wr.num_sge = 2;
	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, wr.wr_id, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(flow->in_flight, 0);
	duo_end(d);
}

static void read_before_a_refused_write_is_answered(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2], *bad;

	duo_connect(d);
	for (unsigned i = 0; i < 2; i++) {
		wr[i] = request(d, 0, i ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge[i], 0, 4 * MTU);
		wr[i].wr_id = i;
	}
	wr[0].next = &wr[1];
	wr[1].wr.rdma.rkey++;
	assert_int_equal(hca_qp_post_send(d->qp[0], wr, &bad), 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_wc(d, 0, 1, IBV_WC_REM_ACCESS_ERR);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(paused_receiver_costs_no_packet),
		cmocka_unit_test(datagrams_do_not_shut_the_window_for_ever),
		cmocka_unit_test(destroyed_queue_pair_gives_its_window_back),
		cmocka_unit_test(healthy_queue_pair_is_not_held_up_by_a_dead_one),
		cmocka_unit_test(local_error_in_mid_message_gives_its_window_back),
		cmocka_unit_test(read_before_a_refused_write_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
