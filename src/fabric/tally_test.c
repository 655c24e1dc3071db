/* SPDX-License-Identifier: MIT */
/* Places of tallies: who has one, who gets one that was left, and what happens when the fabric comes anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fabric/tally.h"

#include <stdlib.h>
#include <string.h>

static struct tally_pool pool;
static struct tallies *shared;

static int set_up(void **state)
{
	shared = aligned_alloc(64, sizeof(*shared));
	memset(shared, 0, sizeof(*shared));
	tally_pool_init(&pool);
	tally_pool_begin(&pool, shared);
	return 0;
}

static int tear_down(void **state)
{
	tally_pool_end(&pool);
	tally_pool_fini(&pool);
	free(shared);
	return 0;
}

static void a_way_is_one_number(void **state)
{
	uint64_t way = tally_way((1 << 18) - 1, 0xbffe, 0x8001, 31);

	assert_int_equal(tally_port(way), (1 << 18) - 1);
	assert_int_equal(tally_slid(way), 0xbffe);
	assert_int_equal(tally_dlid(way), 0x8001);
	assert_int_equal(tally_sl(way), 15);
}

static void each_has_a_place_of_its_own(void **state)
{
	struct tally *a = tally_take(&pool, tally_way(1, 2, 3, 4)),
		     *b = tally_take(&pool, tally_way(1, 2, 3, 4));

	assert_true(a && b && a != b);
	assert_int_equal(shared->n, 2);
	tally_add(a, TALLY_THERE, 2, 20);
	tally_add(a, TALLY_THERE, 1, 10);
	tally_add(b, TALLY_BACK, 5, 50);
	assert_int_equal(a->sum[TALLY_THERE].packets, 3);
	assert_int_equal(a->sum[TALLY_THERE].words, 30);
	assert_int_equal(a->sum[TALLY_BACK].packets, 0);
	assert_int_equal(b->sum[TALLY_BACK].words, 50);
}

static void a_place_is_left_to_who_goes_that_way(void **state)
{
	uint64_t way = tally_way(1, 2, 3, 4), other = tally_way(1, 2, 3, 5);
	struct tally *a = tally_take(&pool, way), *b = tally_take(&pool, way), *c;

	tally_add(a, TALLY_THERE, 7, 70);
	tally_leave(&pool, a);
	c = tally_take(&pool, other);
	assert_true(c && c != a && c != b);
	assert_true(tally_is_for(&pool, c, other) && !tally_is_for(&pool, c, way));
	assert_ptr_equal(tally_take(&pool, way), a);
	assert_int_equal(a->sum[TALLY_THERE].packets, 7); /* what was told stays told */
	assert_int_equal(shared->n, 3);
}

/* Ways of one bucket do not get into each other's places. */
static void many_ways(void **state)
{
	enum { MANY = 4 * TALLY_BUCKETS };
	static struct tally *t[MANY];

	for (unsigned i = 0; i < MANY; i++)
		t[i] = tally_take(&pool, tally_way(i, 1, 2, 0));
	for (unsigned i = 0; i < MANY; i++)
		tally_leave(&pool, t[i]);
	for (unsigned i = 0; i < MANY; i++)
		assert_ptr_equal(tally_take(&pool, tally_way(i, 1, 2, 0)), t[i]);
	assert_int_equal(shared->n, MANY);
}

static void there_are_so_many_places(void **state)
{
	struct tally *last = NULL;

	for (unsigned i = 0; i < TALLIES; i++)
		assert_non_null(last = tally_take(&pool, tally_way(i, 1, 2, 0)));
	assert_null(tally_take(&pool, tally_way(TALLIES, 1, 2, 0)));
	assert_int_equal(shared->n, TALLIES);
	tally_leave(&pool, last);
	assert_ptr_equal(tally_take(&pool, last->way), last);
}

static void another_fabric_has_other_places(void **state)
{
	struct tallies *again = aligned_alloc(64, sizeof(*again));
	struct tally *was = tally_take(&pool, tally_way(1, 2, 3, 4)), *left = tally_take(&pool, was->way);

	memset(again, 0, sizeof(*again));
	tally_leave(&pool, left);
	assert_true(tally_is_for(&pool, was, was->way));
	tally_pool_begin(&pool, again);
	assert_false(tally_is_for(&pool, was, was->way));
	tally_leave(&pool, was);
	assert_ptr_equal(tally_take(&pool, was->way), again->at);
	assert_ptr_equal(tally_take(&pool, was->way), again->at + 1);
	assert_ptr_equal(tally_take(&pool, was->way), again->at + 2); /* none was left here */
	tally_pool_end(&pool);
	assert_false(tally_is_for(&pool, again->at, was->way));
	assert_null(tally_take(&pool, was->way));
	tally_leave(&pool, again->at);
	free(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_way_is_one_number),
		cmocka_unit_test_setup_teardown(each_has_a_place_of_its_own, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_place_is_left_to_who_goes_that_way, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_ways, set_up, tear_down),
		cmocka_unit_test_setup_teardown(there_are_so_many_places, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_fabric_has_other_places, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
