/* SPDX-License-Identifier: MIT */
/*
 * What docs/coverage.md calls "no" is refused cleanly: NULL with EOPNOTSUPP, or EOPNOTSUPP returned; nothing
 * is left behind and the device goes on. And what it calls "partly": accepted, of little effect.
 */
#include "fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <net/ethernet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* 0 when the object was made, else errno. */
static int made(const void *object)
{
	return object ? 0 : errno;
}

static int dmabuf(struct vt_ep *e)
{
	return made(ibv_reg_dmabuf_mr(e->pd, 0, 4096, 0, 0, VT_ALL_ACCESS));
}

static int import_device(struct vt_ep *e)
{
	(void)e;
	return made(ibv_import_device(0));
}

static int import_pd(struct vt_ep *e)
{
	return made(ibv_import_pd(e->t->ctx, 0));
}

static int import_mr(struct vt_ep *e)
{
	return made(ibv_import_mr(e->pd, 0));
}

static int import_dm(struct vt_ep *e)
{
	return made(ibv_import_dm(e->t->ctx, 0));
}

static int query_ece(struct vt_ep *e)
{
	struct ibv_ece ece;

	return ibv_query_ece(e->qp, &ece);
}

static int set_ece(struct vt_ep *e)
{
	struct ibv_ece ece = {.vendor_id = 1};

	return ibv_set_ece(e->qp, &ece);
}

static int resolve_l2(struct vt_ep *e)
{
	struct ibv_ah_attr av = {.is_global = 1};
	uint8_t mac[ETH_ALEN];
	uint16_t vlan;
	int rc = ibv_resolve_eth_l2_from_gid(e->t->ctx, &av, mac, &vlan);

	return rc == -1 ? errno : rc;
}

static int xrcd(struct vt_ep *e)
{
	struct ibv_xrcd_init_attr a = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};

	return made(ibv_open_xrcd(e->t->ctx, &a));
}

static int open_qp(struct vt_ep *e)
{
	struct ibv_qp_open_attr a = {.qp_num = e->qp->qp_num, .qp_type = IBV_QPT_XRC_RECV};

	return made(ibv_open_qp(e->t->ctx, &a));
}

static int null_mr(struct vt_ep *e)
{
	return made(ibv_alloc_null_mr(e->pd));
}

static int flow(struct vt_ep *e)
{
	struct ibv_flow_attr a = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(a), .port = 1};

	return made(ibv_create_flow(e->qp, &a));
}

static int flow_action(struct vt_ep *e)
{
	struct ibv_flow_action_esp_attr a = {0};

	return made(ibv_create_flow_action_esp(e->t->ctx, &a));
}

static int counters(struct vt_ep *e)
{
	struct ibv_counters_init_attr a = {0};

	return made(ibv_create_counters(e->t->ctx, &a));
}

static int work_queue(struct vt_ep *e)
{
	struct ibv_wq_init_attr a = {
		.wq_type = IBV_WQT_RQ, .max_wr = 1, .max_sge = 1, .pd = e->pd, .cq = e->cq};

	return made(ibv_create_wq(e->t->ctx, &a));
}

static int indirection(struct vt_ep *e)
{
	struct ibv_rwq_ind_table_init_attr a = {0};

	return made(ibv_create_rwq_ind_table(e->t->ctx, &a));
}

static int rate_limit(struct vt_ep *e)
{
	struct ibv_qp_rate_limit_attr a = {.rate_limit = 1000};

	return ibv_modify_qp_rate_limit(e->qp, &a);
}

static int tag_matching(struct vt_ep *e)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(e->pd, &attr);
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_SYNC}, *bad;
	int rc;

	assert_non_null(srq);
	rc = ibv_post_srq_ops(srq, &wr, &bad);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	return rc;
}

