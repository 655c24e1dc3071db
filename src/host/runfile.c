/* SPDX-License-Identifier: MIT */
#include "host/runfile.h"

#include "base/fd.h"
#include "host/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int path_of(const struct runfile *f, char path[256])
{
	int err = host_rundir(path, 256 - sizeof(f->name) - 1);

	if (!err)
		snprintf(path + strlen(path), sizeof(f->name) + 1, "/%s", f->name);
	return err;
}

/* Nothing but a file: links are not followed, a FIFO or a directory is refused. */
static int open_path(const char *path, size_t room)
{
	int fd = fd_above_stdio(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
	struct stat st;
	int err;

	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
	if (!err)
		err = -posix_fallocate(fd, 0, (off_t)room);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int runfile_open(struct runfile *f, const char *name, size_t room)
{
	char path[256];
	int err;

	snprintf(f->name, sizeof(f->name), "%s", name);
	f->fd = -1;
	err = path_of(f, path);
	if (err)
		return err;
	f->fd = open_path(path, room);
	return f->fd < 0 ? f->fd : 0;
}

void runfile_close(struct runfile *f)
{
	if (f->fd >= 0)
		close(fd_take(&f->fd));
}

bool runfile_renew(struct runfile *f, size_t room)
{
	struct stat mine, there;
	char path[256];
	int fd;

	if (path_of(f, path) || fstat(f->fd, &mine))
		return false; /* go on with what we have */
	if (!lstat(path, &there) && there.st_dev == mine.st_dev && there.st_ino == mine.st_ino)
		return false;
	fd = open_path(path, room);
	if (fd < 0)
		return false;
	/* In one step: other threads read from that number. */
	dup3(fd, f->fd, O_CLOEXEC);
	close(fd);
	return true;
}

size_t runfile_read(const struct runfile *f, size_t at, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(f->fd, (uint8_t *)buf + got, len - got, (off_t)(at + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	memset((uint8_t *)buf + got, 0, len - got);
	return got;
}

int runfile_write(const struct runfile *f, size_t at, const void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(f->fd, (const uint8_t *)buf + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}
