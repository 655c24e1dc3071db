/* SPDX-License-Identifier: MIT */
/*
 * The objects of an adapter: each can be made and unmade, in the wrong order it says EBUSY and lives on,
 * and what it was not built for is refused when it is created, not later.
 */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

static void every_object_refuses_to_go_while_another_needs_it(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .channel = true), *b = vt_ep(t);

	vt_connect(a, b, NULL);
	assert_int_equal(ibv_dealloc_pd(a->pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(a->cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(a->channel), EBUSY);
	vt_ping_pong(a, b);
}

static void pd_is_busy_by_each_kind_of_child(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_ah_attr av;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	char byte;

	mr = ibv_reg_mr(pd, &byte, 1, 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	srq = ibv_create_srq(pd, &sa);
	assert_non_null(srq);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	if (vt_can("UD")) {
		vt_fill_av(t, &t->gid, t->port.lid, &av);
		ah = ibv_create_ah(pd, &av);
		assert_non_null(ah);
		assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
		assert_int_equal(ibv_destroy_ah(ah), 0);
	}
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void region_is_busy_while_a_window_is_bound(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_mw_bind bind = {.wr_id = 5,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
	struct ibv_mw *mw;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	mw = ibv_alloc_mw(b->pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	assert_int_equal(ibv_dealloc_pd(b->pd), EBUSY);
	bind.bind_info.mr = ibv_reg_mr(b->pd, b->buf, 4096, VT_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	bind.bind_info.addr = (uintptr_t)b->buf;
	assert_int_equal(ibv_bind_mw(b->qp, mw, &bind), 0);
	vt_ok(b, 5);
	assert_int_equal(ibv_dereg_mr(bind.bind_info.mr), EBUSY);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .raddr = (uintptr_t)b->buf, .rkey = mw->rkey);
	vt_ok(a, 1);
	vt_landed(a, b);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(bind.bind_info.mr), 0);
}

static void qp_is_busy_while_it_is_in_a_group(void **state)
{
	static const union ibv_gid group = {.raw = {0xff, 0x0e, [14] = 0x5a, [15] = 1}},
				   group4 = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
	struct vt *t = *state;
	const union ibv_gid *g = t->gid.raw[10] == 0xff && t->gid.raw[11] == 0xff ? &group4 : &group;
	struct vt_ep *ep;

	vt_need("MCAST");
	ep = vt_ep(t, .type = IBV_QPT_UD);
	vt_ud_start(ep, VT_QKEY);
	assert_int_equal(ibv_attach_mcast(ep->qp, g, 0), 0);
	assert_int_equal(ibv_destroy_qp(ep->qp), EBUSY);
	assert_int_equal(ibv_detach_mcast(ep->qp, g, 0), 0);
	vt_ep_drop_qp(ep);
}

static void srq_is_busy_while_a_qp_uses_it(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct vt_ep *ep = vt_ep(t, .pd = pd, .srq = srq);

	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	vt_ep_close(ep);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void parent_domain_stands_in_for_its_pd(void **state)
{
	struct vt *t = *state;
	struct ibv_td_init_attr ta = {0};
	struct ibv_td *td = ibv_alloc_td(t->ctx, &ta);
	struct ibv_parent_domain_init_attr pa = {.pd = ibv_alloc_pd(t->ctx), .td = td};
	struct ibv_pd *parent;
	struct vt_ep *a, *b;

	assert_non_null(td);
	parent = ibv_alloc_parent_domain(t->ctx, &pa);
	assert_non_null(parent);
	assert_int_equal(ibv_dealloc_pd(pa.pd), EBUSY);
	assert_int_equal(ibv_dealloc_td(td), EBUSY);
	a = vt_ep(t, .pd = parent);
	b = vt_ep(t, .pd = pa.pd);
	vt_connect(a, b, NULL);
	vt_ping_pong(a, b);
	assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
	vt_ep_close(b);
	vt_ep_close(a);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	assert_int_equal(ibv_dealloc_pd(pa.pd), 0);
}

/* An object of the parent domain and a key of its PD are in one protection domain. */
static void parent_domain_shares_the_keys_of_its_pd(void **state)
{
	struct vt *t = *state;
	struct ibv_parent_domain_init_attr pa = {.pd = ibv_alloc_pd(t->ctx)};
	struct ibv_pd *parent = ibv_alloc_parent_domain(t->ctx, &pa);
	struct vt_ep *a = vt_ep(t), *b;
	struct ibv_mr *mr;

	assert_non_null(parent);
	b = vt_ep(t, .pd = parent);
	mr = ibv_reg_mr(pa.pd, b->buf, b->len, VT_ALL_ACCESS);
	vt_connect(a, b, NULL);
	vt_fill(a->buf, 100, 5);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 100, .to = b, .rkey = mr->rkey);
	vt_ok(a, 1);
	vt_check_written(b->buf, 100, 5);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	vt_ep_close(b);
	assert_int_equal(ibv_dealloc_pd(parent), 0);
	assert_int_equal(ibv_dealloc_pd(pa.pd), 0);
}

static struct ibv_qp *try_qp(struct vt_ep *ep, const struct ibv_qp_init_attr *with)
{
	struct ibv_qp_init_attr a = *with;
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(ep->pd, &a);
	if (qp) {
		assert_true(a.cap.max_send_wr >= with->cap.max_send_wr);
		assert_true(a.cap.max_recv_wr >= with->cap.max_recv_wr);
		assert_true(a.cap.max_send_sge >= with->cap.max_send_sge);
		assert_true(a.cap.max_recv_sge >= with->cap.max_recv_sge);
		assert_true(a.cap.max_inline_data >= with->cap.max_inline_data);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	} else {
		assert_true(errno == EINVAL || errno == ENOMEM || errno == EOPNOTSUPP);
	}
	return qp;
}

/* Clients learn limits by trial, so what is promised must work and one more must not. */
static void qp_limits_are_as_promised(void **state)
{
	struct vt *t = *state;
	struct vt_ep *ep = vt_ep(t);
	const struct ibv_qp_init_attr base = {.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	static const size_t field[] = {offsetof(struct ibv_qp_init_attr, cap.max_send_wr),
		offsetof(struct ibv_qp_init_attr, cap.max_recv_wr),
		offsetof(struct ibv_qp_init_attr, cap.max_send_sge),
		offsetof(struct ibv_qp_init_attr, cap.max_recv_sge),
		offsetof(struct ibv_qp_init_attr, cap.max_inline_data)};
	const uint32_t limit[] = {t->dev.max_qp_wr, t->dev.max_qp_wr, t->dev.max_sge, t->dev.max_sge, 0};

	for (size_t i = 0; i < ARRAY_LEN(field); i++) {
		struct ibv_qp_init_attr a = base;
		uint32_t *v = (uint32_t *)((char *)&a + field[i]);

		*v = limit[i];
		assert_non_null(try_qp(ep, &a));
		if (limit[i]) {
			*v = limit[i] + 1;
			assert_null(try_qp(ep, &a));
		}
		*v = UINT32_MAX;
		assert_null(try_qp(ep, &a));
	}
}

static void qp_without_its_parts_is_refused(void **state)
{
	struct vt *t = *state;
	struct vt_ep *ep = vt_ep(t);
	struct ibv_qp_init_attr a = {.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	a.send_cq = NULL;
	assert_null(try_qp(ep, &a));
	a.send_cq = ep->cq;
	a.recv_cq = NULL;
	assert_null(try_qp(ep, &a));
	a.recv_cq = ep->cq;
	a.qp_type = 77;
	assert_null(try_qp(ep, &a));
	a.qp_type = IBV_QPT_RC;
	assert_non_null(try_qp(ep, &a));
}

static void cq_and_srq_limits_are_as_promised(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = t->dev.max_srq_wr, .max_sge = 1}};
	struct ibv_cq *cq = ibv_create_cq(t->ctx, t->dev.max_cqe, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);

	assert_non_null(cq);
	assert_true(cq->cqe >= t->dev.max_cqe);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_null(ibv_create_cq(t->ctx, t->dev.max_cqe + 1, NULL, NULL, 0));
	assert_null(ibv_create_cq(t->ctx, -1, NULL, NULL, 0));
	assert_null(ibv_create_cq(t->ctx, 1, NULL, NULL, t->ctx->num_comp_vectors));
	assert_int_equal(errno, EINVAL);

	assert_non_null(srq);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	sa.attr = (struct ibv_srq_attr){.max_wr = t->dev.max_srq_wr + 1, .max_sge = 1};
	assert_null(ibv_create_srq(pd, &sa));
	sa.attr = (struct ibv_srq_attr){.max_wr = 1, .max_sge = t->dev.max_srq_sge + 1};
	assert_null(ibv_create_srq(pd, &sa));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void address_handle_checks_its_path(void **state)
{
	struct vt *t = *state;
	struct ibv_ah_attr good, bad;
	struct ibv_pd *pd;
	struct ibv_ah *ah;

	vt_need("UD");
	pd = ibv_alloc_pd(t->ctx);
	vt_fill_av(t, &t->gid, t->port.lid, &good);
	ah = ibv_create_ah(pd, &good);
	assert_non_null(ah);
	assert_ptr_equal(ah->pd, pd);
	assert_ptr_equal(ah->context, t->ctx);
	assert_int_equal(ibv_destroy_ah(ah), 0);

	bad = good;
	bad.port_num = 99;
	assert_null(ibv_create_ah(pd, &bad));
	assert_int_equal(errno, EINVAL);
	if (good.is_global) {
		bad = good;
		bad.grh.sgid_index = 255;
		assert_null(ibv_create_ah(pd, &bad));
	}
	if (t->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		bad = good;
		bad.is_global = 0;
		assert_null(ibv_create_ah(pd, &bad));
		assert_int_equal(errno, EINVAL);
	}
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void keys_and_qp_numbers_are_unique(void **state)
{
	enum { N = 500 };
	struct vt *t = *state;
	struct vt_ep *ep = vt_ep(t);
	struct ibv_qp_init_attr a = {.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_mr *mr[N];
	struct ibv_qp *qp[N];
	uint32_t key[N], qpn[N];

	for (int i = 0; i < N; i++) {
		mr[i] = ibv_reg_mr(ep->pd, ep->buf, ep->len, VT_ALL_ACCESS);
		assert_non_null(mr[i]);
		key[i] = mr[i]->rkey;
		qp[i] = ibv_create_qp(ep->pd, &a);
		assert_non_null(qp[i]);
		qpn[i] = qp[i]->qp_num;
		assert_true(qpn[i] > 1 && qpn[i] < 0xffffff);
		/* An RNIC has no state before INIT; rdma-core's tests want it so. */
		assert_int_equal(qp[i]->state, vt_by_cm(t) ? IBV_QPS_INIT : IBV_QPS_RESET);
	}
	qsort(key, N, sizeof(key[0]), by_value);
	qsort(qpn, N, sizeof(qpn[0]), by_value);
	for (int i = 1; i < N; i++) {
		assert_true(key[i - 1] != key[i]);
		assert_true(qpn[i - 1] != qpn[i]);
	}
	for (int i = 0; i < N; i++) {
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
		assert_int_equal(ibv_destroy_qp(qp[i]), 0);
	}
}

static int open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void closing_gives_all_descriptors_back(void **state)
{
	struct vt *t = *state;
	int before = 0;
	double until;

	for (int i = 0; i < 20; i++) {
		struct ibv_context *ctx = ibv_open_device(t->ctx->device);
		struct vt other = *t;
		struct vt_ep *a, *b;

		assert_non_null(ctx);
		other.ctx = ctx;
		other.eps = NULL;
		a = vt_ep(&other, .channel = true);
		b = vt_ep(&other, .channel = true);
		vt_connect(a, b, NULL);
		vt_ping_pong(a, b);
		vt_ep_close(b);
		vt_ep_close(a);
		assert_int_equal(ibv_close_device(ctx), 0);
		if (i == 2)
			before = open_descriptors();
	}
	/* A connection may end in the background, in its own time. */
	for (until = vt_deadline(); open_descriptors() > before && vt_now() < until;)
		;
	assert_true(open_descriptors() <= before);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(every_object_refuses_to_go_while_another_needs_it),
	VT_TEST(pd_is_busy_by_each_kind_of_child),
	VT_TEST(region_is_busy_while_a_window_is_bound),
	VT_TEST(qp_is_busy_while_it_is_in_a_group),
	VT_TEST(srq_is_busy_while_a_qp_uses_it),
	VT_TEST(parent_domain_stands_in_for_its_pd),
	VT_TEST(parent_domain_shares_the_keys_of_its_pd),
	VT_TEST(qp_limits_are_as_promised),
	VT_TEST(qp_without_its_parts_is_refused),
	VT_TEST(cq_and_srq_limits_are_as_promised),
	VT_TEST(address_handle_checks_its_path),
	VT_TEST(keys_and_qp_numbers_are_unique),
	VT_TEST(closing_gives_all_descriptors_back),
};

VT_MAIN("objects", tests, NULL)
