/* SPDX-License-Identifier: MIT */
/* The attributes of subnet management: who has which, what a Set takes, what it tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

static struct stage t;
static struct subnet_port *h1, *h2, *s0;
static uint8_t data[SMP_DATA_LEN];
static const struct stage_route here = {0}, to_switch = {1, {1}}, to_h2 = {2, {1, 2}};

static int set_up(void **state)
{
	stage_star(&t, 3, 20);
	h1 = stage_port(&t, "H1", 1);
	h2 = stage_port(&t, "H2", 1);
	s0 = stage_port(&t, "S", 0);
	memset(data, 0, sizeof(data));
	return 0;
}

static int tear_down(void **state)
{
	stage_close(&t);
	return 0;
}

static bool get(const struct stage_route *r, uint16_t attr, uint32_t mod)
{
	memset(data, 0x77, sizeof(data));
	return stage_directed(&t, h1, r, MAD_METHOD_GET, attr, mod, data);
}

static bool set(const struct stage_route *r, uint16_t attr, uint32_t mod)
{
	return stage_directed(&t, h1, r, MAD_METHOD_SET, attr, mod, data);
}

static void nodes_say_who_they_are(void **state)
{
	struct node_info n;

	assert_true(get(&here, SMP_NODE_INFO, 0) && !t.status);
	n = node_info_get(data);
	assert_true(n.node_type == SUBNET_CA && n.nports == 1 && n.local_port == 1);
	assert_true(n.node_guid == h1->node->guid && n.port_guid == h1->guid && n.sys_guid == n.node_guid);
	assert_true(n.vendor_id != 0x0002c9); /* OpenSM would ask for attributes of its own */
	assert_true(get(&to_switch, SMP_NODE_INFO, 0));
	n = node_info_get(data);
	assert_true(n.node_type == SUBNET_SWITCH && n.nports == 20 && n.local_port == 1);
	assert_true(n.port_guid == s0->guid);
	assert_true(get(&to_h2, SMP_NODE_INFO, 0));
	assert_true(node_info_get(data).node_guid == h2->node->guid);
	assert_true(get(&to_h2, SMP_NODE_DESC, 0));
	assert_string_equal((char *)data, "H2");
	assert_int_equal(t.from.slid, LID_PERMISSIVE);
	assert_int_equal(t.mad[SMP_HOP_PTR], 0);
}

static void each_attribute_has_its_nodes(void **state)
{
	static const struct {
		uint16_t attr;
		uint32_t mod;
		bool ca, sw, ca_set, sw_set;
	} row[] = {
		{SMP_NOTICE, 0, true, true, false, false},
		{SMP_NODE_DESC, 0, true, true, false, false},
		{SMP_NODE_INFO, 0, true, true, false, false},
		{SMP_SWITCH_INFO, 0, false, true, false, true},
		{SMP_GUID_INFO, 0, true, true, true, true},
		{SMP_PORT_INFO, 0, true, true, true, true},
		{SMP_PKEY_TABLE, 0, true, true, true, true},
		{SMP_SL2VL, 0, true, true, true, true},
		{SMP_VL_ARB, 1 << 16, true, true, true, true},
		{SMP_LFT, 0, false, true, false, true},
		{SMP_MFT, 0, false, true, false, true},
		{0x001a, 0, false, false, false, false}, /* random forwarding */
		{0x0030, 0, false, false, false, false}, /* VendorDiag */
		{0x0031, 0, false, false, false, false}, /* LedInfo */
		{0x0033, 0, false, false, false, false}, /* PortInfoExtended */
		{SMP_MLNX_PORT_INFO, 1, false, false, false, false},
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(*row); i++) {
		assert_true(get(&to_h2, row[i].attr, row[i].mod));
		assert_int_equal(t.status, row[i].ca ? MAD_STATUS_OK : MAD_STATUS_NO_ATTRIBUTE);
		memset(data, 0, sizeof(data));
		if (row[i].attr != SMP_PORT_INFO) {
			assert_true(set(&to_h2, row[i].attr, row[i].mod));
			assert_int_equal(t.status, row[i].ca_set ? MAD_STATUS_OK : MAD_STATUS_NO_ATTRIBUTE);
		}
		assert_true(get(&to_switch, row[i].attr, row[i].mod));
		assert_int_equal(t.status, row[i].sw ? MAD_STATUS_OK : MAD_STATUS_NO_ATTRIBUTE);
		memset(data, 0, sizeof(data));
		assert_true(set(&to_switch, row[i].attr, row[i].mod));
		assert_int_equal(t.status, row[i].sw_set ? MAD_STATUS_OK : MAD_STATUS_NO_ATTRIBUTE);
	}
}

