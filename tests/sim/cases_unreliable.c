/* SPDX-License-Identifier: MIT */
/* UC and UD. */
#include "duo.h"

#include "fabric/shared.h"
#include "ib/echo.h"
#include "local/channel_parts.h"

static void uc_message_with_a_hole_is_lost_alone(void **state)
{
	struct duo *d = duo_new();
	struct ibv_wc wc;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UC;
	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 1, i, 65536 * (i + 1), 4096);
	script(d, 0, IBT_UC | OP_SEND_MIDDLE, 1, 1, SIM_LOST);
	post_list(d, 0, IBV_WR_SEND, 3, 3 * MTU);
	sim_run_idle(&d->w);
	expect_all(d, 0, 3);
	expect_wc(d, 1, 0, IBV_WC_SUCCESS);
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.wr_id, 1); /* the third message, in the second receive */
	assert_int_equal(wc.byte_len, 3 * MTU);
	assert_memory_equal(mem[1] + 65536, mem[0], 3 * MTU);
	assert_memory_equal(mem[1] + 2 * 65536, mem[0] + 6 * MTU, 3 * MTU);
	expect_none(d, 1);
	duo_end(d);
}

/* Some packets of a host's go to one of its processes by way of another (link/steer.h). */
static void uc_message_on_the_longer_way_is_lost_if_overtaken(void **state)
{
	static const enum sim_fate second[] = {SIM_DELAYED, SIM_HANDED};
	struct sim_rules late = {.delay_min = 5 * SIM_US, .delay_max = 5 * SIM_US, .late_max = 10 * SIM_US};

	for (unsigned i = 0; i < 2; i++) {
		struct duo *d = duo_new();

		d->opts[0].type = d->opts[1].type = IBV_QPT_UC;
		duo_connect(d);
		sim_rules_set(d->w.net, &late);
		for (unsigned k = 0; k < 4; k++)
			post_recv(d, 1, k, 65536 * (k + 1), 4096);
		script(d, 0, IBT_UC | OP_SEND_ONLY, 0, 0, SIM_HANDED); /* alone: in order */
		script(d, 0, IBT_UC | OP_SEND_ONLY, 1, 1, second[i]);
		post(d, 0, IBV_WR_SEND, 0, 0, 64);
		sim_run_idle(&d->w);
		expect_wc(d, 0, 0, IBV_WC_SUCCESS);
		expect_wc(d, 1, 0, IBV_WC_SUCCESS);
		for (unsigned k = 1; k < 4; k++)
			post(d, 0, IBV_WR_SEND, k, 1024 * k, 64);
		sim_run_idle(&d->w);
		expect_wc(d, 1, 1, IBV_WC_SUCCESS);
		expect_wc(d, 1, 2, IBV_WC_SUCCESS);
		expect_none(d, 1);
		assert_memory_equal(mem[1] + 2 * 65536, mem[0] + 2 * 1024, 64);
		assert_memory_equal(mem[1] + 3 * 65536, mem[0] + 3 * 1024, 64);
		assert_int_equal(d->qp[1]->count->dropped, 1);
		duo_end(d);
	}
}

/* The GRH, or in the last of its bytes the IPv4 header (IBA Annex A17.4.5.2), of a datagram from side 0. */
static void expect_header(struct duo *d, bool ipv6, const uint8_t *grh)
{
	const uint8_t *ip = ipv6 ? grh : grh + 20, *from = d->w.node[0].dev.port[0].gid[0].raw,
		      *to = d->w.node[1].dev.port[0].gid[0].raw;

	assert_int_equal(ip[0] >> 4, ipv6 ? 6 : 4);
	assert_int_equal(ip[ipv6 ? 6 : 9], 17); /* UDP comes next */
	assert_memory_equal(ip + (ipv6 ? 8 : 12), ipv6 ? from : from + 12, ipv6 ? 16 : 4);
	assert_memory_equal(ip + (ipv6 ? 24 : 16), ipv6 ? to : to + 12, ipv6 ? 16 : 4);
}

