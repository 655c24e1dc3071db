/* SPDX-License-Identifier: MIT */
#include "base/memfile.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int memfile_make(const char *name, size_t size)
{
	int fd = fd_above_stdio(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	int err;

	if (fd < 0)
		return -errno;
	if (!fd_resize(fd, size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int memfile_read_only(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) ? -errno : 0;
}

void *memfile_map(int fd, size_t size, int prot, void *at)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	void *p;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size != (off_t)size)
		return NULL;
	/* The kernel would refuse it, and may have cleared the place by then. */
	if ((prot & PROT_WRITE) && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return NULL;
	p = mmap(at, size, prot, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK); /* a child has no part in it */
	return p;
}

void memfile_vacate(void *at, size_t size)
{
	mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		0);
	madvise(at, size, MADV_DONTFORK);
}
