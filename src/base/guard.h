/* SPDX-License-Identifier: MIT */
/*
 * Touching memory that may not be there. A program may unmap a buffer and forget that it is registered; with
 * a real card nothing happens, since the card holds the pages. Here the copy would fault, so copies to and
 * from the program's memory are guarded: a fault inside one ends it and is reported, any other fault goes
 * to the program's own handler, or kills as ever.
 *
 * The kernel does not ask a handler when the faulting thread blocks the signal: it kills. So a thread that
 * runs a guarded copy has SIGSEGV and SIGBUS unblocked, for good: it costs the program nothing, since the
 * signals of a fault cannot be held back anyway. A system call before each copy would cost as much as a small
 * message, so a thread looks at its mask when it has reason to doubt it (guard_doubt).
 */
#ifndef BASE_GUARD_H
#define BASE_GUARD_H

#include "base/export.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Puts our handler for SIGSEGV and SIGBUS in front of what is there, unless it is there already. Called with
 * every registration, since programs install handlers of their own when they start, and now and then by those
 * who run guarded copies.
 */
void guard_install(void);
/* Around fork: nobody is installing meanwhile. */
void guard_hold(void);
void guard_release(void);

/*
 * This thread's signal mask may have changed since its last guarded copy: the next one makes sure. Free
 * unless a copy follows. May be called in a signal handler. The shim calls it when the program changes its
 * mask. For changes it does not see (a bare system call, a program without the shim) we call it where a
 * thread has made a system call anyway: with what came from a socket, after a wait, after polling in vain;
 * and now and then.
 */
EXPORTED void guard_doubt(void);
/*
 * The program's sigaction(), as the shim sees it; `next` is libc's. Where our handler is in place it stays
 * there: what the program sets is what ours passes faults on to, and what the program is told of.
 */
typedef int guard_sigaction_fn(int sig, const struct sigaction *act, struct sigaction *old);
EXPORTED int guard_sigaction(
	guard_sigaction_fn *next, int sig, const struct sigaction *act, struct sigaction *old);

/* Runs fn(arg); false when it touched memory that is not there. Guards do not nest. */
bool guard_run(void (*fn)(void *arg), void *arg);
bool guard_copy(void *to, const void *from, size_t len);
/* Whether all of it can be read just now: a look at each page, for who passes it on to be read later. */
bool guard_readable(const void *from, size_t len);

#endif
