/* SPDX-License-Identifier: MIT */
/* Packets through switches: where they get to, why they do not, and what is counted, exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include "fabric/walk.h"
#include "subnet/counters.h"
#include "subnet/parts.h"
#include "wire/perf.h"

/* h1 - A1  A3 - B3  B1 - h2, and h3 - B2; A4 - B4 is a second cable that nobody uses. */
static struct stage t;
static struct subnet_port *h1, *h2, *h3, *a[5], *b[5];
static uint8_t data[SMP_DATA_LEN];

static int set_up(void **state)
{
	struct subnet_node *na, *nb;

	stage_open(&t, 1);
	na = subnet_add(t.s, SUBNET_SWITCH, 4, "A");
	nb = subnet_add(t.s, SUBNET_SWITCH, 4, "B");
	h1 = subnet_port(subnet_add(t.s, SUBNET_CA, 1, "h1"), 1);
	h2 = subnet_port(subnet_add(t.s, SUBNET_CA, 1, "h2"), 1);
	h3 = subnet_port(subnet_add(t.s, SUBNET_CA, 1, "h3"), 1);
	for (unsigned i = 0; i < 5; i++) {
		a[i] = subnet_port(na, i);
		b[i] = subnet_port(nb, i);
	}
	subnet_join(h1, a[1]);
	subnet_join(a[3], b[3]);
	subnet_join(a[4], b[4]);
	subnet_join(h2, b[1]);
	subnet_join(h3, b[2]);
	subnet_start(t.s, t.now);
	stage_bring_up(&t, h1);
	for (unsigned i = 0; i < t.s->count.ports; i++)
		memset(&t.s->regs[i].count, 0, sizeof(t.s->regs[i].count));
	t.arrived = t.seen = 0;
	return 0;
}

static int tear_down(void **state)
{
	stage_close(&t);
	return 0;
}

static uint64_t count(const struct subnet_port *p, enum port_counter c)
{
	return p->regs->count.total[c];
}

/* The sum over all ports: nothing else was counted anywhere. */
static uint64_t everywhere(enum port_counter c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < t.s->count.ports; i++)
		sum += t.s->regs[i].count.total[c];
	return sum;
}

/* What h1 finds out by itself must be what happens. */
static bool send(uint16_t dlid, uint16_t pkey, uint8_t sl, unsigned len, enum walk_end expected)
{
	const struct walk_for what = {.pkey = pkey,
		.sl = sl,
		.words = (uint16_t)((LRH_LEN + BTH_LEN + DETH_LEN + len + ICRC_LEN) / 4)};
	struct walk w;
	bool arrived;

	assert_int_equal(fabric_walk(subnet_table(t.s), h1->index, dlid, &what, &w), expected);
	arrived = stage_data(&t, h1, dlid, pkey, sl, len);
	assert_int_equal(arrived, expected == WALK_ARRIVED);
	if (arrived)
		assert_ptr_equal(t.at->shared, fabric_port(subnet_table(t.s), w.port));
	return arrived;
}

static void every_port_on_the_way_counts_and_no_other(void **state)
{
	struct subnet_port *sends[] = {h1, a[3], b[1]}, *takes[] = {a[1], b[3], h2};
	const unsigned words = (LRH_LEN + BTH_LEN + DETH_LEN + 4096 + ICRC_LEN) / 4;

	for (unsigned i = 0; i < 1000; i++)
		send(h2->shared->lid, PKEY_DEFAULT, 5, 4096, WALK_ARRIVED);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(count(sends[i], CNT_XMIT_PKTS), 1000);
		assert_int_equal(count(sends[i], CNT_XMIT_DATA), 1000 * words);
		assert_int_equal(count(sends[i], CNT_UNICAST_XMIT), 1000);
		assert_int_equal(count(sends[i], CNT_XMIT_DATA_SL + 5), 1000 * words);
		assert_int_equal(count(takes[i], CNT_RCV_PKTS), 1000);
		assert_int_equal(count(takes[i], CNT_RCV_DATA), 1000 * words);
		assert_int_equal(count(takes[i], CNT_UNICAST_RCV), 1000);
		assert_int_equal(count(takes[i], CNT_RCV_DATA_SL + 5), 1000 * words);
	}
	assert_true(everywhere(CNT_XMIT_PKTS) == 3000 && everywhere(CNT_RCV_PKTS) == 3000);
	assert_true(everywhere(CNT_XMIT_DATA_SL) == 0 && everywhere(CNT_MCAST_XMIT) == 0);
	for (enum port_counter c = CNT_SYMBOL_ERRORS; c < CNT_XMIT_DATA; c++)
		assert_int_equal(everywhere(c), 0);
}

