/* SPDX-License-Identifier: MIT */
#include "local/pages/freeze.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

static const uint64_t needed =
	UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;

/* What the kernel has of it; a descriptor can be asked only once. */
static uint64_t features_of(int flags)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);
	struct uffdio_api api = {.api = UFFD_API};

	if (fd < 0)
		return 0;
	if (ioctl(fd, UFFDIO_API, &api))
		api.features = 0;
	close(fd);
	return api.features & (needed | UFFD_FEATURE_WP_UNPOPULATED);
}

static int open_kind(struct freeze *f, int flags)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features_of(flags)};

	if ((api.features & needed) != needed)
		return api.features ? -EOPNOTSUPP : -EPERM;
	f->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);
	if (f->fd < 0)
		return -errno;
	f->guards_holes = api.features & UFFD_FEATURE_WP_UNPOPULATED;
	if (!ioctl(f->fd, UFFDIO_API, &api))
		return 0;
	freeze_close(f);
	return -EOPNOTSUPP;
}

int freeze_open(struct freeze *f)
{
	int err;

	f->fd = -1;
	f->broken = false;
	err = open_kind(f, 0);
	if (err)
		err = open_kind(f, UFFD_USER_MODE_ONLY);
	return err;
}

void freeze_close(struct freeze *f)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
}

static int hold_back(struct freeze *f, struct uffdio_range range, bool untouched)
{
	struct uffdio_register reg = {.range = range};
	struct uffdio_writeprotect wp = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	int err;

	if (untouched || !f->guards_holes)
		reg.mode |= UFFDIO_REGISTER_MODE_MISSING;
	if (!untouched)
		reg.mode |= UFFDIO_REGISTER_MODE_WP;
	if (ioctl(f->fd, UFFDIO_REGISTER, &reg))
		return -errno;
	if (untouched || !ioctl(f->fd, UFFDIO_WRITEPROTECT, &wp))
		return 0;
	err = -errno;
	ioctl(f->fd, UFFDIO_UNREGISTER, &range);
	return err;
}

int freeze_begin(struct freeze *f, void *at, size_t len, bool untouched)
{
	sigset_t all;
	int err = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &f->signals);
	if (f->broken)
		err = -EIO;
	else if (f->fd >= 0)
		err = hold_back(f, (struct uffdio_range){(uintptr_t)at, len}, untouched);
	if (err)
		pthread_sigmask(SIG_SETMASK, &f->signals, NULL);
	return err;
}

void freeze_end(struct freeze *f, void *at, size_t len, bool replaced)
{
	struct uffdio_range range = {(uintptr_t)at, len};

	/* Who waits for memory that is no more looks again at what is there now. */
	if (f->fd >= 0 && ioctl(f->fd, replaced ? UFFDIO_WAKE : UFFDIO_UNREGISTER, &range)) {
		freeze_close(f); /* frees all */
		f->broken = true;
	}
	pthread_sigmask(SIG_SETMASK, &f->signals, NULL);
}
