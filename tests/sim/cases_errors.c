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
	assert_int_equal(d->qp[0]->path.flow->in_flight, 0);
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
	assert_int_equal(d->qp[1]->count->not_ready, 1); /* the second, which no check refused */
	assert_int_equal(d->qp[1]->count->dropped, 0);
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

/* Whose address and length together pass the end of the address space reaches nothing (nor its beginning). */
static void address_and_length_never_wrap(void **state)
{
	static const struct forged requests[] = {
		{.op = OP_WRITE_ONLY, .va = UINT64_MAX - 63, .payload = 128, .dma_len = 128},
		{.op = OP_WRITE_FIRST, .va = UINT64_MAX - 63, .payload = MTU, .dma_len = 2 * MTU},
		{.op = OP_READ_REQUEST, .va = UINT64_MAX - 63, .dma_len = 128},
		{.op = OP_READ_REQUEST, .va = UINT64_MAX - 4095, .dma_len = 0x80000000},
		{.op = OP_FETCH_ADD, .va = UINT64_MAX - 7},
	};
	void *low = mem[1], *high = mem[1] + MEM / 2;

	for (unsigned i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		for (int at_zero = 0; at_zero < 2; at_zero++) {
			struct duo *d = duo_new();
			struct hca_mr *mr;
			struct forged f = requests[i];

			duo_connect(d);
			mr = sim_mr(&d->w.node[1], at_zero ? low : high, 4096,
				at_zero ? 0 : UINT64_MAX - 8191); /* ends one page before the end */
			f.rkey = mr->ibv.rkey;
			forge_request(d, f);
			sim_run_idle(&d->w);
			assert_int_equal(naks(d, 1, AETH_NAK | NAK_ACCESS, 0xff), 1);
			assert_int_equal(sent(d, 1, OP_READ_RESP_FIRST) + sent(d, 1, OP_READ_RESP_ONLY), 0);
			hca_mr_dereg(mr);
			duo_end(d);
		}
	}
}

static void region_that_passes_the_end_of_the_address_space_is_refused(void **state)
{
	struct duo *d = duo_new();

	assert_null(hca_mr_reg(d->w.node[1].pd, mem[1], 8192, UINT64_MAX - 4095, SIM_ALL_ACCESS));
	assert_null(hca_mr_reg(d->w.node[1].pd, (void *)(UINTPTR_MAX - 4095), 8192, 0, SIM_ALL_ACCESS));
	duo_end(d);
}

/* ---- in mid message ---- */
static void region_gone_in_mid_write_takes_no_more(void **state)
{
	struct duo *d = duo_new();
	struct hca_mr *mr = sim_mr(&d->w.node[1], mem[1], MEM, (uintptr_t)mem[1]);

	duo_connect(d);
	forge_request(
		d, (struct forged){
			   .op = OP_WRITE_FIRST, .rkey = mr->ibv.rkey, .payload = MTU, .dma_len = 3 * MTU});
	sim_run_idle(&d->w);
	assert_int_equal(mem[1][0], 0xee);
	hca_mr_dereg(mr);
	memset(mem[1], 0, 4 * MTU);
	forge_request(d, (struct forged){.op = OP_WRITE_MIDDLE, .psn = 1, .payload = MTU});
	forge_request(d, (struct forged){.op = OP_WRITE_LAST, .psn = 2, .payload = MTU});
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < 4 * MTU; i++)
		assert_int_equal(mem[1][i], 0);
	assert_int_equal(naks(d, 1, AETH_NAK | NAK_ACCESS, 0xff), 1);
	duo_end(d);
}

/* The receiver's own mistake in the middle of a message: everything on both sides completes once, in order.
 */
