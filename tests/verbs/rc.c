/* SPDX-License-Identifier: MIT */
/* RC, one request at a time: every operation, length, path MTU and shape of buffer, with its completions. */
#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { OFF = 4096 + 3 }; /* nothing is aligned by luck */

static const struct op {
	const char *name;
	enum ibv_wr_opcode wr;
	enum ibv_wc_opcode wc, recv_wc;
	bool takes_recv, imm, reads;
} ops[] = {
	{"SEND", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, false},
	{"SEND_IMM", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true, true, false},
	{"WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, false, false, false},
	{"WRITE_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, true, true,
		false},
	{"READ", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 0, false, false, true},
};

static void check_receive(struct vt_ep *b, const struct op *op, uint32_t len)
{
	struct ibv_wc wc = vt_ok(b, 7001);

	assert_int_equal(wc.opcode, op->recv_wc);
	assert_int_equal(wc.byte_len, len);
	assert_int_equal(wc.qp_num, b->qp->qp_num);
	assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), op->imm);
	assert_false(wc.wc_flags & IBV_WC_WITH_INV);
	if (op->imm)
		assert_int_equal(ntohl(wc.imm_data), 0xfeedf00d);
}

/* Moves len bytes between OFF in both buffers and looks at the bytes, their neighbours and the completions.
 */
static void transfer(struct vt_ep *a, struct vt_ep *b, const struct op *op, uint32_t len)
{
	struct vt_ep *src = op->reads ? b : a, *dst = op->reads ? a : b;
	struct ibv_wc wc;

	vt_fill(src->buf + OFF, len, len);
	memset(dst->buf + OFF - 64, 0x55, len + 128);
	if (op->takes_recv)
		vt_recv(b, 7001, OFF, op->wr == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : len);
	vt_post(a, .op = op->wr, .id = 7000, .off = OFF, .len = len, .to = b, .roff = OFF, .imm = 0xfeedf00d);
	wc = vt_ok(a, 7000);
	assert_int_equal(wc.opcode, op->wc);
	assert_int_equal(wc.qp_num, a->qp->qp_num);
	if (op->reads)
		assert_int_equal(wc.byte_len, len);
	if (op->takes_recv)
		check_receive(b, op, len);
	if (op->wr == IBV_WR_RDMA_WRITE)
		vt_check_written(dst->buf + OFF, len, len);
	else
		vt_check(dst->buf + OFF, len, len);
	vt_check_all(dst->buf + OFF - 64, 64, 0x55);
	vt_check_all(dst->buf + OFF + len, 64, 0x55);
}

static void all_lengths(struct vt *t, enum ibv_mtu path)
{
	uint32_t mtu = vt_mtu_bytes(path);
	const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, 7, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu,
		2 * mtu + 1, 3 * mtu, 10 * mtu + 2, 64 * mtu, (1 << 20) + 3};
	struct vt_ep *a = vt_ep(t, .len = 2 << 20), *b = vt_ep(t, .len = 2 << 20);
	struct vt_conn c = vt_conn(t);

	c.mtu = path;
	vt_connect(a, b, &c);
	for (size_t o = 0; o < ARRAY_LEN(ops); o++)
		for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
			transfer(a, b, &ops[o], lengths[i]);
	vt_cq_is_empty(a);
	vt_cq_is_empty(b);
}

static void every_operation_and_length_at(void **state, enum ibv_mtu mtu)
{
	struct vt *t = *state;

	if (mtu > t->port.active_mtu)
		skip_because("the port's MTU is smaller");
	all_lengths(t, mtu);
}

static void every_operation_and_length_at_mtu_256(void **state)
{
	every_operation_and_length_at(state, IBV_MTU_256);
}

static void every_operation_and_length_at_mtu_512(void **state)
{
	every_operation_and_length_at(state, IBV_MTU_512);
}

static void every_operation_and_length_at_mtu_1024(void **state)
{
	every_operation_and_length_at(state, IBV_MTU_1024);
}

static void every_operation_and_length_at_mtu_2048(void **state)
{
	every_operation_and_length_at(state, IBV_MTU_2048);
}

static void every_operation_and_length_at_mtu_4096(void **state)
{
	every_operation_and_length_at(state, IBV_MTU_4096);
}

/* IBA C9-88: with no bytes to move, key and address mean nothing. */
static void requests_of_no_bytes_need_no_key(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .raddr = 1, .rkey = 0xbad);
	vt_ok(a, 1);
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 2, .raddr = 1, .rkey = 0xbad);
	vt_ok(a, 2);
	vt_ping_pong(a, b);
}

