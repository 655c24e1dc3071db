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
/*
 * The descriptor, which is then nobody's: close(fd_take(&x->fd)). It is forgotten before its number is free,
 * since a child closes what it finds here (hca/fork.c), and the program may have opened another file there.
 */
static inline int fd_take(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* What an errno means to the user, who can do something about EMFILE. */
const char *fd_reason(int err);

#endif
