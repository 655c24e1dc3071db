/* SPDX-License-Identifier: MIT */
/* Retries that run out, receivers that are not ready, and what becomes of everything that was posted. */
#include "fixture.h"

#include <errno.h>
#include <string.h>

static void pair_with(struct vt *t, const struct vt_conn *c, struct vt_ep **a, struct vt_ep **b)
{
	*a = vt_ep(t);
	*b = vt_ep(t);
	vt_connect(*a, *b, c);
}

static const struct {
	enum ibv_wr_opcode op;
	uint32_t len;
} needs_recv[] = {
	{IBV_WR_SEND, 0},
	{IBV_WR_SEND, 100},
	{IBV_WR_SEND, 10000},
	{IBV_WR_SEND_WITH_IMM, 100},
	{IBV_WR_RDMA_WRITE_WITH_IMM, 0},
	{IBV_WR_RDMA_WRITE_WITH_IMM, 10000},
};

static void without_a_receive_and_without_patience_it_fails(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);

	vt_need("MODIFY");
	c.rnr_retry = 0;
	for (size_t i = 0; i < ARRAY_LEN(needs_recv); i++) {
		struct vt_ep *a, *b;

		pair_with(t, &c, &a, &b);
		vt_post(a, .op = needs_recv[i].op, .id = 1, .len = needs_recv[i].len, .to = b);
		vt_expect(a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		assert_int_equal(vt_state(a->qp), IBV_QPS_ERR);
		/* Being not ready is no error of the receiver's. */
		assert_int_equal(vt_state(b->qp), IBV_QPS_RTS);
	}
}

static void sender_waits_the_time_the_receiver_named(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);
	struct vt_ep *a, *b;
	double before;

	vt_need("MODIFY");
	c.rnr_retry = 3;
	c.min_rnr = 20; /* 10.24 ms */
	pair_with(t, &c, &a, &b);
	before = vt_now();
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100);
	vt_expect(a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_true(vt_now() - before >= 3 * 0.01024);
}

static void receive_posted_late_is_found(void **state)
{
	struct vt *t = *state;
	struct vt_ep *c, *d;

	vt_need("ACK");
	vt_pair(t, IBV_QPT_RC, &c, &d);
	for (size_t i = 0; i < ARRAY_LEN(needs_recv); i++) {
		struct vt_ep *a, *b;

		pair_with(t, NULL, &a, &b);
		vt_fill(a->buf, needs_recv[i].len, i);
		vt_post(a, .op = needs_recv[i].op, .id = 1, .len = needs_recv[i].len, .to = b);
		for (int k = 0; k < 100; k++)
			vt_ping_pong(c, d);
		vt_cq_is_empty(a);
		vt_recv(b, 2, 0, 10000);
		vt_ok(a, 1);
		assert_int_equal(vt_ok(b, 2).byte_len, needs_recv[i].len);
		vt_check(b->buf, needs_recv[i].len, i);
	}
}

static void waiting_for_a_receive_holds_up_nobody_else(void **state)
{
	struct vt *t = *state;
	struct vt_conn slow = vt_conn(t);
	struct vt_ep *a, *b, *c, *d;
	double before;

	vt_need("ACK");
	slow.min_rnr = 0; /* 655 ms */
	pair_with(t, &slow, &a, &b);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100);
	before = vt_now();
	for (int i = 0; i < 50; i++)
		vt_ping_pong(c, d);
	if (vt_now() - before < 0.6)
		vt_cq_is_empty(a);
	vt_recv(b, 2, 0, 100);
	vt_ok(a, 1);
	vt_ok(b, 2);
}

/* Many messages, each finding no receive at first: order and contents survive the going back. */
static void every_message_may_find_the_receiver_unready(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);
	struct vt_ep *a, *b;

	c.min_rnr = 1; /* 0.01 ms */
	pair_with(t, &c, &a, &b);
	for (int i = 0; i < 50; i++) {
		vt_fill(a->buf + i * 1000, 1000, i);
		vt_post(a, .op = i % 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, .id = i, .off = i * 1000,
			.len = 1000, .imm = i);
	}
	for (int i = 0; i < 50; i++) {
		vt_recv(b, i, 0, 1000);
		vt_ok(b, i);
		vt_check(b->buf, 1000, i);
		vt_ok(a, i);
	}
}

static struct vt_conn impatient(struct vt *t)
{
	struct vt_conn c = vt_conn(t);