/* Pieces of odd sizes, one of them empty, spread over the buffer with gaps. */
static uint32_t pieces(struct vt_ep *ep, struct ibv_sge *sge, int n)
{
	uint32_t total = 0;
	size_t off = 1;

	for (int i = 0; i < n; i++) {
		uint32_t len = i == n / 2 && n > 2 ? 0 : (uint32_t)(i * 37 % 200 + 1);

		sge[i] = vt_sge(ep, off, len);
		off += len + 9;
		total += len;
	}
	return total;
}

static void copy_pieces(const struct ibv_sge *sge, int n, uint8_t *flat, bool out)
{
	for (int i = 0; i < n; i++) {
		void *p = (void *)(uintptr_t)sge[i].addr;

		memcpy(out ? (void *)flat : p, out ? p : (void *)flat, sge[i].length);
		flat += sge[i].length;
	}
}

static void scattered_pieces_arrive_as_one_message(void **state)
{
	static const struct op *const some[] = {&ops[0], &ops[2], &ops[4]};
	struct vt *t = *state;
	int n = t->dev.max_sge < 32 ? t->dev.max_sge : 32;
	struct vt_ep *a = vt_ep(t, .sge = n), *b = vt_ep(t, .sge = n);
	struct ibv_sge ga[32], sb[32];
	uint8_t flat[8192];

	vt_connect(a, b, NULL);
	for (size_t o = 0; o < ARRAY_LEN(some); o++) {
		for (int k = 1; k <= n; k++) {
			struct ibv_send_wr *bad, wr = {.wr_id = k,
							 .sg_list = ga,
							 .num_sge = k,
							 .opcode = some[o]->wr,
							 .send_flags = IBV_SEND_SIGNALED,
							 .wr.rdma = {(uintptr_t)b->buf, b->mr->rkey}};
			struct ibv_recv_wr *rbad, rw = {.wr_id = k, .sg_list = sb, .num_sge = n};
			uint32_t len = pieces(a, ga, k);

			pieces(b, sb, n);
			vt_fill(flat, len, k);
			memset(b->buf, 0, b->len);
			if (some[o]->takes_recv)
				assert_int_equal(ibv_post_recv(b->qp, &rw, &rbad), 0);
			if (some[o]->reads)
				memcpy(b->buf, flat, len);
			else
				copy_pieces(ga, k, flat, false);
			assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
			vt_ok(a, k);
			memset(flat, 0, sizeof(flat));
			if (some[o]->takes_recv) {
				assert_int_equal(vt_ok(b, k).byte_len, len);
				copy_pieces(sb, n, flat, true);
			} else if (some[o]->reads) {
				copy_pieces(ga, k, flat, true);
			} else {
				vt_landed(a, b);
				memcpy(flat, b->buf, len);
			}
			vt_check(flat, len, k);
		}
	}
}

static void receive_may_be_longer_than_the_message(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	memset(b->buf, 0x55, 4096);
	vt_fill(a->buf, 10, 1);
	vt_recv(b, 1, 0, 4096);
	vt_post(a, .op = IBV_WR_SEND, .id = 2, .len = 10);
	assert_int_equal(vt_ok(b, 1).byte_len, 10);
	vt_ok(a, 2);
	vt_check(b->buf, 10, 1);
	vt_check_all(b->buf + 10, 4086, 0x55);
}

/* Inline data is taken when posted: buffer and key are nobody's business afterwards. */
static void inline_data_is_taken_at_once_and_needs_no_key(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .inline_data = 64), *b = vt_ep(t);

	vt_connect(a, b, NULL);
	for (uint32_t len = 0; len <= a->cap.max_inline_data && len < 4000; len += len < 70 ? 1 : 61) {
		memset(b->buf, 0x55, len + 64);
		vt_recv(b, 1, 4096, len);
		vt_fill(a->buf, len, len);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = len, .flags = IBV_SEND_INLINE,
			.lkey = 0xbadbad, .to = b);
		vt_post(a, .op = IBV_WR_SEND, .id = 3, .len = len, .flags = IBV_SEND_INLINE,
			.lkey = 0xbadbad);
		memset(a->buf, 0xff, len);
		vt_ok(a, 2);
		vt_ok(a, 3);
		assert_int_equal(vt_ok(b, 1).byte_len, len);
		vt_check(b->buf, len, len);
		vt_check_all(b->buf + len, 64, 0x55);
		vt_check(b->buf + 4096, len, len);
	}
}

static uint64_t *word(struct vt_ep *ep, size_t i)
{
	return (uint64_t *)ep->buf + i;
}

