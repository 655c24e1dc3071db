/* SPDX-License-Identifier: MIT */
#include "mad/agent.h"

#include <errno.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { GET = 1, SET = 2, TRAP = 5, HIGHEST = 127, RESPONSE = 0x80 };
enum { SA = 3, PERF = 4, CM = 7 };

static struct mad_class takes(uint8_t mgmt_class, uint8_t version, const uint8_t *methods)
{
	struct mad_class c = {.mgmt_class = mgmt_class, .class_version = version};

	for (; *methods; methods++)
		c.methods[*methods / 64] |= 1ull << *methods % 64;
	return c;
}
#define TAKES(mgmt_class, version, ...) takes(mgmt_class, version, (const uint8_t[]){__VA_ARGS__, 0})

/* ---- agents that count what they are told ---- */
struct count {
	unsigned timers, changes;
};

static void receive(void *arg, const uint8_t mad[MAD_LEN], const struct mad_from *from, uint64_t now)
{
}

static void timer(void *arg, uint64_t now)
{
	((struct count *)arg)->timers++;
}

static void changed(void *arg)
{
	((struct count *)arg)->changes++;
}

static const struct mad_agent_ops ops = {.receive = receive, .timer = timer, .changed = changed};
static const struct mad_agent_ops ops_receive = {.receive = receive};

static int add(struct mad_agent_table *t, struct mad_class c, void *arg)
{
	return mad_agent_add(t, &c, &ops, arg);
}

/* The argument of who takes it; NULL: nobody. */
static void *taker(const struct mad_agent_table *t, uint8_t mgmt_class, uint8_t version, uint8_t method)
{
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, mgmt_class, version, method};
	const struct mad_agent *a = mad_agent_of(t, mad);

	return a ? a->arg : NULL;
}

/* ---- the tests ---- */
static void class_version_and_method_say_who_takes_a_mad(void **state)
{
	struct mad_agent_table t = {0};
	int cm, perf, sa_new, sa_old;

	assert_true(add(&t, TAKES(CM, 2, MAD_METHOD_SEND), &cm) >= 0);
	assert_true(add(&t, TAKES(PERF, 1, GET, SET, HIGHEST), &perf) >= 0);
	assert_true(add(&t, TAKES(SA, 2, GET), &sa_new) >= 0);
	assert_true(add(&t, TAKES(SA, 1, GET), &sa_old) >= 0);
	assert_ptr_equal(taker(&t, CM, 2, MAD_METHOD_SEND), &cm);
	assert_ptr_equal(taker(&t, PERF, 1, GET), &perf);
	assert_ptr_equal(taker(&t, PERF, 1, SET), &perf);
	assert_ptr_equal(taker(&t, PERF, 1, HIGHEST), &perf);
	assert_ptr_equal(taker(&t, SA, 2, GET), &sa_new);
	assert_ptr_equal(taker(&t, SA, 1, GET), &sa_old);
}

static void what_nobody_asked_for_is_nobodys(void **state)
{
	struct mad_agent_table t = {0};
	uint8_t mad[MAD_LEN] = {2, PERF, 1, GET};
	int perf;

	assert_null(taker(&t, 0, 0, 0));
	add(&t, TAKES(PERF, 1, GET, TRAP), &perf);
	assert_null(taker(&t, SA, 1, GET));
	assert_null(taker(&t, PERF, 2, GET));
	assert_null(taker(&t, PERF, 1, SET));
	assert_null(taker(&t, PERF, 1, 64 + GET));
	assert_null(taker(&t, PERF, 1, RESPONSE | GET));
	assert_null(mad_agent_of(&t, mad)); /* another base version */
}

static void answers_go_to_who_asks_for_those_of_its_class(void **state)
{
	static const struct mad_agent_ops asks = {.receive = receive, .answers = true};
	struct mad_class nobody_asks = {.mgmt_class = SA, .class_version = 2};
	struct mad_agent_table t = {0};
	int perf, sa;

	add(&t, TAKES(PERF, 1, GET), &perf);
	assert_true(mad_agent_add(&t, &nobody_asks, &asks, &sa) >= 0);
	assert_ptr_equal(taker(&t, SA, 2, RESPONSE | GET), &sa);
	assert_null(taker(&t, SA, 2, GET));
	assert_null(taker(&t, SA, 1, RESPONSE | GET));
	assert_null(taker(&t, PERF, 1, RESPONSE | GET));
}

