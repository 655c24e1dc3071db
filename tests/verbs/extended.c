/* SPDX-License-Identifier: MIT */
/* The extended interfaces, CQ_EX and QP_EX: other words for the same requests and the same completions. */
#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#define STANDARD_OPS                                                                                         \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |              \
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ)
#define ATOMIC_OPS (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void ex_pair(struct vt *t, struct vt_ep **a, struct vt_ep **b, struct ibv_qp_ex **qpx)
{
	uint64_t ops = STANDARD_OPS | (vt_can("ATOMIC") ? ATOMIC_OPS : 0);

	*a = vt_ep(t, .send_ops = ops, .inline_data = 64);
	*b = vt_ep(t);
	vt_connect(*a, *b, NULL);
	*qpx = ibv_qp_to_qp_ex((*a)->qp);
	assert_non_null(*qpx);
}

static void plain_qp_has_no_builders(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);

	assert_null(ibv_qp_to_qp_ex(a->qp));
}

static void builders_for_what_is_not_there_are_refused(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct ibv_qp_init_attr_ex x = {.send_cq = a->cq,
		.recv_cq = a->cq,
		.cap = a->cap,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a->pd,
		.send_ops_flags = 1ull << 60};

	errno = 0;
	assert_null(ibv_create_qp_ex(t->ctx, &x));
	assert_true(errno == EOPNOTSUPP || errno == EINVAL);
	x.comp_mask |= 1u << 30;
	x.send_ops_flags = IBV_QP_EX_WITH_SEND;
	errno = 0;
	assert_null(ibv_create_qp_ex(t->ctx, &x));
	assert_true(errno == EOPNOTSUPP || errno == EINVAL);
}

static void next(struct ibv_qp_ex *q, uint64_t id)
{
	q->wr_id = id;
	q->wr_flags = IBV_SEND_SIGNALED;
}

static void each_builder_does_its_request(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_qp_ex *q;
	struct ibv_sge sge;
	uint64_t raddr;
	uint32_t rkey, lkey;

	ex_pair(t, &a, &b, &q);
	raddr = (uintptr_t)b->buf;
	rkey = b->mr->rkey;
	lkey = a->mr->lkey;
	vt_fill(a->buf, 5000, 1);
	vt_recv(b, 20, 20000, 5000);
	vt_recv(b, 21, 30000, 5000);
	vt_recv(b, 22, 0, 0);

	ibv_wr_start(q);
	next(q, 0);
	ibv_wr_rdma_write(q, rkey, raddr);
	ibv_wr_set_sge(q, lkey, (uintptr_t)a->buf, 5000);
	next(q, 1);
	ibv_wr_send(q);
	ibv_wr_set_sge(q, lkey, (uintptr_t)a->buf, 5000);
	next(q, 2);
	ibv_wr_send_imm(q, htonl(42));
	sge = vt_sge(a, 0, 5000);
	ibv_wr_set_sge_list(q, 1, &sge);
	next(q, 3);
	ibv_wr_rdma_write_imm(q, rkey, raddr + 10000, htonl(43));
	ibv_wr_set_sge(q, lkey, (uintptr_t)a->buf, 5000);
	next(q, 4);
	ibv_wr_rdma_read(q, rkey, raddr);
	ibv_wr_set_sge(q, lkey, (uintptr_t)a->buf + 8192, 5000);
	assert_int_equal(ibv_wr_complete(q), 0);

	assert_int_equal(vt_ok(a, 0).opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(vt_ok(a, 1).opcode, IBV_WC_SEND);
	assert_int_equal(vt_ok(a, 2).opcode, IBV_WC_SEND);
	assert_int_equal(vt_ok(a, 3).opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(vt_ok(a, 4).opcode, IBV_WC_RDMA_READ);
	vt_ok(b, 20);
	assert_int_equal(ntohl(vt_ok(b, 21).imm_data), 42);
	assert_int_equal(ntohl(vt_ok(b, 22).imm_data), 43);
	vt_check(b->buf, 5000, 1);
	vt_check(b->buf + 10000, 5000, 1);
	vt_check(b->buf + 20000, 5000, 1);
	vt_check(b->buf + 30000, 5000, 1);
	vt_check(a->buf + 8192, 5000, 1);
}

static void atomic_builders_do_theirs(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_qp_ex *q;
	uint64_t *local, *remote;

	vt_need("ATOMIC");
	ex_pair(t, &a, &b, &q);
	local = (uint64_t *)a->buf;
	remote = (uint64_t *)b->buf;
	*remote = 5;
	ibv_wr_start(q);
	next(q, 0);
	ibv_wr_atomic_fetch_add(q, b->mr->rkey, (uintptr_t)remote, 10);
	ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)local, 8);
	next(q, 1);
	ibv_wr_atomic_cmp_swp(q, b->mr->rkey, (uintptr_t)remote, 15, 99);
	ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)(local + 1), 8);
	assert_int_equal(ibv_wr_complete(q), 0);
	assert_int_equal(vt_ok(a, 0).opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(vt_ok(a, 1).opcode, IBV_WC_COMP_SWAP);
	assert_true(local[0] == 5 && local[1] == 15 && *remote == 99);
}