static void ud_carries_forty_bytes_in_front(void **state)
{
	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		struct duo *d = duo_build(ipv6, 2);
		struct hca_ah *ah;
		struct ibv_sge sge;
		struct ibv_send_wr wr, *bad;
		struct ibv_wc wc;

		d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
		duo_connect(d);
		ah = sim_ah(&d->w.node[0], &d->w.node[1]);
		post_recv(d, 1, 9, 4096, 256);
		wr = request(d, 0, IBV_WR_SEND, &sge, 0, 101);
		wr.wr.ud.ah = &ah->ibv;
		wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
		wr.wr.ud.remote_qkey = SIM_QKEY ^ 1; /* a wrong Q_Key: dropped, counted */
		assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
		wr.wr.ud.remote_qkey = SIM_QKEY;
		assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
		sim_run_idle(&d->w);
		assert_int_equal(d->qp[1]->count->dropped, 1);
		assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
		assert_int_equal(wc.byte_len, GRH_LEN + 101);
		assert_int_equal(wc.src_qp, hca_qpn(d->qp[0]));
		expect_header(d, ipv6, mem[1] + 4096);
		assert_memory_equal(mem[1] + 4096 + GRH_LEN, mem[0], 101);
		expect_none(d, 1);
		sim_ah_free(ah);
		duo_end(d);
	}
}

/* A UC or UD packet by hand from side 0 to side 1. */
static void forge_unreliable(
	struct duo *d, uint8_t op, uint32_t psn, uint16_t pkey, uint32_t qkey, uint32_t len)
{
	uint8_t p[BTH_LEN + DETH_LEN + 2 * MTU] = {0};
	uint32_t hdr = BTH_LEN;

	bth_put(p, op, false, 0, pkey, hca_qpn(d->qp[1]), false, psn_add(d->opts[0].psn, psn));
	if ((op & IBT_SERVICE_MASK) == IBT_UD) {
		put_be32(p + hdr, qkey);
		put_be32(p + hdr + 4, hca_qpn(d->qp[0]));
		hdr += DETH_LEN;
	}
	forge(d, 0, 0, 1, p, hdr + len);
}

/* Receives may be posted in INIT, and wait there for RTR. */
static void datagram_before_rtr_is_dropped_and_counted(void **state)
{
	struct duo *d = duo_new();
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = SIM_QKEY};
	struct hca_qp *ready;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	ready = d->qp[1];
	d->qp[1] = d->more[d->nmore++] = sim_qp(&d->w.node[1], &d->opts[1]);
	assert_int_equal(
		hca_qp_modify(d->qp[1], &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		0);
	post_recv(d, 1, 9, 4096, 256);
	forge_unreliable(d, IBT_UD | OP_SEND_ONLY, 0, PKEY_DEFAULT, SIM_QKEY, 64);
	sim_run_idle(&d->w);
	expect_none(d, 1);
	assert_int_equal(d->qp[1]->count->not_ready, 1);
	d->qp[1] = ready;
	duo_end(d);
}

static void unreliable_pkey_and_qkey_mismatches_are_dropped_and_counted(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_UD};

	for (unsigned i = 0; i < 2; i++) {
		struct duo *d = duo_new();
		uint8_t op = (types[i] == IBV_QPT_UC ? IBT_UC : IBT_UD) | OP_SEND_ONLY;

		d->opts[0].type = d->opts[1].type = types[i];
		duo_connect(d);
		post_recv(d, 1, 9, 4096, 256);
		forge_unreliable(d, op, 0, 0x8001, SIM_QKEY, 64);
		if (types[i] == IBV_QPT_UD)
			forge_unreliable(d, op, 0, PKEY_DEFAULT, SIM_QKEY ^ 0x80000000, 64);
		sim_run_idle(&d->w);
		assert_int_equal(d->qp[1]->count->dropped, 1 + i);
		expect_none(d, 1);
		forge_unreliable(d, op, 0, PKEY_DEFAULT, SIM_QKEY, 64);
		sim_run_idle(&d->w);
		expect_wc(d, 1, 9, IBV_WC_SUCCESS);
		expect_none(d, 1);
		duo_end(d);
	}
}

/* UC says nothing of what is wrong; the message is lost, the next one arrives, the queue pair lives. */
static void uc_drops_what_is_malformed_and_goes_on(void **state)
{
	static const struct {
		uint8_t op;
		uint32_t len;
	} wrong[] = {
		{OP_SEND_MIDDLE, MTU},
		{OP_SEND_LAST, 64},
		{OP_WRITE_MIDDLE, MTU},
		{OP_SEND_FIRST, MTU - 4},
		{OP_SEND_ONLY, MTU + 4},
		{OP_READ_REQUEST, 16},
		{OP_FETCH_ADD, 28},
		{OP_ACK, 4},
		{0x1f, 64},
	};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct duo *d = duo_new();
		struct ibv_wc wc;

		d->opts[0].type = d->opts[1].type = IBV_QPT_UC;
		duo_connect(d);
		post_recv(d, 1, 9, 4096, 4 * MTU);
		forge_unreliable(d, IBT_UC | wrong[i].op, 0, PKEY_DEFAULT, 0, wrong[i].len);
		forge_unreliable(d, IBT_UC | OP_SEND_ONLY, 1, PKEY_DEFAULT, 0, 64);
		sim_run_idle(&d->w);
		assert_int_equal(d->qp[1]->count->dropped, 1);
		assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 64);
		assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_RTS);
		for (unsigned k = 0; k < d->logged; k++)
			assert_int_equal(d->log[k].from, 0);
		duo_end(d);
	}
}

