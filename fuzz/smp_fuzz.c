/* SPDX-License-Identifier: MIT */
/*
 * Any management datagrams, and others, from any end port into a small subnet: two switches with two cables
 * between them, three adapters, one of them with two ports. The input is a list of moves: a datagram (as it
 * is, or made to fit, so that it gets past version, class and keys), data to a LID, time that passes, cables
 * that are cut and mended and do things to packets. After each move everything must fit together.
 */
#include "input.h"

#include "fabric/walk.h"
#include "subnet/parts.h"
#include "wire/perf.h"
#include "wire/smp.h"

enum { ENDS = 6, CABLES = 6, HOPS_MAX = 8192 };

static struct subnet *s;
static struct subnet_port *end[ENDS], *cable[CABLES];
static uint64_t now;
static unsigned seen, answers;

static void on_seen(void *arg, struct subnet_port *from, const struct packet *p)
{
	must(p->lrh.words == (packet_size(p) + ICRC_LEN) / 4);
	must(from->peer && from->num && p->lrh.vl <= VL_MANAGEMENT);
	must(++seen <= HOPS_MAX);
}

/* Somebody answers what nobody else did, once in a while. */
static void on_arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	uint8_t bytes[PACKET_MAD_LEN];
	struct packet answer = *p;
	struct packet_addr a;
	const uint8_t *mad;

	must(subnet_end_port(at) == at && p->len >= BTH_LEN);
	if (!packet_mad_parse(p, &a, &mad) || mad[3] & MAD_METHOD_RESPONSE || !answers)
		return;
	answers--;
	memcpy(bytes, p->bth, sizeof(bytes));
	answer.bth = bytes;
	packet_mad(&answer)[3] |= MAD_METHOD_RESPONSE;
	packet_mad_turn(&answer);
	subnet_inject(s, at, &answer, now);
}

static void on_changed(void *arg, struct subnet_port *at, enum subnet_change what)
{
	must(subnet_end_port(at) == at && what <= SUBNET_REREGISTER);
}

static void build(void)
{
	static const struct subnet_ops ops = {on_arrived, on_seen, on_changed, NULL};
	struct subnet_node *a, *b, *h1, *h2, *h3;

	s = subnet_open(&ops, NULL, 1);
	a = subnet_add(s, SUBNET_SWITCH, 4, "A");
	b = subnet_add(s, SUBNET_SWITCH, 17, "B");
	h1 = subnet_add(s, SUBNET_CA, 1, "h1");
	h2 = subnet_add(s, SUBNET_CA, 1, "h2");
	h3 = subnet_add(s, SUBNET_CA, 2, "h3");
	must(!subnet_join(cable[0] = subnet_port(a, 1), end[2] = subnet_port(h1, 1)));
	must(!subnet_join(cable[1] = subnet_port(b, 1), end[3] = subnet_port(h2, 1)));
	must(!subnet_join(cable[2] = subnet_port(b, 17), end[4] = subnet_port(h3, 1)));
	must(!subnet_join(cable[3] = subnet_port(a, 2), end[5] = subnet_port(h3, 2)));
	must(!subnet_join(cable[4] = subnet_port(a, 3), subnet_port(b, 3)));
	must(!subnet_join(cable[5] = subnet_port(a, 4), subnet_port(b, 4)));
	end[0] = subnet_port(a, 0);
	end[1] = subnet_port(b, 0);
	must(!subnet_start(s, now));
}

/* LIDs 1 to 6 for the end ports, everything active: a subnet that data passes through from the beginning. */
static void bring_up(void)
{
	static const uint8_t from_a[] = {255, 0, 3, 1, 3, 3, 2}, from_b[] = {255, 3, 0, 3, 1, 17, 3};

	for (unsigned i = 0; i < ENDS; i++) {
		struct port_info info;
		uint8_t data[SMP_DATA_LEN];

		sma_get_port_info(end[i], 0, data);
		info = port_info_get(data);
		info.lid = (uint16_t)(i + 1);
		info.sm_lid = 3;
		info.state = info.phys = 0;
		port_info_put(data, &info);
		must(!sma_set_port_info(end[i], 0, data));
	}
	for (uint16_t lid = 1; lid <= ENDS; lid++) {
		fabric_lft_set(s->table, 0, lid, from_a[lid]);
		fabric_lft_set(s->table, 1, lid, from_b[lid]);
	}
	fabric_switch(s->table, 0)->top = fabric_switch(s->table, 1)->top = 63;
	for (unsigned state = PORT_ARMED; state <= PORT_ACTIVE; state++)
		for (unsigned i = 0; i < CABLES; i++) {
			link_set(cable[i], state, 0);
			link_set(cable[i]->peer, state, 0);
		}
	fabric_change_end(s->table);
}

