/* SPDX-License-Identifier: MIT */
/* Child programs of `anyrdma demo`: started with their output kept, waited for with a deadline, and never
 * left behind. */
#ifndef TOOL_PROC_H
#define TOOL_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct proc {
	pid_t pid; /* 0 when it has ended */
	int out;   /* a file in memory with stdout and stderr */
	int status;
};

/* Ctrl-C and the like from now on only make proc_interrupted() true; who waits here comes back at once. */
void proc_catch_signals(void);
bool proc_interrupted(void);

/* Seconds on a clock that only goes forward. */
double proc_now(void);

/* Starts argv, with stdin from /dev/null. It dies with us. Returns 0 or -errno. */
int proc_start(struct proc *p, char *const argv[]);

/* Waits until it ends or the clock says `until`; calls tick() now and then. True when it has ended. */
bool proc_wait(struct proc *p, double until, void (*tick)(void));

/* Waits until some socket listens on the TCP port, the process ends, or `until`. True when it listens. */
bool proc_wait_listen(struct proc *p, int port, double until, void (*tick)(void));

/* Ends it by its own id if it still runs, and releases all. */
void proc_end(struct proc *p);

/* What it has written so far, as a string for the caller to free, or NULL. */
char *proc_output(const struct proc *p);

/* Ended by itself, with status 0. */
bool proc_succeeded(const struct proc *p);

/* A TCP port that is free now. Returns it or -errno. */
int proc_free_port(void);

#endif
