/* SPDX-License-Identifier: MIT */
/*
 * The life of a QP. The table below has the columns of IBA's modify-QP table (11.2.5.2): per transition
 * and QP type what must be given and what may be. Everything follows from it: each required attribute
 * left out, and each attribute not named, is EINVAL and changes nothing.
 *
 *     RESET -> INIT -> RTR -> RTS <-> SQD        any -> ERR, any -> RESET
 */
#include "fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RC, UC, UD, TYPES };

static const enum ibv_qp_type type_of[TYPES] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
static const char *const type_name[TYPES] = {"RC", "UC", "UD"};

#define KEY_PORT (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define CONN     (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define ACCESS   IBV_QP_ACCESS_FLAGS
#define RETRIES  (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define MIGRATE  (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)

static const struct arrow {
	enum ibv_qp_state from, to;
	int required[TYPES];
	int optional[TYPES];
} arrows[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, {KEY_PORT | ACCESS, KEY_PORT | ACCESS, KEY_PORT | IBV_QP_QKEY},
		{0, 0, 0}},
	{IBV_QPS_INIT, IBV_QPS_INIT, {0, 0, 0},
		{KEY_PORT | ACCESS, KEY_PORT | ACCESS, KEY_PORT | IBV_QP_QKEY}},
	{IBV_QPS_INIT, IBV_QPS_RTR, {CONN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, CONN, 0},
		{ACCESS | IBV_QP_PKEY_INDEX, ACCESS | IBV_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
	{IBV_QPS_RTR, IBV_QPS_RTS, {IBV_QP_SQ_PSN | RETRIES, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
		{IBV_QP_CUR_STATE | ACCESS | IBV_QP_MIN_RNR_TIMER, IBV_QP_CUR_STATE | ACCESS,
			IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_RTS, IBV_QPS_RTS, {0, 0, 0},
		{IBV_QP_CUR_STATE | ACCESS | IBV_QP_MIN_RNR_TIMER, IBV_QP_CUR_STATE | ACCESS,
			IBV_QP_CUR_STATE | IBV_QP_QKEY}},
	{IBV_QPS_RTS, IBV_QPS_SQD, {0, 0, 0},
		{IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	{IBV_QPS_SQD, IBV_QPS_SQD, {0, 0, 0},
		{IBV_QP_AV | RETRIES | IBV_QP_MAX_DEST_RD_ATOMIC | ACCESS | IBV_QP_PKEY_INDEX |
				IBV_QP_MIN_RNR_TIMER,
			IBV_QP_AV | ACCESS | IBV_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
	{IBV_QPS_SQD, IBV_QPS_RTS, {0, 0, 0},
		{IBV_QP_CUR_STATE | ACCESS | IBV_QP_MIN_RNR_TIMER, IBV_QP_CUR_STATE | ACCESS,
			IBV_QP_CUR_STATE | IBV_QP_QKEY}},
};

/* What may be given with any arrow of the table above without our having an opinion. */
#define NO_OPINION (IBV_QP_STATE | IBV_QP_CUR_STATE | MIGRATE | IBV_QP_CAP | IBV_QP_RATE_LIMIT | IBV_QP_PORT)

static struct ibv_qp_attr values(struct vt_ep *ep, const struct arrow *w)
{
	struct vt_conn c = vt_conn(ep->t);
	struct ibv_qp_attr a = {.qp_state = w->to,
		.cur_qp_state = w->from,
		.path_mtu = c.mtu,
		.qkey = VT_QKEY,
		.rq_psn = 0x111111,
		.sq_psn = 0x222222,
		.dest_qp_num = ep->qp->qp_num,
		.qp_access_flags = VT_ALL_ACCESS,
		.port_num = ep->t->port_num,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = 5,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 3};

	vt_fill_av(ep->t, &ep->t->gid, ep->t->port.lid, &a.ah_attr);
	return a;
}

/* A send queue that is being drained cannot be talked to before it is done. */
static void wait_drained(struct vt_ep *ep)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	double end = vt_deadline();

	do
		assert_int_equal(ibv_query_qp(ep->qp, &a, IBV_QP_STATE, &init), 0);
	while (a.sq_draining && vt_now() < end);
	assert_false(a.sq_draining);
}

static int go(struct vt_ep *ep, const struct arrow *w, int mask)
{
	struct ibv_qp_attr a = values(ep, w);

	return ibv_modify_qp(ep->qp, &a, mask | IBV_QP_STATE);
}

/* Brings a fresh QP to a state by the table's own arrows. */
static void bring(struct vt_ep *ep, int type, enum ibv_qp_state to)
{
	assert_int_equal(vt_modify_state(ep->qp, IBV_QPS_RESET), 0);
	if (to == IBV_QPS_ERR) {
		bring(ep, type, IBV_QPS_INIT);
		assert_int_equal(vt_modify_state(ep->qp, IBV_QPS_ERR), 0);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(arrows) && ep->qp->state != to; i++)
		if (arrows[i].from == ep->qp->state && arrows[i].to > arrows[i].from)
			assert_int_equal(go(ep, &arrows[i], arrows[i].required[type]), 0);
	assert_int_equal(ep->qp->state, to);
	if (to == IBV_QPS_SQD)
		wait_drained(ep);
}

static void expect_refused(struct vt_ep *ep, int type, const struct arrow *w, int mask, int bit)
{
	int rc = go(ep, w, mask);

	if (rc != EINVAL)
		fail_msg("%s: state %d to %d, attribute %#x: %d instead of EINVAL", type_name[type], w->from,
			w->to, bit, rc);
	assert_int_equal(vt_state(ep->qp), w->from);
}

static bool type_is_tested(int type)
{
	return type == RC || vt_can(type_name[type]);
}

static void required_attributes_are_enough(void **state)
{
	struct vt *t = *state;

	vt_need("MODIFY");
	for (int type = 0; type < TYPES; type++) {
		struct vt_ep *ep;

		if (!type_is_tested(type))
			continue;
		ep = vt_ep(t, .type = type_of[type]);
		for (size_t i = 0; i < ARRAY_LEN(arrows); i++) {
			const struct arrow *w = &arrows[i];

			bring(ep, type, w->from);
			assert_int_equal(go(ep, w, w->required[type]), 0);
			assert_int_equal(ep->qp->state, w->to);
			assert_int_equal(vt_state(ep->qp), w->to);
		}
	}
}

static void each_missing_attribute_is_refused(void **state)
{
	struct vt *t = *state;

	vt_need("MODIFY");
	for (int type = 0; type < TYPES; type++) {
		struct vt_ep *ep;

		if (!type_is_tested(type))
			continue;
		ep = vt_ep(t, .type = type_of[type]);
		for (size_t i = 0; i < ARRAY_LEN(arrows); i++) {
			const struct arrow *w = &arrows[i];

			bring(ep, type, w->from);
			for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
				if (w->required[type] & bit)
					expect_refused(ep, type, w, w->required[type] & ~bit, bit);
		}
	}
}

static void each_attribute_out_of_place_is_refused(void **state)
{
	struct vt *t = *state;

	vt_need("MODIFY");
	for (int type = 0; type < TYPES; type++) {
		struct vt_ep *ep;

		if (!type_is_tested(type))
			continue;
		ep = vt_ep(t, .type = type_of[type]);
		for (size_t i = 0; i < ARRAY_LEN(arrows); i++) {
			const struct arrow *w = &arrows[i];
			int known = w->required[type] | w->optional[type] | NO_OPINION;

			bring(ep, type, w->from);
			for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1)
				if (!(known & bit))
					expect_refused(ep, type, w, w->required[type] | bit, bit);
		}
	}
}

static void each_optional_attribute_is_taken(void **state)
{
	struct vt *t = *state;

	vt_need("MODIFY");
	for (int type = 0; type < TYPES; type++) {
		struct vt_ep *ep;

		if (!type_is_tested(type))
			continue;
		ep = vt_ep(t, .type = type_of[type]);
		for (size_t i = 0; i < ARRAY_LEN(arrows); i++) {
			const struct arrow *w = &arrows[i];

			for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
				if (!(w->optional[type] & bit))
					continue;
				bring(ep, type, w->from);
				if (go(ep, w, w->required[type] | bit))
					fail_msg("%s: state %d to %d refuses attribute %#x", type_name[type],
						w->from, w->to, bit);
			}
		}
		vt_ep_close(ep);
	}
	vt_no_async(t);
}

static void arrows_that_are_not_there_are_refused(void **state)
{
	static const struct {
		enum ibv_qp_state from, to;
	} none[] = {
		{IBV_QPS_RESET, IBV_QPS_RTR},
		{IBV_QPS_RESET, IBV_QPS_RTS},
		{IBV_QPS_RESET, IBV_QPS_SQD},
		{IBV_QPS_INIT, IBV_QPS_RTS},
		{IBV_QPS_INIT, IBV_QPS_SQD},
		{IBV_QPS_RTR, IBV_QPS_INIT},
		{IBV_QPS_RTR, IBV_QPS_SQD},
		{IBV_QPS_RTS, IBV_QPS_INIT},
		{IBV_QPS_RTS, IBV_QPS_RTR},
		{IBV_QPS_SQD, IBV_QPS_INIT},
		{IBV_QPS_SQD, IBV_QPS_RTR},
		{IBV_QPS_ERR, IBV_QPS_INIT},
		{IBV_QPS_ERR, IBV_QPS_RTR},
		{IBV_QPS_ERR, IBV_QPS_RTS},
	};
	struct vt *t = *state;

	vt_need("MODIFY");
	for (int type = 0; type < TYPES; type++) {
		struct vt_ep *ep;

		if (!type_is_tested(type))
			continue;
		ep = vt_ep(t, .type = type_of[type]);
		for (size_t i = 0; i < ARRAY_LEN(none); i++) {
			struct arrow w = {.from = none[i].from, .to = none[i].to};
			int mask = 0;

			/* With what the target state would ask for, so that only the arrow is wrong. */
			for (size_t j = 0; j < ARRAY_LEN(arrows); j++)
				if (arrows[j].to == w.to)
					mask |= arrows[j].required[type];
			bring(ep, type, w.from);
			expect_refused(ep, type, &w, mask, 0);
			expect_refused(ep, type, &w, 0, 0);
		}
	}
}

static void every_state_leads_to_err_and_reset(void **state)
{
	static const enum ibv_qp_state from[] = {
		IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR};
	struct vt *t = *state;

	vt_need("MODIFY");
	for (int type = 0; type < TYPES; type++) {
		struct vt_ep *ep;

		if (!type_is_tested(type))
			continue;
		ep = vt_ep(t, .type = type_of[type]);
		for (size_t i = 0; i < ARRAY_LEN(from); i++) {
			bring(ep, type, from[i]);
			assert_int_equal(vt_modify_state(ep->qp, IBV_QPS_ERR), 0);
			assert_int_equal(vt_state(ep->qp), IBV_QPS_ERR);
			bring(ep, type, from[i]);
			assert_int_equal(vt_modify_state(ep->qp, IBV_QPS_RESET), 0);
			assert_int_equal(vt_state(ep->qp), IBV_QPS_RESET);
		}
	}
}

/* Attribute values that no adapter can mean. */
static void impossible_values_are_refused(void **state)
{
	struct vt *t = *state;
	struct vt_ep *ep = vt_ep(t);
	const struct arrow *init = &arrows[0], *rtr = &arrows[2], *rts = &arrows[3];
	struct ibv_qp_attr a;

	vt_need("MODIFY");
#define REFUSED(w, set)                                                                                      \
	do {                                                                                                 \
		a = values(ep, w);                                                                           \
		set;                                                                                         \
		assert_int_equal(ibv_modify_qp(ep->qp, &a, (w)->required[RC] | IBV_QP_STATE), EINVAL);       \
		assert_int_equal(vt_state(ep->qp), (w)->from);                                               \
	} while (0)
	REFUSED(init, a.port_num = 0);
	REFUSED(init, a.port_num = 99);
	REFUSED(init, a.pkey_index = t->port.pkey_tbl_len);
	bring(ep, RC, IBV_QPS_INIT);
	REFUSED(rtr, a.path_mtu = 0);
	REFUSED(rtr, a.path_mtu = IBV_MTU_4096 + 1);
	REFUSED(rtr, a.ah_attr.port_num = 99);
	if (t->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		REFUSED(rtr, a.ah_attr.is_global = 0);
		REFUSED(rtr, a.ah_attr.grh.sgid_index = 255);
	}
	if (t->dev.max_qp_rd_atom < 255)
		REFUSED(rtr, a.max_dest_rd_atomic = (uint8_t)(t->dev.max_qp_rd_atom + 1));
	bring(ep, RC, IBV_QPS_RTR);
	REFUSED(rts, a.timeout = 32);
	if (t->dev.max_qp_init_rd_atom < 255)
		REFUSED(rts, a.max_rd_atomic = (uint8_t)(t->dev.max_qp_init_rd_atom + 1));
#undef REFUSED
}

/* Who says in which state it believes the QP must be right. */
static void wrong_current_state_is_refused(void **state)
{
	struct vt_ep *ep = vt_ep(*state);
	const struct arrow *rts = &arrows[3];
	struct ibv_qp_attr a;
	int mask = rts->required[RC] | IBV_QP_STATE | IBV_QP_CUR_STATE;

	vt_need("MODIFY");
	bring(ep, RC, IBV_QPS_RTR);
	a = values(ep, rts);
	a.cur_qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(ep->qp, &a, mask), EINVAL);
	assert_int_equal(vt_state(ep->qp), IBV_QPS_RTR);
	a.cur_qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(ep->qp, &a, mask), 0);
}

static void query_returns_what_was_set(void **state)
{
	struct vt *t = *state;
	struct vt_ep *ep = vt_ep(t, .sig_all = 1, .send_wr = 17, .recv_wr = 19, .sge = 3, .inline_data = 24);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr want, got;

	vt_need("MODIFY");
	bring(ep, RC, IBV_QPS_RTS);
	want = values(ep, &arrows[3]);
	memset(&got, 0xA5, sizeof(got));
	assert_int_equal(ibv_query_qp(ep->qp, &got, 0x1fffff, &init), 0);
	assert_int_equal(got.qp_state, IBV_QPS_RTS);
	assert_int_equal(got.path_mtu, want.path_mtu);
	assert_int_equal(got.rq_psn, want.rq_psn);
	assert_int_equal(got.sq_psn, want.sq_psn);
	assert_int_equal(got.dest_qp_num, want.dest_qp_num);
	assert_int_equal(got.qp_access_flags & VT_ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE,
		VT_ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(got.pkey_index, 0);
	assert_int_equal(got.port_num, want.port_num);
	assert_int_equal(got.max_rd_atomic, want.max_rd_atomic);
	assert_int_equal(got.max_dest_rd_atomic, want.max_dest_rd_atomic);
	assert_int_equal(got.min_rnr_timer, want.min_rnr_timer);
	assert_int_equal(got.timeout, want.timeout);
	assert_int_equal(got.retry_cnt, want.retry_cnt);
	assert_int_equal(got.rnr_retry, want.rnr_retry);
	assert_int_equal(got.sq_draining, 0);
	assert_int_equal(got.ah_attr.is_global, want.ah_attr.is_global);
	assert_int_equal(got.ah_attr.port_num, want.ah_attr.port_num);
	assert_int_equal(got.ah_attr.grh.sgid_index, want.ah_attr.grh.sgid_index);
	assert_memory_equal(&got.ah_attr.grh.dgid, &want.ah_attr.grh.dgid, sizeof(union ibv_gid));
	assert_true(got.cap.max_send_wr >= ep->cap.max_send_wr && got.cap.max_recv_wr >= ep->cap.max_recv_wr);
	assert_true(
		got.cap.max_send_sge >= ep->cap.max_send_sge && got.cap.max_recv_sge >= ep->cap.max_recv_sge);
	assert_true(got.cap.max_inline_data >= ep->cap.max_inline_data);

	assert_ptr_equal(init.qp_context, ep);
	assert_ptr_equal(init.send_cq, ep->cq);
	assert_ptr_equal(init.recv_cq, ep->cq);
	assert_null(init.srq);
	assert_int_equal(init.qp_type, IBV_QPT_RC);
	assert_int_equal(init.sq_sig_all, 1);
	assert_memory_equal(&init.cap, &got.cap, sizeof(init.cap));
}

static void ud_query_returns_the_qkey(void **state)
{
	struct vt *t = *state;
	struct vt_ep *ep;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	vt_need("UD");
	ep = vt_ep(t, .type = IBV_QPT_UD);
	vt_ud_start(ep, 0x1234567);
	assert_int_equal(ibv_query_qp(ep->qp, &a, IBV_QP_QKEY, &init), 0);
	assert_int_equal(a.qkey, 0x1234567);
	a.qkey = 0x7654321;
	assert_int_equal(ibv_modify_qp(ep->qp, &a, IBV_QP_QKEY), 0);
	assert_int_equal(ibv_query_qp(ep->qp, &a, IBV_QP_QKEY, &init), 0);
	assert_int_equal(a.qkey, 0x7654321);
}

static const struct {
	enum ibv_qp_state at;
	bool send, recv;
} posting[] = {
	{IBV_QPS_RESET, false, false},
	{IBV_QPS_INIT, false, true},
	{IBV_QPS_RTR, false, true},
	{IBV_QPS_SQD, true, true},
	{IBV_QPS_ERR, true, true},
};

static void posting_is_allowed_by_state(void **state)
{
	struct vt *t = *state;

	vt_need("MODIFY");
	for (size_t i = 0; i < ARRAY_LEN(posting); i++) {
		struct vt_ep *ep = vt_ep(t);
		struct ibv_send_wr sw = {.opcode = IBV_WR_SEND}, *sbad = NULL;
		struct ibv_recv_wr rw = {0}, *rbad = NULL;
		int rc;

		bring(ep, RC, posting[i].at);
		rc = ibv_post_recv(ep->qp, &rw, &rbad);
		if (rc != (posting[i].recv ? 0 : EINVAL) || (rc && rbad != &rw))
			fail_msg("state %d: post_recv gives %d", posting[i].at, rc);
		rc = ibv_post_send(ep->qp, &sw, &sbad);
		if (rc != (posting[i].send ? 0 : EINVAL) || (rc && sbad != &sw))
			fail_msg("state %d: post_send gives %d", posting[i].at, rc);
		vt_ep_close(ep);
	}
}

static void sqd_drains_and_holds_what_comes_after(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c, *d;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_wc wc;
	int drained = 0;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	for (int i = 0; i < 10; i++)
		vt_recv(b, i, 0, 4096);
	for (int i = 0; i < 5; i++)
		vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 4096);
	assert_int_equal(ibv_modify_qp(a->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	vt_post(a, .op = IBV_WR_SEND, .id = 5, .len = 4096);
	vt_expect_async(t, IBV_EVENT_SQ_DRAINED, a->qp);
	/* What had begun is over, which is reported before the event; what recovery from a late acknowledge
	 * kept from beginning waits as what came after (IBA 10.3.1). */
	for (; drained < 5 && ibv_poll_cq(a->cq, 1, &wc) == 1; drained++) {
		assert_int_equal(wc.wr_id, drained);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_true(drained > 0);
	for (int i = 0; i < drained; i++)
		vt_ok(b, i);
	vt_ping_pong(c, d);
	vt_cq_is_empty(b);
	vt_cq_is_empty(a);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RTS), 0);
	for (int i = drained; i <= 5; i++) {
		vt_ok(a, i);
		vt_ok(b, i);
	}
}

/* Takes the events that are there: how many are of this type on this QP. */
static unsigned count_events(struct vt *t, enum ibv_event_type type, const struct ibv_qp *qp)
{
	struct ibv_async_event ev;
	unsigned n = 0;

	while (vt_readable_now(t->ctx->async_fd)) {
		assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
		n += ev.event_type == type && ev.element.qp == qp;
		ibv_ack_async_event(&ev);
	}
	return n;
}

/* The peer speaks before the program went on to RTS: it is told, once (IBA 11.6.3.1). */
static void expect_told(struct vt *t, enum ibv_wr_opcode op)
{
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t);
	struct vt_addr to_a = vt_addr(a), to_b = vt_addr(b);
	struct vt_conn there = vt_conn(t), back = there;

	back.psn_out = there.psn_in;
	back.psn_in = there.psn_out;
	vt_init(a, &there);
	vt_init(b, &back);
	vt_rtr(a, &to_b, &there);
	vt_rtr(b, &to_a, &back);
	vt_rts(a, &there);
	for (int i = 0; i < 2; i++)
		vt_recv(b, i, 0, 64);
	assert_int_equal(count_events(t, IBV_EVENT_COMM_EST, b->qp), 0);
	vt_post(a, .op = op, .id = 3, .len = 64, .to = b);
	vt_ok(a, 3);
	vt_expect_async(t, IBV_EVENT_COMM_EST, b->qp);
	vt_post(a, .op = op, .id = 4, .len = 64, .to = b);
	vt_ok(a, 4);
	for (int i = 0; op == IBV_WR_SEND && i < 2; i++)
		vt_ok(b, i);
	vt_rts(b, &back);
	assert_int_equal(count_events(t, IBV_EVENT_COMM_EST, b->qp), 0);
}

static void first_message_before_rts_is_told(void **state)
{
	vt_need("MODIFY");
	expect_told(*state, IBV_WR_SEND);
	expect_told(*state, IBV_WR_RDMA_WRITE);
	expect_told(*state, IBV_WR_RDMA_READ);
}

/* Reset forgets what was posted; the QP serves again as if new. */
static void qp_can_be_reset_and_connected_again(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t);
	struct vt_conn c = vt_conn(t);

	for (int i = 0; i < 5; i++) {
		c.psn_out = 1000u * i;
		c.psn_in = 0xfffffeu - i;
		vt_connect(a, b, &c);
		vt_ping_pong(a, b);
		for (int j = 0; j < 2; j++)
			vt_recv(b, j, 0, 10);
		for (int j = 0; j < 2; j++) {
			vt_post(a, .op = IBV_WR_SEND, .id = j, .len = 10);
			vt_ok(a, j); /* b has it, and does not look */
		}
		for (int j = 0; j < 20; j++)
			vt_recv(b, j, 0, 10);
		assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RESET), 0);
		assert_int_equal(vt_modify_state(b->qp, IBV_QPS_RESET), 0);
		vt_cq_is_empty(a);
		vt_cq_is_empty(b);
	}
}

static const struct CMUnitTest tests[] = {
	VT_TEST(required_attributes_are_enough),
	VT_TEST(each_missing_attribute_is_refused),
	VT_TEST(each_attribute_out_of_place_is_refused),
	VT_TEST(each_optional_attribute_is_taken),
	VT_TEST(arrows_that_are_not_there_are_refused),
	VT_TEST(every_state_leads_to_err_and_reset),
	VT_TEST(impossible_values_are_refused),
	VT_TEST(wrong_current_state_is_refused),
	VT_TEST(query_returns_what_was_set),
	VT_TEST(ud_query_returns_the_qkey),
	VT_TEST(posting_is_allowed_by_state),
	VT_TEST(sqd_drains_and_holds_what_comes_after),
	VT_TEST(first_message_before_rts_is_told),
	VT_TEST(qp_can_be_reset_and_connected_again),
};

VT_MAIN("qp_state", tests, NULL)
