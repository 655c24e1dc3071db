/* SPDX-License-Identifier: MIT */
/*
 * What only a subnet has: several LIDs of a port, service levels, GRHs that may be left out, partitions. The
 * device has two ports (VERBS_PORTS=2) of two LIDs each. The first is a full member of partition BLUE, the
 * second a limited one; of RED both are limited members (on_fabric.sh).
 */
#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { DEFAULT = 0xffff, BLUE = 0x0123, RED = 0x0124, FULL = 0x8000, SL = 3 };
enum { IMPATIENT = 11 }; /* 8.4 ms: nobody answers anyway */

/* How one end addresses the other. */
struct how {
	uint8_t own_bits, bits; /* of the source LID, of the destination */
	bool grh;
	uint16_t pkey; /* 0: what is at index 0 */
	uint8_t timeout;
};

static struct ibv_ah_attr address(const struct vt_ep *from, const struct vt_ep *to, const struct how *h)
{
	return (struct ibv_ah_attr){.dlid = (uint16_t)(to->at->lid + h->bits),
		.src_path_bits = h->own_bits,
		.sl = SL,
		.port_num = from->at->port,
		.is_global = h->grh,
		.grh = {.dgid = to->at->gid, .sgid_index = from->t->gid_index, .hop_limit = 64}};
}

static uint16_t pkey_index(const struct vt_ep *ep, uint16_t pkey)
{
	int i = pkey ? ibv_get_pkey_index(ep->t->ctx, ep->at->port, htons(pkey)) : 0;

	assert_true(i >= 0);
	return (uint16_t)i;
}

static void init(struct vt_ep *ep, const struct how *h)
{
	bool ud = ep->qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = ep->at->port,
		.pkey_index = pkey_index(ep, h->pkey),
		.qkey = VT_QKEY,
		.qp_access_flags = VT_ALL_ACCESS};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	assert_int_equal(ibv_modify_qp(ep->qp, &a, mask | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)), 0);
}

/* One end of a connection, up to RTS. */
static void connect_to(struct vt_ep *ep, const struct vt_ep *to, const struct how *h)
{
	struct vt_conn c = vt_conn(ep->t);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.ah_attr = address(ep, to, h),
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to->qp->qp_num,
		.rq_psn = c.psn_out,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = c.min_rnr};

	init(ep, h);
	assert_int_equal(ibv_modify_qp(ep->qp, &a,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	c.timeout = h->timeout ? h->timeout : c.timeout;
	c.rd_atomic = 1;
	vt_rts(ep, &c);
}

static void pair(
	struct vt *t, const struct how *there, const struct how *back, struct vt_ep **a, struct vt_ep **b)
{
	*a = vt_ep(t);
	*b = vt_ep(t);
	assert_int_not_equal((*a)->at->port, (*b)->at->port);
	connect_to(*a, *b, there);
	connect_to(*b, *a, back);
}

/* Nothing of it arrives, and who sent it is told after its retries. */
static void expect_silence(struct vt *t, const struct how *there, const struct how *back)
{
	struct vt_ep *a, *b;

	pair(t, there, back, &a, &b);
	vt_recv(b, 2, 0, 100);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100);
	vt_expect(a, 1, IBV_WC_RETRY_EXC_ERR);
	vt_cq_is_empty(b);
	assert_int_equal(vt_state(b->qp), IBV_QPS_RTS);
	vt_ep_close(b);
	vt_ep_close(a);
}

/* ---- LIDs ---- */
static void port_has_several_lids(void **state)
{
	struct vt *t = *state;

	assert_int_equal(t->port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	assert_int_equal(t->port.lmc, 1);
	assert_int_equal(t->port.lid & 1, 0);
	assert_int_not_equal(t->place[0].lid, t->place[1].lid);
}

static void expect_grh(const struct vt_ep *from, const struct vt_ep *to, const struct ibv_grh *g)
{
	assert_int_equal(ntohl(g->version_tclass_flow) >> 28, 6);
	assert_memory_equal(&g->sgid, &from->at->gid, 16);
	assert_memory_equal(&g->dgid, &to->at->gid, 16);
}

static void send_by(struct vt_ep *a, struct vt_ep *b, const struct how *h)
{
	struct ibv_ah_attr av = address(a, b, h), back;
	struct ibv_ah *ah = ibv_create_ah(a->pd, &av);
	struct ibv_wc wc;

	assert_non_null(ah);
	vt_recv(b, 2, 0, 1000);
	wc = vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 100, .ah = ah, .qpn = b->qp->qp_num,
		.qkey = VT_QKEY);
	assert_int_equal(wc.slid, a->at->lid + h->own_bits);
	assert_int_equal(wc.dlid_path_bits, h->bits);
	assert_int_equal(wc.sl, SL);
	assert_int_equal(!!(wc.wc_flags & IBV_WC_GRH), h->grh);
	if (h->grh)
		expect_grh(a, b, (struct ibv_grh *)b->buf);
	assert_int_equal(
		ibv_init_ah_from_wc(b->t->ctx, b->at->port, &wc, (struct ibv_grh *)b->buf, &back), 0);
	assert_true(back.dlid == wc.slid && back.src_path_bits == h->bits && back.sl == SL);
	assert_int_equal(back.is_global, h->grh);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void datagram_tells_the_path_it_came_by(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .type = IBV_QPT_UD), *b = vt_ep(t, .type = IBV_QPT_UD);

	vt_ud_start(a, VT_QKEY);
	vt_ud_start(b, VT_QKEY);
	for (unsigned i = 0; i < 8; i++)
		send_by(a, b, &(struct how){.own_bits = i & 1, .bits = i >> 1 & 1, .grh = i >> 2});
}

