/* SPDX-License-Identifier: MIT */
#include "local/export/export.h"

#include "hca/adapter.h"
#include "hca/mr.h"
#include "local/pages/shareable.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

struct stage {
	struct hca_adapter adapter; /* but for the export, nothing of it is used */
	struct hca_pd pd;
	struct hca_key key;
};

static int make(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));

	s->adapter.export.table = aligned_alloc(64, sizeof(*s->adapter.export.table));
	memset(s->adapter.export.table, 0, sizeof(*s->adapter.export.table));
	lock_init(&s->adapter.export.lock);
	s->pd.number = 5;
	s->key = (struct hca_key){.kind = KEY_MR, .pd = &s->pd, .access = 3, .iova = 1000, .length = 50};
	*state = s;
	return 0;
}

static int unmake(void **state)
{
	struct stage *s = *state;

	free(s->adapter.export.table);
	free(s);
	return 0;
}

static void show(struct stage *s, uint32_t key)
{
	s->key.key = key;
	s->key.host = (char *)(uintptr_t)key;
	hca_export_key(&s->adapter, &s->key);
}

/* Killed without warning: whoever waited for the death knows that nothing more may be done there. */
static void export_of_a_dead_process_is_dead(void **state)
{
	struct local_export *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct local_exporter a = {.table = b};
	pid_t pid;

	(void)state;
	assert_ptr_not_equal(b, MAP_FAILED);
	assert_false(local_export_lives(b));
	local_export_begin(&a);
	assert_true(local_export_lives(b));
	local_export_end(&a);
	assert_false(local_export_lives(b));
	pid = fork();
	if (!pid) {
		local_export_begin(&a);
		for (;;)
			pause();
	}
	while (!local_export_lives(b))
		sched_yield();
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(local_export_lives(b));
	munmap(b, sizeof(*b));
}

static void shown_keys_are_found_until_hidden(void **state)
{
	struct stage *s = *state;
	struct local_export_key k;

	show(s, 0x1234);
	assert_true(local_export_find_key(s->adapter.export.table, 0x1234, &k));
	assert_int_equal(k.pd, 5);
	assert_int_equal(k.iova, 1000);
	assert_int_equal(k.length, 50);
	assert_int_equal(k.host, 0x1234);
	assert_false(local_export_find_key(s->adapter.export.table, 0x1235, &k));
	assert_false(local_export_find_key(s->adapter.export.table, 0, &k));
	s->key.length = 60;
	show(s, 0x1234);
	assert_true(local_export_find_key(s->adapter.export.table, 0x1234, &k));
	assert_int_equal(k.length, 60);
	hca_unexport_key(&s->adapter, 0x1234);
	assert_false(local_export_find_key(s->adapter.export.table, 0x1234, &k));
}

/* What finds no place goes the usual way; hiding gives the place back. */
static void export_may_be_too_small(void **state)
{
	enum { ROOM = EXPORT_ENTRIES(EXPORT_KEYS, EXPORT_KEY_LEVELS), KEYS = 3 * ROOM };
	struct stage *s = *state;
	struct local_export_key k;
	unsigned found = 0, again = 0;

	for (uint32_t i = 1; i <= KEYS; i++)
		show(s, i * 2654435761u);
	for (uint32_t i = 1; i <= KEYS; i++)
		found += local_export_find_key(s->adapter.export.table, i * 2654435761u, &k);
	assert_true(found > ROOM / 2 && found <= ROOM);
	for (uint32_t i = 1; i <= KEYS; i++)
		hca_unexport_key(&s->adapter, i * 2654435761u);
	for (uint32_t i = 1; i <= KEYS; i++)
		again += local_export_find_key(s->adapter.export.table, i * 2654435761u, &k);
	assert_int_equal(again, 0);
	show(s, 7);
	assert_true(local_export_find_key(s->adapter.export.table, 7, &k));
}

/* And few stay where they cost little. */
static void hundred_thousand_keys_find_room(void **state)
{
	struct stage *s = *state;
	struct local_export_key k;

	for (uint32_t i = 1; i <= 1000; i++)
		show(s, i * 2654435761u);
	assert_int_equal(s->adapter.export.table->key_levels, 1);
	for (uint32_t i = 1; i <= 100000; i++)
		show(s, i * 2654435761u);
	for (uint32_t i = 1; i <= 100000; i++)
		assert_true(local_export_find_key(s->adapter.export.table, i * 2654435761u, &k));
}

static void levels_that_are_not_there_are_not_looked_at(void **state)
{
	struct stage *s = *state;
	struct local_export_key k;
	struct shared_file f;

	s->adapter.export.table->key_levels = s->adapter.export.table->qp_levels =
		1u << 31; /* says another process */
	assert_false(local_export_find_key(s->adapter.export.table, 5, &k));
	assert_false(local_export_find_file(s->adapter.export.table, UINT16_MAX, &f));
}

static void windows_are_not_shown(void **state)
{
	struct stage *s = *state;
	struct local_export_key k;

	s->key.kind = KEY_MW2;
	show(s, 9);
	assert_false(local_export_find_key(s->adapter.export.table, 9, &k));
}

static void owner_that_died_while_writing_shows_nothing(void **state)
{
	struct stage *s = *state;
	struct local_export_key k;

	show(s, 11);
	for (unsigned i = 0; i < EXPORT_KEYS; i++)
		s->adapter.export.table->key[i].seq |= 1;
	assert_false(local_export_find_key(s->adapter.export.table, 11, &k));
}

static _Atomic bool over;

/* One entry whose fields always say the same. */
static void *change(void *arg)
{
	struct stage *s = arg;

	for (uint64_t n = 0; !over; n++) {
		s->key.iova = s->key.length = n;
		s->key.access = (unsigned)n;
		show(s, 13);
	}
	return NULL;
}

static void entries_are_never_seen_half_written(void **state)
{
	struct stage *s = *state;
	struct local_export_key k;
	pthread_t t;

	show(s, 13);
	s->key.iova = s->key.length = s->key.access = 0;
	show(s, 13);
	assert_int_equal(pthread_create(&t, NULL, change, s), 0);
	for (unsigned n = 0; n < 200000; n++) {
		if (!local_export_find_key(s->adapter.export.table, 13, &k))
			continue; /* it changed too often */
		assert_int_equal(k.iova, k.length);
		assert_int_equal((uint16_t)k.iova, k.access);
	}
	over = true;
	pthread_join(t, NULL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(shown_keys_are_found_until_hidden),
		T(export_may_be_too_small),
		T(hundred_thousand_keys_find_room),
		T(levels_that_are_not_there_are_not_looked_at),
		T(windows_are_not_shown),
		T(owner_that_died_while_writing_shows_nothing),
		T(entries_are_never_seen_half_written),
		T(export_of_a_dead_process_is_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