	c.timeout = 10; /* 4.2 ms */
	c.retry = 1;
	return c;
}

static void peer_destroyed(struct vt_ep *b)
{
	vt_ep_drop_qp(b);
}

static void peer_reset(struct vt_ep *b)
{
	assert_int_equal(vt_modify_state(b->qp, IBV_QPS_RESET), 0);
}

static void peer_in_error(struct vt_ep *b)
{
	assert_int_equal(vt_modify_state(b->qp, IBV_QPS_ERR), 0);
}

static void silence_exhausts_the_retries(void **state)
{
	static void (*const silence[])(struct vt_ep *) = {peer_destroyed, peer_reset, peer_in_error};
	static const enum ibv_wr_opcode op[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct vt *t = *state;
	struct vt_conn c = impatient(t);

	vt_need("MODIFY");
	for (size_t i = 0; i < ARRAY_LEN(silence); i++) {
		for (size_t k = 0; k < ARRAY_LEN(op); k++) {
			struct vt_ep *a, *b;
			double before;

			pair_with(t, NULL, &a, &b);
			vt_ping_pong(a, b); /* its peer has been there */
			assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RESET), 0);
			assert_int_equal(vt_modify_state(b->qp, IBV_QPS_RESET), 0);
			vt_connect(a, b, &c); /* nothing must arrive in so little time on a busy machine */
			silence[i](b);
			before = vt_now();
			vt_post(a, .op = op[k], .id = 1, .len = 10000, .to = b);
			vt_post(a, .op = op[k], .id = 2, .len = 10000, .to = b);
			vt_expect(a, 1, IBV_WC_RETRY_EXC_ERR);
			assert_true(vt_now() - before >= 0.0042);
			vt_expect(a, 2, IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(vt_state(a->qp), IBV_QPS_ERR);
		}
	}
}

static void nobody_at_that_number_exhausts_the_retries(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = impatient(t);
	struct vt_ep *a = vt_ep(t);
	struct vt_addr to = vt_addr(a);

	vt_need("MODIFY");
	to.qpn = (to.qpn + 0x1234) & 0xffffff;
	vt_init(a, &c);
	vt_rtr(a, &to, &c);
	vt_rts(a, &c);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 1);
	vt_expect(a, 1, IBV_WC_RETRY_EXC_ERR);
}

/*
 * The peer comes back in time: not yet ready to receive when the request was posted, ready before the retries
 * run out.
 */
static void peer_that_comes_late_is_reached_by_a_retry(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t), back;
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t), *x, *y;
	struct vt_addr to_a = vt_addr(a), to_b = vt_addr(b);

	vt_need("MODIFY");
	c.timeout = 16; /* 0.27 s: the first retry ends the test */
	back = c;
	back.psn_out = c.psn_in;
	back.psn_in = c.psn_out;
	vt_pair(t, IBV_QPT_RC, &x, &y);
	vt_init(a, &c);
	vt_rtr(a, &to_b, &c);
	vt_rts(a, &c);
	vt_init(b, &back);
	vt_recv(b, 2, 0, 5000);
	vt_fill(a->buf, 5000, 3);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 5000);
	vt_ping_pong(x, y);
	vt_cq_is_empty(a);
	vt_rtr(b, &to_a, &back);
	vt_ok(b, 2);
	vt_ok(a, 1);
	vt_check(b->buf, 5000, 3);
}

/* IBA 10.7.3: the failed request says why, those before it are done, those after it are flushed, each once.
 */
static void all_that_was_posted_completes_once_and_in_order(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_need("ACK");
	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int i = 0; i < 30; i++)
		vt_recv(b, 100 + i, 0, 4096);
	for (int i = 0; i < 30; i++)
		vt_recv(a, 200 + i, 0, 4096);
	for (int i = 0; i < 40; i++)
		vt_post(a, .op = i % 3 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, .id = i, .len = 2000,
			.to = i == 15 ? NULL : b, .quiet = i > 15 && i % 2);
	for (int i = 0; i < 15; i++)
		vt_ok(a, i);
	vt_expect(a, 15, IBV_WC_REM_ACCESS_ERR);
	/* Sends and receives share the CQ: each queue keeps its own order. An unsignalled one is flushed too.
	 */
	for (int sends = 16, recvs = 200; sends < 40 || recvs < 230;) {
		struct ibv_wc wc = vt_wait(a);

		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, a->qp->qp_num);
		assert_int_equal(wc.wr_id, wc.wr_id < 100 ? sends : recvs);
		*(wc.wr_id < 100 ? &sends : &recvs) += 1;
	}
	for (int i = 0; i < 10; i++)
		vt_ok(b, 100 + i);
	for (int i = 10; i < 30; i++)
		vt_expect(b, 100 + i, IBV_WC_WR_FLUSH_ERR);
	vt_cq_is_empty(a);
	vt_cq_is_empty(b);
}

