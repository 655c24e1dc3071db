/* SPDX-License-Identifier: MIT */
/*
 * Work queues at their limits: what does not fit is refused with the request it began at, what came before in
 * the list is done, what came after is not. A send queue is kept full by a receiver that has posted nothing.
 */
#include "fixture.h"

#include <errno.h>
#include <string.h>

enum { MANY = 4096 };

/* A list of n SENDs of the same few bytes, from `first`. */
static struct ibv_send_wr *send_list(
	struct vt_ep *ep, struct ibv_send_wr *wr, struct ibv_sge *sge, int n, int first)
{
	*sge = vt_sge(ep, 0, 8);
	for (int i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){.wr_id = first + i,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED};
	return wr;
}

static void small_pair(struct vt *t, uint32_t depth, struct vt_ep **a, struct vt_ep **b)
{
	*a = vt_ep(t, .send_wr = depth, .recv_wr = depth, .cqe = 2 * MANY);
	*b = vt_ep(t, .recv_wr = 64);
	vt_connect(*a, *b, NULL);
}

static void complete_all(struct vt_ep *a, struct vt_ep *b, int n)
{
	for (int i = 0; i < n; i++) {
		vt_recv(b, i, 0, 8);
		vt_ok(b, i);
		vt_ok(a, i);
	}
	vt_cq_is_empty(a);
	vt_cq_is_empty(b);
}

/* An adapter may hold more than it granted; never less. */
static void full_send_queue_says_enomem_and_where(void **state)
{
	static struct ibv_send_wr wr[MANY];
	struct vt *t = *state;
	struct ibv_send_wr *bad = NULL;
	struct ibv_sge sge;
	struct vt_ep *a, *b;
	int n;

	vt_need("ACK");
	small_pair(t, 8, &a, &b);
	assert_int_equal(ibv_post_send(a->qp, send_list(a, wr, &sge, MANY, 0), &bad), ENOMEM);
	assert_in_range((uintptr_t)bad, (uintptr_t)&wr[a->cap.max_send_wr], (uintptr_t)&wr[MANY - 1]);
	n = (int)(bad - wr);
	assert_ptr_equal(bad, &wr[n]);
	bad = NULL;
	assert_int_equal(ibv_post_send(a->qp, send_list(a, wr, &sge, 1, 99), &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[0]);
	complete_all(a, b, n);
	vt_ping_pong(a, b);
}

static void each_completion_makes_room_for_one(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	int n = 0;

	vt_need("ACK");
	small_pair(t, 4, &a, &b);
	while (!vt_try(a, .op = IBV_WR_SEND, .id = n, .len = 8))
		n++;
	assert_in_range(n, a->cap.max_send_wr, MANY);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(vt_try(a, .op = IBV_WR_SEND, .id = 0, .len = 8), ENOMEM);
		vt_recv(b, i, 0, 8);
		vt_ok(b, i);
		vt_ok(a, i);
		vt_post(a, .op = IBV_WR_SEND, .id = n + i, .len = 8);
	}
}

static void full_receive_queue_says_enomem_and_where(void **state)
{
	static struct ibv_recv_wr wr[MANY];
	struct vt *t = *state;
	struct ibv_recv_wr *bad = NULL;
	struct vt_ep *a, *b;
	int n;

	small_pair(t, 8, &b, &a);
	for (int i = 0; i < MANY; i++)
		wr[i] = (struct ibv_recv_wr){.wr_id = i, .next = i + 1 < MANY ? &wr[i + 1] : NULL};
	assert_int_equal(ibv_post_recv(b->qp, wr, &bad), ENOMEM);
	assert_in_range((uintptr_t)bad, (uintptr_t)&wr[b->cap.max_recv_wr], (uintptr_t)&wr[MANY - 1]);
	n = (int)(bad - wr);
	for (int i = 0; i < n; i++) {
		vt_post(a, .op = IBV_WR_SEND, .id = i);
		vt_ok(a, i);
		vt_ok(b, i);
		vt_recv(b, n + i, 0, 8);
		assert_int_equal(vt_try_recv(b, 0, 0, 8), ENOMEM);
	}
}

/* The ways a request can be wrong in itself. Adapters differ in the number they give. */
enum { TOO_MANY_SGE, INLINE_TOO_LONG };

