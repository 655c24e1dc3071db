/* SPDX-License-Identifier: MIT */
/*
 * A seed makes some places of the code slow, those that it draws: a delay is then met again and again at the
 * same step of a protocol between threads, and not spread thinly over all of them. Elsewhere a thread yields
 * or sleeps now and then. A place is known by its offset in the library, so a seed means the same every time.
 */
#include "base/chaos.h"
#include "base/random.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	SLOW_PLACES = 12,     /* one place in so many is slow */
	SLOW_ONE_IN = 6,      /* how often a thread is late there */
	ELSE_ONE_IN = 512,    /* and elsewhere */
	YIELDS = 6,           /* of 8 times that it is late it only yields, */
	SHORT = 7,            /* then sleeps for moments, */
	SHORT_NS = 50 * 1000, /* at most so long; else up to what the seed draws: */
	LONG_NS = 250 * 1000,
	LONG_TIMES = 16,
};

static uint64_t seed, longest;
static _Atomic uint64_t threads;
static __thread uint64_t state __attribute__((tls_model("initial-exec")));
static __thread int64_t began, slept; /* ns */

extern const char __ehdr_start __attribute__((visibility("hidden")));

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* Other constructors take locks before this has run: until then threads are never late. */
static void __attribute__((constructor)) chaos_begin(void)
{
	const char *given = getenv("ANYRDMA_CHAOS_SEED");
	uint64_t draw;

	seed = given ? strtoull(given, NULL, 0) : (uint32_t)now();
	if (!given)
		fprintf(stderr, "chaos: ANYRDMA_CHAOS_SEED=%llu\n", (unsigned long long)seed);
	draw = seed;
	longest = LONG_NS * (1 + random_seeded(&draw) % LONG_TIMES);
}

/* Half of its life at most: a test shall end. */
static void sleep_for(uint64_t ns)
{
	struct timespec t = {.tv_nsec = (long)ns};
	int64_t from = now();

	if (!began)
		began = from;
	if (slept > from - began + 20 * LONG_NS)
		return;
	syscall(SYS_nanosleep, &t, NULL);
	slept += 2 * (now() - from);
}

static bool is_slow(uintptr_t place)
{
	uint64_t h = seed ^ (place - (uintptr_t)&__ehdr_start);

	return !(random_seeded(&h) % SLOW_PLACES);
}

static void be_late(uint64_t draw)
{
	unsigned how = draw % 8;
	int err = errno;

	if (how < YIELDS)
		syscall(SYS_sched_yield);
	else
		sleep_for((draw >> 3) % (how < SHORT ? SHORT_NS : longest));
	errno = err;
}

static void pass(const void *place)
{
	uint64_t draw;

	if (!longest)
		return;
	if (!state)
		state = seed + (atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1) * 0x10001;
	draw = random_seeded(&state);
	if (!(draw % (is_slow((uintptr_t)place) ? SLOW_ONE_IN : ELSE_ONE_IN)))
		be_late(draw >> 16);
}

__attribute__((noinline)) void chaos(void)
{
	pass(__builtin_return_address(0));
}

/*
 * What the linker puts in front of a function of libc: late before and after. The arguments are passed on as
 * they lie in the registers, whatever they are.
 */
#define BEFORE(name)                                                                                         \
	long __real_##name(long, long, long, long, long, long, long);                                        \
	long __wrap_##name(long, long, long, long, long, long, long);                                        \
	long __wrap_##name(long a, long b, long c, long d, long e, long f, long g)                           \
	{                                                                                                    \
		long ret;                                                                                    \
                                                                                                             \
		pass(__builtin_return_address(0));                                                           \
		ret = __real_##name(a, b, c, d, e, f, g);                                                    \
		pass((char *)__builtin_return_address(0) + 1);                                               \
		return ret;                                                                                  \
	}

CHAOS_CALLS(BEFORE)