/* It counts as the packets themselves would have. */
static void traffic_past_the_switches_counts_the_same(void **state)
{
	const unsigned words = (LRH_LEN + BTH_LEN + DETH_LEN + 4096 + ICRC_LEN) / 4;
	const struct subnet_traffic traffic = {.packets = 1000, .words = 1000 * words, .sl = 5};
	static uint64_t was[64][CNT_COUNT];

	assert_in_range(t.s->count.ports, 1, 64);
	for (unsigned i = 0; i < 1000; i++)
		send(h2->shared->lid, PKEY_DEFAULT, 5, 4096, WALK_ARRIVED);
	for (unsigned i = 0; i < t.s->count.ports; i++) {
		memcpy(was[i], t.s->regs[i].count.total, sizeof(was[i]));
		memset(&t.s->regs[i].count, 0, sizeof(t.s->regs[i].count));
	}
	subnet_count(h1, h2->shared->lid, &traffic);
	for (unsigned i = 0; i < t.s->count.ports; i++)
		assert_memory_equal(was[i], t.s->regs[i].count.total, sizeof(was[i]));
	subnet_count(h1, h1->shared->lid, &traffic); /* on no cable */
	assert_int_equal(everywhere(CNT_XMIT_PKTS), 3000);
	subnet_cut(a[3], t.now);
	subnet_count(h1, h2->shared->lid, &traffic);
	assert_int_equal(everywhere(CNT_XMIT_PKTS), 4000);
	assert_int_equal(count(a[3], CNT_XMIT_PKTS), 1000);
}

/* Tables that lead back to where it came from. */
static void traffic_in_circles_ends(void **state)
{
	const struct subnet_traffic traffic = {.packets = 1, .words = 10};
	uint16_t lid = h2->shared->lid;

	fabric_lft_set(t.s->table, a[0]->node->sw->index, lid, 3);
	fabric_lft_set(t.s->table, b[0]->node->sw->index, lid, 4);
	fabric_lid_set(t.s->table, lid, h2->index);
	subnet_count(h1, lid, &traffic);
	assert_in_range(everywhere(CNT_XMIT_PKTS), 1, WALK_HOPS_MAX + 1);
}

static void no_route(void **state)
{
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 4711, 3);
	send(4711, PKEY_DEFAULT, 0, 8, WALK_NO_ROUTE); /* above the top */
	assert_int_equal(count(a[1], CNT_RCV_SWITCH_RELAY), 1);
	send(60, PKEY_DEFAULT, 0, 8, WALK_NO_ROUTE); /* 255 */
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 60, 9);
	send(60, PKEY_DEFAULT, 0, 8, WALK_NO_ROUTE); /* no such port */
	assert_true(count(a[1], CNT_RCV_SWITCH_RELAY) == 3 && count(a[1], CNT_DLID_MAPPING) == 3);
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 60, 1);
	send(60, PKEY_DEFAULT, 0, 8, WALK_RETURNS);
	assert_true(count(a[1], CNT_RCV_SWITCH_RELAY) == 4 && count(a[1], CNT_LOOPING) == 1);
	assert_true(everywhere(CNT_RCV_SWITCH_RELAY) == 4 && everywhere(CNT_XMIT_DISCARDS) == 0);
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 60, 0);
	send(60, PKEY_DEFAULT, 0, 8, WALK_STRANGER); /* the switch itself has another LID */
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 60, 3);
	fabric_lft_set(subnet_table(t.s), b[0]->node->sw->index, 60, 2);
	send(60, PKEY_DEFAULT, 0, 8, WALK_STRANGER); /* so has h3 */
	send(0, PKEY_DEFAULT, 0, 8, WALK_NO_ROUTE);
}

static void circles_end(void **state)
{
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 60, 3);
	fabric_lft_set(subnet_table(t.s), b[0]->node->sw->index, 60, 4); /* back by the other cable */
	fabric_lft_set(subnet_table(t.s), a[0]->node->sw->index, 60, 3);
	send(60, PKEY_DEFAULT, 0, 8, WALK_TOO_FAR);
	assert_int_equal(everywhere(CNT_XMIT_DISCARDS), 1);
	assert_int_equal(everywhere(CNT_LIFETIME), 1);
	assert_int_equal(t.seen, 1 + WALK_HOPS_MAX);
}

static void links_that_are_not_active(void **state)
{
	b[1]->shared->state = PORT_ARMED;
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_INACTIVE);
	assert_true(count(b[1], CNT_XMIT_DISCARDS) == 1 && count(b[1], CNT_INACTIVE) == 1);
	b[1]->shared->state = PORT_ACTIVE;
	h2->shared->state = PORT_INIT;
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_DEAF);
	assert_int_equal(everywhere(CNT_XMIT_DISCARDS), 1);
	/* Management needs no active link. */
	assert_true(stage_by_lid(&t, h1, h2->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data));
	subnet_cut(h2, t.now);
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_INACTIVE);
	assert_false(stage_by_lid(&t, h1, h2->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data));
	assert_int_equal(count(b[1], CNT_XMIT_DISCARDS), 3);
	subnet_cut(h1, t.now);
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_INACTIVE); /* not even away from its own port */
	assert_int_equal(count(h1, CNT_XMIT_DISCARDS), 1);
}

