/* SPDX-License-Identifier: MIT */
/*
 * Who waits on a semaphore inside a region, a thread or another process, is woken, also when the region was
 * registered or deregistered meanwhile: the kernel knows a waiter by where the memory is.
 */
#include "fixture.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define LEN  (16 * PAGE)

/* What a process or thread is doing, as the kernel sees it. */
static char state_of(pid_t pid, pid_t tid)
{
	char path[64], line[512] = {0}, *p;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	p = strrchr(line, ')');
	assert_non_null(p);
	return p[2];
}

static void wait_until_asleep(pid_t pid, pid_t tid)
{
	double end = vt_deadline();

	while (state_of(pid, tid) != 'S') {
		assert_true(vt_now() < end);
		sched_yield();
	}
}

struct waiter {
	sem_t *sem;
	_Atomic pid_t tid;
	_Atomic unsigned woken;
};

/* Twice: over the registration, and over the deregistration. */
static void *waits(void *arg)
{
	struct waiter *w = arg;

	w->tid = (pid_t)syscall(SYS_gettid);
	for (int i = 0; i < 2; i++) {
		while (sem_wait(w->sem))
			;
		w->woken++;
	}
	return NULL;
}

static void expect_woken(struct waiter *w, unsigned times)
{
	double end = vt_deadline();

	while (w->woken < times) {
		if (vt_now() > end)
			fail_msg("it was not woken the %s time", times == 1 ? "first" : "second");
		sched_yield();
	}
}

/* `child`: the one who waits is another process, which writes down in memory that all share. */
static void wake_over_registration(struct vt_ep *ep, int flags, int pshared, bool child)
{
	uint8_t *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	struct waiter *w = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = getpid();
	double end = vt_deadline();
	struct ibv_mr *mr;
	pthread_t thread;

	w->sem = (sem_t *)(memory + 5 * PAGE + 64);
	memset(memory, 0, LEN);
	assert_int_equal(sem_init(w->sem, pshared, 0), 0);
	if (child) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			waits(w);
			_exit(0);
		}
	} else {
		assert_int_equal(pthread_create(&thread, NULL, waits, w), 0);
	}
	while (!w->tid && vt_now() < end)
		sched_yield();
	wait_until_asleep(pid, w->tid);
	mr = ibv_reg_mr(ep->pd, memory, LEN, VT_ALL_ACCESS);
	assert_non_null(mr);
	assert_int_equal(sem_post(w->sem), 0);
	expect_woken(w, 1);
	wait_until_asleep(pid, w->tid);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(sem_post(w->sem), 0);
	expect_woken(w, 2);
	if (child)
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	else
		pthread_join(thread, NULL);
	munmap(memory, LEN);
	munmap(w, PAGE);
}

static void threads_are_woken_on_private_semaphores(void **state)
{
	wake_over_registration(vt_ep((struct vt *)*state), MAP_PRIVATE, 0, false);
}

static void threads_are_woken_on_shared_semaphores_in_private_memory(void **state)
{
	wake_over_registration(vt_ep((struct vt *)*state), MAP_PRIVATE, 1, false);
}

static void threads_and_processes_are_woken_on_shared_semaphores(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);

	wake_over_registration(ep, MAP_SHARED, 1, false);
	wake_over_registration(ep, MAP_SHARED, 1, true);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(threads_are_woken_on_private_semaphores),
	VT_TEST(threads_are_woken_on_shared_semaphores_in_private_memory),
	VT_TEST(threads_and_processes_are_woken_on_shared_semaphores),
};

VT_MAIN("wakeups", tests, NULL)