static void inline_builders_take_the_data_at_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_qp_ex *q;
	uint8_t mine[64];
	struct ibv_data_buf list[3] = {{mine, 10}, {mine + 10, 0}, {mine + 10, 54}};

	ex_pair(t, &a, &b, &q);
	vt_fill(mine, 64, 6);
	ibv_wr_start(q);
	next(q, 0);
	ibv_wr_rdma_write(q, b->mr->rkey, (uintptr_t)b->buf);
	ibv_wr_set_inline_data(q, mine, 64);
	next(q, 1);
	ibv_wr_rdma_write(q, b->mr->rkey, (uintptr_t)b->buf + 100);
	ibv_wr_set_inline_data_list(q, 3, list);
	memset(mine, 0, sizeof(mine));
	assert_int_equal(ibv_wr_complete(q), 0);
	vt_ok(a, 0);
	vt_ok(a, 1);
	vt_check_written(b->buf, 64, 6);
	vt_check_written(b->buf + 100, 64, 6);
}

static void aborted_requests_never_were(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_qp_ex *q;

	ex_pair(t, &a, &b, &q);
	memset(a->buf, 0xaa, 100);
	ibv_wr_start(q);
	next(q, 0);
	ibv_wr_rdma_write(q, b->mr->rkey, (uintptr_t)b->buf);
	ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)a->buf, 100);
	ibv_wr_abort(q);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 10, .to = b, .roff = 4096);
	vt_ok(a, 1);
	vt_cq_is_empty(a);
	vt_check_all(b->buf, 100, 0);
}

static void too_much_in_one_batch_fails_as_a_whole(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_qp_ex *q;

	ex_pair(t, &a, &b, &q);
	ibv_wr_start(q);
	for (uint32_t i = 0; i < 4 * a->cap.max_send_wr + 64; i++) {
		next(q, i);
		ibv_wr_rdma_write(q, b->mr->rkey, (uintptr_t)b->buf);
		ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)a->buf, 8);
	}
	assert_int_not_equal(ibv_wr_complete(q), 0);
	vt_ping_pong(a, b); /* its SEND is the first completion: nothing of the batch was done */
}

/* Polling moves packets here, and must not trip over the batch that is being built. */
static void program_may_poll_while_it_builds(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_qp_ex *q;

	ex_pair(t, &a, &b, &q);
	vt_fill(a->buf, 16, 1);
	ibv_wr_start(q);
	next(q, 1);
	ibv_wr_rdma_write(q, b->mr->rkey, (uintptr_t)b->buf);
	ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)a->buf, 8);
	assert_int_equal(ibv_wr_complete(q), 0);
	ibv_wr_start(q); /* holds whatever posting holds; the first request still completes */
	next(q, 2);
	ibv_wr_rdma_write(q, b->mr->rkey, (uintptr_t)b->buf + 8);
	ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)a->buf + 8, 8);
	vt_ok(a, 1);
	vt_check_written(b->buf, 8, 1);
	vt_cq_is_empty(a);
	vt_check_all(b->buf + 8, 8, 0); /* not before it is complete */
	assert_int_equal(ibv_wr_complete(q), 0);
	vt_ok(a, 2);
	vt_check_written(b->buf, 16, 1);
}

