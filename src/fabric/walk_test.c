/* SPDX-License-Identifier: MIT */
/* The table and walks through it; src/subnet/forward_test.c compares them with what switches do. */
#include "fabric/walk.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static const struct fabric_counts counts = {.ports = 7, .switches = 2, .rows = 20};

static struct fabric_table *make(void)
{
	size_t len = fabric_table_size(&counts);
	void *zeroed = calloc(1, len);

	assert_non_null(zeroed);
	assert_true(len < 4096 * 4 + (2 + 4) * FABRIC_LIDS);
	return fabric_table_init(zeroed, &counts);
}

static void new_table_leads_nowhere(void **state)
{
	const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 10};
	struct fabric_table *t = make();
	struct walk w;

	assert_true(t->magic == FABRIC_MAGIC && t->version == FABRIC_VERSION && !fabric_epoch(t));
	assert_int_equal(fabric_lft(t, 1, 1), FABRIC_NO_PORT);
	assert_int_equal(fabric_lft(t, 2, 1), FABRIC_NO_PORT); /* there is no such switch */
	assert_int_equal(fabric_lid_port(t, 1), FABRIC_NONE);
	assert_int_equal(fabric_lid_port(t, 0xffff), FABRIC_NONE);
	assert_null(fabric_port(t, 7));
	assert_null(fabric_switch(t, 2));
	assert_null(fabric_row(t, 20));
	for (uint32_t from = 0; from <= 8; from++)
		assert_int_not_equal(fabric_walk(t, from, 1, &what, &w), WALK_ARRIVED);
	free(t);
}

static void entries_keep_what_was_set(void **state)
{
	struct fabric_table *t = make();

	for (unsigned sw = 0; sw < 2; sw++)
		for (unsigned lid = 0; lid < FABRIC_LIDS; lid += 97)
			fabric_lft_set(t, sw, (uint16_t)lid, (uint8_t)(lid + sw));
	fabric_lft_set(t, 2, 1, 1);
	fabric_lft_set(t, 1, 0xffff, 1);
	for (unsigned sw = 0; sw < 2; sw++)
		for (unsigned lid = 0; lid < FABRIC_LIDS; lid += 97)
			assert_int_equal(fabric_lft(t, sw, (uint16_t)lid), (uint8_t)(lid + sw));
	fabric_lid_set(t, 0xbfff, 6);
	fabric_lid_set(t, 0xc000, 6);
	assert_int_equal(fabric_lid_port(t, 0xbfff), 6);
	fabric_lid_set(t, 0xbfff, FABRIC_NONE);
	assert_int_equal(fabric_lid_port(t, 0xbfff), FABRIC_NONE);
	free(t);
}

static void epoch_is_odd_during_a_change(void **state)
{
	struct fabric_table *t = make();

	fabric_change_end(t);
	assert_int_equal(fabric_epoch(t), 0);
	fabric_change_begin(t);
	fabric_change_begin(t);
	assert_int_equal(fabric_epoch(t), 1);
	fabric_change_end(t);
	fabric_change_end(t);
	assert_int_equal(fabric_epoch(t), 2);
	free(t);
}

static void lids_of_a_port_are_all_of_its_lmc(void **state)
{
	const struct fabric_port p = {.lid = 8, .lmc = 2}, none = {.lmc = 7};

	assert_true(!fabric_port_has_lid(&p, 7) && fabric_port_has_lid(&p, 8) && fabric_port_has_lid(&p, 11));
	assert_true(!fabric_port_has_lid(&p, 12) && !fabric_port_has_lid(&none, 0) &&
		    !fabric_port_has_lid(&none, 1));
}

static void lanes_as_port_info_encodes_them(void **state)
{
	static const unsigned lanes[] = {0, 1, 2, 4, 8, 15, 0};
	const struct fabric_row row = {{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}};

	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(fabric_vl_count(i), lanes[i]);
	for (unsigned sl = 0; sl < 16; sl++)
		assert_int_equal(fabric_row_vl(&row, sl), sl);
}

/* Who reads while somebody writes may see anything, and must still come to an end within the table. */
static void nonsense_in_the_table_is_survived(void **state)
{
	struct fabric_table *t = make();
	uint64_t seed = 1;

	for (unsigned round = 0; round < 2000; round++) {
		uint8_t *at = (uint8_t *)fabric_port(t, 0), *end = (uint8_t *)t + t->lids_at;
		const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 10, .management = round & 1};
		struct walk w;

		for (; at < end; at++)
			*at = (uint8_t)(random_seeded(&seed) & random_seeded(&seed) & 7);
		for (uint16_t lid = 1; lid < 8; lid++)
			fabric_lft_set(t, lid & 1, lid, (uint8_t)(random_seeded(&seed) % 5));
		for (uint32_t from = 0; from < 8; from++)
			assert_true(
				fabric_walk(t, from, (uint16_t)(1 + round % 7), &what, &w) < WALK_END_COUNT);
	}
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_table_leads_nowhere),
		cmocka_unit_test(entries_keep_what_was_set),
		cmocka_unit_test(epoch_is_odd_during_a_change),
		cmocka_unit_test(lids_of_a_port_are_all_of_its_lmc),
		cmocka_unit_test(lanes_as_port_info_encodes_them),
		cmocka_unit_test(nonsense_in_the_table_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
