/* SPDX-License-Identifier: MIT */
/* Device, endpoints and connections of the conformance tests; waiting and contents are in wait.c. */
#include "fixture.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *env(const char *name, const char *otherwise)
{
	const char *v = getenv(name);

	return v && *v ? v : otherwise;
}

bool vt_can(const char *cap)
{
	const char *caps = getenv("VERBS_CAPS");
	size_t n = strlen(cap);

	if (!caps || !*caps)
		return true;
	for (const char *p = caps; (p = strstr(p, cap)); p += n)
		if ((p == caps || p[-1] == ' ') && (p[n] == '\0' || p[n] == ' '))
			return true;
	return false;
}

static struct ibv_context *open_device(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *ctx = NULL;

	if (!list)
		return NULL;
	for (int i = 0; i < n && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

static bool gid_is_family(const union ibv_gid *gid, int family)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	static const uint8_t none[16];

	if (!memcmp(gid->raw, none, 16))
		return false;
	if (!memcmp(gid->raw, v4, 12))
		return family == 4;
	return family == 6 && !(gid->raw[0] == 0xfe && gid->raw[1] == 0x80);
}

/* Index 0 serves where addresses play no part. */
static int find_gid(struct vt *t, int family)
{
	for (int i = 0; i < t->port.gid_tbl_len; i++) {
		union ibv_gid gid;

		if (ibv_query_gid(t->ctx, t->port_num, i, &gid))
			return -1;
		if (gid_is_family(&gid, family))
			return i;
	}
	return t->port.link_layer == IBV_LINK_LAYER_ETHERNET ? -1 : 0;
}

/* The address, as a GID, of a device whose GIDs are none. */
static bool address_given(union ibv_gid *gid)
{
	static const union ibv_gid v4 = {.raw = {[10] = 0xff, [11] = 0xff}};
	const char *address = env("VERBS_ADDRESS", "");

	*gid = v4;
	return inet_pton(AF_INET, address, gid->raw + 12) == 1 || inet_pton(AF_INET6, address, gid->raw) == 1;
}

/* The ports that endpoints are at. The first is known; another one has its addresses under the same index. */
static bool find_places(struct vt *t)
{
	t->places = (unsigned)atoi(env("VERBS_PORTS", "1"));
	t->place[0] = (struct vt_place){t->port_num, t->port.lid, t->gid};
	for (unsigned i = 1; i < t->places && i < ARRAY_LEN(t->place); i++) {
		struct vt_place *p = &t->place[i];
		struct ibv_port_attr port;

		p->port = (uint8_t)(i + 1);
		if (ibv_query_port(t->ctx, p->port, &port) ||
			ibv_query_gid(t->ctx, p->port, t->gid_index, &p->gid))
			return false;
		p->lid = port.lid;
	}
	return t->places >= 1 && t->places <= ARRAY_LEN(t->place);
}

static bool find_address(struct vt *t)
{
	if (address_given(&t->gid))
		return true;
	t->gid_index = find_gid(t, atoi(env("VERBS_GID", "4")));
	return t->gid_index >= 0 && !ibv_query_gid(t->ctx, t->port_num, t->gid_index, &t->gid);
}

int vt_setup(void **state)
{
	const char *name = env("VERBS_DEVICE", "roce_lo");
	struct vt *t = calloc(1, sizeof(*t));

	*state = t;
	t->port_num = 1;
	t->ctx = open_device(name);
	if (!t->ctx) {
		print_error("no device named %s\n", name);
		return -1;
	}
	if (ibv_query_device(t->ctx, &t->dev) || ibv_query_port(t->ctx, t->port_num, &t->port)) {
		print_error("%s: cannot be queried\n", name);
		return -1;
	}
	if (!find_address(t) || !find_places(t)) {
		print_error("%s: no GID of the wanted family, or no port as wanted\n", name);
		return -1;
	}
	return 0;
}

static void create_cq(struct vt_ep *ep, const struct vt_opts *o, uint32_t sends, uint32_t recvs)
{
	int cqe = o->cqe ? o->cqe : (int)(sends + recvs);

	if (o->channel) {
		ep->channel = ibv_create_comp_channel(ep->t->ctx);
		assert_non_null(ep->channel);
	}
	ep->own_cq = true;
	ep->cq = ibv_create_cq(ep->t->ctx, cqe, ep, ep->channel, 0);
	assert_non_null(ep->cq);
}

static void create_qp(struct vt_ep *ep, const struct vt_opts *o)
{
	struct ibv_qp_init_attr_ex a = {
		.qp_context = ep,
		.send_cq = ep->cq,
		.recv_cq = ep->cq,
		.srq = ep->srq,
		.cap = {.max_send_wr = o->send_wr ? o->send_wr : 64,
			.max_recv_wr = o->recv_wr ? o->recv_wr : 64,
			.max_send_sge = o->sge ? o->sge : 4,
			.max_recv_sge = o->sge ? o->sge : 4,
			.max_inline_data = o->inline_data},
		.qp_type = o->type ? o->type : IBV_QPT_RC,
		.sq_sig_all = o->sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (o->send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = ep->pd,
		.send_ops_flags = o->send_ops,
	};

	if (!ep->cq)
		create_cq(ep, o, a.cap.max_send_wr, a.cap.max_recv_wr);
	a.send_cq = a.recv_cq = ep->cq;
	ep->qp = ibv_create_qp_ex(ep->t->ctx, &a);
	assert_non_null(ep->qp);
	ep->cap = a.cap;
}

struct vt_ep *vt_ep_open(struct vt *t, const struct vt_opts *o)
{
	struct vt_ep *ep = calloc(1, sizeof(*ep));
	int access = o->access == VT_NO_ACCESS ? 0 : o->access ? o->access : VT_ALL_ACCESS;

	ep->t = t;
	ep->at = &t->place[t->opened++ % t->places];
	ep->next = t->eps;
	t->eps = ep;
	ep->pd = o->pd;
	ep->cq = o->cq;
	ep->srq = o->srq;
	if (!ep->pd) {
		ep->own_pd = true;
		ep->pd = ibv_alloc_pd(t->ctx);
		assert_non_null(ep->pd);
	}
	ep->len = o->len ? o->len : 65536;
	ep->buf = mmap(NULL, ep->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(ep->buf, MAP_FAILED);
	ep->mr = ibv_reg_mr(ep->pd, ep->buf, ep->len, access);
	assert_non_null(ep->mr);
	create_qp(ep, o);
	return ep;
}

void vt_ep_drop_qp(struct vt_ep *ep)
{
	assert_int_equal(ibv_destroy_qp(ep->qp), 0);
	vt_cm_close(ep);
	ep->qp = NULL;
}

/* Gives back all it can, whatever fails: a test that broke off may have left children behind. */
static int ep_close(struct vt_ep *ep)
{
	struct vt_ep **p = &ep->t->eps;
	int rc = 0;

	while (*p != ep)
		p = &(*p)->next;
	*p = ep->next;
	rc |= ep->qp ? ibv_destroy_qp(ep->qp) : 0;
	vt_cm_close(ep);
	rc |= ep->cq && ep->own_cq ? ibv_destroy_cq(ep->cq) : 0;
	rc |= ep->channel ? ibv_destroy_comp_channel(ep->channel) : 0;
	rc |= ep->mr ? ibv_dereg_mr(ep->mr) : 0;
	rc |= ep->pd && ep->own_pd ? ibv_dealloc_pd(ep->pd) : 0;
	if (ep->buf)
		munmap(ep->buf, ep->len);
	free(ep);
	return rc;
}

void vt_ep_close(struct vt_ep *ep)
{
	assert_int_equal(ep_close(ep), 0);
}

int vt_teardown(void **state)
{
	struct vt *t = *state;
	int rc = 0;

	while (t->eps)
		rc |= ep_close(t->eps);
	rc |= t->ctx ? ibv_close_device(t->ctx) : 0;
	free(t);
	return rc;
}

struct vt_addr vt_addr(const struct vt_ep *ep)
{
	return (struct vt_addr){
		.gid = ep->at->gid,
		.lid = ep->at->lid,
		.qpn = ep->qp ? ep->qp->qp_num : 0,
		.addr = (uintptr_t)ep->buf,
		.rkey = ep->mr->rkey,
	};
}

struct vt_conn vt_conn(const struct vt *t)
{
	int depth = t->dev.max_qp_rd_atom < 16 ? t->dev.max_qp_rd_atom : 16;

	return (struct vt_conn){
		.psn_out = 0x123456,
		.psn_in = 0x654321,
		.mtu = t->port.active_mtu < IBV_MTU_1024 ? t->port.active_mtu : IBV_MTU_1024,
		.timeout = VT_PATIENT,
		.retry = 7,
		.rnr_retry = 7,
		.min_rnr = 12, /* 0.64 ms */
		.rd_atomic = depth,
		.dest_rd_atomic = depth,
		.access = VT_ALL_ACCESS,
	};
}

void vt_fill_av(const struct vt *t, const union ibv_gid *gid, uint16_t lid, struct ibv_ah_attr *av)
{
	bool needed = t->port.link_layer == IBV_LINK_LAYER_ETHERNET || lid >= 0xc000; /* a group's */

	*av = (struct ibv_ah_attr){
		.dlid = lid,
		.port_num = t->port_num,
		.is_global = needed || atoi(env("VERBS_GRH", "0")),
		.grh = {.dgid = *gid, .sgid_index = t->gid_index, .hop_limit = 64},
	};
}

struct ibv_ah *vt_ah(struct vt_ep *ep, const struct vt_addr *to)
{
	struct ibv_ah_attr av;
	struct ibv_ah *ah;

	vt_fill_av(ep->t, &to->gid, to->lid, &av);
	av.port_num = ep->at->port;
	ah = ibv_create_ah(ep->pd, &av);
	assert_non_null(ah);
	return ah;
}

void vt_init(struct vt_ep *ep, const struct vt_conn *c)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = ep->at->port,
		.qkey = VT_QKEY,
		.qp_access_flags = c ? c->access : VT_ALL_ACCESS};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= ep->qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	assert_int_equal(ibv_modify_qp(ep->qp, &a, mask), 0);
}

void vt_rtr(struct vt_ep *ep, const struct vt_addr *to, const struct vt_conn *c)
{
	struct vt_conn d = c ? *c : vt_conn(ep->t);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = d.mtu,
		.dest_qp_num = to->qpn,
		.rq_psn = d.psn_in,
		.max_dest_rd_atomic = d.dest_rd_atomic,
		.min_rnr_timer = d.min_rnr};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	vt_fill_av(ep->t, &to->gid, to->lid, &a.ah_attr);
	a.ah_attr.port_num = ep->at->port;
	if (ep->qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	assert_int_equal(ibv_modify_qp(ep->qp, &a, mask), 0);
}

void vt_rts(struct vt_ep *ep, const struct vt_conn *c)
{
	struct vt_conn d = c ? *c : vt_conn(ep->t);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.sq_psn = d.psn_out,
		.timeout = d.timeout,
		.retry_cnt = d.retry,
		.rnr_retry = d.rnr_retry,
		.max_rd_atomic = d.rd_atomic};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (ep->qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	assert_int_equal(ibv_modify_qp(ep->qp, &a, mask), 0);
}

static void connect_by_cm(struct vt_ep *a, struct vt_ep *b, const struct vt_conn *c)
{
	struct rdma_cm_id *listener;
	uint16_t port;

	vt_cm_close(a);
	vt_cm_close(b);
	vt_init(a, c);
	vt_init(b, c);
	listener = vt_cm_listen(b->t, &port);
	vt_cm_ask(a, &b->t->gid, port, c);
	vt_cm_answer(b, listener, c);
	vt_cm_asked(a);
}

void vt_connect(struct vt_ep *a, struct vt_ep *b, const struct vt_conn *c)
{
	struct vt_conn there = c ? *c : vt_conn(a->t), back = there;
	struct vt_addr to_a = vt_addr(a), to_b = vt_addr(b);

	if (vt_by_cm(a->t)) {
		connect_by_cm(a, b, &there);
		return;
	}
	back.psn_out = there.psn_in;
	back.psn_in = there.psn_out;
	vt_init(a, &there);
	vt_init(b, &back);
	vt_rtr(a, &to_b, &there);
	vt_rtr(b, &to_a, &back);
	vt_rts(a, &there);
	vt_rts(b, &back);
}

void vt_pair(struct vt *t, enum ibv_qp_type type, struct vt_ep **a, struct vt_ep **b)
{
	*a = vt_ep(t, .type = type);
	*b = vt_ep(t, .type = type);
	vt_connect(*a, *b, NULL);
}

void vt_ud_start(struct vt_ep *ep, uint32_t qkey)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = ep->at->port, .qkey = qkey};

	assert_int_equal(
		ibv_modify_qp(ep->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	assert_int_equal(vt_modify_state(ep->qp, IBV_QPS_RTR), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 0xabcdef};
	assert_int_equal(ibv_modify_qp(ep->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

int vt_modify_state(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr a = {.qp_state = to};

	return ibv_modify_qp(qp, &a, IBV_QP_STATE);
}

enum ibv_qp_state vt_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;

	assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_STATE, &i), 0);
	return a.qp_state;
}

struct ibv_sge vt_sge(const struct vt_ep *ep, size_t off, uint32_t len)
{
	return (struct ibv_sge){.addr = (uintptr_t)ep->buf + off, .length = len, .lkey = ep->mr->lkey};
}

int vt_try_post(struct vt_ep *ep, const struct vt_req *r)
{
	uint64_t raddr = r->to ? (uintptr_t)r->to->buf + r->roff : r->raddr;
	uint32_t rkey = r->to && !r->rkey ? r->to->mr->rkey : r->rkey;
	struct ibv_sge sge = vt_sge(ep, r->off, r->len);
	struct ibv_send_wr *bad = NULL, wr = {
						.wr_id = r->id,
						.sg_list = &sge,
						.num_sge = r->len != 0,
						.opcode = r->op,
						.send_flags = r->flags | (r->quiet ? 0 : IBV_SEND_SIGNALED),
						.imm_data = htonl(r->imm),
					};

	if (r->lkey)
		sge.lkey = r->lkey;
	if (r->ah) {
		wr.wr.ud.ah = r->ah;
		wr.wr.ud.remote_qpn = r->qpn;
		wr.wr.ud.remote_qkey = r->qkey;
	} else if (r->op == IBV_WR_ATOMIC_CMP_AND_SWP || r->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = r->add;
		wr.wr.atomic.swap = r->swap;
	} else {
		wr.wr.rdma.remote_addr = raddr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(ep->qp, &wr, &bad);
}

int vt_try_recv(struct vt_ep *ep, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = vt_sge(ep, off, len);
	struct ibv_recv_wr *bad = NULL, wr = {.wr_id = id, .sg_list = &sge, .num_sge = len != 0};

	return ep->srq ? ibv_post_srq_recv(ep->srq, &wr, &bad) : ibv_post_recv(ep->qp, &wr, &bad);
}

void vt_landed(struct vt_ep *a, const struct vt_ep *b)
{
	if (vt_can("ACK"))
		return;
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 9002, .off = a->len - 1, .len = 1, .to = b);
	vt_ok(a, 9002);
}

void vt_ping_pong_at(struct vt_ep *a, struct vt_ep *b, const char *file, int line)
{
	struct vt_ep *from[] = {a, b};

	for (int i = 0; i < 2; i++) {
		struct vt_ep *s = from[i], *r = from[!i];

		vt_fill(s->buf, 100, 77 + i);
		memset(r->buf + 4096, 0, 100);
		vt_recv(r, 9001, 4096, 100);
		vt_post(s, .op = IBV_WR_SEND, .id = 9000, .len = 100);
		vt_expect_at(s->cq, 9000, IBV_WC_SUCCESS, file, line);
		vt_expect_at(r->cq, 9001, IBV_WC_SUCCESS, file, line);
		vt_check_at(r->buf + 4096, 100, 77 + i, file, line);
	}
}
