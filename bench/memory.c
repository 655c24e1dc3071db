/* SPDX-License-Identifier: MIT */
/*
 * The floors of the paths through shared memory, between this process on the first CPU it may use and a child
 * on the second:
 *
 *   line_ns        one way of a cache line that both write in turn, in memory they share
 *   turn_us        one way of 8 bytes that each writes into the other's memory in turn, by process_vm_writev
 *   copy           of 8 bytes, in microseconds, and of 64 KiB and 1 MiB, in GB/s, by
 *     memcpy         from private memory into shared memory, which the child has touched
 *     writev         process_vm_writev into the child's private memory
 *     readv          process_vm_readv out of it
 *
 * Best of several rounds each: what the machine can do, not what it does when disturbed. And of the copies
 * the mean of all rounds (loop_*), as a program gets it that does nothing else. One line of JSON.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REGION = 1 << 20, TURNS = 200, ROUNDS = 100 };

struct shared {
	_Alignas(128) _Atomic unsigned turn;
	_Atomic bool by_writev; /* who has the turn is told through memory that is not shared */
	_Alignas(4096) char region[REGION];
};

static struct shared *shared;
static char *own, *theirs; /* the child's has the same address */
static pid_t parent, child;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int nth)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || nth--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
	}
}

static void *map(size_t size, int how)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	memset(p, 1, size);
	return p;
}

/* What the other process wrote into our memory last. */
static uint64_t told(void)
{
	return __atomic_load_n((uint64_t *)theirs, __ATOMIC_ACQUIRE);
}

static void tell(pid_t pid, uint64_t turn)
{
	struct iovec from = {&turn, sizeof(turn)}, to = {theirs, sizeof(turn)};

	if (process_vm_writev(pid, &from, 1, &to, 1, 0) != sizeof(turn)) {
		perror("process_vm_writev");
		exit(1);
	}
}

static void answer_lines(void)
{
	while (!atomic_load_explicit(&shared->by_writev, memory_order_relaxed)) {
		unsigned t = atomic_load_explicit(&shared->turn, memory_order_acquire);

		if (t & 1)
			atomic_store_explicit(&shared->turn, t + 1, memory_order_release);
	}
}

static void answer_words(void)
{
	uint64_t answered = 0;

	while (atomic_load_explicit(&shared->by_writev, memory_order_relaxed)) {
		uint64_t t = told();

		if (t == answered)
			continue;
		answered = t;
		tell(parent, t);
	}
}

/* Takes every other turn, for ever. */
static void answer(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(1);
	memset(theirs, 0, REGION);
	memset(shared->region, 2, REGION);
	for (;;) {
		answer_lines();
		answer_words();
	}
}

static void pass_line(size_t unused)
{
	unsigned t = atomic_load_explicit(&shared->turn, memory_order_relaxed);

	(void)unused;
	atomic_store_explicit(&shared->turn, t + 1, memory_order_release);
	while (atomic_load_explicit(&shared->turn, memory_order_acquire) == t + 1)
		;
}

static void pass_word(size_t unused)
{
	static uint64_t turn;

	(void)unused;
	tell(child, ++turn);
	while (told() != turn)
		;
}

static void by_memcpy(size_t size)
{
	memcpy(shared->region, own, size);
	__asm__ volatile("" ::: "memory");
}

static void by_writev(size_t size)
{
	struct iovec from = {own, size}, to = {theirs, size};

	if (process_vm_writev(child, &from, 1, &to, 1, 0) != (ssize_t)size) {
		perror("process_vm_writev");
		exit(1);
	}
}

static void by_readv(size_t size)
{
	struct iovec to = {own, size}, from = {theirs, size};

	if (process_vm_readv(child, &to, 1, &from, 1, 0) != (ssize_t)size) {
		perror("process_vm_readv");
		exit(1);
	}
}

static double mean; /* of what best() measured last */

/* Seconds that one of n takes, at best; rounds are short, so that some have the cores for themselves. */
static double best(void (*act)(size_t), size_t size, int n)
{
	double least = 1e9, sum = 0;

	for (int round = 0; round < ROUNDS; round++) {
		double start = now(), took;

		for (int i = 0; i < n; i++)
			act(size);
		took = (now() - start) / n;
		if (took < least)
			least = took;
		sum += took;
	}
	mean = sum / ROUNDS;
	return least;
}

static void say(const char *name, void (*act)(size_t))
{
	printf(", \"%s_us\": %.4f", name, best(act, 8, TURNS) * 1e6);
	printf(", \"loop_%s_us\": %.4f", name, mean * 1e6);
	printf(", \"%s_64k\": %.2f", name, 65536 / best(act, 65536, 200) / 1e9);
	printf(", \"loop_%s_64k\": %.2f", name, 65536 / mean / 1e9);
	printf(", \"%s_1m\": %.2f", name, REGION / best(act, REGION, 20) / 1e9);
	printf(", \"loop_%s_1m\": %.2f", name, REGION / mean / 1e9);
}

/* The child ends when it is killed, and else only when it may not write to us. */
static void give_up(int number)
{
	(void)number;
	_exit(1);
}

int main(void)
{
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	if (CPU_COUNT(&all) < 2) {
		fprintf(stderr, "memory: needs two CPUs\n");
		return 1;
	}
	shared = map(sizeof(*shared), MAP_SHARED);
	own = map(REGION, MAP_PRIVATE);
	theirs = map(REGION, MAP_PRIVATE);
	shared->turn = 0;
	shared->by_writev = false;
	signal(SIGCHLD, give_up);
	parent = getpid();
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* Yama: the child writes to us as well */
	child = fork();
	if (!child)
		answer();
	pin(0);
	printf("{\"line_ns\": %.1f", best(pass_line, 0, TURNS) / 2 * 1e9);
	say("memcpy", by_memcpy);
	say("writev", by_writev);
	say("readv", by_readv);
	atomic_store(&shared->by_writev, true);
	printf(", \"turn_us\": %.4f", best(pass_word, 0, TURNS) / 2 * 1e6);
	printf("}\n");
	signal(SIGCHLD, SIG_DFL);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
