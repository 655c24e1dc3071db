/* SPDX-License-Identifier: MIT */
#include "base/guard.h"

#include "base/guard_parts.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* they follow libc's jumps */
#include <setjmp.h>
typedef sigjmp_buf jump;
#define GUARD_HERE(j)  sigsetjmp(j, 0)
#define GUARD_THERE(j) siglongjmp(j, 1)
#else /* the compiler's: three words to store and no call */
typedef void *jump[5];
#define GUARD_HERE(j)  __builtin_setjmp(j)
#define GUARD_THERE(j) __builtin_longjmp(j, 1)
#endif
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * At a place fixed when the library is loaded: found by an addition and not by a call, twice for every copy.
 */
static __thread struct {
	jump *volatile to; /* where this thread goes when it faults now; NULL: not ours */
	bool sure;         /* it has looked at its signal mask */
	unsigned looks;
} self __attribute__((tls_model("initial-exec")));

void guard_doubt(void)
{
	self.sure = false;
}

void guard_catch(const siginfo_t *info)
{
	if (self.to && info->si_code > 0) /* or else sent by kill(): no fault of a copy's */
		GUARD_THERE(*self.to);
}

/* Past libc: the shim stands in front of its function, and would have us doubt again. */
static void unblock(void)
{
	static const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);

	syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &faults, NULL, sizeof(faults));
}

/* The handlers are looked at seldom: where the shim is, the program cannot take them away by libc. */
static __attribute__((noinline)) void make_sure(void)
{
	enum { HANDLERS_EVERY = 16 };

	unblock();
	if (self.looks++ % HANDLERS_EVERY == 0)
		guard_reinstall();
	self.sure = true;
}

bool guard_run(void (*fn)(void *arg), void *arg)
{
	jump here;
	bool ok;

	if (__builtin_expect(!self.sure, 0))
		make_sure();
	if (GUARD_HERE(here)) {
		ok = false;
	} else {
		self.to = &here;
		atomic_signal_fence(memory_order_seq_cst);
		fn(arg);
		ok = true;
	}
	atomic_signal_fence(memory_order_seq_cst);
	self.to = NULL;
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

/* The program may write there meanwhile, which is nobody's fault: what is read goes nowhere. */
__attribute__((no_sanitize("address", "thread"))) static void look_at_pages(void *arg)
{
	enum { PAGE = 4096 }; /* no page is smaller */
	const struct copy *c = arg;
	const volatile char *from = c->from;

	for (size_t at = 0; at < c->len; at += PAGE - ((uintptr_t)(from + at) % PAGE))
		(void)from[at];
}

bool guard_readable(const void *from, size_t len)
{
	struct copy c = {.from = from, .len = len};

	return guard_run(look_at_pages, &c);
}
