/* SPDX-License-Identifier: MIT */
#include "base/lock.h"
#include "tests/skip.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { IN_A_ROW = 1000 };

static void take_often(struct lock *l, unsigned n)
{
	while (n--) {
		lock_take(l);
		lock_drop(l);
	}
}

static bool is_biased(struct lock *l)
{
	return l->biased_to == (uintptr_t)&lock_self;
}

static void *take_once(void *l)
{
	take_often(l, 1);
	return NULL;
}

static void *try_once(void *l)
{
	bool got = lock_try(l);

	if (got)
		lock_drop(l);
	return (void *)(uintptr_t)got;
}

static void *in_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;
	void *result;

	assert_int_equal(pthread_create(&t, NULL, fn, arg), 0);
	pthread_join(t, &result);
	return result;
}

static const char no_membarrier[] = "no membarrier here, or the thread sanitizer, which does not know it";

/* Later, with threads, the kernel would wait for a grace period, under a lock that packets need. */
static void the_kernel_is_asked_before_there_are_threads(void **state)
{
	(void)state;
#ifdef __SANITIZE_THREAD__
	skip_because(no_membarrier);
#endif
	if (!(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		skip_because(no_membarrier);
	assert_int_equal(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0), 0);
}

static void is_biased_to_who_takes_it_until_another_does(void **state)
{
	struct lock l;

	lock_init(&l);
	take_often(&l, IN_A_ROW);
	if (!is_biased(&l))
		skip_because(no_membarrier);
	in_thread(take_once, &l);
	assert_int_equal(l.biased_to, 0);
	take_often(&l, IN_A_ROW);
	assert_true(is_biased(&l));
	lock_fini(&l);
}

static void *take_often_and_look(void *arg)
{
	struct lock *l = arg;

	take_often(l, 10 * IN_A_ROW);
	return (void *)(uintptr_t)is_biased(l);
}

/* The first may have been stopped where it is about to say that it is inside, and would say so for the third.
 */
static void is_biased_to_another_only_when_the_first_has_noticed(void **state)
{
	struct lock l;

	lock_init(&l);
	take_often(&l, IN_A_ROW);
	if (!is_biased(&l))
		skip_because(no_membarrier);
	assert_null(in_thread(take_often_and_look, &l));
	take_often(&l, 1);
	assert_non_null(in_thread(take_often_and_look, &l));
	lock_fini(&l);
}

static void a_try_finds_it_taken(void **state)
{
	struct lock l;

	lock_init(&l);
	for (int biased = 0; biased < 2; biased++) {
		lock_take(&l);
		assert_null(in_thread(try_once, &l));
		lock_drop(&l);
		assert_non_null(in_thread(try_once, &l));
		take_often(&l, IN_A_ROW);
	}
	lock_fini(&l);
}

static void unbiased_one_stays_so(void **state)
{
	struct lock l;

	lock_init_unbiased(&l);
	take_often(&l, IN_A_ROW);
	assert_int_equal(l.biased_to, 0);
	lock_fini(&l);
}

/* Threads that each take it many times in a row, so that it is biased to one after the other, and some that
 * try.
 */
enum { THREADS = 4, ROUNDS = 60 };

struct shared {
	struct lock lock;
	unsigned long count, tried;
};

static void *add(void *arg)
{
	struct shared *s = arg;

	for (unsigned i = 0; i < ROUNDS * IN_A_ROW; i++) {
		lock_take(&s->lock);
		s->count++;
		lock_drop(&s->lock);
		if (i % IN_A_ROW == 0)
			sched_yield();
		if (i % 77 == 0 && lock_try(&s->lock)) {
			s->tried++;
			s->count++;
			lock_drop(&s->lock);
		}
	}
	return NULL;
}

static void one_at_a_time(void **state)
{
	static struct shared s;
	pthread_t t[THREADS];

	lock_init(&s.lock);
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, add, &s), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(s.count - s.tried, (unsigned long)THREADS * ROUNDS * IN_A_ROW);
	lock_fini(&s.lock);
}

struct turn {
	struct lock l;
	atomic_bool had;
};

static void *have_a_turn(void *arg)
{
	struct turn *t = arg;

	lock_take(&t->l);
	t->had = true;
	lock_drop(&t->l);
	return NULL;
}

/* As a program that polls a socket and does not wait, beside the thread that brings what comes. */
static void who_waited_long_comes_before_who_had_it(void **state)
{
	enum { TURNS = 20 };
	struct turn t = {0};
	int in_turn = 0;

	(void)state;
	lock_init_unbiased(&t.l);
	for (int i = 0; i < TURNS; i++) {
		pthread_t other;

		t.had = false;
		lock_take(&t.l);
		assert_int_equal(pthread_create(&other, NULL, have_a_turn, &t), 0);
		while (!t.l.starving)
			sched_yield();
		usleep(1000); /* it sleeps by now */
		lock_drop(&t.l);
		lock_take(&t.l);
		in_turn += t.had;
		lock_drop(&t.l);
		pthread_join(other, NULL);
	}
	lock_fini(&t.l);
	assert_true(in_turn > TURNS / 2); /* all, unless it gets no CPU for long */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_kernel_is_asked_before_there_are_threads),
		cmocka_unit_test(is_biased_to_who_takes_it_until_another_does),
		cmocka_unit_test(is_biased_to_another_only_when_the_first_has_noticed),
		cmocka_unit_test(a_try_finds_it_taken),
		cmocka_unit_test(unbiased_one_stays_so),
		cmocka_unit_test(one_at_a_time),
		cmocka_unit_test(who_waited_long_comes_before_who_had_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
