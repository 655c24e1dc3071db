/* SPDX-License-Identifier: MIT */
/* Traps and M_Keys: what is told to the subnet manager, how often, and when it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include "wire/notice.h"

#define SECOND 1000000000ull

static struct stage t;
static struct subnet_port *h1, *h2, *h3, *s0, *s2;
static const uint64_t interval = 4096ull << 18;

static int set_up(void **state)
{
	stage_star(&t, 3, 4);
	h1 = stage_port(&t, "H1", 1);
	h2 = stage_port(&t, "H2", 1);
	h3 = stage_port(&t, "H3", 1);
	s0 = stage_port(&t, "S", 0);
	s2 = stage_port(&t, "S", 2);
	stage_bring_up(&t, h1);
	subnet_expire(t.s, t.now);
	t.arrived = 0;
	return 0;
}

static int tear_down(void **state)
{
	stage_close(&t);
	return 0;
}

/* Lets time pass: how many traps came to the manager meanwhile, at most one at a time being due. */
static unsigned pass(uint64_t ns)
{
	uint64_t until = t.now + ns;
	unsigned before = t.arrived;

	while (subnet_deadline(t.s) <= until) {
		assert_true(subnet_deadline(t.s) >= t.now || t.arrived == before);
		t.now = subnet_deadline(t.s) > t.now ? subnet_deadline(t.s) : t.now;
		subnet_expire(t.s, t.now);
	}
	t.now = until;
	return t.arrived - before;
}

static const uint8_t *notice(uint16_t trap, uint16_t from)
{
	assert_ptr_equal(t.at, h1);
	assert_int_equal(t.mad[3], MAD_METHOD_TRAP);
	assert_int_equal(t.mad[1], MAD_CLASS_SUBN);
	assert_int_equal(t.from.slid, from);
	assert_int_equal(t.from.vl, VL_MANAGEMENT);
	assert_int_equal(notice_trap(t.mad + SMP_DATA), trap);
	assert_int_equal(get_be16(t.mad + SMP_DATA + 6), from);
	return t.mad + SMP_DATA + NOTICE_DETAILS;
}

static void repress(uint64_t mkey)
{
	struct packet_addr to = {.slid = h1->shared->lid, .dlid = t.from.slid, .pkey = PKEY_DEFAULT};
	uint8_t mad[MAD_LEN];

	memcpy(mad, t.mad, MAD_LEN);
	mad[3] = MAD_METHOD_TRAP_REPRESS;
	put_be64(mad + SMP_MKEY, mkey);
	stage_send(&t, h1, &to, mad);
}

static void link_state_is_told_until_it_is_heard(void **state)
{
	assert_int_equal(subnet_deadline(t.s), UINT64_MAX);
	subnet_cut(h2, t.now);
	assert_int_equal(t.arrived, 0); /* nothing is sent before time is asked for */
	assert_int_equal(subnet_deadline(t.s), t.now);
	assert_int_equal(pass(0), 1);
	assert_int_equal(get_be16(notice(TRAP_LINK_STATE, s0->shared->lid)), s0->shared->lid);
	assert_int_equal(t.mad[SMP_DATA], 0x80 | NOTICE_URGENT);
	assert_int_equal(t.mad[SMP_DATA + 3], SUBNET_SWITCH);
	assert_int_equal(pass(interval - 1), 0);
	assert_int_equal(pass(1), 1);
	assert_int_equal(pass(10 * interval), 10);
	repress(0);
	assert_int_equal(subnet_deadline(t.s), t.now + interval); /* a stale time, which nothing comes of */
	assert_int_equal(pass(10 * interval), 0);
	assert_int_equal(subnet_deadline(t.s), UINT64_MAX);
}

static void flapping_links_are_told_at_a_measured_rate(void **state)
{
	unsigned told = 0;

	for (unsigned i = 0; i < 1000; i++) { /* nobody hears */
		subnet_cut(h2, t.now);
		subnet_mend(h2, t.now);
		told += pass(interval / 1000);
	}
	assert_in_range(told, 1, 2);
	told = 0;
	for (unsigned i = 0; i < 1000; i++) { /* the manager hears each */
		subnet_cut(h2, t.now);
		subnet_mend(h2, t.now);
		told += pass(interval / 1000);
		if (t.mad[3] == MAD_METHOD_TRAP)
			repress(0);
	}
	assert_in_range(told, 50, 65);
}

