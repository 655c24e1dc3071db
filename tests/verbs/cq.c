/* SPDX-License-Identifier: MIT */
/* Completion queues: polling, resizing, overflow, and several QPs on one queue. */
#include "fixture.h"

#include <errno.h>
#include <string.h>

static void polling_takes_no_more_than_asked(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_wc wc[16];
	int got = 0, n;
	double end = vt_deadline();

	vt_pair(t, IBV_QPT_RC, &a, &b);
	assert_int_equal(ibv_poll_cq(a->cq, 0, wc), 0);
	for (int i = 0; i < 10; i++)
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = i, .len = 10, .to = b);
	while (got < 10 && vt_now() < end) {
		n = ibv_poll_cq(a->cq, 3, wc);
		assert_true(n >= 0 && n <= 3);
		for (int i = 0; i < n; i++)
			assert_int_equal(wc[i].wr_id, got++);
	}
	assert_int_equal(got, 10);
	assert_int_equal(ibv_poll_cq(a->cq, 16, wc), 0);
}

static void sends_and_receives_may_have_queues_of_their_own(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b = vt_ep(t);
	struct ibv_cq *rcq = ibv_create_cq(t->ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr ia;

	a = vt_ep(t);
	ia = (struct ibv_qp_init_attr){
		.send_cq = a->cq, .recv_cq = rcq, .qp_type = IBV_QPT_RC, .cap = a->cap};
	vt_ep_drop_qp(a);
	a->qp = ibv_create_qp(a->pd, &ia);
	assert_non_null(a->qp);
	vt_connect(a, b, NULL);
	vt_recv(a, 1, 0, 10);
	vt_recv(b, 2, 0, 10);
	vt_post(a, .op = IBV_WR_SEND, .id = 3, .len = 10);
	vt_post(b, .op = IBV_WR_SEND, .id = 4, .len = 10);
	vt_ok(a, 3);
	assert_int_equal(vt_wait_cq(rcq).wr_id, 1);
	vt_cq_is_empty(a);
	assert_int_equal(ibv_poll_cq(rcq, 1, &(struct ibv_wc){0}), 0);
	assert_int_equal(ibv_destroy_cq(rcq), EBUSY);
	vt_ep_drop_qp(a);
	assert_int_equal(ibv_destroy_cq(rcq), 0);
}

static void qps_share_one_queue(void **state)
{
	enum { N = 6 };
	struct vt *t = *state;
	struct vt_ep *hub = vt_ep(t, .cqe = 256), *a[N], *b[N];
	int next[N] = {0};

	for (int i = 0; i < N; i++) {
		a[i] = vt_ep(t, .cq = hub->cq);
		b[i] = vt_ep(t);
		vt_connect(a[i], b[i], NULL);
	}
	for (int k = 0; k < 20; k++)
		for (int i = 0; i < N; i++)
			vt_post(a[i], .op = IBV_WR_RDMA_WRITE, .id = i * 1000 + k, .len = 100, .to = b[i]);
	for (int k = 0; k < 20 * N; k++) {
		struct ibv_wc wc = vt_wait(hub);
		int i = (int)(wc.wr_id / 1000);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.qp_num, a[i]->qp->qp_num);
		assert_int_equal(wc.wr_id % 1000, next[i]++);
	}
	while (t->eps != hub)
		vt_ep_close(t->eps);
}

/* Completions of a QP that is gone are of no use and do no harm; the others' stay. */
static void destroying_a_qp_leaves_the_others_completions(void **state)
{
	struct vt *t = *state;
	struct vt_ep *hub = vt_ep(t, .cqe = 64), *a[2], *b[2];
	int seen = 0;

	for (int i = 0; i < 2; i++) {
		a[i] = vt_ep(t, .cq = hub->cq);
		b[i] = vt_ep(t);
		vt_connect(a[i], b[i], NULL);
		vt_recv(b[i], 50, 0, 10);
	}
	for (int k = 0; k < 10; k++)
		for (int i = 0; i < 2; i++)
			vt_post(a[i], .op = IBV_WR_RDMA_WRITE, .id = i * 1000 + k, .len = 10, .to = b[i]);
	for (int i = 0; i < 2; i++) { /* what was posted before is done when this arrives */
		vt_post(a[i], .op = IBV_WR_SEND, .id = i * 1000 + 10, .len = 10);
		vt_ok(b[i], 50);
	}
	vt_ep_drop_qp(a[0]);
	while (seen < 11) {
		struct ibv_wc wc = vt_wait(hub);

		if (wc.wr_id >= 1000)
			assert_int_equal(wc.wr_id, 1000 + seen++);
	}
	while (t->eps != hub)
		vt_ep_close(t->eps);
}

