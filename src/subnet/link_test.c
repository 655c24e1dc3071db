/* SPDX-License-Identifier: MIT */
/* The states of ports: every arrow that a subnet manager may ask for, and what cables do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include <errno.h>

static struct stage t;
static struct subnet_port *h1, *h2, *s2, *s4;
static const struct stage_route to_switch = {1, {1}};

static int set_up(void **state)
{
	stage_star(&t, 3, 4);
	h1 = stage_port(&t, "H1", 1);
	h2 = stage_port(&t, "H2", 1);
	s2 = stage_port(&t, "S", 2);
	s4 = stage_port(&t, "S", 4);
	return 0;
}

static int tear_down(void **state)
{
	stage_close(&t);
	return 0;
}

static uint16_t set_state(unsigned port, uint8_t state, uint8_t phys)
{
	uint8_t data[SMP_DATA_LEN];
	struct port_info i;

	assert_true(stage_directed(&t, h1, &to_switch, MAD_METHOD_GET, SMP_PORT_INFO, port, data));
	i = port_info_get(data);
	i.state = state;
	i.phys = phys;
	port_info_put(data, &i);
	assert_true(stage_directed(&t, h1, &to_switch, MAD_METHOD_SET, SMP_PORT_INFO, port, data));
	return t.status;
}

/* Reads PortStateChange, and clears it. */
static bool change_bit(void)
{
	uint8_t data[SMP_DATA_LEN] = {0};
	bool set;

	assert_true(stage_directed(&t, h1, &to_switch, MAD_METHOD_GET, SMP_SWITCH_INFO, 0, data));
	set = switch_info_get(data).state_change;
	if (set)
		assert_true(stage_directed(&t, h1, &to_switch, MAD_METHOD_SET, SMP_SWITCH_INFO, 0, data));
	return set;
}

static void states_are_climbed_one_by_one(void **state)
{
	assert_int_equal(s2->shared->state, PORT_INIT);
	assert_true(change_bit());
	assert_int_equal(set_state(2, PORT_ACTIVE, 0), MAD_STATUS_BAD_FIELD);
	assert_int_equal(s2->shared->state, PORT_INIT);
	assert_int_equal(set_state(2, PORT_ARMED, 0), 0);
	assert_int_equal(set_state(2, PORT_ARMED, 0), 0);
	assert_int_equal(set_state(2, PORT_ACTIVE, 0), 0);
	assert_int_equal(set_state(2, PORT_ACTIVE, 0), 0);
	assert_int_equal(set_state(2, PORT_ARMED, 0), MAD_STATUS_BAD_FIELD);
	assert_int_equal(s2->shared->state, PORT_ACTIVE);
	assert_int_equal(h2->shared->state, PORT_INIT); /* its own */
	assert_false(change_bit());                     /* what the manager does itself is no news */
	assert_int_equal(set_state(4, PORT_ARMED, 0), MAD_STATUS_BAD_FIELD); /* nothing is plugged in there */
	assert_int_equal(set_state(4, PORT_DOWN, 0), 0);
	assert_int_equal(s4->shared->state, PORT_DOWN);
}

static void down_sends_both_ends_back_to_init(void **state)
{
	stage_bring_up(&t, h1);
	assert_true(s2->shared->state == PORT_ACTIVE && h2->shared->state == PORT_ACTIVE);
	change_bit();
	assert_int_equal(set_state(2, PORT_DOWN, 0), 0);
	assert_true(s2->shared->state == PORT_INIT && h2->shared->state == PORT_INIT);
	assert_true(s2->shared->phys == PHYS_LINK_UP && h2->shared->lid);
	assert_true(change_bit());
}

