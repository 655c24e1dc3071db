/* SPDX-License-Identifier: MIT */
/*
 * The order in which bytes appear: programs look at the last ones to see that all has come. Seen here by
 * memory that faults at its beginning: what is written behind that was written before it.
 */
#include "local/copy.h"

#include "base/guard.h"
#include "hca/qp.h"
#include "local/walk.h"
#include "tests/skip.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { PAGE = 4096 };

static char source[2 * PAGE];
static _Atomic uint32_t revoked;
static bool back;

static void needs_faults_in_memcpy(void)
{
#ifdef __SANITIZE_THREAD__
	skip_because("the thread sanitizer takes SIGSEGV in its own memcpy() for itself");
#endif
}

/* Two pages, of which the first cannot be written; the second is zero. */
static char *half_a_place(void)
{
	char *p;

	needs_faults_in_memcpy();
	p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p, PAGE, PROT_READ), 0);
	guard_install(); /* for each test: cmocka has handlers of its own */
	memset(source, 7, sizeof(source));
	return p;
}

/* memcpy() may write the rest in any order. */
static bool last_word_is_untouched(const char *p)
{
	static const char zero[8];

	return !memcmp(p + 2 * PAGE - sizeof(zero), zero, sizeof(zero));
}

static void last_word_of_a_write_comes_last(void **state)
{
	char *p = half_a_place();

	for (unsigned begin = PAGE - 100; begin < PAGE; begin += 33) {
		struct local_job job;

		local_job_begin(&job, 2 * PAGE - begin, &back);
		job.revoked = &revoked;
		job.at = p + begin;
		job.own[0] = (struct iovec){source, job.len};
		job.n = 1;
		assert_false(local_write(&job));
		assert_true(last_word_is_untouched(p));
	}
	munmap(p, 2 * PAGE);
}

/* The same for what is fetched to a place of our own. */
static void last_word_of_what_is_fetched_comes_last(void **state)
{
	char *p = half_a_place();

	for (unsigned begin = PAGE - 100; begin < PAGE; begin += 33) {
		struct local_job job;

		local_job_begin(&job, 2 * PAGE - begin, &back);
		job.at = source;
		job.own[0] = (struct iovec){p + begin, job.len};
		job.n = 1;
		assert_false(local_place(&job));
		assert_true(last_word_is_untouched(p));
	}
	munmap(p, 2 * PAGE);
}

static void all_of_it_is_written(void **state)
{
	static char to[2 * PAGE];
	struct local_job job;

	memset(source, 7, sizeof(source));
	for (uint32_t len = 1; len < 200; len++) {
		memset(to, 0, sizeof(to));
		local_job_begin(&job, len, &back);
		job.revoked = &revoked;
		job.at = to + len % 8;
		job.own[0] = (struct iovec){source, len};
		job.n = 1;
		assert_true(local_write(&job));
		assert_memory_equal(to + len % 8, source, len);
		assert_int_equal(to[len % 8 + len], 0);
	}
}

static bool (*const moves[])(struct local_job *) = {local_write, local_read, local_place};

/* From a to b, by each of them. */
static bool move(unsigned i, char *a, char *b, uint32_t len)
{
	bool writes = moves[i] == local_write;
	struct local_job job;

	local_job_begin(&job, len, &back);
	job.revoked = &revoked;
	job.at = writes ? b : a;
	job.own[0] = (struct iovec){writes ? a : b, len};
	job.n = 1;
	return moves[i](&job);
}

static void long_copies_are_whole_both_ways(void **state)
{
	static const uint32_t lens[] = {WALK_LONG - 1, WALK_LONG, WALK_LONG + 1, 1 << 20, (3 << 20) + 777};
	char *a = malloc(4 << 20), *b = malloc(4 << 20);
	uint32_t seed = 1;

	assert_true(a && b);
	for (unsigned i = 0; i < 2 * 3 * sizeof(lens) / sizeof(lens[0]); i++) {
		uint32_t len = lens[i / 6];

		for (uint32_t k = 0; k < len; k++)
			a[k] = (char)((seed = seed * 1103515245 + 12345) >> 16);
		memset(b, 0, 4 << 20);
		assert_true(move(i % 3, a, b, len));
		assert_memory_equal(a, b, len);
		assert_int_equal(b[len], 0);
	}
	free(a);
	free(b);
}

static void last_word_of_a_long_one_comes_last_both_ways(void **state)
{
	char *from, *to;

	needs_faults_in_memcpy();
	from = calloc(1, WALK_LONG);
	to = mmap(NULL, WALK_LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(from && to != MAP_FAILED);
	assert_int_equal(mprotect(to, PAGE, PROT_READ), 0);
	guard_install();
	memset(from, 7, WALK_LONG);
	for (unsigned i = 0; i < 4; i++) {
		assert_false(move(i % 2 ? 0 : 2, from, to, WALK_LONG));
		assert_int_equal(to[WALK_LONG - 1], 0);
	}
	munmap(to, WALK_LONG);
	free(from);
}

/* The processor would do it, but not at once for everybody. */
static void atomic_needs_an_aligned_word(void **state)
{
	struct hca_send_wqe w = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .remote = {.compare_add = 1}};
	uint64_t words[2] = {5, 5}, result = 0;
	struct local_job job;

	local_job_begin(&job, sizeof(uint64_t), &back);
	job.revoked = &revoked;
	job.wqe = &w;
	job.own[0] = (struct iovec){&result, sizeof(result)};
	job.n = 1;
	job.at = (char *)words + 4;
	assert_false(local_atomic(&job));
	assert_true(words[0] == 5 && words[1] == 5);
	job.at = (char *)words;
	assert_true(local_atomic(&job));
	assert_true(words[0] == 6 && result == 5);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(last_word_of_a_write_comes_last),
		cmocka_unit_test(last_word_of_what_is_fetched_comes_last),
		cmocka_unit_test(all_of_it_is_written),
		cmocka_unit_test(long_copies_are_whole_both_ways),
		cmocka_unit_test(last_word_of_a_long_one_comes_last_both_ways),
		cmocka_unit_test(atomic_needs_an_aligned_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