/* Forty bytes and not one more belong to the header; a receive without room for all of it stays. */
static void ud_receive_too_short_is_kept_for_the_next(void **state)
{
	struct duo *d = duo_new();
	struct ibv_wc wc;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	post_recv(d, 1, 9, 4096, GRH_LEN + 64);
	forge_unreliable(d, IBT_UD | OP_SEND_ONLY, 0, PKEY_DEFAULT, SIM_QKEY, 68);
	forge_unreliable(d, IBT_UD | OP_SEND_ONLY, 0, PKEY_DEFAULT, SIM_QKEY, 64);
	sim_run_idle(&d->w);
	assert_int_equal(d->qp[1]->count->dropped, 1);
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.byte_len, GRH_LEN + 64);
	assert_int_equal(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
	duo_end(d);
}

/* A device has one port, so nobody can make such a handle yet. */
static void ud_by_a_handle_of_another_port_is_refused(void **state)
{
	struct duo *d = duo_new();
	struct hca_port other = {.num = 2};
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct hca_ah *ah;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	ah = sim_ah(&d->w.node[0], &d->w.node[1]);
	wr = request(d, 0, IBV_WR_SEND, &sge, 0, 64);
	wr.wr.ud.ah = &ah->ibv;
	wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
	wr.wr.ud.remote_qkey = SIM_QKEY;
	ah->path.port = &other;
	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	ah->path.port = d->qp[0]->path.port;
	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_none(d, 0);
	sim_ah_free(ah);
	duo_end(d);
}

static void send_datagram(struct duo *d, struct hca_ah *ah)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(d, 0, IBV_WR_SEND, &sge, 0, 64), *bad;

	wr.wr.ud.ah = &ah->ibv;
	wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
	wr.wr.ud.remote_qkey = SIM_QKEY;
	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
	sim_run(&d->w, sim_now(&d->w) + SIM_US);
	expect_wc(d, 0, wr.wr_id, IBV_WC_SUCCESS);
}

/* A service with peers without number remembers so many of them, and reaches those it forgot. */
static void ud_to_a_hundred_thousand_peers_keeps_a_bounded_number_of_flows(void **state)
{
	enum { PEERS = 100000 };
	struct duo *d = duo_new();
	const struct hca_flow_table *flows = &d->w.node[0].adapter.flows;
	struct hca_ah *peer;
	uint8_t gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 172};

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	sim_trace_set(d->w.net, NULL, NULL); /* more packets than the log has room for */
	peer = sim_ah(&d->w.node[0], &d->w.node[1]);
	send_datagram(d, peer);
	for (unsigned i = 0; i < PEERS; i++) {
		struct hca_ah *ah;

		put_be24(gid + 13, i);
		ah = sim_ah_to_gid(&d->w.node[0], gid);
		send_datagram(d, ah);
		sim_ah_free(ah);
	}
	assert_int_equal(flows->nidle, FLOW_IDLE_MAX);
	assert_int_equal(flows->count, FLOW_IDLE_MAX + 1); /* and the last one's */
	post_recv(d, 1, 9, 4096, 256);
	send_datagram(d, peer);
	sim_run_idle(&d->w);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	sim_ah_free(peer);
	duo_end(d);
}

/* One that lies in the ring of the process with this slot. */
static void from_ring(struct duo *d, uint32_t slot)
{
	uint8_t p[BTH_LEN + DETH_LEN + 64] = {0};
	struct frame_in in = {
		.bytes = p, .len = sizeof(p), .slid = 1, .from = p, .slot = slot, .local = true};

	bth_put(p, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), false, 0);
	put_be32(p + BTH_LEN, SIM_QKEY);
	put_be32(p + BTH_LEN + 4, hca_qpn(d->qp[0]));
	memcpy(in.sgid, d->w.node[0].gid, 16);
	memcpy(in.dgid, d->w.node[1].gid, 16);
	lock_take(&d->qp[1]->lock);
	ibt_receive(d->qp[1], &in, sim_now(&d->w));
	lock_drop(&d->qp[1]->lock);
}

