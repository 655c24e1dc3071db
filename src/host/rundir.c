/* SPDX-License-Identifier: MIT */
/* Where the files that processes share and the sysfs-like tree live.
 *
 * The directory's name is all that two processes need to agree on, so it follows from what both know:
 * the user and the network namespace. Its safety rests on two checks: the top directory is ours and
 * nobody else may write to it, so nobody can put another thing in place of net-<inode>; and that one is
 * 0700. A user's own ANYRDMA_DIR may be readable by others, since nothing secret lies directly in it.
 *
 * This file is compiled into the path shim too, which stands in for stat() and open(): hence the bare
 * system calls and the hand-made string building, which a signal handler may also use. */
#include "host/rundir.h"

#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct text {
	char *buf;
	size_t len, at;
	bool full;
};

static void put_str(struct text *t, const char *s)
{
	size_t n = strlen(s);

	if (t->full || n >= t->len - t->at) {
		t->full = true;
		return;
	}
	memcpy(t->buf + t->at, s, n + 1);
	t->at += n;
}

static void put_num(struct text *t, uint64_t n)
{
	char digits[24], *p = digits + sizeof(digits) - 1;

	*p = '\0';
	do {
		*--p = '0' + n % 10;
		n /= 10;
	} while (n);
	put_str(t, p);
}

static int raw_statx(const char *path, int flags, struct statx *stx)
{
	return syscall(SYS_statx, AT_FDCWD, path, flags, STATX_TYPE | STATX_MODE | STATX_UID | STATX_INO, stx)
		       ? -errno
		       : 0;
}

/* A directory that is ours, no link, and with none of the forbidden permission bits. */
static int check_dir(const char *path, unsigned forbidden)
{
	struct statx stx;
	int err = raw_statx(path, AT_SYMLINK_NOFOLLOW, &stx);

	if (err)
		return err;
	if (!S_ISDIR(stx.stx_mode) || stx.stx_uid != geteuid() || stx.stx_mode & forbidden)
		return -EPERM;
	return 0;
}

static int make_dir(const char *path, unsigned forbidden, bool create)
{
	if (create && mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	return check_dir(path, forbidden);
}

/* t holds the top directory's path; the namespace's folder is added to it. */
static int open_below(struct text *t, bool create)
{
	struct statx ns;
	int err;

	if (t->full)
		return -ENAMETOOLONG;
	err = make_dir(t->buf, S_IWGRP | S_IWOTH, create);
	if (err)
		return err;
	err = raw_statx("/proc/self/ns/net", 0, &ns);
	if (err == -ENOENT && !raw_statx("/proc/self/ns", 0, &ns))
		ns.stx_ino = err = 0; /* a kernel without network namespaces: there is one */
	if (err)
		return err;
	put_str(t, "/net-");
	put_num(t, ns.stx_ino);
	if (t->full)
		return -ENAMETOOLONG;
	return make_dir(t->buf, S_IRWXG | S_IRWXO, create);
}

static int rundir(char *buf, size_t len, bool create)
{
	static const char *const tops[] = {"/dev/shm/anyrdma-", "/tmp/anyrdma-"};
	const char *env = env_text(ANYRDMA_DIR);
	int first = 0;

	if (!len)
		return -ENAMETOOLONG;
	if (env) {
		struct text t = {.buf = buf, .len = len};

		if (*env != '/')
			return -EINVAL;
		put_str(&t, env);
		return open_below(&t, create);
	}
	for (size_t i = 0; i < sizeof(tops) / sizeof(tops[0]); i++) {
		struct text t = {.buf = buf, .len = len};
		int err;

		put_str(&t, tops[i]);
		put_num(&t, geteuid());
		err = open_below(&t, create);
		if (!err)
			return 0;
		if (!first)
			first = err;
	}
	return first;
}

int host_rundir(char *buf, size_t len)
{
	return rundir(buf, len, true);
}

int host_rundir_find(char *buf, size_t len)
{
	return rundir(buf, len, false);
}