static int qp_of_type(struct vt_ep *e, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr a = {.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = type,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	return made(ibv_create_qp(e->pd, &a));
}

static int raw_packet_qp(struct vt_ep *e)
{
	return qp_of_type(e, IBV_QPT_RAW_PACKET);
}

static int xrc_qp(struct vt_ep *e)
{
	return qp_of_type(e, IBV_QPT_XRC_SEND);
}

static int driver_qp(struct vt_ep *e)
{
	return qp_of_type(e, IBV_QPT_DRIVER);
}

static int qp_ex_with(struct vt_ep *e, uint32_t mask, uint64_t ops)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | mask,
		.pd = e->pd,
		.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
		.max_tso_header = 64,
		.send_ops_flags = ops};

	return made(ibv_create_qp_ex(e->t->ctx, &a));
}

static int qp_create_flags(struct vt_ep *e)
{
	return qp_ex_with(e, IBV_QP_INIT_ATTR_CREATE_FLAGS, 0);
}

static int qp_tso(struct vt_ep *e)
{
	return qp_ex_with(e, IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0);
}

static int qp_rss(struct vt_ep *e)
{
	return qp_ex_with(e, IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH, 0);
}

static int tso_builder(struct vt_ep *e)
{
	return qp_ex_with(e, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_TSO);
}

static int atomic_write_builder(struct vt_ep *e)
{
	return qp_ex_with(e, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_ATOMIC_WRITE);
}

static int flush_builder(struct vt_ep *e)
{
	enum { IBV_QP_EX_WITH_FLUSH = 1 << 11 }; /* since rdma-core 45 */

	return qp_ex_with(e, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_FLUSH);
}

static int cq_ex_with(struct vt_ep *e, uint64_t fields, uint32_t flags)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 4,
		.wc_flags = fields,
		.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0,
		.flags = flags};

	return made(ibv_create_cq_ex(e->t->ctx, &a));
}

static int ignore_overrun(struct vt_ep *e)
{
	return cq_ex_with(e, 0, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
}

static int cvlan(struct vt_ep *e)
{
	return cq_ex_with(e, IBV_WC_EX_WITH_CVLAN, 0);
}

static int flow_tag(struct vt_ep *e)
{
	return cq_ex_with(e, IBV_WC_EX_WITH_FLOW_TAG, 0);
}

static int tm_info(struct vt_ep *e)
{
	return cq_ex_with(e, IBV_WC_EX_WITH_TM_INFO, 0);
}

static int srq_ex_of(struct vt_ep *e, enum ibv_srq_type type)
{
	struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = type,
		.pd = e->pd};

	return made(ibv_create_srq_ex(e->t->ctx, &a));
}

static int xrc_srq(struct vt_ep *e)
{
	return srq_ex_of(e, IBV_SRQT_XRC);
}

static int tm_srq(struct vt_ep *e)
{
	return srq_ex_of(e, IBV_SRQT_TM);
}

static const struct {
	const char *name;
	int (*ask)(struct vt_ep *e);
} refusals[] = {
	{"ibv_reg_dmabuf_mr", dmabuf},
	{"ibv_import_device", import_device},
	{"ibv_import_pd", import_pd},
	{"ibv_import_mr", import_mr},
	{"ibv_import_dm", import_dm},
	{"ibv_query_ece", query_ece},
	{"ibv_set_ece", set_ece},
	{"ibv_resolve_eth_l2_from_gid", resolve_l2},
	{"ibv_open_xrcd", xrcd},
	{"ibv_open_qp", open_qp},
	{"ibv_alloc_null_mr", null_mr},
	{"ibv_create_flow", flow},
	{"ibv_create_flow_action_esp", flow_action},
	{"ibv_create_counters", counters},
	{"ibv_create_wq", work_queue},
	{"ibv_create_rwq_ind_table", indirection},
	{"ibv_modify_qp_rate_limit", rate_limit},
	{"ibv_post_srq_ops", tag_matching},
	{"a RAW_PACKET QP", raw_packet_qp},
	{"an XRC_SEND QP", xrc_qp},
	{"a DRIVER QP", driver_qp},
	{"create flags of a QP", qp_create_flags},
	{"a QP with TSO", qp_tso},
	{"a QP with RSS", qp_rss},
	{"the builder of TSO", tso_builder},
	{"the builder of ATOMIC_WRITE", atomic_write_builder},
	{"the builder of FLUSH", flush_builder},
	{"a CQ that ignores overruns", ignore_overrun},
	{"the cvlan of a completion", cvlan},
	{"the flow tag of a completion", flow_tag},
	{"the tag of a completion", tm_info},
	{"an SRQ of XRC", xrc_srq},
	{"an SRQ that matches tags", tm_srq},
};

