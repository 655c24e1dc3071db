/* SPDX-License-Identifier: MIT */
/* CRCs on every cable: right packets pass, and damaged ones are noticed, by whom they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include "fabric/walk.h"
#include "subnet/parts.h"

/* H1 - S1 - S2 - H2 */
static struct stage t;
static struct subnet_port *h1, *h2, *s1[3], *s2[3];
static uint8_t data[SMP_DATA_LEN];

static void open_row(bool crcs)
{
	struct subnet_node *a, *b;

	stage_open(&t, 1);
	a = subnet_add(t.s, SUBNET_SWITCH, 2, "S1");
	b = subnet_add(t.s, SUBNET_SWITCH, 2, "S2");
	h1 = subnet_port(subnet_add(t.s, SUBNET_CA, 1, "H1"), 1);
	h2 = subnet_port(subnet_add(t.s, SUBNET_CA, 1, "H2"), 1);
	for (unsigned i = 0; i < 3; i++) {
		s1[i] = subnet_port(a, i);
		s2[i] = subnet_port(b, i);
	}
	subnet_join(h1, s1[1]);
	subnet_join(s1[2], s2[1]);
	subnet_join(s2[2], h2);
	if (crcs)
		subnet_check_crcs(t.s);
	subnet_start(t.s, t.now);
	stage_bring_up(&t, h1);
	for (unsigned i = 0; i < t.s->count.ports; i++)
		t.s->regs[i].phy_threshold = UINT8_MAX; /* no traps of it */
	t.arrived = 0;
}

static int set_up(void **state)
{
	open_row(true);
	return 0;
}

static int tear_down(void **state)
{
	stage_close(&t);
	return 0;
}

static uint64_t errors(const struct subnet_port *p)
{
	assert_int_equal(p->regs->count.total[CNT_RCV_ERRORS], p->regs->count.total[CNT_LOCAL_PHYSICAL]);
	return p->regs->count.total[CNT_RCV_ERRORS];
}

static uint64_t errors_everywhere(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < t.s->count.ports; i++)
		sum += t.s->regs[i].count.total[CNT_RCV_ERRORS];
	return sum;
}

static bool is_clear(void)
{
	const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 64};
	struct walk w;

	assert_int_equal(fabric_walk(subnet_table(t.s), h1->index, h2->shared->lid, &what, &w), WALK_ARRIVED);
	return w.plain;
}

/* Management, which writes into its packets at every node, was there first. */
static void right_packets_pass(void **state)
{
	struct fabric_row *row = fabric_row(subnet_table(t.s), s1[2]->shared->sl2vl + 1);

	assert_true(stage_by_lid(&t, h1, h2->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data));
	for (unsigned len = 0; len <= 4096; len += 64)
		assert_true(stage_data(&t, h1, h2->shared->lid, PKEY_DEFAULT, 0, len));
	row->vl[0] = 0x31; /* SL 0 to VL 3: the VCRC covers the VL */
	assert_true(stage_data(&t, h2, h1->shared->lid, PKEY_DEFAULT, 0, 8));
	assert_true(stage_data(&t, h1, h2->shared->lid, PKEY_DEFAULT, 0, 8));
	assert_int_equal(errors_everywhere(), 0);
}

static void no_path_is_clear(void **state)
{
	const struct subnet_fault slow = {.delay = 1000}, none = {0};

	assert_false(is_clear());
	assert_int_equal(subnet_set_fault(h1, &slow), 0);
	assert_false(stage_data(&t, h1, h2->shared->lid, PKEY_DEFAULT, 0, 8));
	t.now += 1000;
	subnet_expire(t.s, t.now);
	assert_int_equal(t.arrived, 1); /* the cable has held it, CRCs and all */
	assert_int_equal(subnet_set_fault(h1, &none), 0);
	assert_int_equal(subnet_set_watched(h2, true), 0);
	assert_int_equal(subnet_set_watched(h2, false), 0);
	assert_false(h1->shared->flags & FABRIC_PLAIN);
	assert_false(h2->shared->flags & FABRIC_PLAIN);
	stage_close(&t);
	open_row(false);
	assert_true(is_clear());
}

