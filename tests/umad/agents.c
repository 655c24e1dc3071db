/* SPDX-License-Identifier: MIT */
/* Who may register for what: the kernel's rules and its errors. */
#include "world.h"

static void a_method_has_one_owner_on_a_port(void **state)
{
	int a = world_open("node1"), b = world_open("node1"), c = world_open("node2");

	assert_int_equal(world_agent(a, SA, 1 << GET), 0);
	assert_int_equal(world_agent(b, SA, 1 << GET), -EPERM);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(world_agent(b, SA, 1 << 2), 0);
	assert_int_equal(world_agent(b, SA, 0), 1); /* asks, and is asked nothing */
	assert_int_equal(world_agent(c, SA, 1 << GET), 0);
	assert_int_equal(umad_unregister(a, 0), 0);
	assert_int_equal(world_agent(b, SA, 1 << GET), 2);
	umad_close_port(b);
	assert_int_equal(world_agent(a, SA, 1 << GET | 1 << 2), 0); /* who closes has left */
	umad_close_port(a);
	umad_close_port(c);
}

static void a_port_has_32_agents(void **state)
{
	int p = world_open("node1");

	for (int i = 0; i < 32; i++)
		assert_int_equal(world_agent(p, SA, 0), i);
	assert_int_equal(world_agent(p, SA, 0), -EPERM);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(umad_unregister(p, 17), 0);
	assert_int_equal(world_agent(p, SA, 0), 17);
	umad_close_port(p);
}

static void agents_that_are_not_there_cannot_leave(void **state)
{
	int p = world_open("node1");

	assert_int_equal(umad_unregister(p, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(world_agent(p, SA, 0), 0);
	assert_int_equal(umad_unregister(p, 0), 0);
	assert_int_equal(umad_unregister(p, 0), -1);
	assert_int_equal(umad_unregister(p, 32), -1);
	assert_int_equal(umad_unregister(p, -1), -1);
	umad_close_port(p);
}

static void vendors_register_with_an_oui(void **state)
{
	int p = world_open("node1");
	uint8_t oui[3] = {0, 0x14, 5}, none[3] = {0};
	long mask[16 / sizeof(long)] = {1 << GET};

	assert_int_equal(umad_register_oui(p, SA, 0, oui, mask), -EINVAL);
	assert_int_equal(umad_register_oui(p, PING, 0, none, mask), -EINVAL);
	assert_int_equal(umad_register_oui(p, PING, 1, oui, mask), 0);
	assert_int_equal(umad_register_oui(p, PING, 1, oui, mask), -EINVAL);
	oui[0]++;
	assert_int_equal(umad_register_oui(p, PING, 1, oui, mask), 1);
	umad_close_port(p);
}

static void register2_reports_a_positive_errno(void **state)
{
	struct umad_reg_attr attr = {.mgmt_class = SA,
		.mgmt_class_version = 2,
		.flags = UMAD_USER_RMPP,
		.method_mask = {1 << GET},
		.rmpp_version = 1};
	uint32_t id = 99;
	int p = world_open("node1");

	assert_int_equal(umad_register2(p, &attr, &id), 0);
	assert_int_equal(id, 0);
	assert_int_equal(umad_register2(p, &attr, &id), EINVAL);
	attr.flags = 0x80;
	assert_int_equal(umad_register2(p, &attr, &id), EINVAL);
	assert_int_equal(attr.flags, UMAD_USER_RMPP); /* what there is */
	attr.oui = 0x01000000;
	assert_int_equal(umad_register2(p, &attr, &id), EINVAL);
	umad_close_port(p);
}

static void what_cannot_be_is_refused(void **state)
{
	int p = world_open("node1");

	assert_int_equal(umad_register(p, SA, 0x83, 1, NULL), -EPERM);
	assert_int_equal(umad_register(p, 0x60, 1, 0, NULL), -EPERM);
	assert_int_equal(umad_register(p, 4, 1, 1, NULL), -EPERM); /* PerfMgt has no RMPP */
	assert_int_equal(umad_register(p, 4, 1, 0, NULL), 0);
	umad_close_port(p);
}

static void ports_that_are_not_open_are_refused(void **state)
{
	struct message *m = message_to(1, SA, GET, 1, MAD);
	struct umad_reg_attr attr = {.mgmt_class = SA};
	int p = world_open("node1"), len = MAD;
	uint32_t id;

	umad_close_port(p);
	assert_int_equal(umad_close_port(p), -EINVAL);
	assert_int_equal(umad_get_fd(p), -EINVAL);
	assert_int_equal(umad_register(p, SA, 2, 1, NULL), -EPERM);
	assert_int_equal(umad_register2(p, &attr, &id), EINVAL);
	assert_int_equal(umad_send(p, 0, m, MAD, 0, 0), -EIO);
	assert_int_equal(umad_recv(p, m, &len, 0), -EINVAL);
	assert_int_equal(umad_poll(p, 0), -EIO);
	umad_free(m);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_up, world_down)
	const struct CMUnitTest tests[] = {
		TEST(a_method_has_one_owner_on_a_port),
		TEST(a_port_has_32_agents),
		TEST(agents_that_are_not_there_cannot_leave),
		TEST(vendors_register_with_an_oui),
		TEST(register2_reports_a_positive_errno),
		TEST(what_cannot_be_is_refused),
		TEST(ports_that_are_not_open_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