/* In a description of a real cluster: OpenSM logs an error for each port that refuses it. */
static void nodes_of_others_have_what_these_are_asked_for(void **state)
{
	static const uint8_t nothing[SMP_DATA_LEN];

	h2->node->vendor_id = s0->node->vendor_id = 0x0002c9;
	assert_true(get(&to_h2, SMP_MLNX_PORT_INFO, 1) && !t.status);
	assert_memory_equal(data, nothing, sizeof(data));
	assert_true(get(&to_switch, SMP_MLNX_PORT_INFO, 20) && !t.status);
	assert_true(get(&to_switch, SMP_MLNX_PORT_INFO, 21));
	assert_int_equal(t.status, MAD_STATUS_BAD_FIELD);
	assert_true(set(&to_h2, SMP_MLNX_PORT_INFO, 1));
	assert_int_equal(t.status, MAD_STATUS_NO_ATTRIBUTE);
}

static void what_is_no_request_of_ours_goes_up(void **state)
{
	static const struct packet_addr to = {
		.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT};
	unsigned before = t.arrived;

	assert_false(get(&to_h2, SMP_SM_INFO, 0));
	assert_true(t.arrived == before + 1 && t.at == h2); /* for a subnet manager there */
	assert_false(stage_directed(&t, h1, &to_h2, MAD_METHOD_TRAP, SMP_NOTICE, 0, data));
	assert_true(t.arrived == before + 2 && t.at == h2);
	assert_false(
		stage_smp(&t, h1, &to, MAD_CLASS_SUBN_DIRECTED, &to_h2, 0x13, SMP_NODE_INFO, 0, 0, data));
	assert_true(t.at == h1 && t.status == MAD_STATUS_NO_METHOD && t.mad[3] == 0x93);
}

static void other_versions_are_refused(void **state)
{
	static const struct packet_addr to = {
		.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT};
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_SUBN_DIRECTED, 2, MAD_METHOD_GET, 0, 0, 1, SMP_NODE_INFO, 0};
	uint8_t mad[MAD_LEN] = {0};

	mad_hdr_put(mad, &h);
	put_be32(mad + SMP_DR_SLID, UINT32_MAX);
	stage_send(&t, h1, &to, mad);
	assert_int_equal(t.arrived, 1);
	assert_int_equal(get_be16(t.mad + 4), SMP_RETURNING | MAD_STATUS_BAD_VERSION);
}

static void switch_info_top_and_change_bit(void **state)
{
	struct switch_info s;
	uint64_t epoch;

	assert_true(get(&to_switch, SMP_SWITCH_INFO, 0));
	s = switch_info_get(data);
	assert_true(s.linear_cap == 0xc000 && s.mcast_cap == 1024 && s.state_change && s.enforce_in &&
		    s.enforce_cap == 32);
	s.linear_top = 100;
	s.state_change = false;
	switch_info_put(data, &s);
	epoch = fabric_epoch(subnet_table(t.s));
	assert_true(set(&to_switch, SMP_SWITCH_INFO, 0) && !t.status);
	assert_true(switch_info_get(data).state_change && switch_info_get(data).linear_top == 100);
	assert_int_equal(fabric_epoch(subnet_table(t.s)), epoch + 2);
	assert_true(set(&to_switch, SMP_SWITCH_INFO, 0)); /* the bit is written as one now, which clears it */
	assert_false(switch_info_get(data).state_change);
	assert_int_equal(fabric_epoch(subnet_table(t.s)), epoch + 2); /* nothing changed for programs */
	s.linear_top = 0xc000;
	switch_info_put(data, &s);
	assert_true(set(&to_switch, SMP_SWITCH_INFO, 0));
	assert_true(t.status == MAD_STATUS_BAD_FIELD && switch_info_get(data).linear_top == 100);
}