static void packets_too_long_for_a_link(void **state)
{
	b[1]->shared->mtu = 1; /* 256, and 124 of headers */
	send(h2->shared->lid, PKEY_DEFAULT, 0, 256 + 124 - 32, WALK_ARRIVED);
	send(h2->shared->lid, PKEY_DEFAULT, 0, 256 + 124 - 32 + 4, WALK_TOO_LONG);
	assert_true(count(b[1], CNT_XMIT_DISCARDS) == 1 && count(b[1], CNT_NEIGHBOR_MTU) == 1);
	assert_int_equal(everywhere(CNT_XMIT_DISCARDS), 1);
}

static void service_levels_without_a_lane(void **state)
{
	struct fabric_row *row = fabric_row(subnet_table(t.s), a[3]->shared->sl2vl + 1);

	row->vl[0] = 0x0f; /* SL 1 to VL 15 */
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_ARRIVED);
	send(h2->shared->lid, PKEY_DEFAULT, 1, 8, WALK_BAD_VL);
	assert_true(count(a[1], CNT_RCV_SWITCH_RELAY) == 1 && count(a[1], CNT_VL_MAPPING) == 1);
	a[3]->shared->vls = 1;
	send(h2->shared->lid, PKEY_DEFAULT, 2, 8, WALK_BAD_VL); /* VL 2, and only VL 0 is in use */
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_ARRIVED);
	assert_int_equal(everywhere(CNT_VL_MAPPING), 2);
}

static void enforced_partitions(void **state)
{
	a[1]->shared->flags |= FABRIC_PKEY_IN;
	send(h2->shared->lid, 0x8001, 0, 8, WALK_PKEY_IN);
	assert_int_equal(count(a[1], CNT_RCV_CONSTRAINT), 1);
	send(h2->shared->lid, PKEY_DEFAULT, 0, 8, WALK_ARRIVED);
	send(h2->shared->lid, 0x7fff, 0, 8, WALK_ARRIVED);
	a[1]->shared->pkey[0] = 0x7fff; /* a limited member may send its limited key */
	send(h2->shared->lid, 0x7fff, 0, 8, WALK_ARRIVED);
	b[1]->shared->flags |= FABRIC_PKEY_OUT;
	send(h2->shared->lid, 0x7fff, 0, 8, WALK_ARRIVED);
	b[1]->shared->pkey[0] = 0x7fff; /* but no limited member hears it */
	send(h2->shared->lid, 0x7fff, 0, 8, WALK_PKEY_OUT);
	assert_int_equal(count(b[1], CNT_XMIT_CONSTRAINT), 1);
	assert_true(everywhere(CNT_RCV_CONSTRAINT) == 1 && everywhere(CNT_XMIT_CONSTRAINT) == 1);
	assert_true(stage_by_lid(
		&t, h1, h2->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data)); /* has no P_Key */
	t.arrived = 0;
	subnet_expire(t.s, t.now);
	assert_true(t.arrived == 2 && notice_trap(t.mad + SMP_DATA) == TRAP_SWITCH_BAD_PKEY);
	assert_int_equal(t.mad[SMP_DATA + NOTICE_DETAILS + 50], 1); /* both at port 1, of A and of B */
}

/* ---- groups ---- */
static void set_mft(struct subnet_port *sw0, uint16_t mlid, unsigned ports)
{
	const unsigned block = (mlid - LID_MCAST) / 32, at = (mlid - LID_MCAST) % 32;

	assert_true(stage_by_lid(&t, h1, sw0->shared->lid, MAD_METHOD_GET, SMP_MFT, block, data));
	put_be16(data + 2 * at, (uint16_t)ports);
	assert_true(
		stage_by_lid(&t, h1, sw0->shared->lid, MAD_METHOD_SET, SMP_MFT, block, data) && !t.status);
	t.arrived = 0;
}

