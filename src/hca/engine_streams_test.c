/* SPDX-License-Identifier: MIT */
/* Streams that managers let go of while another thread drives. */
#include "hca/adapter.h"
#include "hca/engine_streams.h"

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

/* From the moment one is said to be closing it is who drives that has it: the thread sanitizer sees who looks
 * at it later. */
static void closed_streams_are_left_to_who_drives(void **state)
{
	struct hca_engine *e = &adapter.engine;
	pthread_t thread[CLOSERS];

	e->adapter = &adapter;
	e->clock = hca_clock_monotonic;
	e->wake_fd = -1;
	e->answers = &none;
	frame_batch_begin(e->answers);
	lock_init(&e->drive);
	list_init(&e->touched);
	assert_int_equal(hca_streams_open(e), 0);
	for (int i = 0; i < CLOSERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, close_many, NULL), 0);
	while (closing)
		hca_stream_settle(&adapter);
	for (int i = 0; i < CLOSERS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	hca_stream_settle(&adapter);
	assert_true(list_empty(&e->streams->all));
	hca_streams_close(e);
	lock_fini(&e->drive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closed_streams_are_left_to_who_drives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
