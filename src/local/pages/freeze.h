/* SPDX-License-Identifier: MIT */
/*
 * Holding back all who would change a stretch of memory, for the moment in which it changes hands, by
 * userfaultfd(2): whoever writes there waits in its page fault. Of memory that nobody has touched yet, also
 * whoever reads.
 *
 * What an ordinary user gets from the kernel holds back programs, but not the kernel itself: a system call of
 * another thread that writes there at this very moment fails with EFAULT. As root it waits like the others.
 *
 * Between begin and end the caller must not write there either, so it runs without signals, and not on such
 * a stack.
 */
#ifndef LOCAL_PAGES_FREEZE_H
#define LOCAL_PAGES_FREEZE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct freeze {
	int fd; /* -1: not open, and nobody is held back */
	bool broken;
	bool guards_holes; /* write protection also holds for pages that are not there yet (Linux 6.4) */
	sigset_t signals;
};

/* 0, or -errno when the kernel does not let us hold anybody back; all else works then, and holds nobody. */
int freeze_open(struct freeze *f);
void freeze_close(struct freeze *f);

/* 0 or -errno. `untouched`: there are no pages yet, only holes. */
int freeze_begin(struct freeze *f, void *at, size_t len, bool untouched);
/* All go on. `replaced`: with what the caller has mapped over it. */
void freeze_end(struct freeze *f, void *at, size_t len, bool replaced);

#endif