/* ---- what must hold at any time ---- */
static void check_port(const struct subnet_port *p)
{
	const struct fabric_port *f = p->shared;

	must(f->state >= PORT_DOWN && f->state <= PORT_ACTIVE && f->phys >= PHYS_SLEEP &&
		f->phys <= PHYS_LINK_UP);
	must((f->state > PORT_DOWN) == (f->phys == PHYS_LINK_UP));
	if (p->peer)
		must((f->phys == PHYS_LINK_UP) == (p->peer->shared->phys == PHYS_LINK_UP));
	must(!p->num || f->phys != PHYS_LINK_UP || (p->peer && !p->cut));
	must(f->mtu >= 1 && f->mtu <= p->caps.mtu && f->vls >= 1 && f->vls <= SUBNET_VL_CAP && f->lmc < 8);
	must(f->lid < LID_MCAST && f->sm_lid < LID_MCAST && (!f->lid || p == subnet_end_port((void *)p)));
	must(f->guid[0] == p->guid);
}

static void check(void)
{
	must(!(fabric_epoch(s->table) & 1) && !s->depth && s->nheld <= SUBNET_HELD_MAX);
	for (unsigned i = 0; i < s->nnodes; i++)
		for (unsigned k = 0; k <= s->node[i]->nports; k++)
			if (subnet_port(s->node[i], k))
				check_port(&s->node[i]->port[k]);
	for (uint16_t lid = 0; lid < 64; lid++) {
		uint32_t port = fabric_lid_port(s->table, lid);

		must(port == FABRIC_NONE || fabric_port_has_lid(fabric_port(s->table, port), lid));
	}
}

/* ---- moves ---- */
enum { FIT_HEADER = 1, FIT_ATTR = 2, FIT_ROUTE = 4, FIT_KEYS = 8, BY_LID = 16, TO_QP1 = 32, WITH_GRH = 64 };

static void fit(uint8_t *mad, uint8_t flags)
{
	static const uint16_t attr[] = {SMP_NOTICE, SMP_NODE_DESC, SMP_NODE_INFO, SMP_SWITCH_INFO,
		SMP_GUID_INFO, SMP_PORT_INFO, SMP_PKEY_TABLE, SMP_SL2VL, SMP_VL_ARB, SMP_LFT, SMP_MFT,
		SMP_SM_INFO},
			      perf[] = {PERF_CLASS_PORT_INFO, PERF_PORT_COUNTERS, PERF_RCV_ERROR_DETAILS,
				      PERF_XMIT_DISCARD_DETAILS, PERF_PORT_COUNTERS_EXT, PERF_XMIT_DATA_SL,
				      PERF_RCV_DATA_SL};

	if (flags & FIT_HEADER) {
		mad[0] = MAD_BASE_VERSION;
		mad[1] = flags & TO_QP1   ? MAD_CLASS_PERF
			 : flags & BY_LID ? MAD_CLASS_SUBN
					  : MAD_CLASS_SUBN_DIRECTED;
		mad[2] = 1;
		mad[3] = 1 + mad[3] % 2;
	}
	if (flags & FIT_ATTR)
		put_be16(mad + 16, flags & TO_QP1 ? perf[mad[17] % 7] : attr[mad[17] % 12]);
	if (flags & FIT_ROUTE) {
		put_be16(mad + 4, 0);
		mad[SMP_HOP_PTR] = 0;
		mad[SMP_HOP_COUNT] %= 6;
		put_be32(mad + SMP_DR_SLID, flags & BY_LID ? 0x0003ffff : UINT32_MAX);
		for (unsigned i = 1; i < 6; i++)
			mad[SMP_INITIAL_PATH + i] = 1 + mad[SMP_INITIAL_PATH + i] % 4;
	}
	if (flags & FIT_KEYS)
		memset(mad + SMP_MKEY, 0, 8);
}

