/* SPDX-License-Identifier: MIT */
/* Socket options. The kernel's socket takes all of them; those that mean something to an rsocket go there
 * too. */
#ifndef PRELOAD_OPTION_H
#define PRELOAD_OPTION_H

#include "preload/sock.h"

/* The options that the program set on fd, for an rsocket that is new. */
void option_copy(int fd, const struct sock *s, int rs);

#endif
