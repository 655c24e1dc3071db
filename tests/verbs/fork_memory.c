/* SPDX-License-Identifier: MIT */
/*
 * fork() beside an allocator that nobody holds across it, as those of sanitizers, and of many a program: in
 * the child a lock of its may be a thread's that is not there. So fork() itself, which runs the libraries'
 * handlers, must neither allocate nor free in the child. malloc() and friends are the program's own here, and
 * tell.
 */
#include "fixture.h"

#include <execinfo.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);

static volatile bool forking; /* in the child, until fork() returns there */

static void tell(void)
{
	void *at[32];

	if (!forking)
		return;
	forking = false;
	backtrace_symbols_fd(at, backtrace(at, ARRAY_LEN(at)), STDERR_FILENO);
	_exit(1);
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	tell();
	return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	tell();
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *p, size_t size)
{
	tell();
	return __libc_realloc(p, size);
}

__attribute__((visibility("default"))) void free(void *p)
{
	tell();
	__libc_free(p);
}

static void in_child(void)
{
	forking = true;
}

/* How the child ended. */
static int fork_once(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		forking = false;
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void fork_neither_allocates_nor_frees_in_the_child(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	assert_int_equal(fork_once(), 0);
	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_ping_pong(a, b);
	assert_int_equal(fork_once(), 0);
}

static void nor_of_an_event_that_is_not_acknowledged(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_async_event ev;
	int status;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_post(a, .op = vt_refusable(), .id = 1, .len = 8, .raddr = 8, .rkey = 0xbad);
	vt_expect(a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_true(vt_readable_soon(t->ctx->async_fd));
	assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
	status = fork_once();
	ibv_ack_async_event(&ev); /* or the teardown would wait for that */
	assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(fork_neither_allocates_nor_frees_in_the_child),
	VT_TEST(nor_of_an_event_that_is_not_acknowledged),
};

/* Before main(), so before the libraries', and of handlers in the child the first is called first. */
__attribute__((constructor)) static void watch_fork(void)
{
	void *warm[1];

	backtrace(warm, 1); /* loads what it needs */
	if (pthread_atfork(NULL, NULL, in_child))
		abort();
}

VT_MAIN("fork_memory", tests, NULL)
