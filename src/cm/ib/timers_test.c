/* SPDX-License-Identifier: MIT */
#include "cm/ib/timers.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { N = 500 };

static uint64_t earliest(const struct cm_timer *t)
{
	uint64_t at = UINT64_MAX;

	for (int i = 0; i < N; i++)
		if (t[i].set && t[i].at < at)
			at = t[i].at;
	return at;
}

static void the_first_is_always_the_earliest(void **state)
{
	static struct cm_timer t[N];
	struct cm_timers h = {0};
	uint64_t seed = 1;

	for (int step = 0; step < 20000; step++) {
		struct cm_timer *x = &t[random_seeded(&seed) % N], *first;

		if (random_seeded(&seed) % 3)
			cm_timer_set(&h, x, random_seeded(&seed) % 1000);
		else
			cm_timer_clear(&h, random_seeded(&seed) % 2 && h.root ? h.root : x);
		first = cm_timer_first(&h);
		assert_true((first ? first->at : UINT64_MAX) == earliest(t));
	}
	for (uint64_t last = 0; h.root; cm_timer_clear(&h, h.root)) {
		assert_true(h.root->at >= last);
		last = h.root->at;
	}
	assert_true(earliest(t) == UINT64_MAX);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_is_always_the_earliest)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
