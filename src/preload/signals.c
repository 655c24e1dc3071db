/* SPDX-License-Identifier: MIT */
#include "preload/signals.h"

#include "base/export.h"
#include "preload/file.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void handler(int sig, siginfo_t *info, void *context);

/* What the program wants: kept here, while the kernel knows arrive() for all of them. */
static _Atomic(handler *) wanted[NSIG];
static _Atomic int wanted_flags[NSIG];

_Thread_local volatile sig_atomic_t signals_depth __attribute__((tls_model("initial-exec")));
_Thread_local volatile sig_atomic_t signals_waiting __attribute__((tls_model("initial-exec")));
static _Thread_local siginfo_t waiting[NSIG] __attribute__((tls_model("initial-exec")));

/* Those of a mistake in the very instruction cannot wait. */
static bool can_wait(int sig)
{
	return sig > 0 && sig < NSIG && sig != SIGSEGV && sig != SIGBUS && sig != SIGFPE && sig != SIGILL &&
	       sig != SIGTRAP && sig != SIGSYS && sig != SIGABRT;
}

static void arrive(int sig, siginfo_t *info, void *context)
{
	const struct sigaction plain = {.sa_handler = SIG_DFL};
	handler *h = atomic_load(&wanted[sig]);

	if (signals_depth) {
		waiting[sig] = *info;
		waiting[sig].si_signo = sig;
		signals_waiting = 1;
		return;
	}
	if (atomic_load(&wanted_flags[sig]) & SA_RESETHAND)
		real()->sigaction(sig, &plain, NULL);
	if (h)
		h(sig, info, context);
}

/* Sent once more, to this thread: the kernel then does with masks and stacks as the program asked. */
void signals_let_in(void)
{
	int error = errno;

	signals_waiting = 0;
	for (int sig = 1; sig < NSIG; sig++) {
		siginfo_t info = waiting[sig];

		if (!info.si_signo)
			continue;
		waiting[sig].si_signo = 0;
		errno = error;
		syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, &info);
	}
	errno = error;
}

static bool is_handler(const struct sigaction *a)
{
	return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN;
}

static int set_action(int sig, const struct sigaction *act, struct sigaction *old)
{
	handler *before = atomic_load(&wanted[sig]);
	int flags = atomic_load(&wanted_flags[sig]), result;
	struct sigaction ours, was;

	if (act && is_handler(act)) {
		ours = *act;
		ours.sa_sigaction = arrive;
		ours.sa_flags = (act->sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND;
		atomic_store(&wanted_flags[sig], act->sa_flags);
		atomic_store(&wanted[sig], act->sa_sigaction);
		act = &ours;
	}
	result = real()->sigaction(sig, act, &was);
	if (result == 0 && old) {
		*old = was;
		if (was.sa_flags & SA_SIGINFO && was.sa_sigaction == arrive) {
			old->sa_sigaction = before;
			old->sa_flags = flags;
		}
	}
	return result;
}

EXPORTED int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return can_wait(sig) ? set_action(sig, act, old) : real()->sigaction(sig, act, old);
}

static sighandler_t set_handler(int sig, sighandler_t h, int flags)
{
	struct sigaction act = {.sa_handler = h, .sa_flags = flags}, old;

	if (!(flags & SA_NODEFER))
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

EXPORTED sighandler_t signal(int sig, sighandler_t h)
{
	return set_handler(sig, h, SA_RESTART);
}

EXPORTED sighandler_t bsd_signal(int sig, sighandler_t h);
EXPORTED sighandler_t bsd_signal(int sig, sighandler_t h)
{
	return set_handler(sig, h, SA_RESTART);
}

EXPORTED sighandler_t sysv_signal(int sig, sighandler_t h)
{
	return set_handler(sig, h, SA_RESETHAND | SA_NODEFER);
}

EXPORTED sighandler_t __sysv_signal(int sig, sighandler_t h);
EXPORTED sighandler_t __sysv_signal(int sig, sighandler_t h)
{
	return sysv_signal(sig, h);
}
