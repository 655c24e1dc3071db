/* SPDX-License-Identifier: MIT */
/* RC, many requests at once: order of execution and of completions, signalling, fences, PSN wrap. */
#include "fixture.h"

#include <arpa/inet.h>
#include <string.h>

enum { KINDS = 6, SLOT = 2048 };

/*
 * A run of mixed requests. Request i owns slot i % SLOTS in both buffers: a SEND, WRITE or READ moves up to a
 * slot, an atomic adds to a counter at the end of the target's buffer. `next_recv` is the request whose
 * receive comes next.
 */
enum { RUN = 1000, WINDOW = 32, SLOTS = WINDOW };

struct run {
	struct vt_ep *a, *b;
	uint8_t kind[RUN];
	uint32_t len[RUN];
	uint64_t counter;
};

static bool takes_recv(int kind)
{
	return kind <= 2;
}

static void start(struct run *r, int i)
{
	static const enum ibv_wr_opcode op[KINDS] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
	size_t off = (size_t)(i % SLOTS) * SLOT;
	int kind = r->kind[i];

	if (kind == 4)
		vt_fill(r->b->buf + off, r->len[i], i);
	else
		vt_fill(r->a->buf + off, r->len[i], i);
	if (kind != 4)
		memset(r->b->buf + off, 0, SLOT);
	if (takes_recv(kind))
		vt_recv(r->b, i, off, SLOT);
	if (kind == 5)
		vt_post(r->a, .op = op[kind], .id = i, .off = off, .len = 8, .to = r->b, .roff = SLOTS * SLOT,
			.add = 3);
	else
		vt_post(r->a, .op = op[kind], .id = i, .off = off, .len = r->len[i], .to = r->b, .roff = off,
			.imm = i);
}

static void finish(struct run *r, int i)
{
	size_t off = (size_t)(i % SLOTS) * SLOT;
	int kind = r->kind[i];
	struct ibv_wc wc;

	vt_ok(r->a, i);
	if (takes_recv(kind)) {
		wc = vt_ok(r->b, i);
		assert_int_equal(wc.byte_len, r->len[i]);
		if (kind)
			assert_int_equal(ntohl(wc.imm_data), i);
	}
	if (kind == 4) {
		vt_check(r->a->buf + off, r->len[i], i);
	} else if (kind == 5) {
		assert_memory_equal(r->a->buf + off, &r->counter, 8);
		r->counter += 3;
	} else if (kind == 3) {
		vt_check_written(r->b->buf + off, r->len[i], i);
	} else {
		vt_check(r->b->buf + off, r->len[i], i);
	}
}

static void mixed_run(struct vt *t, uint32_t seed, const struct vt_conn *c)
{
	struct run r = {.a = vt_ep(t, .len = SLOTS * SLOT + 4096), .b = vt_ep(t, .len = SLOTS * SLOT + 4096)};
	int kinds = vt_can("ATOMIC") ? KINDS : KINDS - 1;

	for (int i = 0; i < RUN; i++) {
		r.kind[i] = vt_random(&seed) % kinds;
		r.len[i] = vt_random(&seed) % 4 ? vt_random(&seed) % (SLOT + 1) : vt_random(&seed) % 9;
	}
	vt_connect(r.a, r.b, c);
	for (int i = 0; i < RUN + WINDOW; i++) {
		if (i >= WINDOW)
			finish(&r, i - WINDOW);
		if (i < RUN)
			start(&r, i);
	}
	vt_ep_close(r.b);
	vt_ep_close(r.a);
}

static void a_thousand_mixed_requests_complete_in_order(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);

	for (uint32_t seed = 1; seed <= 3; seed++) {
		c.mtu = IBV_MTU_256;
		mixed_run(t, seed, &c);
		c.mtu = t->port.active_mtu;
		mixed_run(t, seed, &c);
	}
}

static void packet_numbers_wrap(void **state)
{
	static const uint32_t start_at[] = {0, 0xffffff, 0xfffffe, 0xfffff0, 0xffff00, 0x7fffff, 0x800000};
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);

	c.mtu = IBV_MTU_256;
	for (size_t i = 0; i < ARRAY_LEN(start_at); i++) {
		c.psn_out = start_at[i];
		c.psn_in = start_at[ARRAY_LEN(start_at) - 1 - i];
		mixed_run(t, 99 + i, &c);
	}
}

static void long_messages_cross_the_wrap(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);
	struct vt_ep *a = vt_ep(t, .len = 1 << 20), *b = vt_ep(t, .len = 1 << 20);

	c.mtu = IBV_MTU_256;
	c.psn_out = 0xfffff0;
	c.psn_in = 0xffff80;
	vt_connect(a, b, &c);
	vt_fill(a->buf, 300000, 1);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 300000, .to = b);
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 2, .off = 300000, .len = 300000, .to = b);
	vt_post(b, .op = IBV_WR_RDMA_READ, .id = 3, .off = 600000, .len = 300000, .to = a);
	vt_ok(a, 1);
	vt_ok(a, 2);
	vt_ok(b, 3);
	vt_check(b->buf, 300000, 1);
	vt_check(a->buf + 300000, 300000, 1);
	vt_check(b->buf + 600000, 300000, 1);
}