static void members_of_a_group_get_a_copy_each(void **state)
{
	set_mft(a[0], 0xc001, 1u << 1 | 1u << 3);
	set_mft(b[0], 0xc001, 1u << 1 | 1u << 2 | 1u << 3);
	stage_data(&t, h1, 0xc001, PKEY_DEFAULT, 0, 100);
	assert_int_equal(t.arrived, 2); /* h2 and h3, not its sender */
	assert_true(count(h2, CNT_MCAST_RCV) == 1 && count(h3, CNT_MCAST_RCV) == 1 &&
		    count(a[3], CNT_MCAST_XMIT) == 1);
	stage_data(&t, h3, 0xc001, PKEY_DEFAULT, 0, 100);
	assert_int_equal(t.arrived, 4); /* h1 and h2 */
	set_mft(b[0], 0xc001, 1u << 0 | 1u << 3);
	stage_data(&t, h1, 0xc001, PKEY_DEFAULT, 0, 100);
	assert_true(t.arrived == 1 && t.at == b[0]); /* the switch itself */
	assert_int_equal(everywhere(CNT_RCV_SWITCH_RELAY), 0);
	stage_data(&t, h1, 0xc002, PKEY_DEFAULT, 0, 100); /* nobody's group */
	stage_data(&t, h1, 0xc000 + SUBNET_MLIDS, PKEY_DEFAULT, 0, 100);
	assert_int_equal(count(a[1], CNT_DLID_MAPPING), 2);
	set_mft(a[0], 0xc003, 1u << 1);
	stage_data(&t, h1, 0xc003, PKEY_DEFAULT, 0, 100); /* its only member */
	assert_int_equal(everywhere(CNT_DLID_MAPPING), 2);
}

static void groups_that_go_round_in_circles_end(void **state)
{
	set_mft(a[0], 0xc001, 0x1e); /* all ports, over both cables */
	set_mft(b[0], 0xc001, 0x1e);
	t.seen = 0;
	stage_data(&t, h1, 0xc001, PKEY_DEFAULT, 0, 100);
	assert_in_range(t.seen, 10, t.s->count.ports + 1);
	assert_true(everywhere(CNT_LIFETIME) > 0);
}

/* ---- what ends at a port ---- */
static void only_packets_with_its_lid_are_for_a_port(void **state)
{
	struct subnet_port *x, *y;
	struct stage u;

	stage_open(&u, 1);
	x = subnet_port(subnet_add(u.s, SUBNET_CA, 1, "x"), 1);
	y = subnet_port(subnet_add(u.s, SUBNET_CA, 1, "y"), 1);
	subnet_join(x, y);
	subnet_start(u.s, u.now);
	stage_bring_up(&u, x);
	assert_true(stage_data(&u, x, y->shared->lid, PKEY_DEFAULT, 0, 8));
	assert_true(
		stage_data(&u, x, 0xc001, PKEY_DEFAULT, 0, 8)); /* whether it is a member its programs know */
	assert_false(stage_data(&u, x, LID_NONE, PKEY_DEFAULT, 0, 8));
	assert_false(stage_data(&u, x, y->shared->lid + 1, PKEY_DEFAULT, 0, 8));
	assert_false(stage_data(&u, x, LID_PERMISSIVE, PKEY_DEFAULT, 0, 8));
	stage_close(&u);
	assert_false(stage_data(&t, h1, LID_PERMISSIVE, PKEY_DEFAULT, 0, 8)); /* nor for a switch */
}

static void only_management_is_for_queue_pair_0(void **state)
{
	struct packet_addr to = {.slid = h1->shared->lid,
		.dlid = h2->shared->lid,
		.pkey = PKEY_DEFAULT,
		.dqpn = 1,
		.qkey = GSI_QKEY};
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, MAD_CLASS_SUBN, 1, MAD_METHOD_GET}, room[PACKET_MAD_LEN];
	struct packet p;

	packet_mad_make(&p, room, &to, mad);
	put_be24(room + 5, SMI_QPN);
	room[0] = IBT_UD | OP_SEND_ONLY_IMM;
	subnet_inject(t.s, h1, &p, t.now);
	assert_int_equal(t.arrived, 0);
	room[0] = IBT_UD | OP_SEND_ONLY;
	mad[1] = MAD_CLASS_PERF; /* a class that is not QP0's */
	memcpy(packet_mad(&p), mad, MAD_LEN);
	subnet_inject(t.s, h1, &p, t.now);
	assert_int_equal(t.arrived, 0);
	subnet_inject(t.s, a[1], &p, t.now); /* a port that nobody sends from */
	assert_int_equal(t.arrived, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_port_on_the_way_counts_and_no_other),
		TEST(traffic_past_the_switches_counts_the_same),
		TEST(traffic_in_circles_ends),
		TEST(no_route),
		TEST(circles_end),
		TEST(links_that_are_not_active),
		TEST(packets_too_long_for_a_link),
		TEST(service_levels_without_a_lane),
		TEST(enforced_partitions),
		TEST(members_of_a_group_get_a_copy_each),
		TEST(groups_that_go_round_in_circles_end),
		TEST(only_packets_with_its_lid_are_for_a_port),
		TEST(only_management_is_for_queue_pair_0),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
