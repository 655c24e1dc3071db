/* SPDX-License-Identifier: MIT */
#include "base/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static sigjmp_buf out;
static volatile int handled;

static void jump_out(int sig)
{
	handled++;
	siglongjmp(out, 1);
}

static char *nowhere(void)
{
	char *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void install_before_us(void (*handler)(int))
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_NODEFER};

	sigaction(SIGSEGV, &sa, NULL);
	guard_install();
}

static void copy_from_nowhere_is_reported(void **state)
{
	char buf[16] = "", *p = nowhere();

	install_before_us(SIG_DFL);
	assert_false(guard_copy(buf, p, sizeof(buf)));
	assert_false(guard_copy(p, buf, sizeof(buf)));
	assert_true(guard_copy(buf, "0123456789abcde", sizeof(buf)));
	assert_string_equal(buf, "0123456789abcde");
	munmap(p, 4096);
}

static void programs_own_handler_still_gets_its_faults(void **state)
{
	volatile char *p = nowhere();

	install_before_us(jump_out);
	handled = 0;
	for (volatile int i = 0; i < 3; i++) {
		if (!sigsetjmp(out, 1))
			*p = 1;
	}
	assert_int_equal(handled, 3);
	munmap((void *)p, 4096);
}

/* A child that dies as it would have died without us. */
static int death_of_child(void (*die)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		install_before_us(SIG_DFL);
		die();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void fault(void)
{
	*(volatile char *)nowhere() = 1;
}

static void be_killed(void)
{
	kill(getpid(), SIGSEGV);
}

static void other_faults_and_signals_kill_as_ever(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* the sanitizers report them in their own way */
#endif
	assert_int_equal(death_of_child(fault), SIGSEGV);
	assert_int_equal(death_of_child(be_killed), SIGSEGV);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
	return 0; /* it takes SIGSEGV for itself */
#endif
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_from_nowhere_is_reported),
		cmocka_unit_test(programs_own_handler_still_gets_its_faults),
		cmocka_unit_test(other_faults_and_signals_kill_as_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
