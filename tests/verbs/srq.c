/* SPDX-License-Identifier: MIT */
/* Shared receive queues: one pool for many QPs, the limit event, and the last receive of a dying QP. */
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 20000 };

struct shared {
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct vt_ep *from[3],
		*to[3]; /* the receiving ends share the SRQ and the first one's CQ and buffer */
};

static struct shared shared_open(
	struct vt *t, enum ibv_qp_type type, uint32_t max_wr, const struct vt_conn *c)
{
	struct ibv_srq_init_attr a = {.srq_context = t, .attr = {.max_wr = max_wr, .max_sge = 2}};
	struct shared s = {.pd = ibv_alloc_pd(t->ctx)};

	s.srq = ibv_create_srq(s.pd, &a);
	assert_non_null(s.srq);
	assert_true(a.attr.max_wr >= max_wr && a.attr.max_sge >= 2);
	assert_ptr_equal(s.srq->srq_context, t);
	assert_ptr_equal(s.srq->pd, s.pd);
	for (int i = 0; i < 3; i++) {
		s.from[i] = vt_ep(t, .type = type);
		s.to[i] = vt_ep(
			t, .type = type, .pd = s.pd, .srq = s.srq, .cq = i ? s.to[0]->cq : NULL, .cqe = 256);
		if (type == IBV_QPT_UD) {
			vt_ud_start(s.from[i], VT_QKEY);
			vt_ud_start(s.to[i], VT_QKEY);
		} else {
			vt_connect(s.from[i], s.to[i], c);
		}
	}
	return s;
}

static void shared_close(struct shared *s)
{
	for (int i = 2; i >= 0; i--) {
		vt_ep_close(s->to[i]);
		vt_ep_close(s->from[i]);
	}
	assert_int_equal(ibv_destroy_srq(s->srq), 0);
	assert_int_equal(ibv_dealloc_pd(s->pd), 0);
}

static void send_one(struct shared *s, int i, uint32_t len, int seed)
{
	vt_fill(s->from[i]->buf, len, seed);
	vt_post(s->from[i], .op = IBV_WR_SEND, .id = 1, .len = len);
	vt_ok(s->from[i], 1);
}

static void receives_serve_whoever_comes_first(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 64, NULL);

	for (int i = 0; i < 60; i++)
		vt_recv(s.to[0], i, i * 1000, 1000);
	for (int i = 0; i < 60; i++) {
		int who = i * 7 % 3;
		struct ibv_wc wc;

		send_one(&s, who, 900 + who, i);
		wc = vt_ok(s.to[0], i);
		assert_int_equal(wc.qp_num, s.to[who]->qp->qp_num);
		assert_int_equal(wc.byte_len, 900 + who);
		vt_check(s.to[0]->buf + i * 1000, 900 + who, i);
	}
	shared_close(&s);
}

static void all_senders_at_once_share_the_pool(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 64, NULL);
	bool used[60] = {0};

	for (int i = 0; i < 60; i++)
		vt_recv(s.to[0], i, i * 1000, 1000);
	for (int i = 0; i < 60; i++)
		vt_post(s.from[i % 3], .op = IBV_WR_SEND, .id = i, .len = 1000);
	for (int i = 0; i < 60; i++) {
		struct ibv_wc wc = vt_wait(s.to[0]);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_true(wc.wr_id < 60 && !used[wc.wr_id]);
		used[wc.wr_id] = true;
		vt_ok(s.from[i % 3], i);
	}
	shared_close(&s);
}

static void datagrams_share_a_pool_too(void **state)
{
	struct vt *t = *state;
	struct vt_addr to;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct shared s;

	vt_need("UD");
	s = shared_open(t, IBV_QPT_UD, 16, NULL);
	to = vt_addr(s.to[0]);
	ah = vt_ah(s.from[0], &to);
	for (int i = 0; i < 9; i++) {
		vt_recv(s.to[0], i, 0, 1000);
		wc = vt_deliver(s.from[0], s.to[0], i, .op = IBV_WR_SEND, .id = i, .len = 100, .ah = ah,
			.qpn = s.to[i % 3]->qp->qp_num, .qkey = VT_QKEY);
		assert_int_equal(wc.qp_num, s.to[i % 3]->qp->qp_num);
	}
	assert_int_equal(ibv_destroy_ah(ah), 0);
	shared_close(&s);
}

