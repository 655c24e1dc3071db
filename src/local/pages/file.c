/* SPDX-License-Identifier: MIT */
#include "local/pages/file.h"

#include "base/fd.h"
#include "local/pages/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All under the lock of share.c. */
static int file = -1;
static uint64_t dev, inode;
static uint64_t next;

static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/* A limit on the size of files would end the process by a signal. */
static bool may_be_long(void)
{
	struct rlimit r;

	return !getrlimit(RLIMIT_FSIZE, &r) && r.rlim_cur == RLIM_INFINITY;
}

static int make(void)
{
	struct stat st;
	int fd, err;

	if (!may_be_long())
		return -EFBIG;
	fd = fd_above_stdio(memfd_create("anyrdma-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	if (fd_resize(fd, MEMORY_SIZE) || fcntl(fd, F_ADD_SEALS, seals) || fstat(fd, &st)) {
		err = -errno;
		close(fd);
		return err;
	}
	dev = st.st_dev;
	inode = st.st_ino;
	next = 0;
	return file = fd;
}

int memory_file(void)
{
	return file >= 0 ? file : make();
}

bool memory_has(const struct area *a)
{
	return file >= 0 && a->inode == inode && a->dev == dev;
}

uint64_t memory_part(size_t len)
{
	uint64_t off = next;

	next += 2 * (uint64_t)len;
	return off;
}

bool memory_is_hole(uint64_t off, size_t len)
{
	off_t data = lseek(file, (off_t)off, SEEK_DATA);

	return data < 0 ? errno == ENXIO : (uint64_t)data >= off + len;
}

/* By the bare call: sanitizers look at what the C library's reads, which is not for them here. */
int memory_put(uint64_t off, const void *from, size_t len)
{
	while (len) {
		ssize_t n = syscall(SYS_pwrite64, file, from, len, (off_t)off);

		if (n <= 0)
			return n ? -errno : -EIO;
		off += (uint64_t)n;
		from = (const char *)from + n;
		len -= (size_t)n;
	}
	return 0;
}

/*
 * Holes are left out, since reading them would make pages of zeroes. Where a hole begins the kernel would
 * tell, but it looks for it beyond what we ask about: we go on in growing steps instead.
 */
int memory_get(uint64_t off, void *to, size_t len)
{
	uint64_t at = off, end = off + len;
	size_t step = MEMORY_PAGE;

	while (at < end) {
		off_t data = lseek(file, (off_t)at, SEEK_DATA);
		ssize_t n;

		if (data < 0 || (uint64_t)data >= end)
			break;
		step = (uint64_t)data == at ? 2 * step : MEMORY_PAGE;
		at = (uint64_t)data;
		n = pread(file, (char *)to + (at - off), step < end - at ? step : end - at, data);
		if (n <= 0)
			return n ? -errno : -EIO;
		at += (uint64_t)n;
	}
	return 0;
}

void memory_punch(uint64_t off, size_t len)
{
	(void)!fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
}

void memory_forget(void)
{
	if (file >= 0)
		close(file);
	file = -1;
}
