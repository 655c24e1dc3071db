/* SPDX-License-Identifier: MIT */
/* Streams that managers let go of: while another thread drives, and before their time. */
#include "iwarp/port.h"

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

/* The engine's timer is early then: it comes, finds nobody, and is not set again. */
static void deadline_of_one_that_is_gone_comes_in_vain_once(void **state)
{
	struct hca_engine *e = &adapter.engine;
	struct hca_provider *v = e->provider[HCA_STREAMS];
	struct iwarp_conn *s = iwarp_conn_new(&adapter, hear, NULL, NULL);
	uint64_t at = hca_engine_now(e) + 1000000;

	lock_take(&e->drive);
	stream_set_deadline((struct stream *)s, at);
	lock_drop(&e->drive);
	iwarp_conn_close(s);
	iwarp_conn_settle(&adapter);
	assert_true(list_empty(&iwarp_port_in(&adapter)->all));
	assert_false(v->ops.due(v, v->bit, false));
	assert_true(e->next_timer == at);
	while (hca_engine_now(e) < at)
		;
	assert_int_equal(hca_engine_drive(e), 0);
	assert_true(e->next_timer == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			closed_streams_are_left_to_who_drives, open_streams, close_streams),
		cmocka_unit_test_setup_teardown(
			deadline_of_one_that_is_gone_comes_in_vain_once, open_streams, close_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
