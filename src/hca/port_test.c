/* SPDX-License-Identifier: MIT */
#include "hca/port.h"

#include "hca/device.h"
#include "hca/netdev.h"
#include "hca/path.h"
#include "wire/ibt.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define UP (IFF_UP | IFF_RUNNING)

static struct hca_device device;
static struct hca_port *port;

static int setup(void **state)
{
	memset(&device, 0, sizeof(device));
	device.ifindex = 7;
	hca_port_init(&device.port[0], &device, 1);
	port = hca_device_port(&device, 1);
	return 0;
}

/* 10.0.0.n */
static void address(uint8_t n, uint8_t gid[16])
{
	gid_of_v4((const uint8_t[]){10, 0, 0, n}, gid);
}

static struct hca_netdev interface(unsigned flags, unsigned naddrs, const uint8_t *n)
{
	struct hca_netdev nd = {.flags = flags, .mtu = 1500, .naddrs = (int)naddrs};

	for (unsigned i = 0; i < naddrs; i++)
		address(n[i], nd.addr[i]);
	return nd;
}

#define INTERFACE(flags, ...)                                                                                \
	interface(flags, sizeof((const uint8_t[]){__VA_ARGS__}), (const uint8_t[]){__VA_ARGS__})

static int index_of(uint8_t n)
{
	uint8_t gid[16];

	address(n, gid);
	return hca_port_gid_index(port, gid);
}

/* ---- numbers ---- */
static void ports_are_numbered_from_one(void **state)
{
	assert_ptr_equal(port, &device.port[0]);
	assert_int_equal(port->num, 1);
	assert_ptr_equal(port->dev, &device);
	assert_null(hca_device_port(&device, 0));
	assert_null(hca_device_port(&device, 2));
	assert_null(hca_device_port(&device, 0x101)); /* not taken for its lowest byte */
}

/* ---- GIDs ---- */
static void gids_keep_their_index(void **state)
{
	struct hca_netdev all = INTERFACE(UP, 1, 2, 3), fewer = INTERFACE(UP, 3, 1),
			  other = INTERFACE(UP, 4, 3, 1);
	uint8_t gid[16];

	assert_int_equal(hca_port_follow(port, &all), HCA_PORT_STATE_CHANGED | HCA_PORT_GIDS_CHANGED);
	assert_int_equal(hca_port_follow(port, &all), 0);
	assert_int_equal(hca_port_follow(port, &fewer), HCA_PORT_GIDS_CHANGED);
	assert_int_equal(index_of(1), 0);
	assert_int_equal(index_of(2), -1);
	assert_int_equal(index_of(3), 2);
	assert_true(hca_port_gid(port, 1, gid));
	assert_true(gid_is_zero(gid));
	assert_int_equal(hca_port_follow(port, &other), HCA_PORT_GIDS_CHANGED);
	assert_int_equal(index_of(4), 1); /* the slot that was empty */
	assert_int_equal(index_of(3), 2);
}

static void gid_table_has_an_end(void **state)
{
	struct hca_netdev many = {.flags = UP, .mtu = 1500, .naddrs = HCA_GID_TABLE + 1};
	uint8_t gid[16], zero[16] = {0};

	for (int i = 0; i <= HCA_GID_TABLE; i++)
		address((uint8_t)(i + 1), many.addr[i]);
	hca_port_follow(port, &many);
	assert_int_equal(index_of(HCA_GID_TABLE), HCA_GID_TABLE - 1);
	assert_int_equal(index_of(HCA_GID_TABLE + 1), -1);
	assert_true(hca_port_gid(port, HCA_GID_TABLE - 1, gid));
	assert_false(hca_port_gid(port, HCA_GID_TABLE, gid));
	assert_false(hca_port_gid(port, UINT32_MAX, gid));
	assert_int_equal(hca_port_gid_index(port, zero), -1);
}

/* ---- state ---- */
static void state_and_mtu_follow_the_interface(void **state)
{
	struct hca_netdev up = INTERFACE(UP, 1), no_carrier = INTERFACE(IFF_UP, 1);
	struct ibv_port_attr attr;

	up.mtu = 9000;
	hca_port_follow(port, &up);
	hca_port_attr(port, &attr);
	assert_int_equal(attr.state, IBV_PORT_ACTIVE);
	assert_int_equal(attr.active_mtu, IBV_MTU_4096);
	assert_int_equal(hca_port_follow(port, &no_carrier), HCA_PORT_STATE_CHANGED);
	hca_port_attr(port, &attr);
	assert_int_equal(attr.state, IBV_PORT_DOWN);
	assert_int_equal(attr.active_mtu, IBV_MTU_1024);
	hca_port_follow(port, &up);
	assert_int_equal(hca_port_follow(port, NULL), HCA_PORT_STATE_CHANGED);
	assert_int_equal(index_of(1), 0); /* a device that is gone still knows its addresses */
}

