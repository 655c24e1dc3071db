/* SPDX-License-Identifier: MIT */
/*
 * The program's signal handlers. They may call write() and select(), and leave by longjmp(): libc's sockets
 * do not mind. Ours hold locks meanwhile. So a handler never runs while its thread is inside one of our
 * calls: it waits until that is over, and the call, if it sleeps, ends with EINTR.
 */
#ifndef PRELOAD_SIGNALS_H
#define PRELOAD_SIGNALS_H

#include <signal.h>

extern _Thread_local volatile sig_atomic_t signals_depth __attribute__((tls_model("initial-exec")));
extern _Thread_local volatile sig_atomic_t signals_waiting __attribute__((tls_model("initial-exec")));

/* Lets in those that waited. */
void signals_let_in(void);

static inline int signals_enter(void)
{
	return (int)signals_depth++;
}

static inline void signals_leave(const int *depth)
{
	signals_depth = *depth;
	if (__builtin_expect(!*depth && signals_waiting, 0))
		signals_let_in();
}

/*
 * From here to the end of the block handlers wait. Not where the kernel may sleep and be restarted.
 * CANCEL_SAFE goes with it, but in calls that wait (tests/tree/check.py cancel): those are cancelled in
 * rpoll() and its kin, and there alone; what they hold is let go of by cleanup attributes, which need
 * -fexceptions.
 */
#define HANDLERS_WAIT                                                                                        \
	__attribute__((cleanup(signals_leave), unused)) const int handlers_wait = signals_enter()

#endif