static void posting_after_the_end_is_flushed_too(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_ERR), 0);
	for (int i = 0; i < 10; i++) {
		vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 10);
		vt_expect(a, i, IBV_WC_WR_FLUSH_ERR);
		vt_recv(a, i, 0, 10);
		vt_expect(a, i, IBV_WC_WR_FLUSH_ERR);
	}
	vt_cq_is_empty(a);
}

/* Requests are on their way, others wait, receives are posted; then the program itself ends the QP. */
static void moving_to_error_flushes_what_is_on_its_way(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_need("ACK");
	for (int round = 0; round < 20; round++) {
		int done = 0;

		vt_pair(t, IBV_QPT_RC, &a, &b);
		for (int i = 0; i < 30; i++)
			vt_recv(a, 200 + i, 0, 10);
		for (int i = 0; i < 40; i++)
			vt_post(a, .op = i == 20 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, .id = i, .len = 5000,
				.to = b);
		for (int i = 0; i < round % 7; i++)
			vt_ok(a, done++);
		assert_int_equal(vt_modify_state(a->qp, IBV_QPS_ERR), 0);
		for (int sends = done, recvs = 200; sends < 40 || recvs < 230;) {
			struct ibv_wc wc = vt_wait(a);

			assert_int_equal(wc.wr_id, wc.wr_id < 100 ? sends : recvs);
			if (wc.wr_id >=
				20) /* the SEND found no receive, so it and all after it cannot succeed */
				assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
			*(wc.wr_id < 100 ? &sends : &recvs) += 1;
		}
		vt_cq_is_empty(a);
		vt_ep_close(b);
		vt_ep_close(a);
	}
}

/* The QP dies once, the completions come for both, the owner of the memory hears of it once. */
static void two_bad_writes_in_a_row_kill_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c, *d;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	vt_post(a, .op = vt_refusable(), .id = 1, .len = 8, .raddr = 8, .rkey = 0xbad);
	vt_post(a, .op = vt_refusable(), .id = 2, .len = 8, .raddr = 8, .rkey = 0xbad);
	vt_expect(a, 1, IBV_WC_REM_ACCESS_ERR);
	vt_expect(a, 2, IBV_WC_WR_FLUSH_ERR);
	vt_expect_async(t, IBV_EVENT_QP_ACCESS_ERR, b->qp);
	vt_ping_pong(c, d);
	vt_no_async(t);
	vt_cq_is_empty(a);
	vt_cq_is_empty(b);
}

static void connection_can_be_made_anew_after_an_error(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t);

	for (int i = 0; i < 10; i++) {
		vt_connect(a, b, NULL);
		vt_ping_pong(a, b);
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = 8, .raddr = 8, .rkey = 0xbad);
		vt_expect(a, 1, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RESET), 0);
		assert_int_equal(vt_modify_state(b->qp, IBV_QPS_RESET), 0);
	}
}

static const struct CMUnitTest tests[] = {
	VT_TEST(without_a_receive_and_without_patience_it_fails),
	VT_TEST(sender_waits_the_time_the_receiver_named),
	VT_TEST(receive_posted_late_is_found),
	VT_TEST(waiting_for_a_receive_holds_up_nobody_else),
	VT_TEST(every_message_may_find_the_receiver_unready),
	VT_TEST(silence_exhausts_the_retries),
	VT_TEST(nobody_at_that_number_exhausts_the_retries),
	VT_TEST(peer_that_comes_late_is_reached_by_a_retry),
	VT_TEST(all_that_was_posted_completes_once_and_in_order),
	VT_TEST(posting_after_the_end_is_flushed_too),
	VT_TEST(moving_to_error_flushes_what_is_on_its_way),
	VT_TEST(two_bad_writes_in_a_row_kill_once),
	VT_TEST(connection_can_be_made_anew_after_an_error),
};

VT_MAIN("flush", tests, NULL)