static void disabled_ports_wait_for_the_manager(void **state)
{
	stage_bring_up(&t, h1);
	change_bit();
	assert_int_equal(set_state(2, PORT_DOWN, PHYS_DISABLED), 0);
	assert_true(s2->shared->phys == PHYS_DISABLED && s2->shared->state == PORT_DOWN);
	assert_true(h2->shared->phys == PHYS_POLLING && h2->shared->state == PORT_DOWN);
	assert_false(change_bit()); /* at this switch it was the manager */
	assert_int_equal(set_state(2, PORT_ARMED, 0), MAD_STATUS_BAD_FIELD);
	assert_int_equal(subnet_cut(s2, t.now), 0);
	assert_int_equal(subnet_mend(s2, t.now), 0);
	assert_int_equal(s2->shared->phys, PHYS_DISABLED);
	assert_int_equal(set_state(2, 0, PHYS_POLLING), 0);
	assert_true(s2->shared->state == PORT_INIT && h2->shared->state == PORT_INIT);
	assert_true(change_bit());
}

static void sleepers_wake_when_one_polls(void **state)
{
	assert_int_equal(set_state(2, 0, PHYS_SLEEP), 0); /* the other end polls */
	assert_int_equal(s2->shared->phys, PHYS_LINK_UP);
	assert_int_equal(set_state(4, 0, PHYS_SLEEP), 0);
	assert_int_equal(s4->shared->phys, PHYS_SLEEP);
}

static void cut_cables_are_noticed_at_both_ends(void **state)
{
	stage_bring_up(&t, h1);
	change_bit();
	memset(t.changed, 0, sizeof(t.changed));
	assert_int_equal(subnet_cut(h2, t.now), 0);
	assert_int_equal(subnet_cut(s2, t.now), -EALREADY);
	assert_true(s2->shared->state == PORT_DOWN && h2->shared->state == PORT_DOWN);
	assert_int_equal(t.changed[SUBNET_PORT_STATE], 1); /* the adapter's */
	assert_true(change_bit());
	assert_int_equal(fabric_epoch(subnet_table(t.s)) % 2, 0);
	assert_int_equal(set_state(2, 0, PHYS_POLLING), 0); /* polls in vain */
	assert_int_equal(s2->shared->state, PORT_DOWN);
	assert_int_equal(subnet_mend(s2, t.now), 0);
	assert_int_equal(subnet_mend(h2, t.now), -EALREADY);
	assert_true(s2->shared->state == PORT_INIT && h2->shared->state == PORT_INIT);
	assert_true(h2->shared->lid); /* kept, for a manager that gives the same again */
}

static void ends_agree_on_the_best_both_have(void **state)
{
	struct stage u;
	struct subnet_node *a, *b;

	stage_open(&u, 1);
	a = subnet_add(u.s, SUBNET_CA, 3, "a");
	b = subnet_add(u.s, SUBNET_CA, 3, "b");
	subnet_port(a, 1)->caps = (struct subnet_link_caps){1 | 2 | 8, 7, 1, 5};
	subnet_port(b, 1)->caps = (struct subnet_link_caps){1 | 2, 3, 0, 4};
	subnet_port(b, 2)->caps = (struct subnet_link_caps){4, 7, 0, 4}; /* no width that both have */
	for (unsigned i = 1; i <= 3; i++)
		subnet_join(subnet_port(a, i), subnet_port(b, i));
	assert_int_equal(subnet_cut(subnet_port(a, 3), 0), 0); /* from the beginning */
	subnet_start(u.s, 1);
	assert_true(subnet_port(a, 1)->shared->width == 2 && subnet_port(a, 1)->shared->speed == 2);
	assert_true(subnet_port(b, 1)->shared->speed_ext == 0 && subnet_port(b, 1)->shared->mtu == 4);
	assert_int_equal(subnet_port(a, 1)->shared->state, PORT_INIT);
	assert_int_equal(subnet_port(a, 2)->shared->state, PORT_DOWN);
	assert_int_equal(subnet_port(a, 3)->shared->state, PORT_DOWN);
	stage_close(&u);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(states_are_climbed_one_by_one),
		TEST(down_sends_both_ends_back_to_init),
		TEST(disabled_ports_wait_for_the_manager),
		TEST(sleepers_wake_when_one_polls),
		TEST(cut_cables_are_noticed_at_both_ends),
		TEST(ends_agree_on_the_best_both_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
