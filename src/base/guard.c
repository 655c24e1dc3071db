/* SPDX-License-Identifier: MIT */
#include "base/guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction before[2];
/*
 * Where this thread goes when it faults now; NULL: not ours. At a place fixed when the library is loaded:
 * found by an addition and not by a call, twice for every copy.
 */
static __thread sigjmp_buf *volatile guarded __attribute__((tls_model("initial-exec")));
static __thread struct {
	siginfo_t *info;
	char *frame;
} passed; /* what this thread passed on last */

/* The instruction faults again when we return, with nobody in between: the usual core dump. */
static void give_up(int sig, const siginfo_t *info)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	sigaction(sig, &dfl, NULL);
	if (info->si_code <= 0)
		raise(sig); /* sent by kill(): nothing will fault again */
}

/*
 * The one before us may call the one before it, which may be us again: then we find the same siginfo deeper
 * on the stack. A handler that jumped out and a fault that came later look the same but for the depth.
 */
static bool comes_back(siginfo_t *info)
{
	char *frame = __builtin_frame_address(0);

	if (passed.info == info && frame < passed.frame)
		return true;
	passed.info = info;
	passed.frame = frame;
	return false;
}

static void pass_on(int sig, siginfo_t *info, void *uc)
{
	struct sigaction *old = &before[sig == SIGBUS];

	if (comes_back(info))
		give_up(sig, info);
	else if (old->sa_flags & SA_SIGINFO)
		old->sa_sigaction(sig, info, uc);
	else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN)
		old->sa_handler(sig);
	else
		give_up(sig, info);
}

static void on_fault(int sig, siginfo_t *info, void *uc)
{
	if (guarded)
		siglongjmp(*guarded, 1);
	pass_on(sig, info, uc);
}

void guard_install(void)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER},
			 now;

	for (int i = 0; i < 2; i++) {
		if (sigaction(signals[i], NULL, &now) ||
			((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault))
			continue;
		pthread_mutex_lock(&mutex);
		before[i] = now;
		sigaction(signals[i], &sa, NULL);
		pthread_mutex_unlock(&mutex);
	}
}

void guard_hold(void)
{
	pthread_mutex_lock(&mutex);
}

void guard_release(void)
{
	pthread_mutex_unlock(&mutex);
}

bool guard_run(void (*fn)(void *arg), void *arg)
{
	sigjmp_buf here;
	bool ok;

	if (sigsetjmp(here, 0)) {
		ok = false;
	} else {
		guarded = &here;
		atomic_signal_fence(memory_order_seq_cst);
		fn(arg);
		ok = true;
	}
	atomic_signal_fence(memory_order_seq_cst);
	guarded = NULL;
	return ok;
}

struct copy {
	void *to;
	const void *from;
	size_t len;
};

static void copy(void *arg)
{
	struct copy *c = arg;

	memcpy(c->to, c->from, c->len);
}

bool guard_copy(void *to, const void *from, size_t len)
{
	struct copy c = {to, from, len};

	return guard_run(copy, &c);
}