static void error_in_mid_message_completes_all_once_and_in_order(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[2];
	struct ibv_recv_wr wr = {.wr_id = 100, .sg_list = sge, .num_sge = 2}, *bad;

	duo_connect(d);
	sge[0] = (struct ibv_sge){(uintptr_t)mem[1] + 65536, 2 * MTU, d->mr[1]->ibv.lkey};
	sge[1] = (struct ibv_sge){(uintptr_t)mem[1], 6 * MTU, d->mr[1]->ibv.lkey ^ 1};
	assert_int_equal(hca_qp_post_recv(d->qp[1], &wr, &bad), 0);
	for (unsigned i = 101; i < 104; i++)
		post_recv(d, 1, i, 131072, 8192);
	post_list(d, 1, IBV_WR_RDMA_WRITE, 1, 64); /* done before the error */
	sim_run_idle(&d->w);
	post_list(d, 0, IBV_WR_SEND, 4, 6 * MTU);
	post_recv(d, 0, 200, 131072, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 1, 0, IBV_WC_SUCCESS);
	expect_wc(d, 1, 100, IBV_WC_LOC_PROT_ERR);
	for (unsigned i = 101; i < 104; i++)
		expect_wc(d, 1, i, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 1);
	expect_wc(d, 0, 0, IBV_WC_REM_OP_ERR);
	for (unsigned i = 1; i < 4; i++)
		expect_wc(d, 0, i, IBV_WC_WR_FLUSH_ERR);
	expect_wc(d, 0, 200, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	duo_end(d);
}

static void to_error(struct hca_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(hca_qp_modify(qp, &attr, IBV_QP_STATE), 0);
}

static void receive_in_hand_is_flushed_once(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post_recv(d, 1, 100, 65536, 8192);
	post_recv(d, 1, 101, 65536, 8192);
	forge_request(d, (struct forged){.op = OP_SEND_FIRST, .payload = MTU});
	sim_run_idle(&d->w);
	expect_none(d, 1);
	to_error(d->qp[1]);
	to_error(d->qp[1]);
	expect_wc(d, 1, 100, IBV_WC_WR_FLUSH_ERR);
	expect_wc(d, 1, 101, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 1);
	duo_end(d);
}

/* ---- twice ---- */
/* Both ends fail, every packet of it comes twice, and the programs call for the error state as well. */
static void errors_that_come_twice_complete_everything_once(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	every_packet_twice(d, 50 * SIM_US);
	for (unsigned side = 0; side < 2; side++) {
		for (unsigned i = 0; i < 3; i++)
			post_recv(d, side, 100 + i, 65536, 64);
	}
	d->mr[0]->ibv.rkey ^= 1;
	d->mr[1]->ibv.rkey ^= 1;
	for (unsigned side = 0; side < 2; side++)
		post_list(d, side, IBV_WR_RDMA_WRITE, 3, 4 * MTU);
	d->mr[0]->ibv.rkey ^= 1;
	d->mr[1]->ibv.rkey ^= 1;
	sim_run_idle(&d->w);
	for (unsigned side = 0; side < 2; side++) {
		struct ibv_wc wc;
		unsigned sends = 0, recvs = 0;

		to_error(d->qp[side]);
		while (hca_cq_take(d->cq[side], &wc, 1)) {
			assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
			if (wc.wr_id < 100)
				assert_int_equal(wc.wr_id, sends++);
			else
				assert_int_equal(wc.wr_id, 100 + recvs++);
		}
		assert_int_equal(sends, 3);
		assert_int_equal(recvs, 3);
		assert_int_equal(events(&d->w.node[side], IBV_EVENT_QP_ACCESS_ERR), 1);
	}
	duo_end(d);
}

/* The WRITE is refused, the response of the READ before it was lost: each gets what is its own. */
static void refusal_behind_a_lost_read_response_is_the_writes_own(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[4];
	struct ibv_send_wr wr[4];

	duo_connect(d);
	for (unsigned i = 0; i < 4; i++) {
		wr[i] = request(d, 0, i == 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge[i], 4096 * i, 64);
		wr[i].wr_id = i;
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
	}
	wr[2].wr.rdma.rkey ^= 1;
	script(d, 1, OP_READ_RESP_ONLY, 0, 9, SIM_LOST);
	post_wr(d->qp[0], wr);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_wc(d, 0, 1, IBV_WC_WR_FLUSH_ERR); /* what it would have read, nobody knows any more */
	expect_wc(d, 0, 2, IBV_WC_REM_ACCESS_ERR);
	expect_wc(d, 0, 3, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	assert_int_equal(d->qp[0]->path.flow->in_flight, 0);
	duo_end(d);
}

/* ---- completion queues that overflow ---- */
/* Side `small` gets a CQ of four entries. */
static struct duo *duo_with_small_cq(unsigned small, enum ibv_qp_type type)
{
	struct duo *d = duo_new();

	hca_cq_destroy(d->cq[small]);
	d->cq[small] = sim_cq(&d->w.node[small], 4);
	d->opts[small].send_cq = d->opts[small].recv_cq = d->cq[small];
	d->opts[0].type = d->opts[1].type = type;
	duo_connect(d);
	return d;
}

static void expect_overrun(struct duo *d, unsigned side)
{
	struct ibv_async_event ev;

	assert_int_equal(hca_async_get(d->w.node[side].ctx, &ev), 0);
	assert_int_equal(ev.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(ev.element.cq, d->cq[side]);
	hca_async_ack(&ev);
	assert_int_equal(events(&d->w.node[side], IBV_EVENT_QP_FATAL), 1);
	assert_int_equal(hca_qp_state(d->qp[side]), IBV_QPS_ERR);
	/* Those that fitted are there, nothing else is. */
	for (unsigned i = 0; i < 4; i++)
		expect_wc(d, side, i, IBV_WC_SUCCESS);
	expect_none(d, side);
	assert_true(list_empty(&d->w.node[side].ctx->async.events));
}

static void receives_that_overflow_their_queue_end_the_queue_pair(void **state)
{
	struct duo *d = duo_with_small_cq(1, IBV_QPT_RC);

	for (unsigned i = 0; i < 8; i++)
		post_recv(d, 1, i, 65536, 64);
	post_list(d, 0, IBV_WR_SEND, 8, 64);
	sim_run_idle(&d->w);
	expect_overrun(d, 1);
	/* The sender learns at once that the fifth was not taken. */
	for (unsigned i = 0; i < 4; i++)
		expect_wc(d, 0, i, IBV_WC_SUCCESS);
	expect_wc(d, 0, 4, IBV_WC_REM_OP_ERR);
	for (unsigned i = 5; i < 8; i++)
		expect_wc(d, 0, i, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(naks(d, 1, AETH_NAK | NAK_OP, 0xff), 1);
	duo_end(d);
}

static void sends_that_overflow_their_queue_end_the_queue_pair(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};

	for (unsigned i = 0; i < 2; i++) {
		struct duo *d = duo_with_small_cq(0, types[i]);

		post_list(d, 0, IBV_WR_RDMA_WRITE, 8, 64);
		sim_run_idle(&d->w);
		expect_overrun(d, 0);
		assert_int_equal(d->qp[0]->sq.tail, d->qp[0]->sq.head);
		duo_end(d);
	}
}

/* A queue pair that was polled in time lives on beside it, on the same queue too. */
static void overflow_of_one_queue_pair_leaves_the_others(void **state)
{
	struct duo *d = duo_with_small_cq(0, IBV_QPT_RC);
	struct hca_qp *other[2];

	duo_more(d, other);
	post_list(d, 0, IBV_WR_RDMA_WRITE, 8, 64);
	sim_run_idle(&d->w);
	expect_overrun(d, 0);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 3, 128, 64, 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 3, IBV_WC_SUCCESS);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(retry_exceeded_flushes_in_order),
		cmocka_unit_test(two_writes_with_a_wrong_key_kill_one_queue_pair_once),
		cmocka_unit_test(region_gone_in_mid_read_is_refused),
		cmocka_unit_test(address_and_length_never_wrap),
		cmocka_unit_test(region_that_passes_the_end_of_the_address_space_is_refused),
		cmocka_unit_test(region_gone_in_mid_write_takes_no_more),
		cmocka_unit_test(error_in_mid_message_completes_all_once_and_in_order),
		cmocka_unit_test(receive_in_hand_is_flushed_once),
		cmocka_unit_test(errors_that_come_twice_complete_everything_once),
		cmocka_unit_test(refusal_behind_a_lost_read_response_is_the_writes_own),
		cmocka_unit_test(receives_that_overflow_their_queue_end_the_queue_pair),
		cmocka_unit_test(sends_that_overflow_their_queue_end_the_queue_pair),
		cmocka_unit_test(overflow_of_one_queue_pair_leaves_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
