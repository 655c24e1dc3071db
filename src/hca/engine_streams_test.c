/* SPDX-License-Identifier: MIT */
/* Streams that managers let go of: while another thread drives, and before their time. */
#include "hca/adapter.h"
#include "hca/engine_streams.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { CLOSERS = 2, TIMES = 20000 };

static struct hca_adapter adapter;
static struct frame_batch none;
static _Atomic int closing = CLOSERS;

static bool hear(struct hca_stream *s, const struct hca_stream_event *ev)
{
	return true;
}

static void *close_many(void *arg)
{
	for (int i = 0; i < TIMES; i++)
		hca_stream_close(hca_stream_new(&adapter, hear, NULL, NULL));
	closing--;
	return NULL;
}

static int open_streams(void **state)
{
	struct hca_engine *e = &adapter.engine;

	e->adapter = &adapter;
	e->clock = hca_clock_monotonic;
	e->wake_fd = -1;
	e->answers = &none;
	frame_batch_begin(e->answers);
	lock_init(&e->drive);
	list_init(&e->runnable);
	return hca_streams_open(e);
}

static int close_streams(void **state)
{
	hca_streams_close(&adapter.engine);
	lock_fini(&adapter.engine.drive);
	return 0;
}

/* From the moment one is said to be closing it is who drives that has it: the thread sanitizer sees who looks
 * at it later. */
static void closed_streams_are_left_to_who_drives(void **state)
{
	struct hca_engine *e = &adapter.engine;
	pthread_t thread[CLOSERS];

	for (int i = 0; i < CLOSERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, close_many, NULL), 0);
	while (closing)
		hca_stream_settle(&adapter);
	for (int i = 0; i < CLOSERS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	hca_stream_settle(&adapter);
	assert_true(list_empty(&e->streams->all));
}

/* Nobody is left to be woken for, but the helper sleeps on the descriptor all the same. */
static void alarm_of_one_that_is_gone_rings_once(void **state)
{
	struct hca_engine *e = &adapter.engine;
	struct pollfd p = {.fd = hca_streams_fd(e), .events = POLLIN};
	struct hca_stream *s = hca_stream_new(&adapter, hear, NULL, NULL);

	stream_wake_at((struct stream *)s, hca_engine_now(e) + 1000000);
	hca_stream_close(s);
	hca_stream_settle(&adapter);
	assert_true(list_empty(&e->streams->all));
	assert_false(hca_streams_due(e, 0));
	assert_int_equal(poll(&p, 1, -1), 1);
	assert_true(hca_streams_due(e, WOKEN_STREAMS));
	hca_streams_drive(e, true, hca_engine_now(e));
	assert_int_equal(poll(&p, 1, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			closed_streams_are_left_to_who_drives, open_streams, close_streams),
		cmocka_unit_test_setup_teardown(
			alarm_of_one_that_is_gone_rings_once, open_streams, close_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
