/* SPDX-License-Identifier: MIT */
/*
 * The process's handler of SIGSEGV and SIGBUS is ours, and the program's behind it: what sigaction() said
 * when we came, or what the program has said since, through the shim. A fault that is not a guarded copy's is
 * passed on as the kernel would have done: mask, one-shot handlers, the default action.
 */
#include "base/guard.h"

#include "base/guard_parts.h"

#include <pthread.h>
#include <stdatomic.h>

enum { NSIGNALS = 2 };
static const int signals[NSIGNALS] = {SIGSEGV, SIGBUS};

/* Written under the mutex and with signals blocked; a handler may read meanwhile, and reads the other one. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct sigaction action[2]; /* the program's */
	_Atomic unsigned current;   /* which */
	_Atomic bool ours;          /* our handler is in place */
} behind[NSIGNALS];

/* Our own calls of sigaction() come by the shim too; volatile, since the compiler takes libc's not to call
 * us. */
static __thread volatile bool inside __attribute__((tls_model("initial-exec")));
static __thread struct {
	siginfo_t *info;
	char *frame;
} passed; /* what this thread passed on last */

static int index_of(int sig)
{
	return sig == SIGSEGV ? 0 : sig == SIGBUS ? 1 : -1;
}

static struct sigaction program_action(int i)
{
	return behind[i].action[atomic_load_explicit(&behind[i].current, memory_order_acquire)];
}

/* mutex held */
static void set_program_action(int i, const struct sigaction *act)
{
	unsigned next = !atomic_load_explicit(&behind[i].current, memory_order_relaxed);

	behind[i].action[next] = *act;
	atomic_store_explicit(&behind[i].current, next, memory_order_release);
}

static int real_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	bool was = inside;
	int err;

	inside = true;
	err = sigaction(sig, act, old);
	inside = was;
	return err;
}

/* No handler of this thread's waits for a lock that the thread holds. */
static void enter(sigset_t *mask)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, mask);
	pthread_mutex_lock(&mutex);
}

static void leave(const sigset_t *mask)
{
	pthread_mutex_unlock(&mutex);
	pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/* ---- faults that are not ours ---- */
/* The instruction faults again when we return, with nobody in between: the usual core dump. */
static void give_up(int sig, const siginfo_t *info)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	real_sigaction(sig, &dfl, NULL);
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

static void reset(int i)
{
	static const struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t mask;

	enter(&mask);
	set_program_action(i, &dfl);
	leave(&mask);
}

/* With the mask the kernel would have given it; our return, or its siglongjmp(), takes that away again. */
static void call(int sig, siginfo_t *info, void *uc, const struct sigaction *a)
{
	sigset_t block = a->sa_mask;

	if (!(a->sa_flags & SA_NODEFER))
		sigaddset(&block, sig);
	if (a->sa_flags & (int)SA_RESETHAND)
		reset(index_of(sig));
	pthread_sigmask(SIG_BLOCK, &block, NULL);
	guard_doubt();
	if (a->sa_flags & SA_SIGINFO)
		a->sa_sigaction(sig, info, uc);
	else
		a->sa_handler(sig);
}

static void on_fault(int sig, siginfo_t *info, void *uc)
{
	struct sigaction a;

	guard_catch(info);
	a = program_action(index_of(sig));
	if (a.sa_handler == SIG_IGN && info->si_code <= 0)
		return;
	if (a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN || comes_back(info))
		give_up(sig, info);
	else
		call(sig, info, uc, &a);
}

/* ---- in front ---- */
static bool is_ours(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_fault;
}

/* mutex held */
static void put_in_front(int i)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER},
			 now;

	if (real_sigaction(signals[i], NULL, &now) || is_ours(&now))
		return;
	set_program_action(i, &now);
	real_sigaction(signals[i], &sa, NULL);
	atomic_store(&behind[i].ours, true);
}

void guard_install(void)
{
	struct sigaction now;
	sigset_t mask;

	for (int i = 0; i < NSIGNALS; i++) {
		if (real_sigaction(signals[i], NULL, &now) || is_ours(&now))
			continue;
		enter(&mask);
		put_in_front(i);
		leave(&mask);
	}
}

void guard_reinstall(void)
{
	if (atomic_load_explicit(&behind[0].ours, memory_order_relaxed))
		guard_install();
}

int guard_sigaction(guard_sigaction_fn *next, int sig, const struct sigaction *act, struct sigaction *old)
{
	int i = index_of(sig);
	struct sigaction new, was;
	sigset_t mask;

	if (i < 0 || inside || !atomic_load(&behind[i].ours))
		return next(sig, act, old);
	if (act)
		new = *act;
	enter(&mask);
	put_in_front(i); /* somebody may have come by another way */
	was = program_action(i);
	if (act)
		set_program_action(i, &new);
	leave(&mask);
	if (old)
		*old = was;
	return 0;
}

void guard_hold(void)
{
	pthread_mutex_lock(&mutex);
}

void guard_release(void)
{
	pthread_mutex_unlock(&mutex);
}
