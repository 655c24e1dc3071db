/* SPDX-License-Identifier: MIT */
/*
 * Verbs that ask nothing of an adapter.
 */
#include "base/cancel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <infiniband/verbs.h>

/* Not in rdma-core's public headers. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

/* Registered memory is never pinned for a device's sake, so fork() does it no harm. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

/*
 * Reads dir/file into buf as a string without its final newline. Returns its length, or -1 with errno set,
 * also when it does not fit.
 */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	CANCEL_SAFE;
	char path[4096];
	int len = snprintf(path, sizeof(path), "%s/%s", dir, file);

	if (len < 0 || (size_t)len >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t got = read(fd, buf, size);
	int error = errno;
	close(fd);
	if (got < 0) {
		errno = error;
		return -1;
	}
	if (got > 0 && buf[got - 1] == '\n')
		got--;
	if ((size_t)got >= size) {
		errno = EOVERFLOW;
		return -1;
	}
	buf[got] = '\0';
	return got;
}
