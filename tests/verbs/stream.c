/* SPDX-License-Identifier: MIT */
/*
 * What is different where a connection is a stream (iWARP): it ends for both ends at once, and there is less.
 * Where a SEND or WRITE is done when it has left, who is told what when it is refused afterwards; on one host
 * it is done when the peer has it (ACK).
 */
#include "fixture.h"

#include <errno.h>
#include <string.h>

enum { ROUNDS = 5 };

static void await_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	double until = vt_deadline();

	while (vt_state(qp) != state && vt_now() < until)
		;
	assert_int_equal(vt_state(qp), state);
}

/* It ends as a whole: what comes after is flushed. */
static void is_over(struct vt_ep *a)
{
	await_state(a->qp, IBV_QPS_ERR);
	vt_post(a, .op = IBV_WR_SEND, .id = 99);
	vt_expect(a, 99, IBV_WC_WR_FLUSH_ERR);
}

/* The next events about these two, in any order. */
static void expect_two(struct vt *t, enum ibv_event_type type, const struct ibv_qp *a, const struct ibv_qp *b)
{
	struct ibv_async_event ev[2];

	for (int i = 0; i < 2; i++) {
		assert_true(vt_readable_soon(t->ctx->async_fd));
		assert_int_equal(ibv_get_async_event(t->ctx, &ev[i]), 0);
		assert_int_equal(ev[i].event_type, type);
		ibv_ack_async_event(&ev[i]);
	}
	assert_true((ev[0].element.qp == a && ev[1].element.qp == b) ||
		    (ev[0].element.qp == b && ev[1].element.qp == a));
}

static void refused_write(struct vt *t, struct vt_ep *a, struct vt_ep *b)
{
	if (vt_can("ACK")) {
		vt_expect(a, 1, IBV_WC_REM_ACCESS_ERR);
		vt_expect_async(t, IBV_EVENT_QP_ACCESS_ERR, b->qp);
		return;
	}
	vt_ok(a, 1);
	expect_two(t, IBV_EVENT_QP_ACCESS_ERR, a->qp, b->qp);
}

static void refused_write_is_told_by_its_completion_or_by_events(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_recv(b, 7, 0, 100);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .to = b, .rkey = b->mr->rkey ^ 0x100);
	refused_write(t, a, b);
	vt_check_all(b->buf, 8, 0);
	vt_expect(b, 7, IBV_WC_WR_FLUSH_ERR);
	is_over(a);
	is_over(b);
}

static void refused_read_fails_and_what_was_before_it_does_not(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_fill(a->buf, 100, 5);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 100, .to = b, .roff = 500);
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 2, .len = 8, .to = b, .rkey = b->mr->rkey ^ 0x100);
	vt_ok(a, 1);
	vt_expect(a, 2, IBV_WC_REM_ACCESS_ERR);
	vt_expect_async(t, IBV_EVENT_QP_ACCESS_ERR, b->qp);
	vt_check(b->buf + 500, 100, 5);
	is_over(a);
}

/* Posts and finds its completion, again and again, until the peer's READ is answered; how often it took. */
static int posts_until(struct vt_ep *a, struct vt_ep *b, const volatile uint8_t *answered)
{
	double end = vt_deadline();
	int n = 0;

	for (; !*answered && vt_now() < end; n++) {
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = n, .len = 8, .to = b);
		vt_ok(a, n);
	}
	return n;
}

/*
 * Its program finds a completion whenever it looks, so it never waits; the peer's request is heard all the
 * same, after a few posts. Not every time: the helper may be in the middle of hearing it and have lost its
 * CPU, or the thread sanitizer look up names there for a second, for its suppressions.
 */
static void peer_is_heard_though_completions_are_always_there(void **state)
{
	enum { HEARD = 200, SOON = 195, FEW = 64 };
	struct vt *t = *state;
	struct vt_ep *a, *b;
	int soon = 0;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int round = 0; round < HEARD; round++) {
		b->buf[1000] = 0;
		a->buf[500] = 'x';
		vt_post(b, .op = IBV_WR_RDMA_READ, .id = 7, .off = 1000, .len = 1, .to = a, .roff = 500);
		soon += posts_until(a, b, b->buf + 1000) <= FEW;
		assert_int_equal(b->buf[1000], 'x');
		vt_ok(b, 7);
	}
	if (!vt_slow())
		assert_in_range(soon, SOON, HEARD);
}

static void read_behind_a_write_says_that_it_has_landed(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (uint32_t round = 0; round < 100; round++) {
		vt_fill(a->buf, 40000, round);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 40000, .to = b, .quiet = true);
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 2, .off = 50000, .len = 1, .to = b, .roff = 39999);
		vt_ok(a, 2);
		assert_memory_equal(a->buf, b->buf, 40000);
	}
}

static void receive_that_comes_late_is_found(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (uint32_t round = 0; round < 20; round++) {
		double until = vt_now() + (round % 4) * 0.01;

		vt_fill(a->buf, 5000, round);
		vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 5000);
		if (!vt_can("ACK"))
			vt_ok(a, 1);
		while (vt_now() < until)
			vt_cq_is_empty(b); /* it looks, and finds none */
		vt_recv(b, 2, 8192, 5000);
		vt_ok(b, 2);
		if (vt_can("ACK"))
			vt_ok(a, 1);
		vt_check(b->buf + 8192, 5000, round);
	}
	assert_int_equal(vt_state(a->qp), IBV_QPS_RTS);
}

static void receive_that_never_comes_ends_it(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100);
	vt_expect(a, 1, vt_can("ACK") ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	if (!vt_can("ACK"))
		vt_expect_async(t, IBV_EVENT_QP_REQ_ERR, b->qp);
	is_over(b);
	is_over(a);
}

