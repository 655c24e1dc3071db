/* SPDX-License-Identifier: MIT */
/* Who may not act any more does nothing; who may does all of it. */
#include "local/revocable.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { LEN = 100000 }; /* several steps */

static char from[LEN], to[LEN];
static uint64_t word;

/* Every kind of access, to memory that is all zero before it. */
static bool act(unsigned kind, const _Atomic uint32_t *revoked)
{
	struct iovec own = {from, LEN}, theirs = {to, LEN};
	uint64_t original = 0;

	switch (kind) {
	case 0:
		return revocable_vm(revoked, getpid(), &own, 1, &theirs, 1, true) == LEN;
	case 1:
		return revocable_copy(revoked, to, from, LEN);
	case 2:
		return revocable_store(revoked, &word, 7);
	case 3:
		return revocable_store_byte(revoked, to, 7);
	case 4:
		return revocable_fetch_add(revoked, &word, 7, &original);
	default:
		return revocable_compare_swap(revoked, &word, &original, 7);
	}
}

static bool is_touched(void)
{
	static const char zero[LEN];

	return word || memcmp(to, zero, LEN);
}

static void clean(void)
{
	memset(from, 7, LEN);
	memset(to, 0, LEN);
	word = 0;
}

static void who_may_act_does(void **state)
{
	_Atomic uint32_t revoked = 0;

	for (unsigned kind = 0; kind < 6; kind++) {
		clean();
		assert_true(act(kind, &revoked));
		assert_true(is_touched());
		if (kind < 2)
			assert_memory_equal(from, to, LEN);
	}
}

static void who_was_cut_off_does_nothing(void **state)
{
	_Atomic uint32_t revoked = 1;

	for (unsigned kind = 0; kind < 6; kind++) {
		clean();
		errno = 0;
		assert_false(act(kind, &revoked));
		assert_false(is_touched());
		if (!kind)
			assert_int_equal(errno, ECANCELED);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_may_act_does),
		cmocka_unit_test(who_was_cut_off_does_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