static void datagram_builder_sets_the_address(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct vt_addr to;
	struct ibv_qp_ex *q;
	struct ibv_ah *ah;

	vt_need("UD");
	a = vt_ep(t, .type = IBV_QPT_UD, .send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	b = vt_ep(t, .type = IBV_QPT_UD);
	vt_ud_start(a, VT_QKEY);
	vt_ud_start(b, VT_QKEY);
	to = vt_addr(b);
	ah = vt_ah(a, &to);
	q = ibv_qp_to_qp_ex(a->qp);
	assert_non_null(q);
	vt_recv(b, 2, 0, 1000);
	vt_fill(a->buf, 100, 4);
	ibv_wr_start(q);
	next(q, 1);
	ibv_wr_send_imm(q, htonl(9));
	ibv_wr_set_ud_addr(q, ah, b->qp->qp_num, VT_QKEY);
	ibv_wr_set_sge(q, a->mr->lkey, (uintptr_t)a->buf, 100);
	assert_int_equal(ibv_wr_complete(q), 0);
	vt_ok(a, 1);
	assert_int_equal(ntohl(vt_ok(b, 2).imm_data), 9);
	vt_check(b->buf + VT_GRH, 100, 4);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void helpers_of_the_header(void **state)
{
	assert_true(ibv_is_qpt_supported(1 << IBV_QPT_UD, IBV_QPT_UD));
	assert_false(ibv_is_qpt_supported(1 << IBV_QPT_UD, IBV_QPT_RC));
	assert_int_equal(ibv_flow_label_to_udp_sport(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
}

static int start_soon(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {0};
	double end = vt_deadline();
	int rc;

	do
		rc = ibv_start_poll(cq, &attr);
	while (rc == ENOENT && vt_now() < end);
	return rc;
}

static struct ibv_cq_ex *create_cq_ex(struct vt *t, uint64_t flags)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 64, .wc_flags = flags, .cq_context = t};

	return ibv_create_cq_ex(t->ctx, &a);
}

static void extended_polling_reads_the_same_completions(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_ex *cq = create_cq_ex(t, IBV_WC_STANDARD_FLAGS);
	struct ibv_poll_cq_attr attr = {0};
	struct vt_ep *a, *b;

	assert_non_null(cq);
	assert_ptr_equal(cq->cq_context, t);
	assert_int_equal(ibv_start_poll(cq, &attr), ENOENT);
	a = vt_ep(t);
	b = vt_ep(t, .cq = ibv_cq_ex_to_cq(cq));
	vt_connect(a, b, NULL);
	for (int i = 0; i < 5; i++)
		vt_recv(b, 70 + i, 0, 100);
	for (int i = 0; i < 5; i++)
		vt_post(a, .op = IBV_WR_SEND_WITH_IMM, .id = i, .len = 10 + i, .imm = 500 + i);
	for (int i = 0; i < 5; i++)
		vt_ok(a, i);
	assert_int_equal(start_soon(cq), 0);
	for (int i = 0; i < 5; i++) {
		if (i) {
			double end = vt_deadline();
			int rc;

			while ((rc = ibv_next_poll(cq)) == ENOENT && vt_now() < end)
				;
			assert_int_equal(rc, 0);
		}
		assert_int_equal(cq->wr_id, 70 + i);
		assert_int_equal(cq->status, IBV_WC_SUCCESS);
		assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
		assert_int_equal(ibv_wc_read_byte_len(cq), 10 + i);
		assert_int_equal(ntohl(ibv_wc_read_imm_data(cq)), 500 + i);
		assert_int_equal(ibv_wc_read_qp_num(cq), b->qp->qp_num);
		assert_int_equal(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	}
	assert_int_equal(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	vt_cq_is_empty(b);
	vt_ping_pong(a, b); /* and the plain way of polling works on it */
	vt_ep_close(b);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void extended_polling_reads_errors(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_ex *cq = create_cq_ex(t, IBV_WC_STANDARD_FLAGS);
	struct vt_ep *a = vt_ep(t, .cq = ibv_cq_ex_to_cq(cq)), *b = vt_ep(t);

	vt_connect(a, b, NULL);
	vt_post(a, .op = vt_refusable(), .id = 3, .len = 8, .raddr = 8, .rkey = 0xbad);
	assert_int_equal(start_soon(cq), 0);
	assert_int_equal(cq->wr_id, 3);
	assert_int_equal(cq->status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_wc_read_qp_num(cq), a->qp->qp_num);
	ibv_wc_read_vendor_err(cq);
	ibv_end_poll(cq);
	vt_ep_close(a);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void extended_polling_reads_whence_a_datagram_came(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_ex *cq;
	struct vt_ep *a, *b;
	struct vt_addr to;
	struct ibv_ah *ah;

	vt_need("UD");
	cq = create_cq_ex(t, IBV_WC_STANDARD_FLAGS);
	a = vt_ep(t, .type = IBV_QPT_UD);
	b = vt_ep(t, .type = IBV_QPT_UD, .cq = ibv_cq_ex_to_cq(cq));
	vt_ud_start(a, VT_QKEY);
	vt_ud_start(b, VT_QKEY);
	to = vt_addr(b);
	ah = vt_ah(a, &to);
	vt_recv(b, 2, 0, 1000);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 8, .ah = ah, .qpn = b->qp->qp_num, .qkey = VT_QKEY);
	vt_ok(a, 1);
	assert_int_equal(start_soon(cq), 0);
	assert_int_equal(cq->wr_id, 2);
	assert_int_equal(ibv_wc_read_src_qp(cq), a->qp->qp_num);
	assert_int_equal(ibv_wc_read_slid(cq), a->at->lid); /* Ethernet has no LIDs */
	assert_int_equal(ibv_wc_read_dlid_path_bits(cq), 0);
	if (t->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		assert_int_equal(ibv_wc_read_sl(cq) & ~3, 8); /* over UDP, IPv4 or IPv6, as verbs.*.ud says */
		assert_int_equal(ibv_wc_read_wc_flags(cq) & IBV_WC_GRH, IBV_WC_GRH);
	} else {
		assert_int_equal(ibv_wc_read_sl(cq), 0);
	}
	ibv_end_poll(cq);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	vt_ep_close(b);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

/* A window that b binds and a uses: b withdraws the first key itself, a's message the second. */
static void builders_bind_and_withdraw_windows(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_ex *cq = create_cq_ex(t, IBV_WC_STANDARD_FLAGS);
	struct vt_ep *a = vt_ep(t, .send_ops = IBV_QP_EX_WITH_SEND_WITH_INV),
		     *b = vt_ep(t, .cq = ibv_cq_ex_to_cq(cq),
			     .send_ops = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV);
	struct ibv_qp_ex *qa = ibv_qp_to_qp_ex(a->qp), *qb = ibv_qp_to_qp_ex(b->qp);
	struct ibv_mr *mr = ibv_reg_mr(b->pd, b->buf, b->len, VT_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	struct ibv_mw_bind_info info = {mr, (uintptr_t)b->buf, 4096, IBV_ACCESS_REMOTE_WRITE};
	struct ibv_mw *mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_2);
	uint32_t first = ibv_inc_rkey(mw->rkey), second = ibv_inc_rkey(first);

	vt_connect(a, b, NULL);
	ibv_wr_start(qb);
	next(qb, 1);
	ibv_wr_bind_mw(qb, mw, first, &info);
	next(qb, 2);
	ibv_wr_local_inv(qb, first);
	next(qb, 3);
	ibv_wr_bind_mw(qb, mw, second, &info);
	assert_int_equal(ibv_wr_complete(qb), 0);
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(start_soon(cq), 0);
		assert_int_equal(cq->wr_id, i);
		assert_int_equal(cq->status, IBV_WC_SUCCESS);
		assert_int_equal(ibv_wc_read_opcode(cq), i == 2 ? IBV_WC_LOCAL_INV : IBV_WC_BIND_MW);
		ibv_end_poll(cq);
	}
	vt_fill(a->buf, 100, 7);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 4, .len = 100, .to = b, .rkey = second);
	vt_ok(a, 4);
	vt_recv(b, 5, 8192, 8);
	ibv_wr_start(qa);
	next(qa, 6);
	ibv_wr_send_inv(qa, second);
	ibv_wr_set_sge(qa, a->mr->lkey, (uintptr_t)a->buf, 8);
	assert_int_equal(ibv_wr_complete(qa), 0);
	vt_ok(a, 6);
	assert_int_equal(start_soon(cq), 0);
	assert_int_equal(cq->wr_id, 5);
	assert_true(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_INV);
	assert_int_equal(ibv_wc_read_invalidated_rkey(cq), second);
	ibv_end_poll(cq);
	vt_check(b->buf, 100, 7);
	vt_post(a, .op = vt_refusable(), .id = 7, .len = 1, .to = b, .rkey = second);
	vt_expect(a, 7, IBV_WC_REM_ACCESS_ERR);
	vt_ep_drop_qp(b);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	vt_ep_close(b);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

/* Between a look at the clock before and one after. */
static void wall_clock_of_a_completion(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_ex *cq = create_cq_ex(t, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	struct vt_ep *a = vt_ep(t, .cq = ibv_cq_ex_to_cq(cq)), *b = vt_ep(t);
	struct timespec before, after;
	uint64_t ns;

	vt_connect(a, b, NULL);
	clock_gettime(CLOCK_REALTIME, &before);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .to = b);
	assert_int_equal(start_soon(cq), 0);
	clock_gettime(CLOCK_REALTIME, &after);
	ns = ibv_wc_read_completion_wallclock_ns(cq);
	assert_in_range(ns, before.tv_sec * 1000000000ull + before.tv_nsec,
		after.tv_sec * 1000000000ull + after.tv_nsec);
	ibv_end_poll(cq);
	vt_ep_close(a);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void completion_timestamps_grow(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_ex *cq = create_cq_ex(t, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
	struct vt_ep *a, *b;
	uint64_t last = 0;

	if (!cq) {
		assert_int_equal(errno, EOPNOTSUPP);
		skip_because("the device has no timestamps");
	}
	a = vt_ep(t, .cq = ibv_cq_ex_to_cq(cq));
	b = vt_ep(t);
	vt_connect(a, b, NULL);
	for (int i = 0; i < 10; i++) {
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = i, .len = 8, .to = b);
		assert_int_equal(start_soon(cq), 0);
		assert_true(ibv_wc_read_completion_ts(cq) >= last);
		last = ibv_wc_read_completion_ts(cq);
		assert_true(last > 0);
		ibv_end_poll(cq);
	}
	vt_ep_close(a);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void unknown_wishes_of_a_cq_are_refused(void **state)
{
	struct vt *t = *state;
	struct ibv_cq_init_attr_ex a = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};

	errno = 0;
	assert_null(create_cq_ex(t, 1ull << 40));
	assert_int_equal(errno, EOPNOTSUPP);
	a.comp_mask = 1u << 30;
	assert_null(ibv_create_cq_ex(t->ctx, &a));
	a.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	a.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	{
		struct ibv_cq_ex *cq = ibv_create_cq_ex(t->ctx, &a);

		if (cq)
			assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
		else
			assert_int_equal(errno, EOPNOTSUPP);
	}
}

static const struct CMUnitTest tests[] = {
	VT_TEST(plain_qp_has_no_builders),
	VT_TEST(builders_for_what_is_not_there_are_refused),
	VT_TEST(each_builder_does_its_request),
	VT_TEST(atomic_builders_do_theirs),
	VT_TEST(inline_builders_take_the_data_at_once),
	VT_TEST(aborted_requests_never_were),
	VT_TEST(too_much_in_one_batch_fails_as_a_whole),
	VT_TEST(program_may_poll_while_it_builds),
	VT_TEST(datagram_builder_sets_the_address),
	VT_TEST(helpers_of_the_header),
	VT_TEST(extended_polling_reads_the_same_completions),
	VT_TEST(extended_polling_reads_errors),
	VT_TEST(extended_polling_reads_whence_a_datagram_came),
	VT_TEST(builders_bind_and_withdraw_windows),
	VT_TEST(wall_clock_of_a_completion),
	VT_TEST(completion_timestamps_grow),
	VT_TEST(unknown_wishes_of_a_cq_are_refused),
};

VT_MAIN("extended", tests, NULL)
