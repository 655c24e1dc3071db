/* SPDX-License-Identifier: MIT */
/* Receivers that are not ready: the RNR NAK, its timer and its count; credits. */
#include "duo.h"

static void rnr_waits_the_timer_the_receiver_named(void **state)
{
	for (unsigned code = 0; code < 32; code++) { /* 0 is the longest: 655 ms */
		struct duo *d = duo_new();
		const struct logged *nak;

		d->opts[1].rnr_timer = code;
		duo_connect(d);
		post(d, 0, IBV_WR_SEND, 1, 0, 64);
		sim_run(&d->w, SIM_US * 20);
		nak = nth(d, 1, OP_ACK, 0);
		assert_int_equal(nak->syndrome, AETH_RNR | code);
		assert_int_equal(sent(d, 0, OP_SEND_ONLY), 1);
		post_recv(d, 1, 9, 4096, 64);
		sim_run_idle(&d->w);
		expect_wc(d, 0, 1, IBV_WC_SUCCESS);
		expect_wc(d, 1, 9, IBV_WC_SUCCESS);
		assert_int_equal(sent(d, 0, OP_SEND_ONLY), 2);
		assert_true(nth(d, 0, OP_SEND_ONLY, 1)->at - nak->arrives == ibt_rnr_ns(code));
		duo_end(d);
	}
}