static void no_is_a_clean_refusal(void **state)
{
	struct vt_ep *a, *b;

	vt_pair(*state, IBV_QPT_RC, &a, &b);
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		int err;

		errno = 0;
		err = refusals[i].ask(a);
		if (err != EOPNOTSUPP)
			fail_msg("%s: %s", refusals[i].name, err ? strerror(err) : "done");
	}
	vt_ping_pong(a, b);
}

/* Since rdma-core 45: not in the header that this is built with. */
static const struct {
	const char *name;
	enum { NULL_AND_ERRNO, THE_ERROR, MINUS_ONE_AND_ERRNO, NOTHING } says;
} newer[] = {
	{"ibv_alloc_dmah", NULL_AND_ERRNO},
	{"ibv_dealloc_dmah", THE_ERROR},
	{"ibv_reg_mr_ex", NULL_AND_ERRNO},
	{"ibv_dm_export_dmabuf_fd", MINUS_ONE_AND_ERRNO},
	{"ibv_query_port_speed", THE_ERROR},
	{"ibv_alloc_buf", NULL_AND_ERRNO},
	{"ibv_free_buf", NOTHING},
	{"ibv_reg_buf_mr", NULL_AND_ERRNO},
};

static void newer_calls_are_refused_too(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(newer); i++) {
		union {
			void *symbol;
			void *(*pointer)(void);
			int (*number)(void);
		} call = {dlsym(RTLD_DEFAULT, newer[i].name)};
		int err;

		if (!call.symbol)
			fail_msg("%s is not there", newer[i].name);
		errno = 0;
		if (newer[i].says == NULL_AND_ERRNO)
			err = made(call.pointer());
		else
			err = call.number();
		if (newer[i].says == MINUS_ONE_AND_ERRNO && err == -1)
			err = errno;
		if (newer[i].says != NOTHING && err != EOPNOTSUPP)
			fail_msg("%s: %d", newer[i].name, err);
	}
}

/* ---- partly: accepted, of little effect ---- */
static void basic_srq_by_the_extended_call(void **state)
{
	struct vt *t = *state;
	struct vt_ep *e = vt_ep(t), *a, *b;
	struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = e->pd};
	struct ibv_srq *srq = ibv_create_srq_ex(t->ctx, &attr), *other;
	uint32_t num = 0, other_num = 0;

	assert_non_null(srq);
	other = ibv_create_srq_ex(t->ctx, &attr);
	assert_int_equal(ibv_get_srq_num(srq, &num), 0);
	assert_int_equal(ibv_get_srq_num(other, &other_num), 0);
	assert_int_not_equal(num, other_num);
	assert_int_equal(ibv_destroy_srq(other), 0);
	a = vt_ep(t);
	b = vt_ep(t, .pd = e->pd, .srq = srq);
	vt_connect(a, b, NULL);
	vt_fill(a->buf, 100, 4);
	vt_recv(b, 2, 0, 100);
	vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 100);
	vt_check(b->buf, 100, 4);
	vt_ep_close(b);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void moderation_delays_no_event(void **state)
{
	struct vt_ep *a = vt_ep(*state), *b = vt_ep(*state, .channel = true);
	struct ibv_modify_cq_attr m = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 100, .cq_period = 60000}};

	vt_connect(a, b, NULL);
	assert_int_equal(ibv_modify_cq(b->cq, &m), 0);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	vt_recv(b, 2, 0, 8);
	vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 8);
	assert_true(vt_readable_soon(b->channel->fd));
}

