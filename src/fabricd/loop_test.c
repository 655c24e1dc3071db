/* SPDX-License-Identifier: MIT */
#include "fabricd/loop.h"

#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <unistd.h>

struct stage {
	struct loop *loop;
	int pipe[2], other[2];
	int calls, ticks;
	struct loop_timer timer, late;
};

static void stage_open(struct stage *s)
{
	*s = (struct stage){.loop = loop_open()};
	assert_non_null(s->loop);
	assert_int_equal(pipe(s->pipe), 0);
	assert_int_equal(pipe(s->other), 0);
}

static void stage_close(struct stage *s)
{
	for (int i = 0; i < 2; i++) {
		close(s->pipe[i]);
		close(s->other[i]);
	}
	loop_close(s->loop);
}

static void read_and_stop(void *arg, uint32_t events)
{
	struct stage *s = arg;
	char c;

	assert_true(events & EPOLLIN);
	assert_int_equal(read(s->pipe[0], &c, 1), 1);
	s->calls++;
	loop_stop(s->loop);
}

static void readable_descriptor_is_reported(void **state)
{
	struct stage s;

	stage_open(&s);
	assert_int_equal(loop_add(s.loop, s.pipe[0], EPOLLIN, read_and_stop, &s), 0);
	assert_int_equal(loop_add(s.loop, s.pipe[0], EPOLLIN, read_and_stop, &s), -EEXIST);
	assert_int_equal(loop_add(s.loop, -1, EPOLLIN, read_and_stop, &s), -EBADF);
	assert_int_equal(write(s.pipe[1], "x", 1), 1);
	assert_int_equal(loop_run(s.loop), 0);
	assert_int_equal(s.calls, 1);
	stage_close(&s);
}

/* Whichever of the two is called first removes both, and its neighbour's number is given to a new watch. */
static void remove_both(void *arg, uint32_t events)
{
	struct stage *s = arg;

	s->calls++;
	loop_remove(s->loop, s->pipe[0]);
	loop_remove(s->loop, s->other[0]);
	loop_add(s->loop, s->other[0], 0, remove_both, s);
	loop_stop(s->loop);
}

static void event_of_a_removed_descriptor_reaches_nobody(void **state)
{
	struct stage s;

	stage_open(&s);
	loop_add(s.loop, s.pipe[0], EPOLLIN, remove_both, &s);
	loop_add(s.loop, s.other[0], EPOLLIN, remove_both, &s);
	assert_int_equal(write(s.pipe[1], "x", 1), 1);
	assert_int_equal(write(s.other[1], "x", 1), 1);
	assert_int_equal(loop_run(s.loop), 0);
	assert_int_equal(s.calls, 1);
	stage_close(&s);
}

static void tick(void *arg, uint64_t now)
{
	struct stage *s = arg;

	if (++s->ticks < 3)
		loop_timer_set(s->loop, &s->timer, now + 1000000);
	else
		loop_stop(s->loop);
}

static void never(void *arg, uint64_t now)
{
	fail_msg("a timer that was stopped");
}

static void timers_run_in_order_and_again(void **state)
{
	struct stage s;
	uint64_t begin = clock_ns();

	stage_open(&s);
	loop_timer_init(&s.timer, tick, &s);
	loop_timer_init(&s.late, never, &s);
	loop_timer_set(s.loop, &s.late, begin + 500000);
	loop_timer_set(s.loop, &s.timer, begin + 1000000);
	loop_timer_stop(&s.late);
	assert_int_equal(loop_run(s.loop), 0);
	assert_int_equal(s.ticks, 3);
	assert_true(clock_ns() - begin >= 3000000);
	stage_close(&s);
}

static void come_first(void *arg, uint64_t now)
{
	((struct stage *)arg)->ticks++;
}

static void come_second(void *arg, uint64_t now)
{
	struct stage *s = arg;

	assert_int_equal(s->ticks, 1);
	loop_stop(s->loop);
}

static void the_earlier_timer_runs_first(void **state)
{
	struct stage s;
	uint64_t begin = clock_ns();

	stage_open(&s);
	loop_timer_init(&s.timer, come_first, &s);
	loop_timer_init(&s.late, come_second, &s);
	loop_timer_set(s.loop, &s.late, begin + 2000000);
	loop_timer_set(s.loop, &s.timer, begin + 1000000);
	assert_int_equal(loop_run(s.loop), 0);
	stage_close(&s);
}

static void runs_again_after_a_stop(void **state)
{
	struct stage s;

	stage_open(&s);
	loop_add(s.loop, s.pipe[0], EPOLLIN, read_and_stop, &s);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(write(s.pipe[1], "x", 1), 1);
		assert_int_equal(loop_run(s.loop), 0);
		assert_int_equal(s.calls, i);
	}
	stage_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readable_descriptor_is_reported),
		cmocka_unit_test(event_of_a_removed_descriptor_reaches_nobody),
		cmocka_unit_test(timers_run_in_order_and_again),
		cmocka_unit_test(the_earlier_timer_runs_first),
		cmocka_unit_test(runs_again_after_a_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