static void tables_come_back_as_they_were_set(void **state)
{
	static const struct {
		uint16_t attr;
		uint32_t mod;
		unsigned len;
	} row[] = {
		{SMP_PKEY_TABLE, 0, 64},
		{SMP_PKEY_TABLE, 20 << 16, 64},
		{SMP_SL2VL, 3 << 8 | 20, 8},
		{SMP_VL_ARB, 1 << 16 | 20, 16},
		{SMP_VL_ARB, 3 << 16 | 20, 16},
		{SMP_LFT, 0, 64},
		{SMP_LFT, 767, 64},
		{SMP_MFT, 31, 64},
		{SMP_MFT, 1u << 28 | 31, 64},
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(*row); i++) {
		uint8_t was[SMP_DATA_LEN];

		for (unsigned k = 0; k < SMP_DATA_LEN; k++)
			data[k] = (uint8_t)(i * 16 + k);
		memcpy(was, data, sizeof(was));
		assert_true(set(&to_switch, row[i].attr, row[i].mod) && !t.status);
		assert_true(get(&to_switch, row[i].attr, row[i].mod) && !t.status);
		assert_memory_equal(data, was, row[i].len);
	}
	assert_true(get(&to_switch, SMP_LFT, 1));
	assert_int_equal(data[0], FABRIC_NO_PORT); /* nobody set it */
}

static void modifiers_beyond_the_tables_are_refused(void **state)
{
	static const struct {
		uint16_t attr;
		uint32_t mod;
	} row[] = {{SMP_PKEY_TABLE, 1}, {SMP_PKEY_TABLE, 21 << 16}, {SMP_SL2VL, 21}, {SMP_SL2VL, 21 << 8},
		{SMP_VL_ARB, 0}, {SMP_VL_ARB, 2 << 16}, {SMP_VL_ARB, 5 << 16}, {SMP_VL_ARB, 1 << 16 | 21},
		{SMP_LFT, 768}, {SMP_LFT, UINT32_MAX}, {SMP_MFT, 32}, {SMP_MFT, 2u << 28},
		{SMP_PORT_INFO, 21}, {SMP_GUID_INFO, 1}};

	for (unsigned i = 0; i < sizeof(row) / sizeof(*row); i++) {
		assert_true(get(&to_switch, row[i].attr, row[i].mod));
		assert_int_equal(t.status, MAD_STATUS_BAD_FIELD);
		assert_true(set(&to_switch, row[i].attr, row[i].mod));
		assert_int_equal(t.status, MAD_STATUS_BAD_FIELD);
	}
	assert_true(get(&to_h2, SMP_PORT_INFO, 2) && t.status == MAD_STATUS_BAD_FIELD);
}

static void alias_guids_are_set_but_the_first(void **state)
{
	memset(data, 0, sizeof(data));
	put_be64(data, 1);
	put_be64(data + 8, 2);
	assert_true(set(&to_h2, SMP_GUID_INFO, 0) && !t.status);
	assert_true(get_be64(data) == h2->guid && get_be64(data + 8) == 2);
	assert_int_equal(t.changed[SUBNET_GUIDS_CHANGED], 1);
	assert_true(set(&to_h2, SMP_GUID_INFO, 0));
	assert_int_equal(t.changed[SUBNET_GUIDS_CHANGED], 1);
}

/* ---- PortInfo ---- */
static struct port_info port_info(const struct stage_route *r, uint32_t mod)
{
	assert_true(get(r, SMP_PORT_INFO, mod) && !t.status);
	return port_info_get(data);
}

static uint16_t set_port_info(const struct stage_route *r, uint32_t mod, const struct port_info *i)
{
	port_info_put(data, i);
	assert_true(set(r, SMP_PORT_INFO, mod));
	return t.status;
}

static void port_info_of_a_new_port(void **state)
{
	struct port_info i = port_info(&to_h2, 0);

	assert_true(i.state == PORT_INIT && i.phys == PHYS_LINK_UP && !i.lid && !i.sm_lid && !i.mkey);
	assert_true(i.vls == i.vl_cap && i.mtu == i.mtu_cap); /* else OpenSM bounces the link */
	assert_true(i.prefix == 0xfe80000000000000 && i.guid_cap == FABRIC_GUIDS && i.local_port == 1);
	assert_true(i.width_active == 2 && i.speed_active == 4 && i.speed_ext_active == 4);
	assert_true(i.cap_mask & PORT_CAP_TRAP && i.cap_mask & PORT_CAP_EXTENDED_SPEEDS &&
		    !(i.cap_mask & PORT_CAP_IS_SM));
	i = port_info(&to_switch, PORT_INFO_EXTENDED | 4); /* nothing is plugged in there */
	assert_true(i.state == PORT_DOWN && i.phys == PHYS_POLLING && i.local_port == 1);
	i = port_info(&to_switch, 0);
	assert_true(i.state == PORT_ACTIVE && i.phys == PHYS_LINK_UP);
}