static void datagram_of_a_fabric_names_its_sender(void **state)
{
	struct duo *d = duo_new();
	uint32_t slot;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	slot = qpn_slot(hca_qpn(d->qp[0]));
	post_recv(d, 1, 9, 4096, 256);
	from_ring(d, slot + 1);
	from_ring(d, 0);
	expect_none(d, 1);
	from_ring(d, slot);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	duo_end(d);
}

static struct duo *duo_of_uc(void)
{
	struct duo *d = duo_new();

	d->opts[0].type = d->opts[1].type = IBV_QPT_UC;
	duo_connect(d);
	return d;
}

/* The sender's port is the only one of a fabric, whose subnet manager has written another P_Key by now. */
static struct fabric_table *put_on_fabric(struct duo *d)
{
	static const struct fabric_counts n = {.ports = 1, .rows = 1};
	struct fabric_table *t = fabric_table_init(calloc(1, fabric_table_size(&n)), &n);
	struct hca_adapter *a = &d->w.node[0].adapter;

	hca_port_init_ib(d->qp[0]->path.port, &d->w.node[0].dev, 1, 0);
	a->on_fabric = ibt_port_in(a)->gated = true;
	a->table = t;
	fabric_port(t, 0)->pkey[0] = 0x8001;
	return t;
}

/* The subnet manager writes the P_Key of a queue pair that is in INIT, and finds its path behind that. */
static void path_is_found_with_the_pkey_of_now(void **state)
{
	struct duo *d = duo_of_uc();
	struct fabric_table *t = put_on_fabric(d);
	struct hca_adapter *a = &d->w.node[0].adapter;
	struct hca_qp *qp = d->qp[0];

	lock_take(&a->engine.drive);
	lock_take(&qp->lock);
	qp->dev_provider->ops.set_path(qp);
	ibt_path_follow(ibt_port_in(a), qp);
	assert_int_equal(qp->path.pkey, 0x8001);
	lock_drop(&qp->lock);
	lock_drop(&a->engine.drive);
	duo_end(d);
	free(t);
}

/* Nobody walks to a group, and sees a P_Key by that. */
static void datagram_to_a_group_has_the_pkey_of_now(void **state)
{
	const struct frame_dest group = {.dgid = {0xff, 0x12, 0x40, 0x1b, [15] = 1}, .dlid = LID_MCAST};
	struct duo *d = duo_new();
	struct fabric_table *t;
	struct hca_qp *qp;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	t = put_on_fabric(d);
	qp = d->qp[0];
	lock_take(&qp->lock);
	ibt_path_aim(qp, &group, QP_MULTICAST);
	assert_int_equal(qp->path.pkey, 0x8001);
	lock_drop(&qp->lock);
	duo_end(d);
	free(t);
}

/* The answer to an echo. */
static struct {
	uint32_t slot; /* the process */
	struct frame_dest dest;
	uint16_t pkey;
} echoed;

static int catch_echo(struct link *l, const struct frame_batch *b)
{
	echoed.slot = b->slot;
	echoed.dest = b->dest;
	echoed.pkey = bth_pkey(b->frame[0].hdr);
	return 0;
}

enum { ASKER = 5, OTHER = 6 }; /* processes */

static struct duo *datagrams_new(void)
{
	struct duo *d = duo_new();

	d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
	duo_connect(d);
	return d;
}

/* By a frame in the ring of ASKER, which names OTHER; in: where from and where to. */
static void ask_in_a_ring(struct duo *d, struct frame_in in)
{
	static const struct link_ops ops = {.send = catch_echo};
	struct local_channel channel = {.link.ops = &ops};
	struct ibt_port *p = ibt_port_in(&d->w.node[1].adapter);
	struct frame_batch b;

	frame_batch_begin(&b);
	ibt_echo_ask(&b, PKEY_DEFAULT, OTHER << QPN_SLOT_SHIFT | 7, hca_qpn(d->qp[1]), 1);
	bth_put(b.frame[0].hdr, OPCODE_ECHO_REQUEST, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), false, 0);
	in.bytes = b.frame[0].hdr;
	in.len = BTH_LEN + ECHO_LEN;
	in.from = &b;
	in.slot = ASKER;
	in.local = true;
	p->channel = &channel;
	lock_take(&p->provider.e->drive);
	ibt_port_deliver(p, &in, sim_now(&d->w));
	lock_drop(&p->provider.e->drive);
	p->channel = NULL;
}