static void rnr_wait_does_not_hold_up_other_queue_pairs(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];

	d->opts[1].rnr_timer = 0; /* 655 ms */
	duo_connect(d);
	duo_more(d, other);
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	sim_run(&d->w, SIM_MS);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 2, 0, 64, 0);
	sim_run(&d->w, 2 * SIM_MS);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	post_recv(d, 1, 9, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

static void rnr_retry_count_ends_in_its_own_error(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rnr_retry = 3;
	duo_connect(d);
	post(d, 0, IBV_WR_SEND, 0, 0, 64);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64);
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 0, OP_SEND_ONLY), 4);
	expect_wc(d, 0, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_wc(d, 0, 1, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	duo_end(d);
}

/* The peer answers: packets lost between its answers do not add up to a dead connection. */
static void timeouts_between_rnr_naks_do_not_add_up(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].retry = 2;
	duo_connect(d);
	for (unsigned i = 0; i < 10; i++)
		script(d, 0, OP_SEND_ONLY, 2 * i + 1, 2 * i + 1, SIM_LOST); /* every other one */
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	sim_run(&d->w, 60 * SIM_MS);
	expect_none(d, 0);
	assert_true(d->qp[0]->count->timeouts > 7);
	post_recv(d, 1, 9, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

static void out_of_credits_one_message_at_a_time(void **state)
{
	struct duo *d = duo_new();
	unsigned alone = 0;

	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 1, i, 4096 * (i + 1), 64);
	post(d, 0, IBV_WR_SEND, 0, 0, 64);
	sim_run_idle(&d->w);
	assert_int_equal(nth(d, 1, OP_ACK, 0)->syndrome, AETH_ACK | ibt_credit_encode(2));
	post_list(d, 0, IBV_WR_SEND, 8, 64);
	sim_run(&d->w, sim_now(&d->w) + 100 * SIM_US);
	/* Two receives are left: two messages, their acknowledge, then one to see whether there are more. */
	for (unsigned i = 0; i < d->logged; i++)
		alone += d->log[i].from == 0;
	assert_int_equal(alone, 1 + 2 + 1);
	assert_true(nth(d, 0, OP_SEND_ONLY, 3)->at >= nth(d, 1, OP_ACK, 1)->arrives);
	for (unsigned i = 3; i < 9; i++)
		post_recv(d, 1, i, 4096 * (i + 1), 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_all(d, 0, 8);
	expect_all(d, 1, 9);
	duo_end(d);
}

/* What is on its way when credits are told has taken some of them already. */
static void messages_on_their_way_have_their_credits(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 1, i, 4096 * (i + 1), 64);
	post(d, 0, IBV_WR_SEND, 0, 0, 64);
	sim_run_idle(&d->w);
	for (unsigned i = 1; i < 4; i++) {
		post(d, 0, IBV_WR_SEND, i, 0, 64);
		sim_run(&d->w, sim_now(&d->w) + SIM_US); /* each is acknowledged by itself */
	}
	sim_run(&d->w, sim_now(&d->w) + 100 * SIM_US);
	assert_int_equal(nth(d, 1, OP_ACK, 1)->psn, nth(d, 0, OP_SEND_ONLY, 1)->psn);
	assert_int_equal(nth(d, 1, OP_ACK, 1)->syndrome, AETH_ACK | ibt_credit_encode(1));
	assert_true(nth(d, 0, OP_SEND_ONLY, 3)->at >= nth(d, 1, OP_ACK, 2)->arrives);
	post_recv(d, 1, 3, 4096 * 4, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 4);
	expect_all(d, 1, 4);
	duo_end(d);
}

/* Others take from it as well: what one queue pair could promise is nobody's (IBA 9.7.7.2). */
static void shared_receive_queue_promises_no_credits(void **state)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct duo *d = duo_new();
	struct ibv_sge sge = {(uintptr_t)mem[1], 64, d->mr[1]->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1};
	struct hca_srq *srq = hca_srq_create(d->w.node[1].ctx, &d->w.node[1].pd->ibv, &init);

	assert_non_null(srq);
	d->opts[1].srq = srq;
	duo_connect(d);
	assert_int_equal(hca_rq_post(&srq->rq, &wr), 0);
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	post(d, 0, IBV_WR_RDMA_READ, 2, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	assert_int_equal(nth(d, 1, OP_ACK, 0)->syndrome, AETH_ACK | AETH_CREDIT_NONE);
	assert_int_equal(nth(d, 1, OP_READ_RESP_ONLY, 0)->syndrome, AETH_ACK | AETH_CREDIT_NONE);
	hca_qp_destroy(d->qp[1]);
	d->qp[1] = NULL;
	assert_int_equal(hca_srq_destroy(srq), 0);
	duo_end(d);
}

static void rnr_retry_of_seven_goes_on_for_ever(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rnr_retry = 7;
	duo_connect(d);
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	sim_run(&d->w, 400 * SIM_MS);
	assert_true(naks(d, 1, AETH_RNR, AETH_TYPE_MASK) > 2000);
	expect_none(d, 0);
	post_recv(d, 1, 9, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	assert_int_equal(d->qp[0]->count->timeouts, 0);
	duo_end(d);
}

/* WRITE with immediate meets the missing receive at its end; what it wrote before that is written once more.
 */
static void rnr_at_the_end_of_a_write_with_immediate(void **state)
{
	struct duo *d = duo_new();
	struct ibv_wc wc;

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 3 * MTU);
	sim_run(&d->w, 100 * SIM_US);
	assert_int_equal(naks(d, 1, AETH_RNR, AETH_TYPE_MASK), 1);
	assert_int_equal(nth(d, 1, OP_ACK, 0)->psn, 102);
	post_recv(d, 1, 9, 65536, 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 3 * MTU);
	assert_int_equal(sent(d, 0, OP_WRITE_LAST_IMM), 2);
	assert_int_equal(sent(d, 0, OP_WRITE_FIRST), 1); /* only from where the receive was missing */
	assert_memory_equal(mem[0], mem[1], 3 * MTU);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(rnr_waits_the_timer_the_receiver_named),
		cmocka_unit_test(rnr_wait_does_not_hold_up_other_queue_pairs),
		cmocka_unit_test(rnr_retry_count_ends_in_its_own_error),
		cmocka_unit_test(timeouts_between_rnr_naks_do_not_add_up),
		cmocka_unit_test(out_of_credits_one_message_at_a_time),
		cmocka_unit_test(messages_on_their_way_have_their_credits),
		cmocka_unit_test(shared_receive_queue_promises_no_credits),
		cmocka_unit_test(rnr_retry_of_seven_goes_on_for_ever),
		cmocka_unit_test(rnr_at_the_end_of_a_write_with_immediate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
