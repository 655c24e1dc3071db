/* SPDX-License-Identifier: MIT */
/*
 * Touching memory that may not be there. A program may unmap a buffer and forget that it is registered; with
 * a real card nothing happens, since the card holds the pages. Here the copy would fault, so copies to and
 * from the program's memory are guarded: a fault inside one ends it and is reported, any other fault goes
 * to whoever handled it before.
 */
#ifndef BASE_GUARD_H
#define BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Puts our handler for SIGSEGV and SIGBUS in front of what is there, unless it is there already. Called with
 * every registration: programs install handlers of their own when they start.
 */
void guard_install(void);
/* Around fork: nobody is installing meanwhile. */
void guard_hold(void);
void guard_release(void);
/* Runs fn(arg); false when it touched memory that is not there. Guards do not nest. */
bool guard_run(void (*fn)(void *arg), void *arg);
bool guard_copy(void *to, const void *from, size_t len);

#endif