static void connection_goes_by_each_lid(void **state)
{
	struct vt_ep *a, *b;

	for (unsigned i = 0; i < 8; i++) {
		const struct how there = {.own_bits = i & 1, .bits = i >> 1 & 1, .grh = i >> 2};
		const struct how back = {.own_bits = there.bits, .bits = there.own_bits, .grh = there.grh};

		pair(*state, &there, &back, &a, &b);
		vt_ping_pong(a, b);
	}
}

/* What comes from another LID than the path's is not the peer's, even when it is a LID of its port. */
static void connection_hears_the_lid_of_its_path_alone(void **state)
{
	const struct how other = {.own_bits = 1, .timeout = IMPATIENT}, plain = {0};

	expect_silence(*state, &other, &plain);
}

/* ---- partitions ---- */
static void full_and_limited_members_talk(void **state)
{
	struct vt_ep *a, *b;

	pair(*state, &(struct how){.pkey = BLUE | FULL}, &(struct how){.pkey = BLUE}, &a, &b);
	vt_ping_pong(a, b);
}

static void limited_members_do_not(void **state)
{
	const struct how red = {.pkey = RED, .timeout = IMPATIENT};

	expect_silence(*state, &red, &red);
}

static void nor_do_members_of_two_partitions(void **state)
{
	expect_silence(*state, &(struct how){.pkey = BLUE | FULL, .timeout = IMPATIENT},
		&(struct how){.pkey = DEFAULT});
}

/* A datagram of one partition and then one of the other: the first is not for b. */
static void datagram_is_for_its_partition(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .type = IBV_QPT_UD), *b = vt_ep(t, .type = IBV_QPT_UD),
		     *c = vt_ep(t, .type = IBV_QPT_UD);
	const uint16_t pkey[] = {DEFAULT, BLUE, BLUE | FULL};
	struct vt_ep *ep[] = {a, b, c};
	struct ibv_ah_attr av = address(a, b, &(struct how){0});
	struct ibv_ah *from_a, *from_c;

	for (unsigned i = 0; i < 3; i++) {
		init(ep[i], &(struct how){.pkey = pkey[i]});
		assert_int_equal(vt_modify_state(ep[i]->qp, IBV_QPS_RTR), 0);
		assert_int_equal(ibv_modify_qp(ep[i]->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RTS},
					 IBV_QP_STATE | IBV_QP_SQ_PSN),
			0);
	}
	from_a = ibv_create_ah(a->pd, &av);
	from_c = ibv_create_ah(c->pd, &av);
	vt_recv(b, 3, 0, 1000);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 10, .ah = from_a, .qpn = b->qp->qp_num,
		.qkey = VT_QKEY);
	vt_ok(a, 1);
	vt_deliver(c, b, 3, .op = IBV_WR_SEND, .id = 2, .len = 20, .ah = from_c, .qpn = b->qp->qp_num,
		.qkey = VT_QKEY);
	vt_cq_is_empty(b);
	assert_int_equal(ibv_destroy_ah(from_a), 0);
	assert_int_equal(ibv_destroy_ah(from_c), 0);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(port_has_several_lids),
	VT_TEST(datagram_tells_the_path_it_came_by),
	VT_TEST(connection_goes_by_each_lid),
	VT_TEST(connection_hears_the_lid_of_its_path_alone),
	VT_TEST(full_and_limited_members_talk),
	VT_TEST(limited_members_do_not),
	VT_TEST(nor_do_members_of_two_partitions),
	VT_TEST(datagram_is_for_its_partition),
};

VT_MAIN("subnet", tests, NULL)
