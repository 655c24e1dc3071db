/* SPDX-License-Identifier: MIT */
#include "hca/board.h"

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
	struct hca_adapter adapter; /* but for the board, nothing of it is used */
	struct hca_pd pd;
	struct hca_key key;
};

static int make(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));

	s->adapter.board = aligned_alloc(64, sizeof(*s->adapter.board));
	memset(s->adapter.board, 0, sizeof(*s->adapter.board));
	lock_init(&s->adapter.board_lock);
	s->pd.number = 5;
	s->key = (struct hca_key){.kind = KEY_MR, .pd = &s->pd, .access = 3, .iova = 1000, .length = 50};
	*state = s;
	return 0;
}

static int unmake(void **state)
{
	struct stage *s = *state;

	free(s->adapter.board);
	free(s);
	return 0;
}

static void show(struct stage *s, uint32_t key)
{
	s->key.key = key;
	s->key.host = (char *)(uintptr_t)key;
	hca_board_show_key(&s->adapter, &s->key);
}

/* Killed without warning: whoever waited for the death knows that nothing more may be done there. */
static void board_of_a_dead_process_is_dead(void **state)
{
	struct hca_board *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct hca_adapter a = {.board = b};
	pid_t pid;

	(void)state;
	assert_ptr_not_equal(b, MAP_FAILED);
	assert_false(hca_board_lives(b));
	hca_board_begin(&a);
	assert_true(hca_board_lives(b));
	hca_board_end(&a);
	assert_false(hca_board_lives(b));
	pid = fork();
	if (!pid) {
		hca_board_begin(&a);
		for (;;)
			pause();
	}
	while (!hca_board_lives(b))
		sched_yield();
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(hca_board_lives(b));
	munmap(b, sizeof(*b));
}

static void shown_keys_are_found_until_hidden(void **state)
{
	struct stage *s = *state;
	struct hca_board_key k;

	show(s, 0x1234);
	assert_true(hca_board_find_key(s->adapter.board, 0x1234, &k));
	assert_int_equal(k.pd, 5);
	assert_int_equal(k.iova, 1000);
	assert_int_equal(k.length, 50);
	assert_int_equal(k.host, 0x1234);
	assert_false(hca_board_find_key(s->adapter.board, 0x1235, &k));
	assert_false(hca_board_find_key(s->adapter.board, 0, &k));
	s->key.length = 60;
	show(s, 0x1234);
	assert_true(hca_board_find_key(s->adapter.board, 0x1234, &k));
	assert_int_equal(k.length, 60);
	hca_board_hide_key(&s->adapter, 0x1234);
	assert_false(hca_board_find_key(s->adapter.board, 0x1234, &k));
}

/* What finds no place goes the usual way; hiding gives the place back. */
static void board_may_be_too_small(void **state)
{
	enum { ROOM = BOARD_ENTRIES(BOARD_KEYS, BOARD_KEY_LEVELS), KEYS = 3 * ROOM };
	struct stage *s = *state;
	struct hca_board_key k;
	unsigned found = 0, again = 0;

	for (uint32_t i = 1; i <= KEYS; i++)
		show(s, i * 2654435761u);
	for (uint32_t i = 1; i <= KEYS; i++)
		found += hca_board_find_key(s->adapter.board, i * 2654435761u, &k);
	assert_true(found > ROOM / 2 && found <= ROOM);
	for (uint32_t i = 1; i <= KEYS; i++)
		hca_board_hide_key(&s->adapter, i * 2654435761u);
	for (uint32_t i = 1; i <= KEYS; i++)
		again += hca_board_find_key(s->adapter.board, i * 2654435761u, &k);
	assert_int_equal(again, 0);
	show(s, 7);
	assert_true(hca_board_find_key(s->adapter.board, 7, &k));
}

/* And few stay where they cost little. */
static void hundred_thousand_keys_find_room(void **state)
{
	struct stage *s = *state;
	struct hca_board_key k;

	for (uint32_t i = 1; i <= 1000; i++)
		show(s, i * 2654435761u);
	assert_int_equal(s->adapter.board->key_levels, 1);
	for (uint32_t i = 1; i <= 100000; i++)
		show(s, i * 2654435761u);
	for (uint32_t i = 1; i <= 100000; i++)
		assert_true(hca_board_find_key(s->adapter.board, i * 2654435761u, &k));
}

static void levels_that_are_not_there_are_not_looked_at(void **state)
{
	struct stage *s = *state;
	struct hca_board_key k;
	struct shared_file f;

	s->adapter.board->key_levels = s->adapter.board->qp_levels = 1u << 31; /* says another process */
	assert_false(hca_board_find_key(s->adapter.board, 5, &k));
	assert_false(hca_board_find_file(s->adapter.board, UINT16_MAX, &f));
}

static void windows_are_not_shown(void **state)
{
	struct stage *s = *state;
	struct hca_board_key k;

	s->key.kind = KEY_MW2;
	show(s, 9);
	assert_false(hca_board_find_key(s->adapter.board, 9, &k));
}

static void owner_that_died_while_writing_shows_nothing(void **state)
{
	struct stage *s = *state;
	struct hca_board_key k;

	show(s, 11);
	for (unsigned i = 0; i < BOARD_KEYS; i++)
		s->adapter.board->key[i].seq |= 1;
	assert_false(hca_board_find_key(s->adapter.board, 11, &k));
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
	struct hca_board_key k;
	pthread_t t;

	show(s, 13);
	s->key.iova = s->key.length = s->key.access = 0;
	show(s, 13);
	assert_int_equal(pthread_create(&t, NULL, change, s), 0);
	for (unsigned n = 0; n < 200000; n++) {
		if (!hca_board_find_key(s->adapter.board, 13, &k))
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
		T(board_may_be_too_small),
		T(hundred_thousand_keys_find_room),
		T(levels_that_are_not_there_are_not_looked_at),
		T(windows_are_not_shown),
		T(owner_that_died_while_writing_shows_nothing),
		T(entries_are_never_seen_half_written),
		T(board_of_a_dead_process_is_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
