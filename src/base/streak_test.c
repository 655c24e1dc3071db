/* SPDX-License-Identifier: MIT */
#include "base/streak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* How many hits it takes until the next is bet on. */
static int hits_to_bet(struct streak *s)
{
	int n = 0;

	for (; !streak_bets(s); n++)
		streak_hit(s);
	return n;
}

static void four_in_a_row_are_bet_on(void **state)
{
	struct streak s = {0};

	assert_int_equal(hits_to_bet(&s), STREAK_BETS);
	for (int i = 0; i < 1000; i++)
		streak_hit(&s);
	streak_break(&s); /* a long row is no better than a short one */
	assert_false(streak_bets(&s));
	assert_int_equal(hits_to_bet(&s), STREAK_BETS);
}

static void lost_bet_is_remembered(void **state)
{
	struct streak s = {0};

	assert_int_equal(hits_to_bet(&s), STREAK_BETS);
	streak_lose(&s);
	streak_hit(&s);
	streak_break(&s); /* does not make it forget, nor worse */
	assert_int_equal(hits_to_bet(&s), STREAK_LOST + STREAK_BETS - 1);
	streak_lose(&s);
	streak_lose(&s);
	assert_int_equal(hits_to_bet(&s), STREAK_LOST + STREAK_BETS);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_in_a_row_are_bet_on),
		cmocka_unit_test(lost_bet_is_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
