/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ENOUGH_FIRST = 128, ENOUGH_MOST = 1 << 14 };
enum { LONG_NS = 1000000, STAND_BACK_NS = 50000, STAND_BACK_TIMES = 200 };

__thread char lock_self __attribute__((tls_model("initial-exec")));

static bool membarrier(int cmd)
{
	return !syscall(SYS_membarrier, cmd, 0, 0);
}

/* The kernel must be able to revoke it. */
static bool can_be_biased(void)
{
#ifdef __SANITIZE_THREAD__ /* sees no barrier that the kernel runs */
	return false;
#else
	static _Atomic int known; /* 0: not tried */
	int k = atomic_load_explicit(&known, memory_order_relaxed);

	if (!k) {
		k = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) ? 1 : -1;
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k > 0;
#endif
}

/*
 * Tried when the library is loaded, by a process that has one thread as a rule. With more the kernel waits
 * for a grace period: ten milliseconds, or seconds beside programs that spin, under a lock that packets need.
 */
static void __attribute__((constructor)) register_early(void)
{
	can_be_biased();
}

void lock_init(struct lock *l)
{
	pthread_mutexattr_t a;

	*l = (struct lock){.enough = ENOUGH_FIRST};
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&l->m, &a);
	pthread_mutexattr_destroy(&a);
}

void lock_init_unbiased(struct lock *l)
{
	lock_init(l);
	l->never_biased = true;
}

static void taken_again(void *l)
{
	LOCK_TAKEN((struct lock *)l);
}

/* Who is cancelled there has the lock, too. */
void lock_wait(struct lock *l, pthread_cond_t *cond)
{
	LOCK_DROPS(l);
	pthread_cleanup_push(taken_again, l);
	pthread_cond_wait(cond, &l->m);
	pthread_cleanup_pop(1);
}

void lock_fini(struct lock *l)
{
	pthread_mutex_destroy(&l->m);
}

/* The mutex is ours. From now on the thread it was biased to finds that it is not, or is seen to be inside.
 */
static void revoke_bias(struct lock *l)
{
	if (!atomic_load_explicit(&l->biased_to, memory_order_relaxed))
		return;
	atomic_store_explicit(&l->biased_to, 0, memory_order_relaxed);
	while (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); /* a child of fork() may have to */
	l->enough = l->enough < ENOUGH_MOST ? l->enough * 2 : ENOUGH_MOST;
}

static bool somebody_inside(struct lock *l)
{
	return atomic_load_explicit(&l->inside, memory_order_acquire);
}

static void entered(struct lock *l)
{
	uintptr_t self = (uintptr_t)&lock_self;

	l->by_bias = false;
	if (l->revoked == self)
		l->revoked = 0;
	l->streak = l->last == self ? l->streak + 1 : 0;
	l->last = self;
	if (l->streak < l->enough || l->never_biased || l->revoked)
		return;
	l->streak = 0;
	if (can_be_biased()) {
		l->revoked = self;
		atomic_store_explicit(&l->biased_to, self, memory_order_relaxed);
	}
}

static bool somebody_starves(struct lock *l)
{
	return atomic_load_explicit(&l->starving, memory_order_relaxed);
}

/* Not for ever: it may be a thread that a child of fork() lacks. */
static void stand_back(struct lock *l)
{
	struct timespec ts = {.tv_nsec = STAND_BACK_NS};

	for (int n = 0; n < STAND_BACK_TIMES && somebody_starves(l); n++)
		syscall(SYS_nanosleep, &ts, NULL); /* nanosleep() is a cancellation point */
	atomic_store_explicit(&l->starving, false, memory_order_relaxed);
}

static int take_within(struct lock *l, long ns)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += ns;
	if (at.tv_nsec >= 1000000000) {
		at.tv_nsec -= 1000000000;
		at.tv_sec++;
	}
	return pthread_mutex_timedlock(&l->m, &at);
}

/* Of several that starve, the first that gets it says that none does; the others say again that they do. */
static void take_in_turn(struct lock *l)
{
	bool starved = false;

	if (somebody_starves(l))
		stand_back(l);
	if (!pthread_mutex_trylock(&l->m))
		return;
	while (take_within(l, LONG_NS)) {
		starved = true;
		atomic_store_explicit(&l->starving, true, memory_order_relaxed);
	}
	if (starved)
		atomic_store_explicit(&l->starving, false, memory_order_relaxed);
}

void lock_take_mutex(struct lock *l)
{
	take_in_turn(l);
	revoke_bias(l);
	for (unsigned n = 0; somebody_inside(l); n++) {
		if (n > 100)
			sched_yield();
	}
	entered(l);
}

bool lock_try_mutex(struct lock *l)
{
	if (atomic_load_explicit(&l->biased_to, memory_order_relaxed) && somebody_inside(l))
		return false;
	if (somebody_starves(l) || pthread_mutex_trylock(&l->m))
		return false;
	revoke_bias(l);
	if (somebody_inside(l)) {
		pthread_mutex_unlock(&l->m);
		return false;
	}
	entered(l);
	return true;
}
