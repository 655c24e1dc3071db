/* SPDX-License-Identifier: MIT */
/*
 * What is left, or put off, at the moment when somebody lies down: no descriptor tells of it. The provider is
 * the test's; what it has is there when its flag is set.
 */
#include "hca/adapter.h"
#include "hca/provider.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { PATIENCE_MS = 20000 };
enum kind { A_FRAME, DEFERRED, MORE_TO_SEND };

static struct {
	struct hca_adapter adapter;
	struct hca_provider provider;
	int bell;          /* what one sleeps on */
	int done;          /* readable when what was left has been seen to */
	enum kind kind;    /* what is left: */
	bool by_who_lies;  /* while somebody lies down, */
	bool by_who_hears; /* or by who took the bell */
	_Atomic bool left;
	_Atomic bool over;
} t;

static struct hca_engine *e(void)
{
	return &t.adapter.engine;
}

static void leave_it(void)
{
	t.left = true;
	if (t.kind == MORE_TO_SEND)
		atomic_store(&e()->more_to_send, true);
}

static void see_to_it(void)
{
	uint64_t one = 1;

	if (t.kind == MORE_TO_SEND)
		atomic_store(&e()->more_to_send, false);
	t.left = false;
	t.over = true;
	assert_int_equal(write(t.done, &one, sizeof(one)), sizeof(one));
}

/* ---- the provider ---- */
static bool due(struct hca_provider *p, unsigned woken, bool busy)
{
	return true;
}

static int receive(struct hca_provider *p, unsigned woken, struct hca_clock *clock)
{
	uint64_t n;

	if (t.left) {
		see_to_it();
		return 1;
	}
	if (read(t.bell, &n, sizeof(n)) > 0 && t.by_who_hears && !t.over)
		leave_it();
	return 0;
}

static int fds(struct hca_provider *p, int fd[HCA_PROVIDER_FDS])
{
	fd[0] = t.bell;
	return 1;
}

static bool lies_down(struct hca_provider *p)
{
	if (t.by_who_lies && !t.over && !t.left) {
		leave_it(); /* by another thread, which could not see yet that we lie */
		return true;
	}
	return !t.left || t.kind != A_FRAME;
}

static bool has_deferred(struct hca_provider *p)
{
	return t.left && t.kind == DEFERRED;
}

static void flush_deferred(struct hca_provider *p)
{
	if (has_deferred(p))
		see_to_it();
}

static void nothing(struct hca_provider *p)
{
}

static const struct hca_provider_ops ops = {.due = due,
	.receive = receive,
	.fds = fds,
	.sleep = lies_down,
	.has_deferred = has_deferred,
	.flush_deferred = flush_deferred,
	.close = nothing,
	.abandon = nothing};

static void begin(enum kind kind)
{
	hca_adapter_init(&t.adapter);
	hca_engine_init(e(), &t.adapter, NULL, NULL);
	t.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t.kind = kind;
	t.by_who_lies = t.by_who_hears = false;
	atomic_store(&t.left, false);
	atomic_store(&t.over, false);
	hca_provider_init(&t.provider, &ops, e(), HCA_FRAMES);
	hca_engine_open(e());
}

static void end(void)
{
	hca_engine_fini(e());
	hca_adapter_fini(&t.adapter);
	close(t.bell);
	close(t.done);
}

/* ---- the tests ---- */
static void *lie_down(void *arg)
{
	struct pollfd p = {.fd = t.done, .events = POLLIN};

	return (void *)(intptr_t)hca_engine_wait_fds(e(), &p, 1, -1);
}

/* The other thread does not wake who lies down, so it is for that one to see to. */
static void what_is_deferred_while_one_lies_down_leaves(void **state)
{
	struct pollfd p = {.events = POLLIN};
	pthread_t sleeper;
	void *err;

	begin(DEFERRED);
	t.by_who_lies = true;
	p.fd = t.done;
	assert_int_equal(pthread_create(&sleeper, NULL, lie_down, NULL), 0);
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	pthread_join(sleeper, &err);
	assert_null(err);
	end();
}

/*
 * A caller sleeps on the sockets, or is taken for one that does. The helper takes the bell, which the caller
 * therefore does not hear, and leaves the rest to it.
 */
static void the_helper_leaves_to(enum kind kind)
{
	struct pollfd p = {.events = POLLIN};
	uint64_t one = 1;

	begin(kind);
	t.by_who_hears = true;
	p.fd = t.done;
	assert_int_equal(hca_engine_start_helper(e()), 0);
	atomic_fetch_add(&e()->blocked, 1);
	assert_int_equal(write(t.bell, &one, sizeof(one)), sizeof(one));
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	atomic_fetch_sub(&e()->blocked, 1);
	hca_engine_stop_helper(e());
	end();
}

static void the_helper_leaves_no_frame_to_who_sleeps(void **state)
{
	the_helper_leaves_to(A_FRAME);
}

static void the_helper_leaves_nothing_deferred_to_who_sleeps(void **state)
{
	the_helper_leaves_to(DEFERRED);
}

static void the_helper_leaves_nothing_to_send_to_who_sleeps(void **state)
{
	the_helper_leaves_to(MORE_TO_SEND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_helper_leaves_no_frame_to_who_sleeps),
		cmocka_unit_test(the_helper_leaves_nothing_deferred_to_who_sleeps),
		cmocka_unit_test(the_helper_leaves_nothing_to_send_to_who_sleeps),
		cmocka_unit_test(what_is_deferred_while_one_lies_down_leaves), /* sleeps on where it fails */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