static void resize_keeps_the_completions_inside(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .cqe = 16), *b = vt_ep(t);
	int next = 0;

	vt_connect(a, b, NULL);
	for (int i = 0; i < 12; i++)
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = i, .len = 10, .to = b);
	vt_ok(a, next++);
	vt_recv(b, 50, 0, 10);
	vt_post(a, .op = IBV_WR_SEND, .id = 12, .len = 10);
	vt_ok(b, 50); /* so the others are done, and their completions inside or about to be */
	assert_int_equal(ibv_resize_cq(a->cq, 64), 0);
	assert_true(a->cq->cqe >= 64);
	for (int i = 13; i < 50; i++)
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = i, .len = 10, .to = b);
	while (next < 50)
		vt_ok(a, next++);
	assert_int_equal(ibv_resize_cq(a->cq, 8), 0);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 99, .len = 10, .to = b);
	vt_ok(a, 99);
}

static void resize_to_nonsense_is_refused(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t, .cqe = 64), *c, *d;

	vt_connect(a, b, NULL);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	for (int i = 0; i < 40; i++)
		vt_recv(b, i, 0, 10);
	for (int i = 0; i < 40; i++) {
		vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 10);
		vt_ok(a, i);
	}
	vt_ping_pong(c, d);
	assert_int_equal(ibv_resize_cq(b->cq, t->dev.max_cqe + 1), EINVAL);
	assert_int_equal(ibv_resize_cq(b->cq, 2), EINVAL); /* forty are inside */
	for (int i = 0; i < 40; i++)
		vt_ok(b, i);
}

/*
 * More completions than entries: the owner is told once, and those that fitted are still there, whole. The
 * QPs of such a CQ may be lost.
 */
static void overflow_tells_and_overwrites_nothing(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b, *c, *d;
	uint32_t n, extra = 20;
	double end;
	int got, k = 0;

	vt_need("ACK");
	b = vt_ep(t, .cqe = 4);
	n = b->cq->cqe;
	vt_ep_close(b);
	b = vt_ep(t, .cqe = 4, .recv_wr = n + extra);
	assert_int_equal(b->cq->cqe, n);
	vt_connect(a, b, NULL);
	for (uint32_t i = 0; i < n + extra; i++)
		vt_recv(b, i, 0, 100);
	for (uint32_t i = 0; i < n + extra; i++) {
		if (i % 32 == 31 || i + 1 >= n) {
			vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 10);
			if (i < n)
				vt_ok(a, i);
		} else {
			vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 10, .quiet = true);
		}
	}
	vt_expect_async(t, IBV_EVENT_CQ_ERR, b->cq);
	vt_expect_async(t, IBV_EVENT_QP_FATAL, b->qp);
	assert_int_equal(vt_state(b->qp), IBV_QPS_ERR);
	vt_expect_either(a, n, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR);
	for (uint32_t i = n + 1; i < n + extra; i++)
		vt_expect(a, i, IBV_WC_WR_FLUSH_ERR);
	end = vt_deadline();
	for (got = 0; got < (int)n && vt_now() < end;) {
		struct ibv_wc wc;

		k = ibv_poll_cq(b->cq, 1, &wc);
		if (k < 0)
			break; /* "the CQ cannot be used": also an answer */
		if (k) {
			assert_int_equal(wc.wr_id, got++);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		}
	}
	assert_true(k < 0 || got == (int)n);
	vt_no_async(t); /* one event each, however much was lost */
	vt_pair(t, IBV_QPT_RC, &c, &d);
	vt_ping_pong(c, d);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(polling_takes_no_more_than_asked),
	VT_TEST(sends_and_receives_may_have_queues_of_their_own),
	VT_TEST(qps_share_one_queue),
	VT_TEST(destroying_a_qp_leaves_the_others_completions),
	VT_TEST(resize_keeps_the_completions_inside),
	VT_TEST(resize_to_nonsense_is_refused),
	VT_TEST(overflow_tells_and_overwrites_nothing),
};

VT_MAIN("cq", tests, NULL)