static struct frame_in from_the_first_node(const struct duo *d)
{
	struct frame_in in = {0};

	memcpy(in.sgid, d->w.node[0].gid, 16);
	memcpy(in.dgid, d->w.node[1].gid, 16);
	return in;
}

/* Who writes into our ring has answers put into its own, and into nobody else's. */
static void echo_goes_to_who_asked_in_a_ring(void **state)
{
	struct duo *d = datagrams_new();

	ask_in_a_ring(d, from_the_first_node(d));
	assert_int_equal(echoed.slot, ASKER);
	duo_end(d);
}

/* The asker's ring may be gone by now: on a fabric the answer then leaves by our port, not by the asker's. */
static void echo_leaves_by_the_port_that_was_asked(void **state)
{
	enum { OUR_PORT = 3, ITS_PORT = 19, OUR_LID = 1, ITS_LID = 4 };
	struct frame_in in = {.ifindex = ITS_PORT + 1, .slid = ITS_LID, .dlid = OUR_LID};
	struct duo *d = datagrams_new();
	struct hca_port *port = d->qp[1]->path.port;

	port->link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->ib.index = OUR_PORT;
	port->lids = OUR_LID;
	gid_of_lid(ITS_LID, in.sgid);
	gid_of_lid(OUR_LID, in.dgid);
	ask_in_a_ring(d, in);
	assert_true(echoed.dest.slid == OUR_LID && echoed.dest.dlid == ITS_LID);
	assert_int_equal(echoed.dest.ifindex, OUR_PORT + 1);
	port->link_layer = IBV_LINK_LAYER_ETHERNET;
	duo_end(d);
}

/* A limited member has no other, and sends nothing with the P_Key of the full member that asks. */
static void echo_has_the_pkey_of_who_was_asked(void **state)
{
	struct duo *d = datagrams_new();

	d->qp[1]->path.pkey = PKEY_DEFAULT & ~PKEY_FULL;
	ask_in_a_ring(d, from_the_first_node(d));
	assert_int_equal(echoed.pkey, PKEY_DEFAULT & ~PKEY_FULL);
	duo_end(d);
}

/* UC: whether a message of this number is taken that comes in a ring, or beside it. */
static bool takes(struct duo *d, bool ring, uint32_t psn)
{
	uint8_t p[BTH_LEN + 64] = {0};
	struct frame_in in = {.bytes = p, .len = sizeof(p), .local = ring};
	struct ibv_wc wc;

	bth_put(p, IBT_UC | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), false,
		psn_add(d->opts[0].psn, psn));
	memcpy(in.sgid, d->w.node[0].gid, 16);
	memcpy(in.dgid, d->w.node[1].gid, 16);
	if (!hca_rq_count(&d->qp[1]->rq))
		post_recv(d, 1, 0, 4096, 256);
	lock_take(&d->qp[1]->lock);
	ibt_receive(d->qp[1], &in, sim_now(&d->w));
	lock_drop(&d->qp[1]->lock);
	return hca_cq_take(d->cq[1], &wc, 1) == 1;
}

/* A path leaves shared memory, and returns to it; what was sent before may come behind. */
static void uc_message_beside_the_ring_is_lost_if_overtaken(void **state)
{
	for (unsigned left = 0; left < 2; left++) {
		struct duo *d = duo_of_uc();

		assert_true(takes(d, !left, 0));
		assert_true(takes(d, left, 5));
		assert_false(takes(d, !left, 1));
		assert_false(takes(d, !left, 2));
		assert_true(takes(d, left, 6));
		assert_false(takes(d, !left, 3));
		assert_true(takes(d, left, 10)); /* a hole, as ever */
		assert_false(takes(d, !left, 4));
		assert_true(takes(d, left, 11));
		assert_true(takes(d, !left, 12)); /* and back */
		duo_end(d);
	}
}

/* It may have come by the other way first, and ever so many since. */
static void uc_message_is_known_for_overtaken_whatever_came_since(void **state)
{
	struct duo *d = duo_of_uc();

	for (uint32_t i = 1; i < 16; i++)
		assert_true(takes(d, true, i << 20));
	assert_false(takes(d, false, (15 << 20) - 1));
	assert_true(takes(d, true, (15 << 20) + 1));
	duo_end(d);
}