static void arm(struct shared *s, uint32_t limit)
{
	struct ibv_srq_attr a = {.srq_limit = limit};

	assert_int_equal(ibv_modify_srq(s->srq, &a, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(s->srq, &a), 0);
	assert_int_equal(a.srq_limit, limit);
}

/* The event says that fewer than the limit are left; it disarms itself. */
static void limit_event_comes_once_per_arming(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 32, NULL);
	struct ibv_srq_attr a;
	uint64_t id = 0;

	for (int i = 0; i < 20; i++)
		vt_recv(s.to[0], i, 0, 100);
	arm(&s, 10);
	for (; id < 10; id++) {
		send_one(&s, id % 3, 10, 0);
		vt_ok(s.to[0], id);
	}
	vt_no_async(t);
	send_one(&s, 0, 10, 0);
	vt_ok(s.to[0], id++);
	vt_expect_async(t, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	assert_int_equal(ibv_query_srq(s.srq, &a), 0);
	assert_int_equal(a.srq_limit, 0);
	for (; id < 14; id++) {
		send_one(&s, 1, 10, 0);
		vt_ok(s.to[0], id);
	}
	vt_no_async(t);
	arm(&s, 6);
	vt_no_async(t);
	send_one(&s, 2, 10, 0);
	vt_ok(s.to[0], id++);
	vt_expect_async(t, IBV_EVENT_SRQ_LIMIT_REACHED, s.srq);
	shared_close(&s);
}

static void limit_beyond_the_queue_is_refused(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 8, NULL);
	struct ibv_srq_attr a;

	assert_int_equal(ibv_query_srq(s.srq, &a), 0);
	a.srq_limit = a.max_wr + 1;
	assert_int_equal(ibv_modify_srq(s.srq, &a, IBV_SRQ_LIMIT), EINVAL);
	shared_close(&s);
}

static void resize_keeps_what_was_posted(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 8, NULL);
	struct ibv_srq_attr a = {.max_wr = 50};
	int rc;

	for (int i = 0; i < 8; i++)
		vt_recv(s.to[0], i, i * 100, 100);
	rc = ibv_modify_srq(s.srq, &a, IBV_SRQ_MAX_WR);
	assert_int_equal(!rc, !!(t->dev.device_cap_flags & IBV_DEVICE_SRQ_RESIZE));
	if (!rc) {
		assert_int_equal(ibv_query_srq(s.srq, &a), 0);
		assert_true(a.max_wr >= 50);
		for (int i = 8; i < 50; i++)
			vt_recv(s.to[0], i, i * 100, 100);
		a.max_wr = 49; /* one fewer than are posted */
		assert_int_not_equal(ibv_modify_srq(s.srq, &a, IBV_SRQ_MAX_WR), 0);
		a.max_wr = t->dev.max_srq_wr + 1;
		assert_int_not_equal(ibv_modify_srq(s.srq, &a, IBV_SRQ_MAX_WR), 0);
	}
	for (int i = 0; i < (rc ? 8 : 50); i++) {
		send_one(&s, 0, 100, i);
		vt_ok(s.to[0], i);
		vt_check(s.to[0]->buf + i * 100, 100, i);
	}
	shared_close(&s);
}

static void full_pool_says_enomem_and_where(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 8, NULL);
	struct ibv_recv_wr *bad = NULL, wr[3] = {{.next = &wr[1]}, {.next = &wr[2]}, {.next = NULL}};
	struct ibv_srq_attr a;

	assert_int_equal(ibv_query_srq(s.srq, &a), 0);
	for (uint32_t i = 0; i + 1 < a.max_wr; i++)
		vt_recv(s.to[0], i, 0, 100);
	assert_int_equal(ibv_post_srq_recv(s.srq, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[1]);
	send_one(&s, 0, 10, 0);
	vt_ok(s.to[0], 0);
	vt_recv(s.to[0], 1, 0, 100);
	assert_int_equal(vt_try_recv(s.to[0], 2, 0, 100), ENOMEM);
	shared_close(&s);
}

