/* SPDX-License-Identifier: MIT */
#include "base/guard.h"
#include "tests/skip.h"

#include <pthread.h>
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

/* Two pages, of which the second is not there. */
static void every_page_is_looked_at(void **state)
{
	char *p = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	install_before_us(SIG_DFL);
	assert_true(guard_readable(p, 8192));
	assert_int_equal(mprotect(p + 4096, 4096, PROT_NONE), 0);
	assert_true(guard_readable(p, 4096));
	assert_true(guard_readable(p + 4095, 1));
	assert_true(guard_readable(p + 4096, 0));
	assert_false(guard_readable(p, 4097));
	assert_false(guard_readable(p + 4095, 2));
	assert_false(guard_readable(p + 8191, 1));
	munmap(p, 8192);
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
	skip_because("sanitizers report faults in their own way");
#endif
	assert_int_equal(death_of_child(fault), SIGSEGV);
	assert_int_equal(death_of_child(be_killed), SIGSEGV);
}

/* ---- threads that block signals ---- */
static bool copy_fails(void)
{
	char buf[16], *p = nowhere();
	bool failed = !guard_copy(buf, p, sizeof(buf)) && !guard_copy(p, buf, sizeof(buf));

	munmap(p, 4096);
	return failed;
}

static void block_all(void)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
}

static bool is_blocked(int sig)
{
	sigset_t now;

	pthread_sigmask(SIG_SETMASK, NULL, &now);
	return sigismember(&now, sig);
}

/* In a child, since the kernel kills who faults with the signal blocked. */
static int child_status(void *(*body)(void *))
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		pthread_t t;
		void *ok = NULL;

		install_before_us(SIG_DFL);
		block_all(); /* as its creator has it */
		_exit(pthread_create(&t, NULL, body, NULL) || pthread_join(t, &ok) || !ok);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void *copies(void *arg)
{
	return copy_fails() && !is_blocked(SIGSEGV) && !is_blocked(SIGBUS) && is_blocked(SIGUSR1) ? "ok"
												  : NULL;
}

static void thread_that_blocks_all_signals_lives(void **state)
{
	assert_int_equal(child_status(copies), 0);
}

static void *doubts(void *arg)
{
	for (int i = 0; i < 3; i++) {
		if (!copy_fails())
			return NULL;
		block_all();
		guard_doubt(); /* the shim */
	}
	return "ok";
}

static void thread_that_blocks_them_again_lives(void **state)
{
	assert_int_equal(child_status(doubts), 0);
}

/* ---- handlers that come after ours ---- */
static void count(int sig)
{
	handled++;
}

static volatile bool was_blocked;

static void look_and_jump_out(int sig, siginfo_t *info, void *uc)
{
	handled++;
	was_blocked = is_blocked(SIGSEGV) && is_blocked(SIGUSR2);
	siglongjmp(out, 1);
}

static void fault_and_come_back(void)
{
	volatile char *p = nowhere();

	if (!sigsetjmp(out, 1))
		*p = 1;
	munmap((void *)p, 4096);
}

static void programs_sigaction_finds_what_it_set(void **state)
{
	struct sigaction sa = {.sa_sigaction = look_and_jump_out, .sa_flags = SA_SIGINFO}, old;

	sigaddset(&sa.sa_mask, SIGUSR2);
	install_before_us(count);
	assert_int_equal(guard_sigaction(sigaction, SIGSEGV, &sa, &old), 0);
	assert_ptr_equal(old.sa_handler, count);
	assert_int_equal(guard_sigaction(sigaction, SIGSEGV, NULL, &old), 0);
	assert_ptr_equal(old.sa_sigaction, look_and_jump_out);
	assert_int_equal(old.sa_flags & SA_SIGINFO, SA_SIGINFO);
	assert_true(sigismember(&old.sa_mask, SIGUSR2));
	handled = 0;
	fault_and_come_back();
	assert_int_equal(handled, 1);
	assert_true(was_blocked);
	assert_true(copy_fails());
	fault_and_come_back();
	assert_int_equal(handled, 2);
}

static void one_shot_handler_is_called_once(void **state)
{
	struct sigaction sa = {.sa_handler = jump_out, .sa_flags = (int)SA_RESETHAND}, old;

	install_before_us(SIG_DFL);
	guard_sigaction(sigaction, SIGSEGV, &sa, NULL);
	handled = 0;
	fault_and_come_back();
	assert_int_equal(handled, 1);
	guard_sigaction(sigaction, SIGSEGV, NULL, &old);
	assert_ptr_equal(old.sa_handler, SIG_DFL);
	assert_true(copy_fails());
}

static void send_one(void *arg)
{
	raise(SIGSEGV);
}

static void signal_that_was_sent_is_no_fault_of_a_copy(void **state)
{
	install_before_us(count);
	handled = 0;
	assert_true(guard_run(send_one, NULL));
	assert_int_equal(handled, 1);
	install_before_us(SIG_IGN);
	raise(SIGSEGV);
}

/* By a system call, or without the shim: ours comes in front again. */
static void handler_nobody_told_of_gets_behind_ours_in_time(void **state)
{
	struct sigaction sa = {.sa_handler = jump_out, .sa_flags = SA_NODEFER};
	char buf[8] = "";

	install_before_us(SIG_DFL);
	sigaction(SIGSEGV, &sa, NULL);
	for (int i = 0; i < 16; i++) {
		guard_doubt();
		assert_true(guard_copy(buf, "1234567", sizeof(buf)));
	}
	assert_true(copy_fails());
	handled = 0;
	fault_and_come_back();
	assert_int_equal(handled, 1);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
	return 0; /* it takes SIGSEGV for itself */
#endif
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_from_nowhere_is_reported),
		cmocka_unit_test(every_page_is_looked_at),
		cmocka_unit_test(programs_own_handler_still_gets_its_faults),
		cmocka_unit_test(other_faults_and_signals_kill_as_ever),
		cmocka_unit_test(thread_that_blocks_all_signals_lives),
		cmocka_unit_test(thread_that_blocks_them_again_lives),
		cmocka_unit_test(programs_sigaction_finds_what_it_set),
		cmocka_unit_test(one_shot_handler_is_called_once),
		cmocka_unit_test(signal_that_was_sent_is_no_fault_of_a_copy),
		cmocka_unit_test(handler_nobody_told_of_gets_behind_ours_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