static void uc_peer_that_begins_anew_is_heard(void **state)
{
	struct duo *d = duo_of_uc();
	unsigned lost = 0;

	for (uint32_t psn = 1000; psn < 1010; psn++)
		assert_true(takes(d, psn & 1, psn));
	assert_true(takes(d, true, 500));
	assert_true(takes(d, true, 501));
	assert_true(takes(d, true, 100));
	assert_true(takes(d, false, 90));
	assert_true(takes(d, false, 50));
	assert_true(takes(d, true, 1u << 16));
	for (uint32_t psn = 200; !takes(d, false, psn); psn++) /* it cannot be known at once */
		lost++;
	assert_in_range(lost, 1, 10000);
	duo_end(d);
}

/* n messages have left and are not completed yet: as after the last of the batches that one queue pair may
 * send before others get their turn (ib/port_out.c). */
static void send_batch(struct duo *d, struct ibv_send_wr *wr, unsigned n)
{
	struct hca_qp *qp = d->qp[0];
	struct frame_batch b;

	qp->connecting = true; /* nothing leaves when it is posted */
	for (unsigned k = 0; k < n; k++) {
		wr->wr_id = k;
		post_wr(qp, wr);
	}
	qp->connecting = false;
	frame_batch_begin(&b);
	lock_take(&qp->lock);
	ibt_requests(qp, sim_now(&d->w), &b);
	lock_drop(&qp->lock);
	assert_int_equal(b.nframes, n);
}

/* It does not leave again, by way of SQD or not, and is not forgotten there. */
static void expect_left(enum ibv_qp_type type, uint8_t op, bool drains)
{
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1},
			   rts = {.qp_state = IBV_QPS_RTS};
	struct duo *d = duo_new();
	struct hca_ah *ah;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	d->opts[0].type = d->opts[1].type = type;
	duo_connect(d);
	ah = sim_ah(&d->w.node[0], &d->w.node[1]);
	wr = request(d, 0, IBV_WR_SEND, &sge, 0, 64);
	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = &ah->ibv;
		wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
		wr.wr.ud.remote_qkey = SIM_QKEY;
	}
	send_batch(d, &wr, 3);
	if (drains) {
		assert_int_equal(hca_qp_modify(d->qp[0], &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
		assert_int_equal(events(&d->w.node[0], IBV_EVENT_SQ_DRAINED), 1);
	}
	assert_int_equal(hca_qp_modify(d->qp[0], &rts, IBV_QP_STATE), 0);
	expect_all(d, 0, 3);
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 0, op), 0);
	post_wr(d->qp[0], &wr);
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 0, op), 1);
	sim_ah_free(ah);
	duo_end(d);
}

static void what_has_left_does_not_leave_again(void **state)
{
	for (unsigned drains = 0; drains < 2; drains++) {
		expect_left(IBV_QPT_UC, IBT_UC | OP_SEND_ONLY, drains);
		expect_left(IBV_QPT_UD, IBT_UD | OP_SEND_ONLY, drains);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(uc_message_beside_the_ring_is_lost_if_overtaken),
		cmocka_unit_test(uc_message_is_known_for_overtaken_whatever_came_since),
		cmocka_unit_test(uc_peer_that_begins_anew_is_heard),
		cmocka_unit_test(uc_message_with_a_hole_is_lost_alone),
		cmocka_unit_test(uc_message_on_the_longer_way_is_lost_if_overtaken),
		cmocka_unit_test(ud_carries_forty_bytes_in_front),
		cmocka_unit_test(datagram_before_rtr_is_dropped_and_counted),
		cmocka_unit_test(unreliable_pkey_and_qkey_mismatches_are_dropped_and_counted),
		cmocka_unit_test(uc_drops_what_is_malformed_and_goes_on),
		cmocka_unit_test(datagram_of_a_fabric_names_its_sender),
		cmocka_unit_test(datagram_to_a_group_has_the_pkey_of_now),
		cmocka_unit_test(echo_has_the_pkey_of_who_was_asked),
		cmocka_unit_test(path_is_found_with_the_pkey_of_now),
		cmocka_unit_test(echo_goes_to_who_asked_in_a_ring),
		cmocka_unit_test(echo_leaves_by_the_port_that_was_asked),
		cmocka_unit_test(ud_receive_too_short_is_kept_for_the_next),
		cmocka_unit_test(ud_by_a_handle_of_another_port_is_refused),
		cmocka_unit_test(what_has_left_does_not_leave_again),
		cmocka_unit_test(ud_to_a_hundred_thousand_peers_keeps_a_bounded_number_of_flows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
