/* SPDX-License-Identifier: MIT */
/* What guard.c (a thread and its copies) and guard_handler.c (the process and its handlers) share. */
#ifndef BASE_GUARD_PARTS_H
#define BASE_GUARD_PARTS_H

#include <signal.h>

/* In our handler: does not return when a guarded copy of this thread faulted. */
void guard_catch(const siginfo_t *info);
/* guard_install(), unless nobody has asked for that yet. */
void guard_reinstall(void);

#endif
