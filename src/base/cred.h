/* SPDX-License-Identifier: MIT */
/* Whether a process that the kernel names to us is of our own user. */
#ifndef BASE_CRED_H
#define BASE_CRED_H

#include <stdbool.h>
#include <sys/socket.h>

bool user_is_us(const struct ucred *cred);

#endif