/* How many of a thousand packets arrive over a cable that damages three of ten. */
static unsigned arrive_of_thousand(unsigned len)
{
	const struct subnet_fault f = {.corrupt = 300000};

	assert_int_equal(subnet_set_fault(s2[1], &f), 0);
	for (unsigned i = 0; i < 1000; i++) {
		stage_data(&t, h1, h2->shared->lid, PKEY_DEFAULT, 0, len);
		while (subnet_deadline(t.s) <= t.now)
			subnet_expire(t.s, t.now);
	}
	return t.arrived;
}

static void damage_on_a_cable_is_noticed_by_the_next_port(void **state)
{
	unsigned n = arrive_of_thousand(8);

	assert_in_range(n, 600, 800);
	assert_int_equal(errors(s2[1]), 1000 - n);
	assert_int_equal(errors_everywhere(), 1000 - n);
	assert_int_equal(h2->regs->count.total[CNT_RCV_DATA_SL], n * 10); /* words: nobody else's */
	stage_close(&t);
	open_row(false);
	assert_int_equal(arrive_of_thousand(8), n); /* the same packets are damaged */
}

/* A packet that has its ICRC, as if a switch had got it, and is changed before it goes on. */
static void travel_changed(const struct packet_addr *to, uint32_t at)
{
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, MAD_CLASS_SUBN, SMP_CLASS_VERSION, MAD_METHOD_GET},
		room[PACKET_MAD_LEN];
	struct packet p;

	put_be16(mad + 16, SMP_NODE_INFO);
	packet_mad_make(&p, room, to, mad);
	if (to->dqpn > GSI_QPN)
		put_be24(room + 5, to->dqpn);
	crc_leave(&p);
	if (at < p.len)
		room[at] ^= 1;
	t.s->copies = t.s->count.ports;
	forward_travel(t.s, h1, &p);
}

static void damage_inside_a_switch_is_noticed_at_the_end(void **state)
{
	struct packet_addr to = {.slid = h1->shared->lid,
		.dlid = h2->shared->lid,
		.pkey = PKEY_DEFAULT,
		.dqpn = 0x4711,
		.qkey = GSI_QKEY};
	const uint64_t before = h2->regs->count.total[CNT_RCV_PKTS];

	travel_changed(&to, UINT32_MAX);
	assert_int_equal(t.arrived, 1);
	travel_changed(&to, PACKET_MAD_LEN - 1);
	assert_true(t.arrived == 1 && errors(h2) == 1);
	to.dqpn = SMI_QPN;
	travel_changed(&to, UINT32_MAX);
	assert_true(t.arrived == 2 && t.at == h1); /* answered */
	travel_changed(&to, PACKET_MAD_LEN - 1);
	assert_true(t.arrived == 2 && errors(h2) == 2);
	assert_int_equal(h2->regs->count.total[CNT_RCV_PKTS], before + 4);
	assert_int_equal(errors_everywhere(), 2);
}

static void damaged_directed_routes_end_at_the_next_node(void **state)
{
	const struct packet_addr to = {
		.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT, .dqpn = SMI_QPN};
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, MAD_CLASS_SUBN_DIRECTED, SMP_CLASS_VERSION, MAD_METHOD_GET},
		room[PACKET_MAD_LEN];

	put_be16(mad + 16, SMP_NODE_INFO);
	put_be16(mad + SMP_DR_SLID, LID_PERMISSIVE);
	put_be16(mad + SMP_DR_DLID, LID_PERMISSIVE);
	mad[SMP_HOP_COUNT] = mad[SMP_HOP_PTR] = 1;
	mad[SMP_INITIAL_PATH + 1] = 1;
	for (unsigned spoilt = 0; spoilt < 2; spoilt++) {
		struct packet p;

		t.arrived = 0;
		packet_mad_make(&p, room, &to, mad);
		crc_leave(&p);
		room[PACKET_MAD_LEN - 1] ^= (uint8_t)spoilt;
		forward_travel(t.s, h1, &p);
		assert_int_equal(t.arrived, !spoilt);
		assert_int_equal(errors(s1[1]), spoilt);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(right_packets_pass),
		TEST(no_path_is_clear),
		TEST(damage_on_a_cable_is_noticed_by_the_next_port),
		TEST(damage_inside_a_switch_is_noticed_at_the_end),
		TEST(damaged_directed_routes_end_at_the_next_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
