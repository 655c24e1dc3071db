/* SPDX-License-Identifier: MIT */
/* The shim in front of signal masks and handlers: what the guard (base/guard.h) has to hear of.
 *
 * A guarded copy needs SIGSEGV and SIGBUS unblocked in its thread and our handler in its place. The program
 * may change the first by any of the functions below and the second by sigaction() and signal(). Masks: the
 * call goes through as it is, and the guard is told to look again before its next copy. Handlers: the guard
 * keeps its place, and the program reads back what it set.
 *
 * As in path.c: no state, no lock, nothing that a signal handler may not do. Where libibverbs is not loaded
 * (another program of ours in the same environment) all goes through. */
#include "base/guard.h"
#include "shim/next.h"

#include <errno.h>
#include <setjmp.h>
#include <ucontext.h>

static __typeof__(guard_doubt) *doubt;
static __typeof__(guard_sigaction) *act_guarded;

static void tell(void)
{
	if (doubt)
		doubt();
}

/* ---- masks ---- */
/* Before and behind the call: a context that is left here may go on in another place, and one that was left
 * comes back here. */
#define MASK_FUNCTIONS(X)                                                                                    \
	X(pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))                   \
	X(sigprocmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))                       \
	X(sigblock, (int mask), (mask))                                                                      \
	X(sigsetmask, (int mask), (mask))                                                                    \
	X(sighold, (int sig), (sig))                                                                         \
	X(setcontext, (const ucontext_t *to), (to))                                                          \
	X(swapcontext, (ucontext_t * from, const ucontext_t *to), (from, to))

/* The names are given in assembler so that no prototype or attribute of a header gets between. */
#define DEFINE_MASK(name, params, args)                                                                      \
	static int(*next_##name) params;                                                                     \
	EXPORT int shim_##name params __asm__(#name);                                                        \
	EXPORT int shim_##name params                                                                        \
	{                                                                                                    \
		int result;                                                                                  \
                                                                                                             \
		if (!NEXT(name)) {                                                                           \
			errno = ENOSYS;                                                                      \
			return -1;                                                                           \
		}                                                                                            \
		tell();                                                                                      \
		result = NEXT(name) args;                                                                    \
		tell();                                                                                      \
		return result;                                                                               \
	}
MASK_FUNCTIONS(DEFINE_MASK)

/* Back to where a mask was saved, perhaps. */
#define JUMP_FUNCTIONS(X)                                                                                    \
	X(longjmp)                                                                                           \
	X(_longjmp)                                                                                          \
	X(siglongjmp)                                                                                        \
	X(__longjmp_chk)

#define DEFINE_JUMP(name)                                                                                    \
	static __attribute__((noreturn)) void (*next_##name)(void *env, int value);                          \
	EXPORT __attribute__((noreturn)) void shim_##name(void *env, int value) __asm__(#name);              \
	EXPORT __attribute__((noreturn)) void shim_##name(void *env, int value)                              \
	{                                                                                                    \
		tell();                                                                                      \
		NEXT(name)(env, value);                                                                      \
	}
JUMP_FUNCTIONS(DEFINE_JUMP)

/* ---- handlers ---- */
static guard_sigaction_fn *next_sigaction;

EXPORT int shim_sigaction(int sig, const struct sigaction *act, struct sigaction *old) __asm__("sigaction");
EXPORT int shim_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return act_guarded ? act_guarded(NEXT(sigaction), sig, act, old) : NEXT(sigaction)(sig, act, old);
}

typedef void handler(int sig);

static handler *set_handler(int sig, handler *h, int flags)
{
	struct sigaction act = {.sa_handler = h, .sa_flags = flags}, old;

	if (!(flags & SA_NODEFER))
		sigaddset(&act.sa_mask, sig);
	return shim_sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

/* For all but the two signals libc's own, which also knows of siginterrupt(). */
#define SIGNAL_FUNCTIONS(X)                                                                                  \
	X(signal, SA_RESTART)                                                                                \
	X(bsd_signal, SA_RESTART)                                                                            \
	X(ssignal, SA_RESTART)                                                                               \
	X(sysv_signal, (int)SA_RESETHAND | SA_NODEFER)                                                       \
	X(__sysv_signal, (int)SA_RESETHAND | SA_NODEFER)

#define DEFINE_SIGNAL(name, flags)                                                                           \
	static handler *(*next_##name)(int sig, handler *h);                                                 \
	EXPORT handler *shim_##name(int sig, handler *h) __asm__(#name);                                     \
	EXPORT handler *shim_##name(int sig, handler *h)                                                     \
	{                                                                                                    \
		if (sig == SIGSEGV || sig == SIGBUS || !NEXT(name))                                          \
			return set_handler(sig, h, flags);                                                   \
		return NEXT(name)(sig, h);                                                                   \
	}
SIGNAL_FUNCTIONS(DEFINE_SIGNAL)

#define RESOLVE_MASK(name, params, args) (void)NEXT(name);
#define RESOLVE_JUMP(name)               (void)NEXT(name);
#define RESOLVE_SIGNAL(name, flags)      (void)NEXT(name);

/* By version: what else a program calls so is not ours. */
__attribute__((constructor)) static void shim_signal_init(void)
{
	MASK_FUNCTIONS(RESOLVE_MASK)
	JUMP_FUNCTIONS(RESOLVE_JUMP)
	SIGNAL_FUNCTIONS(RESOLVE_SIGNAL)
	(void)NEXT(sigaction);
	act_guarded = (__typeof__(act_guarded))dlvsym(RTLD_DEFAULT, "guard_sigaction", "ANYRDMA_PRIVATE");
	doubt = (__typeof__(doubt))dlvsym(RTLD_DEFAULT, "guard_doubt", "ANYRDMA_PRIVATE");
}