static void empty_pool_is_not_ready_until_filled(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 8, NULL);

	vt_fill(s.from[0]->buf, 5000, 3);
	vt_post(s.from[0], .op = IBV_WR_SEND, .id = 1, .len = 5000);
	vt_post(s.from[1], .op = IBV_WR_SEND, .id = 1, .len = 10);
	vt_recv(s.to[0], 1, 0, 5000);
	vt_recv(s.to[0], 2, 8192, 5000);
	vt_wait(s.to[0]);
	vt_wait(s.to[0]);
	vt_ok(s.from[0], 1);
	vt_ok(s.from[1], 1);
	shared_close(&s);
}

static void own_receives_are_refused(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 8, NULL);
	struct ibv_recv_wr *bad = NULL, wr = {0};

	assert_int_equal(ibv_post_recv(s.to[0]->qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	shared_close(&s);
}

/* The pool's receives belong to the others: they stay when one QP dies, whoever ends it. */
static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Of twenty thousand drawn blindly out of 24 bits a dozen would be the same. */
static void numbers_are_all_different(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq **srq = calloc(MANY, sizeof(struct ibv_srq *));
	uint32_t *num = calloc(MANY, sizeof(uint32_t));

	for (int i = 0; i < MANY; i++) {
		srq[i] = ibv_create_srq(pd, &a);
		assert_non_null(srq[i]);
		assert_int_equal(ibv_get_srq_num(srq[i], &num[i]), 0);
	}
	qsort(num, MANY, sizeof(uint32_t), by_number);
	for (int i = 1; i < MANY; i++)
		assert_int_not_equal(num[i - 1], num[i]);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(ibv_destroy_srq(srq[i]), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	free(srq);
	free(num);
}

static void dying_qp_says_when_it_took_its_last_receive(void **state)
{
	struct vt *t = *state;
	struct shared s = shared_open(t, IBV_QPT_RC, 16, NULL);

	for (int i = 0; i < 3; i++)
		vt_recv(s.to[0], i, 0, 100);
	assert_int_equal(vt_modify_state(s.to[1]->qp, IBV_QPS_ERR), 0);
	vt_expect_async(t, IBV_EVENT_QP_LAST_WQE_REACHED, s.to[1]->qp);
	send_one(&s, 0, 10, 0);
	vt_ok(s.to[0], 0);

	vt_post(s.from[2], .op = vt_refusable(), .id = 5, .len = 8, .raddr = 8, .rkey = 0xbad);
	vt_expect(s.from[2], 5, IBV_WC_REM_ACCESS_ERR);
	for (int seen = 0; seen != 3;) {
		struct ibv_async_event ev;

		assert_true(vt_readable_soon(t->ctx->async_fd));
		assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
		ibv_ack_async_event(&ev);
		assert_ptr_equal(ev.element.qp, s.to[2]->qp);
		seen |= ev.event_type == IBV_EVENT_QP_LAST_WQE_REACHED ? 1 : 0;
		seen |= ev.event_type == IBV_EVENT_QP_ACCESS_ERR ? 2 : 0;
	}
	vt_no_async(t);
	vt_cq_is_empty(s.to[0]);
	send_one(&s, 0, 10, 0);
	vt_ok(s.to[0], 1);
	shared_close(&s);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(receives_serve_whoever_comes_first),
	VT_TEST(all_senders_at_once_share_the_pool),
	VT_TEST(datagrams_share_a_pool_too),
	VT_TEST(limit_event_comes_once_per_arming),
	VT_TEST(limit_beyond_the_queue_is_refused),
	VT_TEST(resize_keeps_what_was_posted),
	VT_TEST(full_pool_says_enomem_and_where),
	VT_TEST(empty_pool_is_not_ready_until_filled),
	VT_TEST(own_receives_are_refused),
	VT_TEST(numbers_are_all_different),
	VT_TEST(dying_qp_says_when_it_took_its_last_receive),
};

VT_MAIN("srq", tests, NULL)
