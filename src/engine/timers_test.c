/* SPDX-License-Identifier: MIT */
/* The alarm that wakes the helper. */
#include "hca/engine.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <cmocka.h>

static bool rings(struct hca_engine *e, int ms)
{
	struct pollfd p = {.fd = e->timer_fd, .events = POLLIN};

	return poll(&p, 1, ms) > 0;
}

static void hear(struct hca_engine *e)
{
	uint64_t n;

	assert_int_equal(read(e->timer_fd, &n, sizeof(n)), sizeof(n));
	hca_engine_alarm_rang(e);
}

/* Another thread drives and has not come to the timers yet: the helper must not run in circles until it does.
 */
static void what_nobody_takes_off_rings_again_but_not_at_once(void **state)
{
	enum { PATIENCE_MS = 30000 };
	struct hca_engine e = {.clock = hca_clock_monotonic, .timerfd_at = UINT64_MAX};
	uint64_t heard;

	lock_init(&e.timer_lock);
	e.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	assert_true(e.timer_fd >= 0);
	hca_engine_alarm(&e, 0, 1);
	assert_true(rings(&e, PATIENCE_MS));
	heard = hca_engine_now(&e);
	hear(&e);
	assert_true(rings(&e, PATIENCE_MS));
	assert_true(hca_engine_now(&e) - heard >= 100 * 1000);

	/* Taken off, it is silent. */
	hear(&e);
	hca_engine_alarm(&e, 0, UINT64_MAX);
	assert_true(rings(&e, PATIENCE_MS));
	hear(&e);
	assert_int_equal(e.timerfd_at, UINT64_MAX);
	close(e.timer_fd);
	lock_fini(&e.timer_lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_nobody_takes_off_rings_again_but_not_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
