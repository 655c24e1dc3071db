/* SPDX-License-Identifier: MIT */
/* Counters as perfquery asks for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include "subnet/counters.h"
#include "subnet/parts.h"
#include "wire/perf.h"

static struct stage t;
static struct subnet_port *h1, *h2, *s0, *s1, *s2;
static uint8_t answer[PERF_DATA_LEN];
static unsigned unsaid; /* packets that went past the switches */

static int set_up(void **state)
{
	stage_star(&t, 2, 3);
	h1 = stage_port(&t, "H1", 1);
	h2 = stage_port(&t, "H2", 1);
	s0 = stage_port(&t, "S", 0);
	s1 = stage_port(&t, "S", 1);
	s2 = stage_port(&t, "S", 2);
	stage_bring_up(&t, h1);
	for (unsigned i = 0; i < t.s->count.ports; i++)
		memset(&t.s->regs[i].count, 0, sizeof(t.s->regs[i].count));
	return 0;
}

static int tear_down(void **state)
{
	stage_close(&t);
	return 0;
}

/* The answer comes to the queue pair that asked, which is not one of the subnet's. */
static bool ask(
	uint16_t dlid, uint8_t method, uint16_t attr, uint8_t port, uint16_t select, const uint8_t *set)
{
	struct packet_addr to = {.slid = h1->shared->lid,
		.dlid = dlid,
		.pkey = PKEY_DEFAULT,
		.sqpn = 0x55,
		.dqpn = GSI_QPN,
		.qkey = GSI_QKEY};
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_PERF, PERF_CLASS_VERSION, method, 0, 0, 42, attr, 0};
	uint8_t mad[MAD_LEN] = {0};
	unsigned before = t.arrived;

	mad_hdr_put(mad, &h);
	if (set)
		memcpy(mad + PERF_DATA, set, PERF_DATA_LEN);
	mad[PERF_DATA + PERF_PORT_SELECT] = port;
	put_be16(mad + PERF_DATA + PERF_COUNTER_SELECT, select);
	memset(t.mad, 0, MAD_LEN);
	stage_send(&t, h1, &to, mad);
	if (t.arrived == before || t.at != h1 || t.mad[3] != MAD_METHOD_GET_RESP)
		return false;
	assert_int_equal(t.dqpn, 0x55);
	memcpy(answer, t.mad + PERF_DATA, PERF_DATA_LEN);
	t.status = get_be16(t.mad + 4);
	return true;
}

static bool get(struct subnet_port *end, uint16_t attr, uint8_t port)
{
	return ask(end->shared->lid, MAD_METHOD_GET, attr, port, 0, NULL);
}

static void capabilities(void **state)
{
	assert_true(get(s0, PERF_CLASS_PORT_INFO, 0) && !t.status);
	assert_int_equal(get_be32(answer), 0x01011300);
	assert_true(get(h2, PERF_CLASS_PORT_INFO, 0));
	assert_int_equal(get_be32(answer), 0x01011200);
	assert_true(get(h2, 0x0010, 1) && t.status == MAD_STATUS_NO_ATTRIBUTE); /* PortSamplesControl */
	assert_true(get(h1, PERF_CLASS_PORT_INFO, 0));                          /* itself */
}

static void ports_are_those_of_the_node(void **state)
{
	assert_true(get(h2, PERF_PORT_COUNTERS, 1) && !t.status);
	assert_true(get(h2, PERF_PORT_COUNTERS, 0) && t.status == MAD_STATUS_BAD_FIELD);
	assert_true(get(h2, PERF_PORT_COUNTERS, 2) && t.status == MAD_STATUS_BAD_FIELD);
	assert_true(get(h2, PERF_PORT_COUNTERS, PERF_ALL_PORTS) && t.status == MAD_STATUS_BAD_FIELD);
	assert_true(get(s0, PERF_PORT_COUNTERS, 0) && !t.status);
	assert_true(get(s0, PERF_PORT_COUNTERS, PERF_ALL_PORTS) && !t.status);
	assert_true(get(s0, PERF_PORT_COUNTERS, 4) && t.status == MAD_STATUS_BAD_FIELD);
}

/* Each counter has a value of its own; but for those of what is received: the question is. */
static bool get_of_known(uint16_t attr)
{
	uint64_t *total = h2->regs->count.total;

	for (unsigned c = 0; c < CNT_COUNT; c++)
		total[c] = c + 1;
	total[CNT_LINK_INTEGRITY] = 3;
	total[CNT_BUFFER_OVERRUN] = 4;
	return get(h2, attr, 1);
}

