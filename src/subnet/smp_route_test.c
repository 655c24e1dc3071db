/* SPDX-License-Identifier: MIT */
/* Directed routes, clause by clause (C14-9, C14-13). */
#include "subnet/smp_route.h"

#include "wire/lrh.h"
#include "wire/smp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static uint8_t smp[MAD_LEN];
static struct smp_next next;

static void make(bool back, unsigned ptr, unsigned count)
{
	memset(smp, 0, sizeof(smp));
	smp[1] = MAD_CLASS_SUBN_DIRECTED;
	put_be16(smp + SMP_STATUS, back ? SMP_RETURNING : 0);
	smp[SMP_HOP_PTR] = (uint8_t)ptr;
	smp[SMP_HOP_COUNT] = (uint8_t)count;
	put_be16(smp + SMP_DR_SLID, LID_PERMISSIVE);
	put_be16(smp + SMP_DR_DLID, LID_PERMISSIVE);
	for (unsigned i = 1; i < SMP_PATH_LEN; i++) {
		smp[SMP_INITIAL_PATH + i] = (uint8_t)(i + 1);
		smp[SMP_RETURN_PATH + i] = (uint8_t)(i + 10);
	}
}

static const struct smp_at at_switch = {.in = 5, .nports = 36, .is_switch = true};
static const struct smp_at at_ca = {.in = 2, .nports = 2};

static enum smp_step step(const struct smp_at *at, bool may_begin)
{
	struct smp_at a = *at;

	a.may_begin = may_begin;
	next = (struct smp_next){0};
	return smp_route(smp, &a, &next);
}

static void out_begins_by_the_first_port(void **state)
{
	make(false, 0, 3);
	assert_int_equal(step(&at_ca, true), SMP_LEAVES);
	assert_true(next.out == 2 && smp[SMP_HOP_PTR] == 1);
	make(false, 0, 3);
	smp[SMP_INITIAL_PATH + 1] = 1; /* an adapter sends by the port that was asked to */
	assert_int_equal(step(&at_ca, true), SMP_DROP);
	make(false, 0, 3);
	assert_int_equal(step(&at_switch, false), SMP_DROP); /* came by a cable, and is at its beginning */
	make(false, 0, 3);
	assert_int_equal(step(&at_switch, true), SMP_LEAVES);
	assert_true(next.out == 2);
}

static void out_passes_switches_and_notes_where_it_came_in(void **state)
{
	make(false, 2, 3);
	assert_int_equal(step(&at_switch, false), SMP_LEAVES);
	assert_true(next.out == 4 && smp[SMP_HOP_PTR] == 3 && smp[SMP_RETURN_PATH + 2] == 5);
	make(false, 2, 3);
	smp[SMP_INITIAL_PATH + 3] = at_ca.in;
	assert_int_equal(step(&at_ca, false), SMP_DROP); /* an adapter is no way through, not even back */
	make(false, 2, 3);
	smp[SMP_INITIAL_PATH + 3] = 37; /* there is no such port */
	assert_int_equal(step(&at_switch, false), SMP_DROP);
	make(false, 2, 3);
	smp[SMP_INITIAL_PATH + 3] = 0;
	assert_int_equal(step(&at_switch, false), SMP_DROP);
}

static void out_ends_here_or_goes_on_by_lid(void **state)
{
	make(false, 3, 3);
	assert_int_equal(step(&at_ca, false), SMP_HERE);
	assert_true(smp[SMP_HOP_PTR] == 4 && smp[SMP_RETURN_PATH + 3] == 2);
	make(false, 3, 3);
	put_be16(smp + SMP_DR_DLID, 77);
	assert_int_equal(step(&at_switch, false), SMP_BY_LID);
	assert_int_equal(next.lid, 77);
	make(false, 3, 3);
	put_be16(smp + SMP_DR_DLID, 77);
	assert_int_equal(step(&at_ca, false), SMP_DROP);
	make(false, 4, 3); /* behind the directed part */
	assert_int_equal(step(&at_ca, false), SMP_HERE);
	assert_int_equal(smp[SMP_HOP_PTR], 4);
	make(false, 5, 3);
	assert_int_equal(step(&at_switch, false), SMP_DROP);
	make(false, 0, 0); /* never leaves the node */
	assert_int_equal(step(&at_ca, true), SMP_HERE);
	assert_int_equal(smp[SMP_HOP_PTR], 1);
}

static void back_follows_the_ports_it_came_in_by(void **state)
{
	make(true, 4, 3);
	assert_int_equal(step(&at_switch, true), SMP_LEAVES);
	assert_true(next.out == 13 && smp[SMP_HOP_PTR] == 3);
	make(true, 4, 3);
	assert_int_equal(step(&at_switch, false), SMP_DROP); /* only who answers begins there */
	make(true, 3, 3);
	assert_int_equal(step(&at_switch, false), SMP_LEAVES);
	assert_true(next.out == 12 && smp[SMP_HOP_PTR] == 2);
	make(true, 3, 3);
	assert_int_equal(step(&at_ca, false), SMP_DROP);
	make(true, 1, 3);
	assert_int_equal(step(&at_ca, false), SMP_HERE);
	assert_int_equal(smp[SMP_HOP_PTR], 0);
	make(true, 1, 3);
	put_be16(smp + SMP_DR_SLID, 99);
	assert_int_equal(step(&at_switch, false), SMP_BY_LID);
	assert_int_equal(next.lid, 99);
	make(true, 0, 3);
	assert_int_equal(step(&at_ca, false), SMP_HERE);
	make(true, 5, 3);
	assert_int_equal(step(&at_switch, true), SMP_DROP);
	make(true, 1, 0);
	assert_int_equal(step(&at_ca, true), SMP_HERE);
}

static void paths_end_within_their_bytes(void **state)
{
	for (unsigned back = 0; back < 2; back++)
		for (unsigned ptr = 0; ptr < 256; ptr++)
			for (unsigned count = 0; count < 256; count++) {
				enum smp_step s;

				make(back, ptr, count);
				s = step(&at_switch, true);
				if (count >= SMP_PATH_LEN || ptr > count + 1)
					assert_int_equal(s, SMP_DROP);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(out_begins_by_the_first_port),
		cmocka_unit_test(out_passes_switches_and_notes_where_it_came_in),
		cmocka_unit_test(out_ends_here_or_goes_on_by_lid),
		cmocka_unit_test(back_follows_the_ports_it_came_in_by),
		cmocka_unit_test(paths_end_within_their_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
