/* SPDX-License-Identifier: MIT */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
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

/* Only a signal that came by this is taken: one that the program holds back itself stays. */
int fd_resize(int fd, size_t size)
{
	sigset_t one, before, pending;
	int err, status;

	sigemptyset(&one);
	sigaddset(&one, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &one, &before);
	sigpending(&pending);
	status = ftruncate(fd, (off_t)size);
	err = errno;
	if (status && err == EFBIG && !sigismember(&pending, SIGXFSZ))
		sigtimedwait(&one, NULL, &(struct timespec){0});
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = err;
	return status;
}

const char *fd_reason(int err)
{
	if (err == EFBIG)
		return "this process may not make files of that length: raise `ulimit -f`";
	return err == EMFILE ? "this process may not open more files: raise `ulimit -n`" : strerror(err);
}