static void counters_lie_where_others_look(void **state)
{
	assert_true(get_of_known(PERF_PORT_COUNTERS) && !t.status);
	assert_int_equal(get_be16(answer + 4), CNT_SYMBOL_ERRORS + 1);
	assert_int_equal(answer[6], CNT_LINK_RECOVERY + 1);
	assert_int_equal(answer[7], CNT_LINK_DOWNED + 1);
	assert_int_equal(get_be16(answer + 12), CNT_RCV_SWITCH_RELAY + 1);
	assert_int_equal(get_be16(answer + 14), CNT_XMIT_DISCARDS + 1);
	assert_int_equal(answer[19], 0x34);
	assert_int_equal(get_be16(answer + 22), CNT_VL15_DROPPED + 1);
	assert_int_equal(get_be32(answer + 24), CNT_XMIT_DATA + 1);
	assert_int_equal(get_be32(answer + 40), CNT_XMIT_WAIT + 1);
	assert_true(get_of_known(PERF_PORT_COUNTERS_EXT) && !t.status);
	assert_int_equal(get_be64(answer + 8), CNT_XMIT_DATA + 1);
	assert_int_equal(get_be64(answer + 64), CNT_MCAST_RCV + 1);
	assert_true(get_of_known(PERF_RCV_ERROR_DETAILS) && !t.status);
	assert_int_equal(get_be16(answer + 4), CNT_LOCAL_PHYSICAL + 1);
	assert_int_equal(get_be16(answer + 14), CNT_LOOPING + 1);
	assert_true(get_of_known(PERF_XMIT_DISCARD_DETAILS) && !t.status);
	assert_int_equal(get_be16(answer + 10), CNT_HOQ_LIFE + 1);
	assert_true(get_of_known(PERF_XMIT_DATA_SL) && !t.status);
	assert_int_equal(get_be32(answer + 4 + 4 * 15), CNT_XMIT_DATA_SL + 15 + 1);
	assert_true(get_of_known(PERF_RCV_DATA_SL) && !t.status);
	assert_int_equal(get_be32(answer + 4 + 4 * 15), CNT_RCV_DATA_SL + 15 + 1);
}

static void counters_stay_at_their_limit(void **state)
{
	h2->regs->count.total[CNT_SYMBOL_ERRORS] = 70000;
	h2->regs->count.total[CNT_LINK_DOWNED] = 300;
	h2->regs->count.total[CNT_LINK_INTEGRITY] = 20;
	h2->regs->count.total[CNT_XMIT_DATA] = 1ull << 40;
	assert_true(get(h2, PERF_PORT_COUNTERS, 1));
	assert_int_equal(get_be16(answer + 4), 0xffff);
	assert_int_equal(answer[7], 0xff);
	assert_int_equal(answer[19] >> 4, 15);
	assert_int_equal(get_be32(answer + 24), UINT32_MAX);
	assert_true(get(h2, PERF_PORT_COUNTERS_EXT, 1));
	assert_true(get_be64(answer + 8) >= 1ull << 40);
}

static void set_resets_what_is_selected_and_only_there(void **state)
{
	uint8_t zero[PERF_DATA_LEN] = {0};

	h2->regs->count.total[CNT_SYMBOL_ERRORS] = 5;
	h2->regs->count.total[CNT_RCV_ERRORS] = 6;
	h2->regs->count.total[CNT_XMIT_WAIT] = 7;
	h2->regs->count.total[CNT_MCAST_XMIT] = 8;
	h2->regs->count.total[CNT_XMIT_PKTS] = 9;
	assert_true(ask(h2->shared->lid, MAD_METHOD_SET, PERF_PORT_COUNTERS, 1, 1u << 0 | 1u << 14, zero));
	assert_true(get_be16(answer + 4) == 0 && get_be16(answer + 8) == 6 && get_be32(answer + 40) == 7);
	assert_int_equal(get_be32(answer + 32), 0);
	h2->regs->count.total[CNT_SYMBOL_ERRORS]++;
	assert_true(get(h2, PERF_PORT_COUNTERS, 1));
	assert_int_equal(get_be16(answer + 4), 1);
	assert_true(get(h2, PERF_PORT_COUNTERS_EXT, 1));
	assert_true(get_be64(answer + 24) >= 9); /* its packets were reset elsewhere */
	zero[PERF_COUNTER_SELECT2] = 1;
	assert_true(ask(h2->shared->lid, MAD_METHOD_SET, PERF_PORT_COUNTERS, 1, 0, zero));
	assert_true(get_be32(answer + 40) == 0 && get_be16(answer + 8) == 6);
	put_be16(zero + 8, 100); /* a value can be written, too */
	assert_true(ask(h2->shared->lid, MAD_METHOD_SET, PERF_PORT_COUNTERS, 1, 1u << 3, zero));
	assert_int_equal(get_be16(answer + 8), 100);
}

