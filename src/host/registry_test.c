/* SPDX-License-Identifier: MIT */
#include "host/registry.h"

#include "host/rundir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static void a_name_says_slot_and_process(void **state)
{
	uint32_t slot, pid;
	char name[40];

	host_registry_name(name, sizeof(name), 17, 4242);
	assert_string_equal(name, "adapter-17-4242");
	assert_true(host_registry_name_parse(name, &slot, &pid));
	assert_int_equal(slot, 17);
	assert_int_equal(pid, 4242);
}

static void other_names_are_nobodys(void **state)
{
	static const char *const names[] = {"", "adapter", "adapter-", "adapter-1", "adapter-1-",
		"adapter--1", "adapter-1-2x", "adapter-1-2-3", "adapter-01-2", "adapter-1- 2", "adapter-+1-2",
		"adapter-4294967296-1", "adapter-1-99999999999999999999999", "Adapter-1-2", "group-4791"};
	uint32_t slot, pid;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_false(host_registry_name_parse(names[i], &slot, &pid));
}

/* ---- what the dead leave ---- */
static char dir[200];

static int in_own_directory(void **state)
{
	static char top[] = "/tmp/anyrdma-registry-test.XXXXXX";

	assert_non_null(mkdtemp(top));
	setenv("ANYRDMA_DIR", top, 1);
	*state = top;
	return base_rundir(dir, sizeof(dir));
}

static int remove_directory(void **state)
{
	rmdir(dir);
	return rmdir(*state);
}

static const char *path_of(const char *name)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static bool is_there(const char *name)
{
	return !access(path_of(name), F_OK);
}

static void next_one_removes_what_a_killed_process_left(void **state)
{
	struct host_registry *r;
	char name[40], byte;
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!write(ready[1], host_registry_open(&r, 9) ? "n" : "y", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	host_registry_name(name, sizeof(name), 9, (uint32_t)pid);
	host_registry_clean();
	assert_true(is_there(name)); /* it lives */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(is_there(name));
	assert_int_equal(host_registry_open(&r, 10), 0);
	assert_false(is_there(name));
	host_registry_close(r);
	close(ready[0]);
	close(ready[1]);
}

/* Everybody does both when the run directory was removed: nobody may take what another is making for left. */
static void a_file_is_made_while_others_tidy_up(void **state)
{
	pid_t pid = fork();
	struct host_registry *r;
	char name[40];

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			host_registry_clean();
	}
	assert_int_equal(host_registry_open(&r, 13), 0);
	host_registry_name(name, sizeof(name), 13, (uint32_t)getpid());
	for (int i = 0; i < 5000; i++) {
		assert_true(is_there(name));
		assert_int_equal(unlink(path_of(name)), 0);
		host_registry_look(r);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	host_registry_close(r);
}

static void a_file_that_could_not_be_made_is_made_later(void **state)
{
	struct host_registry *r;
	char name[40];

	assert_int_equal(chmod(dir, 0770), 0); /* not ours alone: not used */
	assert_int_equal(host_registry_open(&r, 14), 0);
	host_registry_name(name, sizeof(name), 14, (uint32_t)getpid());
	assert_false(is_there(name));
	assert_int_equal(chmod(dir, 0700), 0);
	host_registry_look(r);
	assert_true(is_there(name));
	host_registry_close(r);
	assert_false(is_there(name));
}

/* ---- what others read ---- */
static const struct host_registry_counters *read_own(uint32_t slot)
{
	struct host_registry_file f;
	char name[40];
	int fd = open(dir, O_RDONLY | O_DIRECTORY);
	bool there;

	host_registry_name(name, sizeof(name), slot, (uint32_t)getpid());
	there = host_registry_read(fd, name, &f);
	close(fd);
	return there ? host_registry_attach(&f) : NULL;
}

static void lose_file(uint32_t slot, bool removed)
{
	char name[40];

	host_registry_name(name, sizeof(name), slot, (uint32_t)getpid());
	assert_int_equal(removed ? unlink(path_of(name)) : truncate(path_of(name), 0), 0);
}

/* Counting goes on whatever becomes of the file, and is read again when it was made anew. */
static void counters_outlive_the_file(void **state)
{
	struct host_adapter_counters own, *count;
	struct host_registry *r;

	assert_int_equal(host_registry_open(&r, 11), 0);
	count = host_registry_adapter(r, &own);
	for (int removed = 0; removed < 2; removed++) {
		const struct host_registry_counters *c;

		lose_file(11, removed);
		assert_null(read_own(11));
		count->tx_packets++;
		host_registry_look(r);
		c = read_own(11);
		assert_non_null(c);
		assert_int_equal(c->adapter.tx_packets, removed + 1);
		host_registry_detach(c);
	}
	host_registry_close(r);
}

static void counters_of_who_may_not_be_looked_into_can_be_read(void **state)
{
	const struct host_registry_counters *c;
	struct host_registry *r;

	assert_int_equal(prctl(PR_SET_DUMPABLE, 0), 0);
	assert_int_equal(host_registry_open(&r, 12), 0);
	c = read_own(12);
	assert_non_null(c);
	host_registry_detach(c);
	host_registry_close(r);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
}

/* A number that is another's segment, or nobody's. */
static void a_file_may_lie(void **state)
{
	struct host_registry_file f = {.magic = REGISTRY_MAGIC, .version = REGISTRY_VERSION};
	int other = shmget(IPC_PRIVATE, sizeof(struct host_registry_counters), IPC_CREAT | 0600);
	int small = shmget(IPC_PRIVATE, 8, IPC_CREAT | 0600);
	int32_t numbers[] = {-1, INT32_MAX, other, small};

	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		f.segment = numbers[i];
		assert_null(host_registry_attach(&f));
	}
	shmctl(other, IPC_RMID, NULL);
	shmctl(small, IPC_RMID, NULL);
}

/* Killed before its file had its name. */
static void what_was_in_the_making_goes_after_a_while(void **state)
{
	struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	assert_int_equal(close(open(path_of("new-4242"), O_CREAT | O_RDWR, 0600)), 0);
	host_registry_clean();
	assert_true(is_there("new-4242"));
	assert_int_equal(utimensat(AT_FDCWD, path_of("new-4242"), long_ago, 0), 0);
	host_registry_clean();
	assert_false(is_there("new-4242"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_says_slot_and_process),
		cmocka_unit_test(other_names_are_nobodys),
		cmocka_unit_test(next_one_removes_what_a_killed_process_left),
		cmocka_unit_test(a_file_is_made_while_others_tidy_up),
		cmocka_unit_test(a_file_that_could_not_be_made_is_made_later),
		cmocka_unit_test(counters_outlive_the_file),
		cmocka_unit_test(counters_of_who_may_not_be_looked_into_can_be_read),
		cmocka_unit_test(a_file_may_lie),
		cmocka_unit_test(what_was_in_the_making_goes_after_a_while),
	};

	return cmocka_run_group_tests(tests, in_own_directory, remove_directory);
}