static void old_transaction_does_not_stop_a_new_trap(void **state)
{
	uint8_t old[MAD_LEN];

	subnet_cut(h2, t.now);
	assert_int_equal(pass(0), 1);
	memcpy(old, t.mad, MAD_LEN);
	subnet_mend(h2, t.now);
	memcpy(t.mad, old, MAD_LEN);
	repress(0);
	assert_int_equal(pass(interval), 1); /* the mend has not been heard of */
	assert_int_equal(get_be64(t.mad + 8), get_be64(old + 8) + 1);
}

static void capabilities_and_descriptions_are_told(void **state)
{
	const uint8_t *d;

	subnet_set_capability(h2, PORT_CAP_IS_SM, PORT_CAP_IS_SM, t.now);
	assert_int_equal(pass(0), 1);
	d = notice(TRAP_LOCAL_CHANGES, h2->shared->lid);
	assert_int_equal(get_be16(d + 2), h2->shared->lid);
	assert_true(get_be32(d + 6) & PORT_CAP_IS_SM);
	assert_true(!d[5] && !get_be16(d + 10));
	assert_int_equal(t.mad[SMP_DATA], 0x80 | NOTICE_INFO);
	repress(0);
	subnet_set_capability(h2, PORT_CAP_IS_SM, PORT_CAP_IS_SM, t.now); /* as it is */
	assert_int_equal(pass(interval), 0);
	subnet_set_description(h2->node, "a new name", t.now);
	assert_int_equal(pass(0), 1);
	d = notice(TRAP_LOCAL_CHANGES, h2->shared->lid);
	assert_true(d[5] == 1 && get_be16(d + 10) == NOTICE_NODE_DESC);
}

static void nobody_to_tell_it_to(void **state)
{
	struct stage u;

	stage_star(&u, 2, 4);
	subnet_cut(stage_port(&u, "H2", 1), u.now);
	assert_int_equal(subnet_deadline(u.s), UINT64_MAX);
	stage_close(&u);
}

static void notice_can_be_asked_for(void **state)
{
	uint8_t data[SMP_DATA_LEN] = {0};

	subnet_cut(h2, t.now);
	assert_true(stage_by_lid(&t, h1, s0->shared->lid, MAD_METHOD_GET, SMP_NOTICE, 0, data) && !t.status);
	assert_int_equal(notice_trap(data), TRAP_LINK_STATE);
}

/* ---- M_Key ---- */
#define KEY 0x1122334455667788ull

static bool ask(uint8_t method, uint64_t mkey, uint16_t attr, uint8_t *data)
{
	struct packet_addr to = {.slid = h3->shared->lid, .dlid = h2->shared->lid, .pkey = PKEY_DEFAULT};

	return stage_smp(&t, h3, &to, MAD_CLASS_SUBN, NULL, method, attr, 0, mkey, data);
}

static void lock(uint8_t protect, uint16_t lease)
{
	uint8_t data[SMP_DATA_LEN];
	struct port_info i;

	assert_true(ask(MAD_METHOD_GET, KEY, SMP_PORT_INFO, data));
	i = port_info_get(data);
	i.mkey = KEY;
	i.mkey_protect = protect;
	i.mkey_lease = lease;
	i.state = i.phys = 0;
	port_info_put(data, &i);
	assert_true(ask(MAD_METHOD_SET, KEY, SMP_PORT_INFO, data) && !t.status);
}

static struct port_info locked(void)
{
	uint8_t data[SMP_DATA_LEN];

	assert_true(ask(MAD_METHOD_GET, KEY, SMP_PORT_INFO, data));
	return port_info_get(data);
}

static void key_guards_by_its_protection_bits(void **state)
{
	uint8_t data[SMP_DATA_LEN] = {0};

	for (uint8_t protect = 0; protect < 4; protect++) {
		bool answers = protect < 2;

		lock(protect, 0);
		assert_int_equal(ask(MAD_METHOD_GET, 1, SMP_NODE_INFO, data), answers);
		assert_int_equal(ask(MAD_METHOD_GET, 1, SMP_PORT_INFO, data), answers);
		if (answers)
			assert_int_equal(port_info_get(data).mkey, protect ? 0 : KEY);
		memset(data, 0, sizeof(data));
		assert_false(ask(MAD_METHOD_SET, 1, SMP_GUID_INFO, data));
		assert_true(ask(MAD_METHOD_SET, KEY, SMP_GUID_INFO, data));
		assert_true(ask(MAD_METHOD_GET, KEY, SMP_NODE_INFO, data));
	}
	assert_int_equal(locked().mkey_violations, 1 + 1 + 3 + 3);
}