static void ethernet_has_no_lids(void **state)
{
	struct ibv_port_attr attr;

	hca_port_attr(port, &attr);
	assert_int_equal(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(attr.lid | attr.sm_lid | attr.lmc | attr.sm_sl, 0);
	assert_int_equal(attr.gid_tbl_len, HCA_GID_TABLE);
	assert_int_equal(attr.pkey_tbl_len, 1);
}

/* ---- P_Keys ---- */
static void pkey_table_has_the_default_key_alone(void **state)
{
	uint16_t pkey = 0;

	assert_true(hca_port_pkey(port, 0, &pkey));
	assert_int_equal(pkey, PKEY_DEFAULT);
	assert_int_equal(hca_port_default_pkey(port), PKEY_DEFAULT);
	assert_false(hca_port_pkey(port, port->npkeys, &pkey));
	assert_int_equal(hca_port_pkey_index(port, PKEY_DEFAULT), 0);
	assert_int_equal(
		hca_port_pkey_index(port, PKEY_DEFAULT & 0x7fff), -1); /* a limited member's is another */
}

/* IBA 10.9.3 */
static void pkeys_match_within_a_partition_unless_both_are_limited(void **state)
{
	static const struct {
		uint16_t a, b;
		bool matches;
	} rules[] = {
		{0xffff, 0xffff, true},  /* two full members */
		{0xffff, 0x7fff, true},  /* one of them */
		{0x7fff, 0x7fff, false}, /* none */
		{0x8001, 0x8001, true},
		{0x8001, 0x0001, true},
		{0x0001, 0x0001, false},
		{0xffff, 0x8001, false}, /* other partitions, which differ by one bit or by all */
		{0xffff, 0xfffe, false},
		{0xffff, 0x0001, false},
		{0x7fff, 0x8001, false},
		{0xffff, 0x0000, false},
		{0x8000, 0x8000, false}, /* no partition */
		{0x8000, 0x0000, false},
		{0x0000, 0x0000, false},
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		assert_int_equal(pkey_matches(rules[i].a, rules[i].b), rules[i].matches);
		assert_int_equal(pkey_matches(rules[i].b, rules[i].a), rules[i].matches);
	}
}

/* ---- address vectors ---- */
static void address_vectors_name_a_port_and_an_address_of_it(void **state)
{
	struct hca_netdev nd = INTERFACE(UP, 1);
	struct ibv_ah_attr good = {.is_global = 1, .port_num = 1, .sl = 3}, bad;
	struct hca_path path;
	uint8_t own[16];

	hca_port_follow(port, &nd);
	address(9, good.grh.dgid.raw);
	assert_int_equal(hca_path_resolve(&device, &good, &path), 0);
	assert_ptr_equal(path.port, port);
	assert_int_equal(path.sl, 3);
	assert_null(path.link); /* nor the flow: for which process is not known */
	assert_null(path.flow);
	assert_int_equal(path.dest.ifindex, device.ifindex);
	address(1, own);
	assert_memory_equal(path.dest.sgid, own, 16);
	assert_memory_equal(path.dest.dgid, good.grh.dgid.raw, 16);
	bad = good, bad.port_num = 0;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad = good, bad.port_num = 2;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad = good, bad.grh.sgid_index = 1;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad = good, bad.grh.sgid_index = HCA_GID_TABLE;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
	bad = good, bad.is_global = 0;
	assert_int_equal(hca_path_resolve(&device, &bad, &path), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(ports_are_numbered_from_one, setup),
		cmocka_unit_test_setup(gids_keep_their_index, setup),
		cmocka_unit_test_setup(gid_table_has_an_end, setup),
		cmocka_unit_test_setup(state_and_mtu_follow_the_interface, setup),
		cmocka_unit_test_setup(ethernet_has_no_lids, setup),
		cmocka_unit_test_setup(pkey_table_has_the_default_key_alone, setup),
		cmocka_unit_test(pkeys_match_within_a_partition_unless_both_are_limited),
		cmocka_unit_test_setup(address_vectors_name_a_port_and_an_address_of_it, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
