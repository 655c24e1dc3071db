/* SPDX-License-Identifier: MIT */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int fd_above_stdio(int fd)
{
	int high, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	close(fd);
	errno = err;
	return high;
}

const char *fd_reason(int err)
{
	return err == EMFILE ? "this process may not open more files: raise `ulimit -n`" : strerror(err);
}