static void violations_are_told(void **state)
{
	uint8_t data[SMP_DATA_LEN] = {0};
	const uint8_t *d;

	lock(2, 0);
	assert_false(ask(MAD_METHOD_GET, 7, SMP_NODE_INFO, data));
	t.arrived = 0;
	assert_int_equal(pass(0), 1);
	d = notice(TRAP_BAD_MKEY, h2->shared->lid);
	assert_int_equal(t.mad[SMP_DATA], 0x80 | NOTICE_SECURITY);
	assert_int_equal(get_be16(d + 2), h3->shared->lid);
	assert_true(d[6] == MAD_METHOD_GET && get_be16(d + 8) == SMP_NODE_INFO && get_be64(d + 14) == 7);
	repress(1); /* not with that key */
	assert_int_equal(pass(interval), 1);
	repress(KEY);
	assert_int_equal(pass(10 * interval), 0);
}

static void violation_by_a_directed_route_names_the_way(void **state)
{
	static const struct packet_addr to = {
		.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT};
	const struct stage_route r = {2, {1, 2}};
	const uint8_t *d;

	lock(3, 0);
	assert_false(stage_smp(
		&t, h3, &to, MAD_CLASS_SUBN_DIRECTED, &r, MAD_METHOD_GET, SMP_NODE_INFO, 0, 9, NULL));
	assert_int_equal(pass(0), 1);
	d = notice(TRAP_BAD_MKEY, h2->shared->lid);
	assert_true(d[23] == (0x80 | 2) && d[24] == 3 &&
		    d[25] == 1); /* in by port 3 of the switch, by port 1 of h2 */
}

static void lease_runs_out_unless_the_key_is_heard(void **state)
{
	uint8_t data[SMP_DATA_LEN] = {0};

	lock(2, 5);
	assert_false(ask(MAD_METHOD_GET, 1, SMP_NODE_INFO, data));
	pass(4 * SECOND);
	assert_int_equal(locked().mkey_protect, 2); /* the question had the key: the lease begins anew */
	pass(10 * SECOND);
	assert_int_equal(locked().mkey_protect, 2);
	assert_false(ask(MAD_METHOD_GET, 1, SMP_NODE_INFO, data));
	pass(5 * SECOND);
	assert_true(ask(MAD_METHOD_GET, 1, SMP_NODE_INFO, data)); /* nobody who had it was left */
	assert_int_equal(locked().mkey_protect, 0);
	assert_int_equal(locked().mkey, KEY);
}

/* ---- keys of other packets ---- */
static bool gmp(uint16_t pkey, uint32_t qkey)
{
	struct packet_addr to = {.slid = h3->shared->lid,
		.dlid = h2->shared->lid,
		.sl = 2,
		.pkey = pkey,
		.sqpn = 77,
		.dqpn = 1,
		.qkey = qkey};
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, 0x32, 1, MAD_METHOD_GET};
	unsigned before = t.arrived;

	stage_send(&t, h3, &to, mad);
	return t.arrived > before;
}

static void bad_keys_at_qp1_are_counted_and_told(void **state)
{
	const uint8_t *d;

	assert_true(gmp(PKEY_DEFAULT, GSI_QKEY) && t.at == h2 && t.dqpn == 1);
	assert_true(gmp(0x7fff, GSI_QKEY)); /* a limited member and a full one */
	assert_false(gmp(0x8001, GSI_QKEY));
	assert_int_equal(pass(0), 1);
	d = notice(TRAP_BAD_PKEY, h2->shared->lid);
	assert_true(get_be16(d + 2) == h3->shared->lid && get_be16(d + 4) == h2->shared->lid);
	assert_true(
		get_be32(d + 6) == 0x8001 && get_be32(d + 10) == (2u << 28 | 77) && get_be32(d + 14) == 1);
	assert_false(gmp(PKEY_DEFAULT, 5));
	assert_int_equal(pass(interval / 64), 1);
	d = notice(TRAP_BAD_QKEY, h2->shared->lid);
	assert_int_equal(get_be32(d + 6), 5);
	assert_true(locked().pkey_violations == 1 && locked().qkey_violations == 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(link_state_is_told_until_it_is_heard),
		TEST(flapping_links_are_told_at_a_measured_rate),
		TEST(old_transaction_does_not_stop_a_new_trap),
		TEST(capabilities_and_descriptions_are_told),
		TEST(nobody_to_tell_it_to),
		TEST(notice_can_be_asked_for),
		TEST(key_guards_by_its_protection_bits),
		TEST(violations_are_told),
		TEST(violation_by_a_directed_route_names_the_way),
		TEST(lease_runs_out_unless_the_key_is_heard),
		TEST(bad_keys_at_qp1_are_counted_and_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