static void message_longer_than_the_receive(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	memset(b->buf, 0x55, 8192);
	vt_recv(b, 2, 0, 99);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100);
	vt_expect(a, 1, vt_can("ACK") ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
	vt_expect(b, 2, IBV_WC_LOC_LEN_ERR);
	vt_check_all(b->buf + 99, 1000, 0x55);
	is_over(a);
	is_over(b);
}

static void senders_bad_key_ends_the_connection_for_both(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_recv(b, 2, 0, 4096);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 4096, .lkey = a->mr->lkey ^ 0x100);
	vt_expect(a, 1, IBV_WC_LOC_PROT_ERR);
	vt_expect(b, 2, IBV_WC_WR_FLUSH_ERR);
	is_over(a);
	is_over(b);
}

static void either_end_ends_it(void **state)
{
	struct vt *t = *state;

	for (int how = 0; how < 3; how++) {
		struct vt_ep *a, *b;

		vt_pair(t, IBV_QPT_RC, &a, &b);
		vt_ping_pong(a, b);
		vt_recv(b, 2, 0, 4096);
		if (how == 0)
			vt_modify_state(a->qp, IBV_QPS_ERR);
		else if (how == 1)
			vt_modify_state(a->qp, IBV_QPS_RESET);
		else
			vt_ep_drop_qp(a);
		vt_expect(b, 2, IBV_WC_WR_FLUSH_ERR);
		is_over(b);
	}
}

static void reset_pair_is_connected_again(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int round = 0; round < 5; round++) {
		vt_ping_pong(a, b);
		assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RESET), 0);
		assert_int_equal(vt_modify_state(b->qp, IBV_QPS_RESET), 0);
		vt_connect(a, b, NULL);
	}
	vt_ping_pong(a, b);
}

/* ---- two processes that connect to each other at the same moment ---- */
static void cross(struct vt *t, int fd)
{
	struct vt_conn c = vt_conn(t);
	struct vt_ep *out = vt_ep(t), *in = vt_ep(t);
	uint16_t port, theirs;
	struct rdma_cm_id *listener = vt_cm_listen(t, &port);

	vt_init(out, &c);
	vt_init(in, &c);
	vt_tell(fd, &port, sizeof(port));
	vt_hear(fd, &theirs, sizeof(theirs));
	vt_cm_ask(out, &t->gid, theirs, &c);
	vt_cm_answer(in, listener, &c);
	vt_cm_asked(out);
	vt_recv(in, 2, 0, 5000);
	vt_fill(out->buf, 5000, 3);
	vt_post(out, .op = IBV_WR_SEND, .id = 1, .len = 5000);
	vt_ok(out, 1);
	vt_ok(in, 2);
	vt_check(in->buf, 5000, 3);
	vt_tell(fd, &port, sizeof(port)); /* neither goes before both are through */
	vt_hear(fd, &theirs, sizeof(theirs));
	vt_ep_close(in);
	vt_ep_close(out);
}

static void role_crossed(struct vt *t, int fd)
{
	for (int round = 0; round < ROUNDS; round++)
		cross(t, fd);
}

static void processes_that_call_each_other_at_once_meet(void **state)
{
	struct vt_peer p;

	vt_peer_start(&p, "crossed");
	for (int round = 0; round < ROUNDS; round++)
		cross(*state, p.fd);
	vt_peer_finish(&p);
}

static void states_come_with_the_connection(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .dest_qp_num = b->qp->qp_num, .path_mtu = IBV_MTU_1024};

	vt_init(a, NULL);
	assert_int_equal(ibv_modify_qp(a->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU |
					 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		EINVAL);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RTS), EINVAL);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RTR), 0);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RTS), EINVAL);
	assert_int_equal(ibv_modify_qp(a->qp, &attr, 0), 0);
	assert_int_equal(vt_try(a, .op = IBV_WR_SEND, .id = 1), EINVAL);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RESET), 0);
	vt_connect(a, b, NULL);
	assert_int_equal(vt_state(a->qp), IBV_QPS_RTS);
	assert_int_equal(vt_state(b->qp), IBV_QPS_RTS);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_SQD), 0);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RTS), 0);
	vt_ping_pong(a, b);
}

static void there_are_no_datagrams(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct ibv_ah_attr av;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct ibv_qp_init_attr init = {.send_cq = a->cq,
			.recv_cq = a->cq,
			.qp_type = types[i],
			.cap = {.max_send_wr = 1, .max_recv_wr = 1}};

		assert_null(ibv_create_qp(a->pd, &init));
		assert_int_equal(errno, EOPNOTSUPP);
	}
	vt_fill_av(t, &t->gid, 0, &av);
	assert_null(ibv_create_ah(a->pd, &av));
	assert_int_equal(errno, EOPNOTSUPP);
}

static const struct vt_role roles[] = {{"crossed", role_crossed}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		VT_TEST(peer_is_heard_though_completions_are_always_there),
		VT_TEST(refused_write_is_told_by_its_completion_or_by_events),
		VT_TEST(refused_read_fails_and_what_was_before_it_does_not),
		VT_TEST(read_behind_a_write_says_that_it_has_landed),
		VT_TEST(receive_that_comes_late_is_found),
		VT_TEST(receive_that_never_comes_ends_it),
		VT_TEST(message_longer_than_the_receive),
		VT_TEST(senders_bad_key_ends_the_connection_for_both),
		VT_TEST(either_end_ends_it),
		VT_TEST(reset_pair_is_connected_again),
		VT_TEST(processes_that_call_each_other_at_once_meet),
		VT_TEST(states_come_with_the_connection),
		VT_TEST(there_are_no_datagrams),
	};

	return vt_main(argc, argv, "stream", tests, ARRAY_LEN(tests), roles);
}