static void atomics_compute_and_return_the_old_value(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_wc wc;

	vt_need("ATOMIC");
	vt_pair(t, IBV_QPT_RC, &a, &b);
	*word(b, 5) = 0x1122334455667788;
	vt_post(a, .op = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 1, .len = 8, .to = b, .roff = 40,
		.add = 0x1122334455667788, .swap = 42);
	wc = vt_ok(a, 1);
	assert_int_equal(wc.opcode, IBV_WC_COMP_SWAP);
	assert_int_equal(wc.byte_len, 8);
	assert_true(*word(a, 0) == 0x1122334455667788 && *word(b, 5) == 42);

	vt_post(a, .op = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 2, .len = 8, .to = b, .roff = 40, .add = 43,
		.swap = 7);
	vt_ok(a, 2);
	assert_true(*word(a, 0) == 42 && *word(b, 5) == 42);

	vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 3, .len = 8, .to = b, .roff = 40,
		.add = UINT64_MAX);
	wc = vt_ok(a, 3);
	assert_int_equal(wc.opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(wc.byte_len, 8);
	assert_true(*word(a, 0) == 42 && *word(b, 5) == 41);
	assert_true(*word(b, 4) == 0 && *word(b, 6) == 0);
}

static void fetch_adds_beyond_the_depth_are_each_done_once(void **state)
{
	struct vt *t = *state;
	struct vt_conn c = vt_conn(t);

	vt_need("ATOMIC");
	for (c.rd_atomic = 1; c.rd_atomic <= 4; c.rd_atomic *= 2) {
		struct vt_ep *a = vt_ep(t), *b = vt_ep(t);

		c.dest_rd_atomic = c.rd_atomic;
		vt_connect(a, b, &c);
		for (int i = 0; i < 50; i++)
			vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = i, .off = 8 * i, .len = 8,
				.to = b, .add = 1);
		for (int i = 0; i < 50; i++) {
			vt_ok(a, i);
			assert_true(*word(a, i) == (uint64_t)i);
		}
		assert_true(*word(b, 0) == 50);
	}
}

static void qp_connected_to_itself_works(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct vt_addr self = vt_addr(a);
	struct vt_conn c = vt_conn(t);

	vt_need("MODIFY");
	c.psn_in = c.psn_out;
	vt_init(a, &c);
	vt_rtr(a, &self, &c);
	vt_rts(a, &c);
	vt_fill(a->buf, 5000, 6);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 5000, .to = a, .roff = 8192);
	vt_ok(a, 1);
	vt_check(a->buf + 8192, 5000, 6);
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 2, .off = 16384, .len = 5000, .to = a, .roff = 8192);
	vt_ok(a, 2);
	vt_check(a->buf + 16384, 5000, 6);
}

/* A window gives the key to withdraw; where there are none, a program has nothing to invalidate. */
static void send_with_invalidate_withdraws_a_window(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_send_wr *bad,
		bind = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED},
		inv = {.wr_id = 5, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	if (!(t->dev.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)))
		skip_because("the device has no windows of type 2");
	b = vt_ep(t);
	vt_connect(a, b, NULL);
	mr = ibv_reg_mr(b->pd, b->buf, b->len, VT_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
	assert_non_null(mw);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){mr, (uintptr_t)b->buf + 100, 1000, IBV_ACCESS_REMOTE_WRITE};
	assert_int_equal(ibv_post_send(b->qp, &bind, &bad), 0);
	assert_int_equal(vt_ok(b, 0).opcode, IBV_WC_BIND_MW);

	vt_fill(a->buf, 1000, 2);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 1000, .to = b, .roff = 100,
		.rkey = bind.bind_mw.rkey);
	vt_ok(a, 1);
	vt_check_written(b->buf + 100, 1000, 2);

	vt_recv(b, 6, 4096, 10);
	inv.invalidate_rkey = bind.bind_mw.rkey;
	assert_int_equal(ibv_post_send(a->qp, &inv, &bad), 0);
	vt_ok(a, 5);
	wc = vt_ok(b, 6);
	assert_int_equal(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM), IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, bind.bind_mw.rkey);
	vt_post(a, .op = vt_refusable(), .id = 7, .len = 1, .to = b, .roff = 100, .rkey = bind.bind_mw.rkey);
	vt_expect(a, 7, IBV_WC_REM_ACCESS_ERR);
	vt_ep_drop_qp(b);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(every_operation_and_length_at_mtu_256),
	VT_TEST(every_operation_and_length_at_mtu_512),
	VT_TEST(every_operation_and_length_at_mtu_1024),
	VT_TEST(every_operation_and_length_at_mtu_2048),
	VT_TEST(every_operation_and_length_at_mtu_4096),
	VT_TEST(requests_of_no_bytes_need_no_key),
	VT_TEST(scattered_pieces_arrive_as_one_message),
	VT_TEST(receive_may_be_longer_than_the_message),
	VT_TEST(inline_data_is_taken_at_once_and_needs_no_key),
	VT_TEST(atomics_compute_and_return_the_old_value),
	VT_TEST(fetch_adds_beyond_the_depth_are_each_done_once),
	VT_TEST(qp_connected_to_itself_works),
	VT_TEST(send_with_invalidate_withdraws_a_window),
};

VT_MAIN("rc", tests, NULL)