static void send_mad(struct input *in)
{
	struct subnet_port *from = end[draw_u8(in) % ENDS];
	uint8_t flags = draw_u8(in), mad[MAD_LEN] = {0}, room[PACKET_MAD_LEN];
	bool fit_keys = flags & FIT_KEYS, to_qp1 = flags & TO_QP1;
	struct packet_addr a = {.slid = from->shared->lid, .dqpn = to_qp1, .has_grh = flags & WITH_GRH};
	struct packet p;

	a.dlid = flags & (BY_LID | TO_QP1) ? draw_u8(in) : LID_PERMISSIVE;
	a.sl = draw_u8(in) & 15;
	a.pkey = fit_keys ? PKEY_DEFAULT : draw_u16(in);
	a.qkey = to_qp1 && fit_keys ? GSI_QKEY : 0;
	a.sqpn = draw_u8(in);
	draw(in, mad, 36);                      /* the header, the key, the ends of the route */
	draw(in, mad + SMP_DATA, SMP_DATA_LEN); /* the attribute */
	draw(in, mad + SMP_INITIAL_PATH, 8);    /* and the route */
	fit(mad, flags);
	packet_mad_make(&p, room, &a, mad);
	answers = 2;
	subnet_inject(s, from, &p, now);
}

static void send_data(struct input *in)
{
	static uint8_t bytes[PACKET_BODY_MAX];
	struct subnet_port *from = end[draw_u8(in) % ENDS];
	struct packet p = {.lrh = {.lnh = LNH_LOCAL, .slid = 1}, .bth = bytes};

	p.len = BTH_LEN + DETH_LEN + draw_u8(in) % 64 * 64;
	p.lrh.sl = draw_u8(in) & 15;
	p.lrh.dlid = draw_u16(in);
	p.lrh.words = (uint16_t)((packet_size(&p) + ICRC_LEN) / 4);
	draw(in, bytes, BTH_LEN);
	subnet_inject(s, from, &p, now);
}

/* Bytes from elsewhere, as a cable to another machine would bring them. */
static void parse(struct input *in)
{
	uint8_t bytes[128], out[128];
	size_t len = draw_u8(in) % sizeof(bytes);
	struct packet p;

	draw(in, bytes, len);
	if (packet_get(&p, bytes, len))
		must(packet_put(&p, out, sizeof(out)) == len);
}

static void set_fault(struct input *in)
{
	struct subnet_port *p = cable[draw_u8(in) % CABLES];
	struct subnet_fault f;

	f.loss = draw_u8(in) * 1000u;
	f.corrupt = draw_u8(in) * 1000u;
	f.duplicate = draw_u8(in) * 1000u;
	f.delay = draw_u16(in);
	must(!subnet_set_fault(p, &f));
}

static void pass_time(struct input *in)
{
	uint64_t step = draw_u16(in);

	now += step << (draw_u8(in) % 24);
	subnet_expire(s, now);
}

static void move(struct input *in)
{
	uint8_t what = draw_u8(in);

	seen = 0;
	switch (what % 16) {
	case 0:
		subnet_cut(cable[what / 16 % CABLES], now);
		break;
	case 1:
		subnet_mend(cable[what / 16 % CABLES], now);
		break;
	case 2:
		set_fault(in);
		break;
	case 3:
		pass_time(in);
		break;
	case 4:
		subnet_set_capability(
			end[what / 16 % ENDS], PORT_CAP_IS_SM, what & 128 ? PORT_CAP_IS_SM : 0, now);
		break;
	case 5:
		parse(in);
		break;
	case 6:
	case 7:
	case 8:
		send_data(in);
		break;
	default:
		send_mad(in);
	}
	check();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	now = 1000;
	build();
	bring_up();
	check();
	for (unsigned i = 0; i < 200 && in.at < in.end; i++)
		move(&in);
	subnet_close(s);
	return 0;
}
