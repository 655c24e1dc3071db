/* SPDX-License-Identifier: MIT */
/* iWARP between two ends of ours: what comes before what, who speaks first, and receives that are there, late
 * or not at all. */
#include "iwarp_stage.h"

static void with_crc(struct iwarp_pair *p)
{
	p->side[0].mpa.crc = true;
}

static void small_segments(struct iwarp_pair *p)
{
	p->side[0].mulpdu = p->side[1].mulpdu = 128;
}

static void no_peer_to_peer(struct iwarp_pair *p)
{
	p->side[0].mpa.peer_to_peer = false;
}

static void shallow(struct iwarp_pair *p)
{
	p->side[0].mpa.ord = 2;
	p->side[1].mpa.ird = 2;
}

/* ---- order ---- */
static void completions_are_in_the_order_of_the_requests(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post_recv(p, 1, 9, 0, 100);
	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 4096, 100, 0);
	stage_post(p, 0, IBV_WR_SEND, 2, 0, 100, 0);
	iwarp_side_step(p, 0);
	stage_no_wc(p, 0); /* the SEND has left, but the READ is not answered */
	iwarp_side_step(p, 1);
	stage_wc(p, 1, 9, IBV_WC_SUCCESS);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

static void fence_waits_for_reads(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post_recv(p, 1, 9, 0, 100);
	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 4096, 100, 0);
	stage_post(p, 0, IBV_WR_SEND, 2, 0, 100, IBV_SEND_FENCE);
	iwarp_side_step(p, 0);
	iwarp_side_step(p, 1);
	stage_no_wc(p, 1);
	iwarp_pair_run(p);
	stage_wc(p, 1, 9, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

static void reads_keep_to_the_agreed_depth(void **state)
{
	struct iwarp_pair *p = stage_pair(shallow);

	for (unsigned i = 0; i < 20; i++)
		stage_post(p, 0, i % 3 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, i, i * 512,
			i % 3 ? 300 : 8, 0);
	do {
		struct iwarp_qp *s = iwarp_qp(p->side[1].qp);

		assert_true(iwarp_qp(p->side[0].qp)->tx.reads <= 2);
		assert_true(s->answer_head - s->answer_tail <= 2);
	} while (iwarp_pair_step(p));
	for (unsigned i = 0; i < 20; i++)
		stage_wc(p, 0, i, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

static void a_read_may_be_answered_while_a_large_write_goes_out(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post(p, 1, IBV_WR_RDMA_WRITE, 1, 0, 500000, 0);
	stage_post(p, 0, IBV_WR_RDMA_READ, 2, 600000, 300000, 0);
	iwarp_pair_run(p);
	stage_wc(p, 1, 1, IBV_WC_SUCCESS);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	stage_check_same(p, 0, 0, 500000);
	stage_check_same(p, 600000, 600000, 300000);
	iwarp_pair_free(p);
}

static void drained_queue_says_so(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};

	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 0, 1000, 0);
	iwarp_side_step(p, 0);
	assert_int_equal(hca_qp_modify(p->side[0].qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	stage_post(p, 0, IBV_WR_RDMA_WRITE, 2, 4096, 8, 0);
	assert_int_equal(stage_events(p, 0, IBV_EVENT_SQ_DRAINED), 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(stage_events(p, 0, IBV_EVENT_SQ_DRAINED), 1);
	stage_no_wc(p, 0);
	a.qp_state = IBV_QPS_RTS;
	assert_int_equal(hca_qp_modify(p->side[0].qp, &a, IBV_QP_STATE), 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

/* ---- who speaks first ---- */
static uint8_t kind;

static void one_rtr(struct iwarp_pair *p)
{
	p->side[0].mpa.rtr = kind;
	p->side[1].mpa.ord = p->side[0].mpa.ird = 1;
}

static void set_access(struct iwarp_pair *p, unsigned side, unsigned access)
{
	struct ibv_qp_attr a = {.qp_access_flags = access};

	assert_int_equal(hca_qp_modify(p->side[side].qp, &a, IBV_QP_ACCESS_FLAGS), 0);
}

static void each_kind_of_rtr_lets_the_responder_speak(void **state)
{
	static const uint8_t kinds[] = {MPA_RTR_ZERO, MPA_RTR_WRITE, MPA_RTR_READ};

	for (unsigned k = 0; k < 3; k++) {
		struct iwarp_pair *p;

		kind = kinds[k];
		p = stage_pair(one_rtr);
		set_access(p, 1, 0); /* what asks for nothing needs no right */
		stage_post_recv(p, 0, 7, 0, 64);
		stage_post(p, 1, IBV_WR_SEND, 1, 0, 64, 0);
		iwarp_side_step(p, 1);
		assert_true(iwarp_writer_empty(
			&iwarp_qp(p->side[1].qp)->writer)); /* not before it hears something */
		iwarp_pair_run(p);
		stage_wc(p, 0, 7, IBV_WC_SUCCESS);
		stage_wc(p, 1, 1, IBV_WC_SUCCESS);
		set_access(p, 1, SIM_ALL_ACCESS);
		stage_post(p, 0, IBV_WR_RDMA_READ, 2, 4096, 64, 0);
		stage_post(p, 0, IBV_WR_RDMA_WRITE, 3, 8192, 64, 0);
		iwarp_pair_run(p);
		stage_wc(p, 0, 2, IBV_WC_SUCCESS);
		stage_wc(p, 0, 3, IBV_WC_SUCCESS);
		stage_no_wc(p, 0);
		iwarp_pair_free(p);
	}
}

static void without_peer_to_peer_the_responder_waits(void **state)
{
	struct iwarp_pair *p = stage_pair(no_peer_to_peer);

	stage_post_recv(p, 0, 7, 0, 64);
	stage_post(p, 1, IBV_WR_SEND, 1, 0, 64, 0);
	iwarp_pair_run(p);
	stage_no_wc(p, 0);
	stage_post(p, 0, IBV_WR_RDMA_WRITE, 2, 4096, 0, 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	stage_wc(p, 0, 7, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

static void it_waits_for_a_moment_only(void **state)
{
	struct iwarp_pair *p = stage_pair(no_peer_to_peer);

	stage_post_recv(p, 0, 7, 0, 64);
	stage_post(p, 1, IBV_WR_SEND, 1, 0, 64, 0);
	iwarp_pair_wait(p, IWARP_GRACE / 2);
	stage_no_wc(p, 0);
	iwarp_pair_wait(p, IWARP_GRACE);
	stage_wc(p, 0, 7, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

/* ---- receives ---- */
/* siw sends its reply before it listens to the connection: what comes at once lies there until more comes. */
static void initiator_gives_a_stranger_a_moment(void **state)
{
	for (unsigned rtr = 0; rtr < 2; rtr++) {
		struct iwarp_pair *p = iwarp_pair_new();

		p->side[1].mpa.extended = false;
		p->side[0].mpa.peer_to_peer = rtr;
		iwarp_pair_qps(p);
		assert_true(iwarp_pair_connect(p));
		stage_post_recv(p, 1, 7, 0, 64);
		stage_post(p, 0, IBV_WR_SEND, 1, 0, 64, 0);
		iwarp_pair_wait(p, IWARP_GRACE / 2);
		assert_int_equal(p->side[0].sends, 1); /* MPA's request */
		iwarp_pair_wait(p, IWARP_GRACE);
		stage_wc(p, 1, 7, IBV_WC_SUCCESS);
		iwarp_pair_free(p);
	}
}

static void send_waits_for_a_receive(void **state)
{
	for (unsigned crc = 0; crc < 2; crc++) {
		struct iwarp_pair *p = stage_pair(crc ? with_crc : small_segments);

		stage_post(p, 0, IBV_WR_SEND, 1, 0, 500, 0);
		stage_post(p, 0, IBV_WR_RDMA_WRITE, 2, 4096, 500, 0);
		iwarp_pair_run(p);
		stage_no_wc(p, 1);
		iwarp_pair_wait(p, IWARP_PATIENCE / 2);
		assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_RTS);
		stage_post_recv(p, 1, 7, 0, 500);
		iwarp_pair_run(p);
		assert_int_equal(stage_wc(p, 1, 7, IBV_WC_SUCCESS).byte_len, 500);
		stage_check_same(p, 0, 0, 500);
		stage_check_same(p, 4096, 4096, 500);
		iwarp_pair_wait(p, 2 * IWARP_PATIENCE);
		assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_RTS);
		iwarp_pair_free(p);
	}
}

static void send_that_never_finds_a_receive_ends_the_connection(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 0, 64, 0);
	stage_post(p, 0, IBV_WR_SEND, 2, 0, 64, 0);
	iwarp_side_step(p, 0);
	iwarp_side_step(p, 1);
	iwarp_side_step(p, 1);
	/* The READ's response is lost, so that the SEND, which has left, is not reported yet. */
	p->side[1].out.tail = p->side[1].out.head;
	iwarp_pair_run(p);
	iwarp_pair_wait(p, IWARP_PATIENCE);
	assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
	assert_int_equal(stage_events(p, 1, IBV_EVENT_QP_REQ_ERR), 1);
	stage_wc(p, 0, 1, IBV_WC_WR_FLUSH_ERR);
	stage_wc(p, 0, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	iwarp_pair_free(p);
}

static void queue_pairs_share_an_srq(void **state)
{
	struct iwarp_pair *p = iwarp_pair_new();
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct hca_srq *srq = hca_srq_create(p->side[1].node->ctx, &p->side[1].node->pd->ibv, &init);
	struct ibv_sge sge = {p->side[1].iova, 100, p->side[1].mr->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};

	p->side[1].opts.srq = srq;
	iwarp_pair_qps(p);
	assert_true(iwarp_pair_connect(p));
	assert_int_equal(hca_rq_post(&srq->rq, &wr), 0);
	stage_post(p, 0, IBV_WR_SEND, 1, 0, 100, 0);
	iwarp_pair_run(p);
	stage_wc(p, 1, 5, IBV_WC_SUCCESS);
	stage_check_same(p, 0, 0, 100);
	hca_qp_destroy(p->side[1].qp);
	p->side[1].qp = NULL;
	p->side[1].closed = true;
	assert_int_equal(hca_srq_destroy(srq), 0);
	iwarp_pair_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(completions_are_in_the_order_of_the_requests),
		cmocka_unit_test(fence_waits_for_reads),
		cmocka_unit_test(reads_keep_to_the_agreed_depth),
		cmocka_unit_test(a_read_may_be_answered_while_a_large_write_goes_out),
		cmocka_unit_test(drained_queue_says_so),
		cmocka_unit_test(each_kind_of_rtr_lets_the_responder_speak),
		cmocka_unit_test(without_peer_to_peer_the_responder_waits),
		cmocka_unit_test(it_waits_for_a_moment_only),
		cmocka_unit_test(initiator_gives_a_stranger_a_moment),
		cmocka_unit_test(send_waits_for_a_receive),
		cmocka_unit_test(send_that_never_finds_a_receive_ends_the_connection),
		cmocka_unit_test(queue_pairs_share_an_srq),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