static void advice_is_taken(void **state)
{
	struct vt_ep *a, *b;
	struct ibv_sge sge;

	vt_pair(*state, IBV_QPT_RC, &a, &b);
	vt_fill(a->buf, 100, 3);
	sge = vt_sge(a, 0, 4096);
	assert_int_equal(
		ibv_advise_mr(a->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
	vt_check(a->buf, 100, 3);
	vt_ping_pong(a, b);
}

/* In no header of rdma-core's. */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

static void ranges_a_child_should_not_get_are_there(void **state)
{
	struct vt_ep *a = vt_ep(*state);
	uint8_t before[64];
	int status;
	pid_t pid;

	vt_fill(a->buf, 4096, 5);
	memcpy(before, a->buf, sizeof(before));
	assert_int_equal(ibv_dontfork_range(a->buf, 4096), 0);
	pid = fork();
	if (!pid)
		_exit(memcmp(before, a->buf, sizeof(before)) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	assert_int_equal(ibv_dofork_range(a->buf, 4096), 0);
}

static void answers_that_are_always_the_same(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);

	assert_true(ibv_get_device_index(t->ctx->device) > 0);
	assert_int_equal(ibv_query_qp_data_in_order(a->qp, IBV_WR_RDMA_WRITE, 0), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static void clock_of_the_device_is_monotonic(void **state)
{
	struct vt *t = *state;
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct timespec before, after;

	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(ibv_query_rt_values_ex(t->ctx, &v), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_int_equal(v.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
	assert_in_range(v.raw_clock.tv_sec * 1000000000ull + v.raw_clock.tv_nsec,
		before.tv_sec * 1000000000ull + before.tv_nsec, after.tv_sec * 1000000000ull + after.tv_nsec);
}

/* ---- limits ---- */
static void one_more_than_the_limit(struct vt_ep *e, const char *what, struct ibv_qp_cap more)
{
	struct ibv_qp_cap least = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
	struct ibv_qp_init_attr a = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .cap = least};

	a.cap.max_send_wr += more.max_send_wr;
	a.cap.max_recv_wr += more.max_recv_wr;
	a.cap.max_send_sge += more.max_send_sge;
	a.cap.max_recv_sge += more.max_recv_sge;
	a.cap.max_inline_data += more.max_inline_data;
	errno = 0;
	if (ibv_create_qp(e->pd, &a) || errno != EINVAL)
		fail_msg("%s: errno %d", what, errno);
}

static void limits_are_kept(void **state)
{
	struct vt *t = *state;
	struct vt_ep *e = vt_ep(t);
	uint32_t wr = (uint32_t)t->dev.max_qp_wr, sge = (uint32_t)t->dev.max_sge;
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = (uint32_t)t->dev.max_srq_wr + 1, .max_sge = 1}};

	one_more_than_the_limit(e, "send requests", (struct ibv_qp_cap){.max_send_wr = wr});
	one_more_than_the_limit(e, "receives", (struct ibv_qp_cap){.max_recv_wr = wr});
	one_more_than_the_limit(e, "pieces of a send", (struct ibv_qp_cap){.max_send_sge = sge});
	one_more_than_the_limit(e, "pieces of a receive", (struct ibv_qp_cap){.max_recv_sge = sge});
	one_more_than_the_limit(e, "inline data", (struct ibv_qp_cap){.max_inline_data = 1025});
	assert_null(ibv_create_srq(e->pd, &srq));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_create_cq(t->ctx, t->dev.max_cqe + 1, NULL, NULL, 0));
	assert_int_equal(errno, EINVAL);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(no_is_a_clean_refusal),
	VT_TEST(newer_calls_are_refused_too),
	VT_TEST(basic_srq_by_the_extended_call),
	VT_TEST(moderation_delays_no_event),
	VT_TEST(advice_is_taken),
	VT_TEST(ranges_a_child_should_not_get_are_there),
	VT_TEST(answers_that_are_always_the_same),
	VT_TEST(clock_of_the_device_is_monotonic),
	VT_TEST(limits_are_kept),
};

VT_MAIN("refused", tests, NULL)