static void list_is_taken_up_to_the_bad_request(void **state)
{
	struct vt *t = *state;

	for (int fault = TOO_MANY_SGE; fault <= INLINE_TOO_LONG; fault++) {
		struct vt_ep *a = vt_ep(t, .inline_data = 16), *b = vt_ep(t);
		struct ibv_send_wr wr[10], *bad = NULL;
		struct ibv_sge sge, many[256], big = vt_sge(a, 0, a->cap.max_inline_data + 1);
		int rc;

		vt_connect(a, b, NULL);
		send_list(a, wr, &sge, 10, 0);
		for (size_t i = 0; i < ARRAY_LEN(many); i++)
			many[i] = vt_sge(a, 0, 1);
		if (fault == TOO_MANY_SGE) {
			assert_true(a->cap.max_send_sge < ARRAY_LEN(many));
			wr[6].sg_list = many;
			wr[6].num_sge = (int)a->cap.max_send_sge + 1;
		} else {
			wr[6].sg_list = &big;
			wr[6].send_flags |= IBV_SEND_INLINE;
		}
		for (int i = 0; i < 10; i++)
			vt_recv(b, i, 0, 8);
		rc = ibv_post_send(a->qp, wr, &bad);
		if (rc != EINVAL && rc != ENOMEM)
			fail_msg("fault %d gives %d", fault, rc);
		assert_ptr_equal(bad, &wr[6]);
		for (int i = 0; i < 6; i++) {
			vt_ok(a, i);
			vt_ok(b, i);
		}
		/* Number 6 on the other side is ours: so those behind the bad one were not done. */
		vt_post(a, .op = IBV_WR_SEND, .id = 50, .len = 3);
		vt_ok(a, 50);
		assert_int_equal(vt_ok(b, 6).byte_len, 3);
		vt_cq_is_empty(a);
		vt_cq_is_empty(b);
	}
}

static void receive_list_is_taken_up_to_the_bad_request(void **state)
{
	struct vt *t = *state;
	struct ibv_recv_wr wr[5], *bad = NULL;
	struct ibv_sge many[256];
	struct vt_ep *a, *b;
	int rc;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = vt_sge(b, 0, 1);
	for (int i = 0; i < 5; i++)
		wr[i] = (struct ibv_recv_wr){
			.wr_id = i, .next = i < 4 ? &wr[i + 1] : NULL, .sg_list = many, .num_sge = 1};
	assert_true(b->cap.max_recv_sge < ARRAY_LEN(many));
	wr[3].num_sge = (int)b->cap.max_recv_sge + 1;
	rc = ibv_post_recv(b->qp, wr, &bad);
	assert_true(rc == EINVAL || rc == ENOMEM);
	assert_ptr_equal(bad, &wr[3]);
	vt_recv(b, 50, 0, 8);
	for (int i = 0; i < 4; i++) {
		vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 1);
		vt_ok(a, i);
		vt_ok(b, i < 3 ? i : 50);
	}
}

/* The caller's list is read and done with: it may be anywhere, and is free to go when the call returns. */
static void posted_requests_are_copied(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_send_wr wr[4], *bad;
	struct ibv_sge sge;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_fill(a->buf, 8, 3);
	assert_int_equal(ibv_post_send(a->qp, send_list(a, wr, &sge, 4, 0), &bad), 0);
	memset(wr, 0xff, sizeof(wr));
	memset(&sge, 0xff, sizeof(sge));
	complete_all(a, b, 4);
	vt_check(b->buf, 8, 3);
}

/* Round and round: the queue's places are used many times over, also the last one. */
static void queue_wraps_at_every_depth(void **state)
{
	struct vt *t = *state;

	for (uint32_t depth = 1; depth <= 9; depth++) {
		struct vt_ep *a, *b;

		small_pair(t, depth, &a, &b);
		for (int i = 0; i < 40; i++) {
			vt_fill(a->buf, 8, i);
			vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 8);
			vt_recv(b, i, 0, 8);
			vt_ok(a, i);
			vt_ok(b, i);
			vt_check(b->buf, 8, i);
		}
	}
}

static const struct CMUnitTest tests[] = {
	VT_TEST(full_send_queue_says_enomem_and_where),
	VT_TEST(each_completion_makes_room_for_one),
	VT_TEST(full_receive_queue_says_enomem_and_where),
	VT_TEST(list_is_taken_up_to_the_bad_request),
	VT_TEST(receive_list_is_taken_up_to_the_bad_request),
	VT_TEST(posted_requests_are_copied),
	VT_TEST(queue_wraps_at_every_depth),
};

VT_MAIN("queue", tests, NULL)
