/* SPDX-License-Identifier: MIT */
/* In the place of socket.c: nobody can connect, and who accepts gets the descriptor that the test has set. */
#ifndef FABRICD_SOCKETS_TEST_H
#define FABRICD_SOCKETS_TEST_H

#include "fabricd/fabricd.h"

#include <errno.h>
#include <sys/socket.h>

static int coming = -1; /* the fabric's end of a new connection */

int fabricd_listen(struct fabricd *f, const char *name, int type)
{
	return socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int fabricd_accept(int listener)
{
	int fd = coming;

	coming = -1;
	return fd < 0 ? -EAGAIN : fd;
}

#endif
