/* SPDX-License-Identifier: MIT */
/* What cables do to packets, and that a seed repeats it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include "subnet/parts.h"

#include <errno.h>

enum { PACKETS = 4000 };

static void open_pair(struct stage *t, uint64_t seed)
{
	struct subnet_node *a, *b;

	stage_open(t, seed);
	a = subnet_add(t->s, SUBNET_CA, 1, "a");
	b = subnet_add(t->s, SUBNET_CA, 1, "b");
	subnet_join(subnet_port(a, 1), subnet_port(b, 1));
	subnet_start(t->s, t->now);
	stage_bring_up(t, subnet_port(a, 1));
	t->arrived = 0;
}

/* The fates of packets, one bit each; then how many arrived in all. */
static unsigned fates(uint64_t seed, const struct subnet_fault *f, bool reverse, uint8_t fate[PACKETS])
{
	struct subnet_port *a, *b;
	struct stage t;
	unsigned arrived;

	open_pair(&t, seed);
	a = stage_port(&t, "a", 1);
	b = stage_port(&t, "b", 1);
	assert_int_equal(subnet_set_fault(a, f), 0);
	for (unsigned i = 0; i < PACKETS; i++) {
		if (reverse)
			stage_data(&t, b, a->shared->lid, PKEY_DEFAULT, 0, 8);
		arrived = t.arrived;
		stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8);
		fate[i] = (uint8_t)(t.arrived - arrived);
	}
	arrived = t.arrived;
	stage_close(&t);
	return arrived;
}

static void same_seed_same_fates(void **state)
{
	const struct subnet_fault f = {.loss = 100000, .corrupt = 100000};
	static uint8_t one[PACKETS], two[PACKETS];
	unsigned n = fates(7, &f, false, one);

	assert_in_range(n, PACKETS * 3 / 4, PACKETS * 7 / 8); /* 81% */
	assert_int_equal(fates(7, &f, false, two), n);
	assert_memory_equal(one, two, PACKETS);
	fates(7, &f, true, two); /* traffic the other way does not matter */
	assert_memory_equal(one, two, PACKETS);
	fates(8, &f, false, two);
	assert_memory_not_equal(one, two, PACKETS);
}

static void damaged_packets_are_counted_where_they_arrive(void **state)
{
	const struct subnet_fault f = {.corrupt = 1000000}, none = {0};
	struct subnet_port *a, *b;
	struct stage t;

	open_pair(&t, 1);
	a = stage_port(&t, "a", 1);
	b = stage_port(&t, "b", 1);
	assert_int_equal(subnet_set_fault(a, &f), 0);
	assert_false(a->shared->flags & FABRIC_PLAIN);
	assert_false(b->shared->flags & FABRIC_PLAIN);
	for (unsigned i = 0; i < 20; i++)
		assert_false(stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8));
	assert_int_equal(b->regs->count.total[CNT_RCV_ERRORS], 20);
	assert_int_equal(b->regs->count.total[CNT_LOCAL_PHYSICAL], 20);
	assert_int_equal(b->regs->count.total[CNT_LINK_INTEGRITY], 2); /* each ninth in a row */
	assert_int_equal(subnet_set_fault(b, &none), 0);
	assert_true(a->shared->flags & FABRIC_PLAIN && b->shared->flags & FABRIC_PLAIN);
	assert_true(stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8));
	subnet_expire(t.s, t.now);
	assert_int_equal(t.arrived, 2);
	assert_int_equal(notice_trap(t.mad + SMP_DATA), TRAP_LINK_INTEGRITY);
	assert_int_equal(t.mad[SMP_DATA + NOTICE_DETAILS + 4], 1);
	stage_close(&t);
}

static void delayed_packets_arrive_in_order_and_in_time(void **state)
{
	const struct subnet_fault slow = {.delay = 1000}, bad = {.loss = 1000001};
	struct subnet_port *a, *b;
	struct stage t;

	open_pair(&t, 1);
	a = stage_port(&t, "a", 1);
	b = stage_port(&t, "b", 1);
	assert_int_equal(subnet_set_fault(a, &bad), -EINVAL);
	assert_int_equal(subnet_set_fault(a, &slow), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_false(stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8));
		assert_int_equal(subnet_deadline(t.s), 2000);
		t.now += 100;
	}
	for (unsigned i = 0; i < 3; i++) {
		subnet_expire(t.s, 1999 + 100 * i);
		assert_int_equal(t.arrived, i);
		subnet_expire(t.s, 2000 + 100 * i);
		assert_int_equal(t.arrived, i + 1);
	}
	assert_int_equal(subnet_deadline(t.s), UINT64_MAX);
	stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8);
	subnet_cut(a, t.now); /* it was on the cable */
	subnet_expire(t.s, t.now + 1000);
	assert_int_equal(t.arrived, 3);
	subnet_mend(a, t.now);
	stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8);
	stage_close(&t); /* nothing leaks */
}

static void duplicates_arrive_twice(void **state)
{
	const struct subnet_fault twice = {.duplicate = 1000000};
	struct subnet_port *a, *b;
	uint8_t data[SMP_DATA_LEN];
	struct stage t;

	open_pair(&t, 1);
	a = stage_port(&t, "a", 1);
	b = stage_port(&t, "b", 1);
	assert_int_equal(subnet_set_fault(a, &twice), 0);
	assert_true(stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8));
	subnet_expire(t.s, t.now);
	assert_int_equal(t.arrived, 2);
	t.arrived = 0;
	assert_true(stage_by_lid(&t, a, b->shared->lid, MAD_METHOD_GET, SMP_NODE_INFO, 0, data));
	while (subnet_deadline(t.s) <= t.now)
		subnet_expire(t.s, t.now);
	assert_int_equal(t.arrived, 4); /* two questions, two answers each */
	stage_close(&t);
}

static void watching_changes_nothing_but_the_way(void **state)
{
	struct subnet_port *a, *b;
	struct stage t;
	uint64_t epoch;

	open_pair(&t, 1);
	a = stage_port(&t, "a", 1);
	b = stage_port(&t, "b", 1);
	epoch = fabric_epoch(subnet_table(t.s));
	assert_int_equal(subnet_set_watched(a, true), 0);
	assert_int_equal(fabric_epoch(subnet_table(t.s)), epoch + 2);
	assert_false(b->shared->flags & FABRIC_PLAIN);
	assert_true(stage_data(&t, a, b->shared->lid, PKEY_DEFAULT, 0, 8));
	assert_int_equal(subnet_set_watched(a, false), 0);
	assert_true(b->shared->flags & FABRIC_PLAIN);
	stage_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_seed_same_fates),
		cmocka_unit_test(damaged_packets_are_counted_where_they_arrive),
		cmocka_unit_test(delayed_packets_arrive_in_order_and_in_time),
		cmocka_unit_test(duplicates_arrive_twice),
		cmocka_unit_test(watching_changes_nothing_but_the_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