static void a_method_has_one_agent(void **state)
{
	struct mad_agent_table t = {0};
	int first, second;

	assert_true(add(&t, TAKES(PERF, 1, GET, SET), &first) >= 0);
	assert_int_equal(add(&t, TAKES(PERF, 1, GET, SET), &second), -EBUSY);
	assert_int_equal(add(&t, TAKES(PERF, 1, SET, TRAP), &second), -EBUSY);
	assert_null(taker(&t, PERF, 1, TRAP));
	assert_true(add(&t, TAKES(PERF, 1, TRAP, HIGHEST), &second) >= 0);
	assert_int_equal(add(&t, TAKES(PERF, 1, HIGHEST), &first), -EBUSY);
	assert_ptr_equal(taker(&t, PERF, 1, SET), &first);
	assert_ptr_equal(taker(&t, PERF, 1, TRAP), &second);
}

static void who_is_removed_leaves_its_methods_and_its_place(void **state)
{
	struct mad_agent_table t = {0};
	int first, second, place = add(&t, TAKES(PERF, 1, GET), &first);

	assert_true(add(&t, TAKES(PERF, 1, SET), &second) >= 0);
	mad_agent_remove(&t, (unsigned)place);
	assert_null(taker(&t, PERF, 1, GET));
	assert_ptr_equal(taker(&t, PERF, 1, SET), &second);
	assert_int_equal(add(&t, TAKES(PERF, 1, GET), &second), place);
	assert_ptr_equal(taker(&t, PERF, 1, GET), &second);
}

static void a_full_table_refuses_but_tells_duplicates_apart(void **state)
{
	struct mad_agent_table t = {0};
	int agent[MAD_AGENTS];

	for (uint8_t i = 0; i < MAD_AGENTS; i++)
		assert_int_equal(add(&t, TAKES(PERF, 1, (uint8_t)(1 + i)), &agent[i]), i);
	assert_int_equal(add(&t, TAKES(SA, 1, GET), agent), -ENOSPC);
	assert_int_equal(add(&t, TAKES(PERF, 1, MAD_AGENTS), agent), -EBUSY);
	mad_agent_remove(&t, 3);
	assert_int_equal(add(&t, TAKES(SA, 1, GET), agent), 3);
}

static void timers_and_changes_reach_whom_they_concern(void **state)
{
	struct mad_agent_table t = {0};
	struct count first = {0}, second = {0};
	struct mad_class silent = TAKES(CM, 2, MAD_METHOD_SEND);
	int a = add(&t, TAKES(PERF, 1, GET), &first), b = add(&t, TAKES(PERF, 1, SET), &second);

	assert_true(mad_agent_add(&t, &silent, &ops_receive, NULL) >= 0);
	mad_agent_timers(&t, 1u << a, 0);
	assert_true(first.timers == 1 && second.timers == 0);
	mad_agent_timers(&t, UINT32_MAX, 0);
	assert_true(first.timers == 2 && second.timers == 1);
	mad_agent_remove(&t, (unsigned)b);
	mad_agent_timers(&t, 1u << b, 0);
	mad_agent_changed(&t);
	assert_true(second.timers == 1 && first.changes == 1 && second.changes == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(class_version_and_method_say_who_takes_a_mad),
		cmocka_unit_test(what_nobody_asked_for_is_nobodys),
		cmocka_unit_test(answers_go_to_who_asks_for_those_of_its_class),
		cmocka_unit_test(a_method_has_one_agent),
		cmocka_unit_test(who_is_removed_leaves_its_methods_and_its_place),
		cmocka_unit_test(a_full_table_refuses_but_tells_duplicates_apart),
		cmocka_unit_test(timers_and_changes_reach_whom_they_concern),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
