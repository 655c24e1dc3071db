/* SPDX-License-Identifier: MIT */
/* File descriptors that live in somebody else's process. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stddef.h>

/*
 * Takes a fresh descriptor, or -1 with errno, and returns it above 2: a program that was started with its
 * standard streams closed must not write its output into our sockets, nor close them with its input.
 */
int fd_above_stdio(int fd);
/* ftruncate() that fails with EFBIG where a program's RLIMIT_FSIZE ends, instead of killing it by SIGXFSZ. */
int fd_resize(int fd, size_t size);
/* What an errno means to the user, who can do something about EMFILE. */
const char *fd_reason(int err);

#endif