static void both_directions_at_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *e[2];

	e[0] = vt_ep(t, .len = 1 << 20);
	e[1] = vt_ep(t, .len = 1 << 20);
	vt_connect(e[0], e[1], NULL);
	for (int i = 0; i < 16; i++) {
		for (int k = 0; k < 2; k++) {
			vt_recv(e[!k], 1000 + i, 512 * 1024 + i * 16384, 16384);
			vt_fill(e[k]->buf + i * 16384, 16384, 100 * k + i);
			vt_post(e[k], .op = IBV_WR_SEND, .id = i, .off = i * 16384, .len = 16384);
		}
	}
	for (int k = 0; k < 2; k++) {
		int sent = 0, received = 0;

		while (sent < 16 || received < 16) {
			struct ibv_wc wc = vt_wait(e[k]);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV) {
				assert_int_equal(wc.wr_id, 1000 + received);
				vt_check(e[k]->buf + 512 * 1024 + received * 16384, 16384,
					100 * !k + received);
				received++;
			} else {
				assert_int_equal(wc.wr_id, sent);
				sent++;
			}
		}
	}
}

static void write_is_seen_by_the_read_and_the_send_after_it(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int i = 0; i < 200; i++) {
		vt_fill(a->buf, 5000, i);
		vt_recv(b, 3, 60000, 8);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 5000, .to = b, .quiet = true);
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 2, .off = 8192, .len = 5000, .to = b);
		vt_post(a, .op = IBV_WR_SEND, .id = 4, .len = 8, .quiet = true);
		vt_ok(b, 3);
		vt_check(b->buf, 5000, i);
		vt_ok(a, 2);
		vt_check(a->buf + 8192, 5000, i);
	}
}

/* Without the fence the SEND might gather its bytes before the READ has brought them. */
static void fenced_send_carries_what_the_read_brought(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int i = 0; i < 200; i++) {
		vt_fill(b->buf, 20000, i);
		memset(a->buf, 0, 20000);
		vt_recv(b, 2, 32768, 20000);
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = 20000, .to = b, .quiet = true);
		vt_post(a, .op = IBV_WR_SEND, .id = 3, .len = 20000, .flags = IBV_SEND_FENCE);
		vt_ok(a, 3);
		vt_ok(b, 2);
		vt_check(b->buf + 32768, 20000, i);
	}
}

static void reads_beyond_the_depth_wait_their_turn(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);
	struct vt_ep *a = vt_ep(t, .len = 1 << 20), *b = vt_ep(t, .len = 1 << 20);

	c.rd_atomic = c.dest_rd_atomic = 1;
	vt_connect(a, b, &c);
	vt_fill(b->buf, 1 << 20, 7);
	for (int i = 0; i < 50; i++)
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = i, .off = i * 20000, .len = 20000, .to = b,
			.roff = i * 20000);
	for (int i = 0; i < 50; i++)
		vt_ok(a, i);
	vt_check(a->buf, 50 * 20000, 7);
}

static void unsignalled_requests_leave_no_completion(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	/* Several times the queue's depth: a signalled completion gives the slots before it back. */
	for (int round = 0; round < 10; round++) {
		uint32_t n = a->cap.max_send_wr;

		for (uint32_t i = 0; i < n; i++)
			vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = i, .len = 100, .to = b, .quiet = i + 1 < n);
		vt_ok(a, n - 1);
		vt_cq_is_empty(a);
	}
}

static void sq_sig_all_signals_every_request(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .sig_all = 1), *b = vt_ep(t);

	vt_connect(a, b, NULL);
	for (int i = 0; i < 20; i++)
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = i, .len = 100, .to = b, .quiet = true);
	for (int i = 0; i < 20; i++)
		vt_ok(a, i);
}

static void one_list_of_requests_is_one_run(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_send_wr *bad, wr[40];
	struct ibv_recv_wr *rbad, rw[40];
	struct ibv_sge sge[40], rsge[40];

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int i = 0; i < 40; i++) {
		sge[i] = vt_sge(a, i * 1000, 1000);
		rsge[i] = vt_sge(b, i * 1000, 1000);
		wr[i] = (struct ibv_send_wr){.wr_id = i,
			.next = i < 39 ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED};
		rw[i] = (struct ibv_recv_wr){
			.wr_id = i, .next = i < 39 ? &rw[i + 1] : NULL, .sg_list = &rsge[i], .num_sge = 1};
	}
	vt_fill(a->buf, 40000, 12);
	assert_int_equal(ibv_post_recv(b->qp, rw, &rbad), 0);
	assert_int_equal(ibv_post_send(a->qp, wr, &bad), 0);
	for (int i = 0; i < 40; i++) {
		vt_ok(a, i);
		vt_ok(b, i);
	}
	vt_check(b->buf, 40000, 12);
}

/* Cheap and many: what goes wrong only now and then goes wrong here. */
static void a_thousand_connections_one_after_another(void **state)
{
	struct vt *t = *state;

	for (int i = 0; i < 1000; i++) {
		struct vt_ep *a, *b;

		vt_pair(t, IBV_QPT_RC, &a, &b);
		vt_ping_pong(a, b);
		vt_ep_close(i % 2 ? a : b);
		vt_ep_close(i % 2 ? b : a);
	}
}

static const struct CMUnitTest tests[] = {
	VT_TEST(a_thousand_mixed_requests_complete_in_order),
	VT_TEST(packet_numbers_wrap),
	VT_TEST(long_messages_cross_the_wrap),
	VT_TEST(both_directions_at_once),
	VT_TEST(write_is_seen_by_the_read_and_the_send_after_it),
	VT_TEST(fenced_send_carries_what_the_read_brought),
	VT_TEST(reads_beyond_the_depth_wait_their_turn),
	VT_TEST(unsignalled_requests_leave_no_completion),
	VT_TEST(sq_sig_all_signals_every_request),
	VT_TEST(one_list_of_requests_is_one_run),
	VT_TEST(a_thousand_connections_one_after_another),
};

VT_MAIN("rc_order", tests, NULL)
