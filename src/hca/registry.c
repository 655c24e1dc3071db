/* SPDX-License-Identifier: MIT */
#include "hca/registry.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct hca_registry {
	int fd;
	char path[256];
	struct hca_registry_file *file;
	struct lock lock; /* guards which records are in use */
	uint32_t free_hint;
};

/* ---- names ---- */
void hca_registry_name(char *buf, size_t len, uint32_t slot, uint32_t pid)
{
	snprintf(buf, len, "adapter-%u-%u", slot, pid);
}

/* Decimal digits as printf writes them; NULL: none, or too many. */
static const char *parse_number(const char *s, uint32_t *n)
{
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9' && v <= UINT32_MAX; p++)
		v = v * 10 + (uint64_t)(*p - '0');
	if (p == s || v > UINT32_MAX || (*s == '0' && p != s + 1))
		return NULL;
	*n = (uint32_t)v;
	return p;
}

bool hca_registry_name_parse(const char *name, uint32_t *slot, uint32_t *pid)
{
	static const char prefix[] = "adapter-";

	if (strncmp(name, prefix, sizeof(prefix) - 1))
		return false;
	name = parse_number(name + sizeof(prefix) - 1, slot);
	if (!name || *name++ != '-')
		return false;
	name = parse_number(name, pid);
	return name && !*name;
}

/* One in the making is not locked at first; that takes no minute. */
static bool is_old(int fd)
{
	enum { MINUTE = 60 };
	struct stat st;

	return !fstat(fd, &st) && time(NULL) - st.st_mtime > MINUTE;
}

/* A file nobody holds the lock of is a dead process's. */
static void bury_dead(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d))) {
		uint32_t slot, pid;
		bool made = hca_registry_name_parse(e->d_name, &slot, &pid);
		int fd;

		if (!made && strncmp(e->d_name, "new-", 4))
			continue;
		/* Without waiting: what lies there need not be a file. */
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (!flock(fd, LOCK_EX | LOCK_NB) && (made || is_old(fd)))
			unlinkat(dirfd(d), e->d_name, 0);
		close(fd);
	}
	closedir(d);
}

void hca_registry_clean(void)
{
	char dir[200];

	if (!base_rundir_find(dir, sizeof(dir)))
		bury_dead(dir);
}

int hca_registry_open(struct hca_registry **out, uint32_t slot)
{
	struct hca_registry *r = calloc(1, sizeof(*r));
	char dir[200], name[40];
	int err;

	if (!r)
		return -ENOMEM;
	err = base_rundir(dir, sizeof(dir));
	if (err)
		goto free_r;
	bury_dead(dir);
	/* Made under a name that bury_dead lets alone for a while, and renamed once locked. */
	snprintf(r->path, sizeof(r->path), "%s/new-%d", dir, (int)getpid());
	r->fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->fd < 0 && errno == EEXIST) { /* left by a dead process of the same id */
		unlink(r->path);
		r->fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	}
	r->fd = fd_above_stdio(r->fd);
	if (r->fd < 0) {
		err = -errno;
		goto free_r;
	}
	/* Room for all of it now: a full file system must not be noticed by a SIGBUS later. */
	err = -posix_fallocate(r->fd, 0, sizeof(*r->file));
	if (err)
		goto close_fd;
	if (flock(r->fd, LOCK_EX | LOCK_NB)) {
		err = -errno;
		goto close_fd;
	}
	r->file = mmap(NULL, sizeof(*r->file), PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->file == MAP_FAILED) {
		err = -errno;
		goto close_fd;
	}
	r->file->magic = REGISTRY_MAGIC;
	r->file->version = REGISTRY_VERSION;
	r->file->pid = (uint32_t)getpid();
	r->file->slot = slot;
	prctl(PR_GET_NAME, r->file->comm);
	lock_init(&r->lock);
	hca_registry_name(name, sizeof(name), slot, (uint32_t)getpid());
	snprintf(dir + strlen(dir), sizeof(dir) - strlen(dir), "/%s", name);
	if (rename(r->path, dir)) {
		err = -errno;
		munmap(r->file, sizeof(*r->file));
		goto close_fd;
	}
	snprintf(r->path, sizeof(r->path), "%s", dir);
	*out = r;
	return 0;

close_fd:
	unlink(r->path);
	close(r->fd);
free_r:
	free(r);
	return err;
}

void hca_registry_close(struct hca_registry *r)
{
	if (!r)
		return;
	hca_registry_retire(r);
	munmap(r->file, sizeof(*r->file));
	close(r->fd);
	free(r);
}

void hca_registry_retire(struct hca_registry *r)
{
	if (r)
		unlink(r->path);
}

void hca_registry_abandon(struct hca_registry *r)
{
	if (!r)
		return;
	if (mmap(r->file, sizeof(*r->file), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0) == MAP_FAILED)
		return;
	close(r->fd);
}

struct hca_adapter_counters *hca_registry_adapter(struct hca_registry *r, struct hca_adapter_counters *own)
{
	return r ? &r->file->adapter : own;
}

struct hca_qp_counters *hca_registry_qp(
	struct hca_registry *r, uint32_t qpn, uint32_t type, struct hca_qp_counters *own)
{
	struct hca_qp_counters *c = own;

	if (r) {
		lock_take(&r->lock);
		for (uint32_t i = 0; i < REGISTRY_QPS; i++) {
			uint32_t at = (r->free_hint + i) % REGISTRY_QPS;

			if (!r->file->qp[at].qpn) {
				c = &r->file->qp[at];
				r->free_hint = at + 1;
				if (r->file->nqps <= at)
					r->file->nqps = at + 1;
				break;
			}
		}
		if (c != own)
			memset(c, 0, sizeof(*c));
		lock_drop(&r->lock);
	}
	c->qpn = qpn;
	c->type = type;
	return c;
}

void hca_registry_qp_done(struct hca_registry *r, struct hca_qp_counters *c)
{
	if (!r)
		return;
	lock_take(&r->lock);
	c->qpn = 0;
	lock_drop(&r->lock);
}
