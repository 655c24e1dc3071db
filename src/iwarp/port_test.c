/* SPDX-License-Identifier: MIT */
/* Streams that managers let go of: while another thread drives, and before their time. */
#include "iwarp/port.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { CLOSERS = 2, TIMES = 20000 };

static struct hca_adapter adapter;
static _Atomic int closing = CLOSERS;

static bool hear(struct iwarp_conn *s, const struct iwarp_conn_event *ev)
{
	return true;
}

static void *close_many(void *arg)
{
	for (int i = 0; i < TIMES; i++)
		iwarp_conn_close(iwarp_conn_new(&adapter, hear, NULL, NULL));
	closing--;
	return NULL;
}

static int open_streams(void **state)
{
	hca_adapter_init(&adapter);
	hca_engine_init(&adapter.engine, &adapter, NULL, NULL);
	hca_engine_open(&adapter.engine);
	return iwarp_port_open(&adapter);
}

static int close_streams(void **state)
{
	hca_engine_fini(&adapter.engine);
	hca_adapter_fini(&adapter);
	return 0;
}

/* From the moment one is said to be closing it is who drives that has it: the thread sanitizer sees who looks
 * at it later. */
static void closed_streams_are_left_to_who_drives(void **state)
{
	pthread_t thread[CLOSERS];

	for (int i = 0; i < CLOSERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, close_many, NULL), 0);
	while (closing)
		iwarp_conn_settle(&adapter);
	for (int i = 0; i < CLOSERS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	iwarp_conn_settle(&adapter);
	assert_true(list_empty(&iwarp_port_in(&adapter)->all));
}

/* Nobody is left to be woken for, but the helper sleeps on the descriptor all the same. */
static void alarm_of_one_that_is_gone_rings_once(void **state)
{
	struct hca_provider *v = adapter.engine.provider[HCA_IWARP];
	struct hca_clock clock = {.e = &adapter.engine};
	struct pollfd p = {.fd = iwarp_port_in(&adapter)->epfd, .events = POLLIN};
	struct iwarp_conn *s = iwarp_conn_new(&adapter, hear, NULL, NULL);

	lock_take(&adapter.engine.drive);
	stream_set_deadline((struct stream *)s, hca_clock_now(&clock) + 1000000);
	lock_drop(&adapter.engine.drive);
	iwarp_conn_close(s);
	iwarp_conn_settle(&adapter);
	assert_true(list_empty(&iwarp_port_in(&adapter)->all));
	assert_false(v->ops.due(v, 0, false));
	assert_int_equal(poll(&p, 1, -1), 1);
	assert_true(v->ops.due(v, v->bit, false));
	v->ops.receive(v, v->bit, &clock);
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
