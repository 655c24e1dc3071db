/* SPDX-License-Identifier: MIT */
/*
 * How far apart two cores are: nanoseconds that a cache line takes from one to the other. On a virtual
 * machine this was seen to change by the second, presumably because the host moves its cores about; what
 * passes memory from core to core is then several times slower, and no count of CPU time tells. Prints the
 * time between the first two CPUs it may use; nothing when there is one only.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { ROUNDS = 10000 };

static _Alignas(128) _Atomic unsigned turn;

static void pin(int nth)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && nth-- == 0)
			CPU_SET(cpu, &one);
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void bounce(unsigned first)
{
	for (unsigned i = first; i < 2 * ROUNDS; i += 2) {
		while (atomic_load_explicit(&turn, memory_order_acquire) != i)
			;
		atomic_store_explicit(&turn, i + 1, memory_order_release);
	}
}

static void *other(void *arg)
{
	pin(1);
	bounce(1);
	return arg;
}

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void)
{
	cpu_set_t all;
	pthread_t thread;
	double start;

	sched_getaffinity(0, sizeof(all), &all);
	if (CPU_COUNT(&all) < 2 || pthread_create(&thread, NULL, other, NULL))
		return 0;
	pin(0);
	start = now_ns();
	bounce(0);
	pthread_join(thread, NULL);
	printf("%.0f\n", (now_ns() - start) / (2 * ROUNDS));
	return 0;
}
