/* SPDX-License-Identifier: MIT */
#include "base/timers.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { N = 500, TIMES = 1000 };

/* The model: when each is due, 0 when it is not set. */
static struct timer timer[N];
static uint64_t model[N];

static uint64_t earliest(void)
{
	uint64_t at = UINT64_MAX;

	for (int i = 0; i < N; i++)
		if (model[i] && model[i] < at)
			at = model[i];
	return at;
}

static void check(const struct timers *h, int i)
{
	assert_true(timers_next(h) == earliest());
	assert_int_equal(timer_is_set(&timer[i]), model[i] != 0);
	assert_int_equal(timer_is_by(&timer[i], TIMES / 2), model[i] && model[i] <= TIMES / 2);
}

/* What is taken was the earliest, or nothing is due. */
static void take(struct timers *h, uint64_t now)
{
	uint64_t next = earliest();
	struct timer *t = timers_take_due(h, now);

	assert_int_equal(t != NULL, next <= now);
	if (!t)
		return;
	assert_true(model[t - timer] == next);
	assert_false(timer_is_set(t));
	model[t - timer] = 0;
}

static void the_earliest_of_many_comes_first(void **state)
{
	struct timers h = {0};
	uint64_t seed = 1;

	for (int step = 0; step < 40000; step++) {
		int i = (int)(random_seeded(&seed) % N);
		uint64_t at = 1 + random_seeded(&seed) % TIMES;

		switch (random_seeded(&seed) % 4) {
		case 0:
			timer_clear(&h, &timer[i]);
			model[i] = 0;
			break;
		case 1:
			take(&h, at / 4);
			break;
		default:
			timer_set(&h, &timer[i], at);
			model[i] = at;
		}
		check(&h, i);
	}
	while (earliest() != UINT64_MAX)
		take(&h, TIMES);
	assert_null(timers_take_due(&h, UINT64_MAX));
	assert_true(timers_next(&h) == UINT64_MAX);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(the_earliest_of_many_comes_first)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