static void all_ports_of_a_switch_together(void **state)
{
	uint8_t zero[PERF_DATA_LEN] = {0};

	s1->regs->count.total[CNT_RCV_ERRORS] = 40000;
	s2->regs->count.total[CNT_RCV_ERRORS] = 20000;
	assert_true(get(s0, PERF_PORT_COUNTERS, PERF_ALL_PORTS));
	assert_int_equal(get_be16(answer + 8), 60000);
	s2->regs->count.total[CNT_RCV_ERRORS] = 30000;
	assert_true(get(s0, PERF_PORT_COUNTERS, PERF_ALL_PORTS));
	assert_int_equal(get_be16(answer + 8), 0xffff);
	assert_true(ask(s0->shared->lid, MAD_METHOD_SET, PERF_PORT_COUNTERS, PERF_ALL_PORTS, 0xffff, zero));
	assert_true(get(s0, PERF_PORT_COUNTERS, 2));
	assert_int_equal(get_be16(answer + 8), 0);
}

/* They have their own class version, method and group to be wrong by. */
static void others_are_refused_or_go_up(void **state)
{
	struct packet_addr to = {.slid = h1->shared->lid,
		.dlid = h2->shared->lid,
		.pkey = PKEY_DEFAULT,
		.sqpn = 9,
		.dqpn = GSI_QPN,
		.qkey = GSI_QKEY};
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, MAD_CLASS_PERF, 2, MAD_METHOD_GET};

	stage_send(&t, h1, &to, mad);
	assert_true(t.at == h1 && get_be16(t.mad + 4) == MAD_STATUS_BAD_VERSION);
	mad[2] = PERF_CLASS_VERSION;
	mad[3] = MAD_METHOD_GET_RESP; /* to somebody who asked */
	stage_send(&t, h1, &to, mad);
	assert_true(t.at == h2 && t.dqpn == GSI_QPN);
	mad[1] = 0x21; /* congestion control: whoever is above refuses it */
	mad[3] = MAD_METHOD_GET;
	stage_send(&t, h1, &to, mad);
	assert_true(t.at == h2 && t.mad[1] == 0x21);
}

/* In a partition where the asker is limited, the answer has our own key. */
static void answers_have_our_own_partition_key(void **state)
{
	struct packet_addr to = {.slid = h1->shared->lid,
		.dlid = h2->shared->lid,
		.pkey = 0x7fff,
		.sqpn = GSI_QPN,
		.dqpn = GSI_QPN,
		.qkey = GSI_QKEY};
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_PERF, PERF_CLASS_VERSION, MAD_METHOD_GET, 0, 0, 42, 1, 0};
	uint8_t mad[MAD_LEN] = {0};

	mad_hdr_put(mad, &h);
	stage_send(&t, h1, &to, mad);
	assert_true(t.at == h1 && t.from.pkey == 0xffff && t.from.qkey == GSI_QKEY);
}

static void tell(void *arg)
{
	const struct subnet_traffic traffic = {.packets = unsaid, .words = 10 * unsaid};

	unsaid = 0;
	subnet_count(h1, h2->shared->lid, &traffic);
}

/* Who reads sees it, who resets has reset it, and a cable counts what it carried before it was cut. */
static void what_went_past_is_counted_first(void **state)
{
	uint64_t before;

	t.s->ops.tallies = tell;
	unsaid = 3;
	assert_true(get(h2, PERF_PORT_COUNTERS_EXT, 1));
	assert_int_equal(unsaid, 0);
	before = get_be64(answer + 32); /* PortRcvPkts */
	assert_true(before >= 3);
	unsaid = 5;
	assert_true(ask(h2->shared->lid, MAD_METHOD_SET, PERF_PORT_COUNTERS_EXT, 1, 0xffff, NULL));
	assert_true(get(h2, PERF_PORT_COUNTERS_EXT, 1));
	assert_int_equal(get_be64(answer + 32), 1); /* the question */
	unsaid = 7;
	before = subnet_counted(h2, CNT_RCV_PKTS);
	subnet_cut(s2, t.now);
	assert_int_equal(unsaid, 0);
	assert_int_equal(subnet_counted(h2, CNT_RCV_PKTS), before + 7);
	unsaid = 1;
	subnet_take_tallies(t.s);
	assert_int_equal(unsaid, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(capabilities),
		TEST(ports_are_those_of_the_node),
		TEST(counters_lie_where_others_look),
		TEST(counters_stay_at_their_limit),
		TEST(set_resets_what_is_selected_and_only_there),
		TEST(all_ports_of_a_switch_together),
		TEST(others_are_refused_or_go_up),
		TEST(answers_have_our_own_partition_key),
		TEST(what_went_past_is_counted_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
