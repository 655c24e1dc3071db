/* SPDX-License-Identifier: MIT */
/* Processes enter themselves, live and die, and others read their counters. */
#include "host/ports.h"
#include "host/process.h"

#include "base/env.h"
#include "host/registry.h"
#include "host/rundir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { UDP_PORT = 4791 };

/* ---- a directory of our own ---- */
static char path[256];

static int own_dir(void **state)
{
	static char top[] = "/tmp/anyrdma-process-test.XXXXXX";
	int err;

	assert_non_null(mkdtemp(top));
	setenv("ANYRDMA_DIR", top, 1);
	env_forget();
	*state = top;
	err = host_rundir(path, sizeof(path) - 20);
	strcat(path, "/");
	host_process_file(path + strlen(path), 20, UDP_PORT);
	return err;
}

static int remove_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", (char *)*state);
	return system(command);
}

/* ---- what a process has ---- */
struct process {
	struct host_registry *registry;
	struct host_ports *ports;
	struct host_adapter_counters own, *count;
};

static bool enter(struct process *p, uint32_t slot)
{
	if (host_registry_open(&p->registry, slot) ||
		host_ports_open(&p->ports, UDP_PORT, slot, host_registry_segment(p->registry)))
		return false;
	p->count = host_registry_adapter(p->registry, &p->own);
	return true;
}

static void leave(struct process *p)
{
	host_ports_close(p->ports);
	host_registry_close(p->registry);
}

/* ---- what others see ---- */
struct seen {
	uint32_t slot;
	struct host_process record; /* version 0: nobody */
	unsigned others;
};

static void note(void *arg, uint32_t slot, const struct host_process *p)
{
	struct seen *s = arg;

	if (slot == s->slot)
		s->record = *p;
	else
		s->others++;
}

static struct seen see(uint32_t slot)
{
	struct seen s = {.slot = slot};

	host_processes_each(note, &s);
	return s;
}

static const struct host_registry_counters *read_counters(uint32_t slot)
{
	struct seen s = see(slot);

	return s.record.version ? host_registry_attach(slot, &s.record) : NULL;
}

static void who_has_entered_is_seen_until_it_leaves(void **state)
{
	char comm[16];
	struct process p, q;
	struct seen s;

	prctl(PR_GET_NAME, comm);
	assert_true(enter(&p, 9) && enter(&q, 10));
	s = see(9);
	assert_int_equal(s.record.pid, getpid());
	assert_string_equal(s.record.comm, comm);
	assert_int_equal(s.others, 1);
	leave(&p);
	s = see(9);
	assert_int_equal(s.record.version, 0);
	assert_int_equal(s.others, 1);
	leave(&q);
}

static void who_was_killed_is_not_seen(void **state)
{
	struct process p;
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!write(ready[1], enter(&p, 9) ? "y" : "n", 1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_int_equal(see(9).record.pid, pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(see(9).record.version, 0);
	assert_true(enter(&p, 9)); /* the next of that slot is */
	assert_int_equal(see(9).record.pid, getpid());
	leave(&p);
	close(ready[0]);
	close(ready[1]);
}

/* ---- counters ---- */
static void lose_file(bool removed)
{
	assert_int_equal(removed ? unlink(path) : truncate(path, 0), 0);
}

/* Counting goes on whatever becomes of the file, and is read again when we have entered ourselves again. */
static void counters_outlive_the_file(void **state)
{
	struct process p;

	assert_true(enter(&p, 11));
	for (int removed = 0; removed < 2; removed++) {
		const struct host_registry_counters *c;

		lose_file(removed);
		assert_null(read_counters(11));
		p.count->tx_packets++;
		host_ports_look(p.ports, true);
		c = read_counters(11);
		assert_non_null(c);
		assert_int_equal(c->adapter.tx_packets, removed + 1);
		host_registry_detach(c);
	}
	leave(&p);
}

static void counters_of_who_may_not_be_looked_into_can_be_read(void **state)
{
	const struct host_registry_counters *c;
	struct process p;

	assert_int_equal(prctl(PR_SET_DUMPABLE, 0), 0);
	assert_true(enter(&p, 12));
	c = read_counters(12);
	assert_non_null(c);
	host_registry_detach(c);
	leave(&p);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
}

/* A number that is another's segment, or nobody's. */
static void a_record_may_lie(void **state)
{
	struct host_process p = {.version = PROCESS_VERSION};
	int other = shmget(IPC_PRIVATE, sizeof(struct host_registry_counters), IPC_CREAT | 0600);
	int small = shmget(IPC_PRIVATE, 8, IPC_CREAT | 0600);
	int32_t numbers[] = {-1, INT32_MAX, other, small};

	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		p.segment = numbers[i];
		assert_null(host_registry_attach(1, &p));
	}
	shmctl(other, IPC_RMID, NULL);
	shmctl(small, IPC_RMID, NULL);
}

/* Records, but no locks. */
static void a_file_of_anything_shows_nobody(void **state)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(write(fd, "\1\0\0\0nonsense in every record....", 32), 32);
	close(fd);
	assert_int_equal(see(1).others, 0);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_entered_is_seen_until_it_leaves),
		cmocka_unit_test(who_was_killed_is_not_seen),
		cmocka_unit_test(counters_outlive_the_file),
		cmocka_unit_test(counters_of_who_may_not_be_looked_into_can_be_read),
		cmocka_unit_test(a_record_may_lie),
		cmocka_unit_test(a_file_of_anything_shows_nobody),
	};

	return cmocka_run_group_tests(tests, own_dir, remove_dir);
}