static void end_ports_take_lids_and_tell(void **state)
{
	struct port_info i = port_info(&to_h2, 0);

	i.lid = 8;
	i.lmc = 2;
	i.sm_lid = 1;
	i.sm_sl = 3;
	i.subnet_timeout = 10;
	i.state = i.phys = 0;
	assert_int_equal(set_port_info(&to_h2, 0, &i), 0);
	assert_true(t.changed[SUBNET_LID_CHANGED] == 1 && t.changed[SUBNET_SM_CHANGED] == 1);
	assert_true(h2->shared->lid == 8 && h2->shared->sm_lid == 1 && h2->shared->timeout == 10);
	for (uint16_t lid = 7; lid <= 12; lid++)
		assert_int_equal(fabric_lid_port(subnet_table(t.s), lid),
			lid >= 8 && lid < 12 ? h2->index : FABRIC_NONE);
	i.lid = 20;
	i.lmc = 0;
	i.reregister = true;
	assert_int_equal(set_port_info(&to_h2, 0, &i), 0);
	assert_true(t.changed[SUBNET_LID_CHANGED] == 2 && t.changed[SUBNET_SM_CHANGED] == 1);
	assert_int_equal(t.changed[SUBNET_REREGISTER], 1);
	assert_false(port_info_get(data).reregister); /* it is done */
	assert_int_equal(fabric_lid_port(subnet_table(t.s), 9), FABRIC_NONE);
	assert_int_equal(fabric_lid_port(subnet_table(t.s), 20), h2->index);
	i.lid = 0xc000;
	assert_int_equal(set_port_info(&to_h2, 0, &i), MAD_STATUS_BAD_FIELD);
	i.lid = 20;
	i.sm_lid = 0xffff;
	assert_int_equal(set_port_info(&to_h2, 0, &i), MAD_STATUS_BAD_FIELD);
	assert_true(h2->shared->lid == 20 && h2->shared->sm_lid == 1);
}

/* ibportstate writes whatever into them. */
static void cabled_ports_of_switches_have_no_lid(void **state)
{
	struct port_info i = port_info(&to_switch, 2);

	assert_true(!i.lid && !i.cap_mask && !i.prefix);
	i.lid = 0x1234;
	i.sm_lid = 0x1234;
	i.lmc = 7;
	i.mkey = 1;
	i.state = i.phys = 0;
	assert_int_equal(set_port_info(&to_switch, 2, &i), 0);
	i = port_info_get(data);
	assert_true(!i.lid && !i.sm_lid && !i.lmc && !i.mkey);
	assert_int_equal(fabric_lid_port(subnet_table(t.s), 0x1234), FABRIC_NONE);
	assert_int_equal(t.changed[SUBNET_LID_CHANGED], 0);
}

static void zero_leaves_things_as_they_are(void **state)
{
	struct port_info i = port_info(&to_switch, 2);
	uint8_t was[SMP_DATA_LEN];

	memcpy(was, data, sizeof(was));
	i.state = i.phys = i.down_default = i.width_enabled = i.speed_enabled = i.vls = i.mtu = 0;
	i.speed_ext_enabled = 0;
	assert_int_equal(set_port_info(&to_switch, PORT_INFO_EXTENDED | 2, &i), 0);
	assert_memory_equal(data, was, sizeof(was));
}

static void fields_have_limits(void **state)
{
	struct port_info ok = port_info(&to_switch, 2), i;

	ok.state = ok.phys = 0;
#define REFUSED(field, value)                                                                                \
	(i = ok, i.field = (value),                                                                          \
		assert_int_equal(set_port_info(&to_switch, PORT_INFO_EXTENDED | 2, &i), 0x1c))
	REFUSED(mtu, 6);
	REFUSED(vls, 5);
	REFUSED(width_enabled, 4);
	REFUSED(speed_enabled, 8);
	REFUSED(speed_ext_enabled, 8);
	REFUSED(down_default, 3);
	REFUSED(phys, 4);
	REFUSED(phys, 5);
	REFUSED(state, PORT_INIT);
	REFUSED(state, 5);
#undef REFUSED
	i = ok;
	i.width_enabled = 0xff;
	i.speed_enabled = 0xf;
	i.speed_ext_enabled = 31;
	i.mtu = 1;
	i.vls = 1;
	assert_int_equal(set_port_info(&to_switch, PORT_INFO_EXTENDED | 2, &i), 0);
	i = port_info_get(data);
	assert_true(i.width_enabled == 3 && i.speed_enabled == 7 && i.speed_ext_enabled == 7 && i.mtu == 1 &&
		    i.vls == 1);
}

