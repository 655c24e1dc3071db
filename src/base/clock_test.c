/* SPDX-License-Identifier: MIT */
/* The offset between two clocks, read by a thread that is held up now and then. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <time.h>

#include <cmocka.h>

#define OFFSET 1700000000123456789ull

/* How long the thread is held up before each reading. */
static struct {
	uint64_t now;
	const unsigned *held_up;
	unsigned readings;
} fake;

static int fake_gettime(clockid_t which, struct timespec *t)
{
	uint64_t ns = fake.now += fake.held_up[fake.readings++];

	if (which == CLOCK_REALTIME)
		ns += OFFSET;
	*t = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	return 0;
}

#define clock_gettime fake_gettime
#include "base/clock.h"

static int64_t error_of(const unsigned *held_up)
{
	fake.now = 5000000000;
	fake.held_up = held_up;
	fake.readings = 0;
	return (int64_t)(clock_real_offset() - OFFSET);
}

static void undisturbed_it_takes_three_readings(void **state)
{
	static const unsigned quick[] = {20, 20, 20};

	(void)state;
	assert_int_equal(error_of(quick), -20);
	assert_int_equal(fake.readings, 3);
}

static void who_is_held_up_reads_again(void **state)
{
	static const unsigned before[] = {20, 30000000, 20, 20, 20, 20},
			      after[] = {20, 20, 30000000, 20, 20, 20};

	(void)state;
	assert_int_equal(error_of(before), -20);
	assert_int_equal(error_of(after), -20);
	assert_int_equal(fake.readings, 6);
}

/* As where a clock is a system call, or worse. */
static void the_closest_of_a_few_counts(void **state)
{
	static const unsigned slow[] = {900, 900, 900, 900, 700, 300, 900, 40000, 50000, 900, 900, 800};

	(void)state;
	assert_int_equal(error_of(slow), -300);
	assert_int_equal(fake.readings, 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(undisturbed_it_takes_three_readings),
		cmocka_unit_test(who_is_held_up_reads_again),
		cmocka_unit_test(the_closest_of_a_few_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
