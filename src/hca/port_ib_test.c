/* SPDX-License-Identifier: MIT */
#include "base/bytes.h"
#include "fabric/shared.h"
#include "hca/device.h"
#include "hca/path.h"
#include "hca/port.h"
#include "wire/ibt.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { INDEX = 5, LID = 8, LMC = 2 };

static struct hca_device device;
static struct hca_port *port;
static struct fabric_port there; /* what the fabric's table says */

static int setup(void **state)
{
	memset(&device, 0, sizeof(device));
	hca_port_init_ib(&device.port[0], &device, 1, INDEX);
	port = hca_device_port(&device, 1);
	there = (struct fabric_port){.state = PORT_ACTIVE,
		.phys = PHYS_LINK_UP,
		.lid = LID,
		.lmc = LMC,
		.sm_lid = 1,
		.mtu = IBV_MTU_2048,
		.mtu_cap = IBV_MTU_4096,
		.width = 2,
		.speed_ext = 4,
		.prefix = 0xfe80000000000000,
		.guid = {0x1234},
		.pkey = {PKEY_DEFAULT}};
	return 0;
}

static void attributes_are_those_of_the_table(void **state)
{
	struct ibv_port_attr a;
	uint16_t pkey;
	uint8_t gid[16];

	hca_port_attr(port, &a);
	assert_int_equal(a.state, IBV_PORT_DOWN);
	hca_port_follow_ib(port, &there);
	hca_port_attr(port, &a);
	assert_int_equal(a.link_layer, IBV_LINK_LAYER_INFINIBAND);
	assert_true(a.state == IBV_PORT_ACTIVE && a.lid == LID && a.lmc == LMC && a.sm_lid == 1);
	assert_true(a.active_mtu == IBV_MTU_2048 && a.max_mtu == IBV_MTU_4096);
	assert_true(a.active_width == 2 && a.active_speed == 64); /* 4x HDR */
	assert_true(a.pkey_tbl_len == FABRIC_PKEYS && a.gid_tbl_len == FABRIC_GUIDS);
	assert_true(hca_port_pkey(port, 0, &pkey) && pkey == PKEY_DEFAULT);
	assert_true(
		hca_port_gid(port, 0, gid) && get_be64(gid) == there.prefix && get_be64(gid + 8) == 0x1234);
	assert_false(hca_port_gid(port, FABRIC_GUIDS, gid));
}

static void each_change_is_told_once(void **state)
{
	/* It was in the default partition before. */
	assert_int_equal(hca_port_follow_ib(port, &there),
		HCA_PORT_STATE_CHANGED | HCA_PORT_GIDS_CHANGED | HCA_PORT_LID_CHANGED | HCA_PORT_SM_CHANGED);
	assert_int_equal(hca_port_follow_ib(port, &there), 0);
	there.lid = 16;
	assert_int_equal(hca_port_follow_ib(port, &there), HCA_PORT_LID_CHANGED);
	there.sm_lid = 2;
	assert_int_equal(hca_port_follow_ib(port, &there), HCA_PORT_SM_CHANGED);
	there.pkey[3] = 0x8001;
	assert_int_equal(hca_port_follow_ib(port, &there), HCA_PORT_PKEYS_CHANGED);
	there.guid[1] = 7;
	assert_int_equal(hca_port_follow_ib(port, &there), HCA_PORT_GIDS_CHANGED);
	there.reregisters++;
	assert_int_equal(hca_port_follow_ib(port, &there), HCA_PORT_REREGISTER);
	there.state = PORT_INIT;
	assert_int_equal(hca_port_follow_ib(port, &there), HCA_PORT_STATE_CHANGED);
	assert_int_equal(hca_port_follow_ib(port, NULL), 0); /* it was not up */
}

static void port_is_at_all_its_lids(void **state)
{
	uint8_t gid[16];

	gid_of_lid(LID, gid);
	assert_false(hca_port_is_at(port, gid)); /* nobody has given it one */
	hca_port_follow_ib(port, &there);
	for (uint16_t lid = 1; lid < 32; lid++) {
		gid_of_lid(lid, gid);
		assert_int_equal(gid_lid(gid), lid);
		assert_int_equal(hca_port_is_at(port, gid), lid >= LID && lid < LID + (1 << LMC));
	}
}

static void address_vectors_name_a_lid(void **state)
{
	struct ibv_ah_attr good = {.port_num = 1, .dlid = 77, .sl = 3, .src_path_bits = 6}, bad;
	struct hca_path path;

	hca_port_follow_ib(port, &there);
	assert_int_equal(hca_path_resolve(&device, &good, &path), 0);
	assert_true(path.dest.slid == LID + 2 && path.dest.dlid == 77 && path.dest.sl == 3);
	assert_true(gid_lid(path.dest.sgid) == LID + 2 && gid_lid(path.dest.dgid) == 77);
	assert_true(!path.dest.has_grh && path.mtu == IBV_MTU_2048 && path.dest.ifindex == INDEX + 1);
	bad = good, bad.dlid = 0;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad = good, bad.dlid = 0xc001; /* a group has a GID */
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
}

static void grh_is_for_who_wants_one(void **state)
{
	struct ibv_ah_attr good = {.port_num = 1, .dlid = 77, .is_global = 1}, bad;
	struct hca_path path;

	hca_port_follow_ib(port, &there);
	good.grh.dgid.raw[0] = 0xfe;
	good.grh.dgid.raw[15] = 9;
	assert_int_equal(hca_path_resolve(&device, &good, &path), 0);
	assert_true(path.dest.has_grh && gid_lid(path.dest.dgid) == 77);
	assert_memory_equal(path.dest.grh.dgid, good.grh.dgid.raw, 16);
	assert_int_equal(get_be64(path.dest.grh.sgid + 8), 0x1234);
	bad = good, bad.grh.sgid_index = 1; /* an empty one */
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad = good, bad.grh.dgid.raw[0] = 0xff; /* a group at a LID of one port */
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad.dlid = 0xc001;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), 0);
	assert_memory_equal(path.dest.dgid, bad.grh.dgid.raw, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(attributes_are_those_of_the_table, setup),
		cmocka_unit_test_setup(each_change_is_told_once, setup),
		cmocka_unit_test_setup(port_is_at_all_its_lids, setup),
		cmocka_unit_test_setup(address_vectors_name_a_lid, setup),
		cmocka_unit_test_setup(grh_is_for_who_wants_one, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