static void pkeys_of_end_ports_are_told(void **state)
{
	memset(data, 0, sizeof(data));
	put_be16(data, 0xffff);
	put_be16(data + 2, 0x8001);
	assert_true(set(&to_h2, SMP_PKEY_TABLE, 0));
	assert_int_equal(t.changed[SUBNET_PKEYS_CHANGED], 1);
	assert_int_equal(h2->shared->pkey[1], 0x8001);
	assert_true(set(&to_h2, SMP_PKEY_TABLE, 0));
	assert_int_equal(t.changed[SUBNET_PKEYS_CHANGED], 1);
	assert_true(set(&to_switch, SMP_PKEY_TABLE, 2 << 16));
	assert_int_equal(t.changed[SUBNET_PKEYS_CHANGED], 1);
}

static void routes_by_lid_and_mixed(void **state)
{
	struct packet_addr to = {.pkey = PKEY_DEFAULT};
	const struct stage_route from_switch = {1, {2}}, nowhere = {1, {9}};

	stage_bring_up(&t, h1);
	assert_true(
		stage_by_lid(&t, h1, s0->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data) && !t.status);
	assert_int_equal(node_info_get(data).node_guid, s0->node->guid);
	assert_true(stage_by_lid(&t, h1, h2->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data));
	assert_int_equal(node_info_get(data).node_guid, h2->node->guid);
	assert_true(stage_by_lid(&t, h1, h1->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data));
	assert_int_equal(node_info_get(data).node_guid, h1->node->guid);
	/* By LID to the switch, from there directed: the peer of a port, as ibportstate asks for it. */
	to.slid = h1->shared->lid;
	to.dlid = s0->shared->lid;
	assert_true(stage_smp(&t, h1, &to, MAD_CLASS_SUBN_DIRECTED, &from_switch, MAD_METHOD_GET,
		SMP_NODE_INFO, 0, 0, data));
	assert_int_equal(node_info_get(data).node_guid, h2->node->guid);
	assert_int_equal(t.from.slid, s0->shared->lid);
	assert_false(stage_smp(
		&t, h1, &to, MAD_CLASS_SUBN_DIRECTED, &nowhere, MAD_METHOD_GET, SMP_NODE_INFO, 0, 0, data));
	assert_true(stage_smp(
		&t, h1, &to, MAD_CLASS_SUBN_DIRECTED, &here, MAD_METHOD_GET, SMP_NODE_INFO, 0, 0, data));
	assert_int_equal(node_info_get(data).node_guid, s0->node->guid);
}

/* Directed to the switch, and from there by LID. */
static void route_that_ends_by_lid(void **state)
{
	static const struct packet_addr to = {
		.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT};
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_SUBN_DIRECTED, 1, MAD_METHOD_GET, 0, 0x0001, 5, SMP_NODE_INFO, 0};
	uint8_t mad[MAD_LEN] = {0};

	stage_bring_up(&t, h1);
	mad_hdr_put(mad, &h);
	mad[SMP_INITIAL_PATH + 1] = 1;
	put_be16(mad + SMP_DR_SLID, LID_PERMISSIVE);
	put_be16(mad + SMP_DR_DLID, h2->shared->lid);
	t.arrived = 0;
	stage_send(&t, h1, &to, mad);
	assert_true(t.arrived == 1 && t.at == h1 && t.mad[3] == MAD_METHOD_GET_RESP);
	assert_int_equal(node_info_get(t.mad + SMP_DATA).node_guid, h2->node->guid);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nodes_say_who_they_are),
		TEST(each_attribute_has_its_nodes),
		TEST(nodes_of_others_have_what_these_are_asked_for),
		TEST(what_is_no_request_of_ours_goes_up),
		TEST(other_versions_are_refused),
		TEST(switch_info_top_and_change_bit),
		TEST(tables_come_back_as_they_were_set),
		TEST(modifiers_beyond_the_tables_are_refused),
		TEST(alias_guids_are_set_but_the_first),
		TEST(port_info_of_a_new_port),
		TEST(end_ports_take_lids_and_tell),
		TEST(cabled_ports_of_switches_have_no_lid),
		TEST(zero_leaves_things_as_they_are),
		TEST(fields_have_limits),
		TEST(pkeys_of_end_ports_are_told),
		TEST(routes_by_lid_and_mixed),
		TEST(route_that_ends_by_lid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
