/* SPDX-License-Identifier: MIT */
/* Golden bytes of the attributes of subnet management, and of notices. */
#include "wire/notice.h"
#include "wire/smp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Offsets as libibmad's table of fields has them. */
static void port_info_is_as_others_read_it(void **state)
{
	static const uint8_t golden[SMP_DATA_LEN] = {1, 2, 3, 4, 5, 6, 7, 8, /* M_Key */
		0xfe, 0x80, 0, 0, 0, 0, 0, 0,                                /* GidPrefix */
		0x00, 0x11, 0x00, 0x22,                                      /* Lid, SMLid */
		0x02, 0x51, 0x48, 0x6a,                                      /* CapMask */
		0x00, 0x33, 0x00, 0x3c,                                      /* DiagCode, MkeyLeasePeriod */
		1, 3, 3, 2,                                                  /* LocalPort, LinkWidth */
		0x74, 0x52, 0x85, 0x47,                                      /* speed, states, protect, LMC */
		0x53, 0x40, 9, 8,    /* MTU and SMSL, VLCap, limit, arb */
		7, 0x05, 0xf2, 0x4c, /* arb, MtuCap, stall and HOQ, VLs */
		0, 1, 0, 2, 0, 3,    /* violations */
		8, 0x92, 0x10, 0x88, /* GuidCap, timeout, resp, errors */
		[62] = 0x27, [63] = 0x1f};
	struct port_info i = port_info_get(golden);
	uint8_t out[SMP_DATA_LEN];

	assert_true(i.mkey == 0x0102030405060708 && i.prefix == 0xfe80000000000000 && i.lid == 0x11);
	assert_true(i.sm_lid == 0x22 && i.cap_mask == 0x0251486a && i.diag == 0x33 && i.mkey_lease == 60);
	assert_true(
		i.local_port == 1 && i.width_enabled == 3 && i.width_supported == 3 && i.width_active == 2);
	assert_true(i.speed_supported == 7 && i.state == 4 && i.phys == 5 && i.down_default == 2);
	assert_true(i.mkey_protect == 2 && i.lmc == 5 && i.speed_active == 4 && i.speed_enabled == 7);
	assert_true(i.mtu == 5 && i.sm_sl == 3 && i.vl_cap == 4 && i.init_type == 0 && i.vl_high_limit == 9);
	assert_true(i.vl_arb_high_cap == 8 && i.vl_arb_low_cap == 7 && i.mtu_cap == 5);
	assert_true(i.vl_stall == 7 && i.hoq_life == 18 && i.vls == 4 && i.enforce_in && i.enforce_out);
	assert_true(i.mkey_violations == 1 && i.pkey_violations == 2 && i.qkey_violations == 3 &&
		    i.guid_cap == 8);
	assert_true(i.reregister && i.subnet_timeout == 18 && i.resp_time == 16);
	assert_true(i.phy_errors == 8 && i.overrun_errors == 8);
	assert_true(i.speed_ext_active == 2 && i.speed_ext_supported == 7 && i.speed_ext_enabled == 31);
	port_info_put(out, &i);
	assert_memory_equal(out, golden, SMP_DATA_LEN);
}

static void node_info_is_as_others_read_it(void **state)
{
	static const uint8_t golden[40] = {1, 1, 2, 36, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0,
		0, 0, 0, 0, 0, 3, 0, 32, 0x12, 0x34, 0, 0, 0, 7, 5, 0x02, 0x61, 0x6e};
	struct node_info n = node_info_get(golden);
	uint8_t out[40];

	assert_true(n.node_type == 2 && n.nports == 36 && n.local_port == 5 && n.vendor_id == 0x02616e);
	assert_true(n.sys_guid == 1 && n.node_guid == 2 && n.port_guid == 3);
	assert_true(n.partition_cap == 32 && n.device_id == 0x1234 && n.revision == 7);
	node_info_put(out, &n);
	assert_memory_equal(out, golden, sizeof(out));
}

static void switch_info_is_as_others_read_it(void **state)
{
	static const uint8_t golden[20] = {
		0xc0, 0, 0, 0, 0x04, 0, 0, 99, 1, 254, 255, 0x94, 0, 2, 0, 32, 0xc0, 0, 0xc0, 0x10};
	struct switch_info s = switch_info_get(golden);
	uint8_t out[20];

	assert_true(s.linear_cap == 0xc000 && !s.random_cap && s.mcast_cap == 1024 && s.linear_top == 99);
	assert_true(s.default_port == 1 && s.default_mcast_primary == 254 && s.default_mcast_other == 255);
	assert_true(s.life_time == 18 && s.state_change && s.lids_per_port == 2 && s.enforce_cap == 32);
	assert_true(s.enforce_in && s.enforce_out && s.mcast_top == 0xc010);
	switch_info_put(out, &s);
	assert_memory_equal(out, golden, sizeof(out));
}

static void notice_is_as_others_read_it(void **state)
{
	static const uint8_t golden[NOTICE_DETAILS] = {0x81, 0, 0, 2, 0, 128, 0x12, 0x34, 0, 0};
	uint8_t out[NOTICE_LEN];

	notice_put(out, NOTICE_URGENT, 2, TRAP_LINK_STATE, 0x1234);
	assert_memory_equal(out, golden, NOTICE_DETAILS);
	assert_int_equal(notice_trap(out), 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(port_info_is_as_others_read_it),
		cmocka_unit_test(node_info_is_as_others_read_it),
		cmocka_unit_test(switch_info_is_as_others_read_it),
		cmocka_unit_test(notice_is_as_others_read_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
