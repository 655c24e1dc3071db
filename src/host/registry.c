/* SPDX-License-Identifier: MIT */
#include "host/registry.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "host/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct host_registry {
	int fd; /* holds the file's lock */
	char path[256];
	uint32_t slot;
	int segment; /* -1: the counters are private memory */
	struct host_registry_counters *shown;
	struct lock lock; /* guards which records are in use */
	uint32_t free_hint;
	bool used[REGISTRY_QPS];
};

/* ---- names ---- */
void host_registry_name(char *buf, size_t len, uint32_t slot, uint32_t pid)
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

bool host_registry_name_parse(const char *name, uint32_t *slot, uint32_t *pid)
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

/*
 * One in the making is not locked at first; that takes no minute. Nor may it be tried: who makes it would
 * find our lock on it.
 */
static bool is_old(int fd)
{
	enum { MINUTE = 60 };
	struct stat st;

	return !fstat(fd, &st) && time(NULL) - st.st_mtime > MINUTE;
}

/* What we have opened may have another in its place by now: who makes its file anew lets go of the old one.
 */
static bool is_still_there(int dir, const char *name, int fd)
{
	struct stat mine, there;

	return !fstat(fd, &mine) && !fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) &&
	       mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
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
		bool made = host_registry_name_parse(e->d_name, &slot, &pid);
		int fd;

		if (!made && strncmp(e->d_name, "new-", 4))
			continue;
		/* Without waiting: what lies there need not be a file. */
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if ((made || is_old(fd)) && !flock(fd, LOCK_EX | LOCK_NB) &&
			is_still_there(dirfd(d), e->d_name, fd))
			unlinkat(dirfd(d), e->d_name, 0);
		close(fd);
	}
	closedir(d);
}

void host_registry_clean(void)
{
	char dir[200];

	if (!base_rundir_find(dir, sizeof(dir)))
		bury_dead(dir);
}

/* ---- the counters ---- */
/* A segment; where there are none (a kernel without, or its limits), memory that nobody else can read. */
static int counters_open(struct host_registry *r)
{
	r->shown = (void *)-1;
	r->segment = shmget(IPC_PRIVATE, sizeof(*r->shown), IPC_CREAT | 0600);
	if (r->segment >= 0) {
		r->shown = shmat(r->segment, NULL, 0);
		shmctl(r->segment, IPC_RMID, NULL);
	}
	if (r->shown == (void *)-1) {
		log_info("no shared memory segment (%s): nobody can read this process's counters",
			strerror(errno));
		r->segment = -1;
		r->shown = mmap(
			NULL, sizeof(*r->shown), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (r->shown == MAP_FAILED)
			return -errno;
	}
	r->shown->magic = REGISTRY_MAGIC;
	r->shown->version = REGISTRY_VERSION;
	r->shown->pid = (uint32_t)getpid();
	r->shown->slot = r->slot;
	return 0;
}

static void counters_close(struct host_registry *r)
{
	if (r->segment >= 0)
		shmdt(r->shown);
	else
		munmap(r->shown, sizeof(*r->shown));
}

/* ---- the file ---- */
static struct host_registry_file description(const struct host_registry *r)
{
	struct host_registry_file f = {.magic = REGISTRY_MAGIC,
		.version = REGISTRY_VERSION,
		.pid = (uint32_t)getpid(),
		.slot = r->slot,
		.segment = r->segment};

	prctl(PR_GET_NAME, f.comm);
	return f;
}

/* Nothing has that name when it returns, but what we made. */
static int create(const char *path)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	int fd = open(path, flags, 0600);

	if (fd < 0 && errno == EEXIST) { /* left by a dead process of the same id */
		unlink(path);
		fd = open(path, flags, 0600);
	}
	fd = fd_above_stdio(fd);
	return fd < 0 ? -errno : fd;
}

/* Makes our file, locks it, and gives it its name: the descriptor or -errno. */
static int file_open(struct host_registry *r)
{
	struct host_registry_file f = description(r);
	char dir[200], making[256], name[40];
	int fd, err = base_rundir(dir, sizeof(dir));

	if (err)
		return err;
	bury_dead(dir);
	/* Made under a name that bury_dead lets alone for a while, and renamed once locked. */
	snprintf(making, sizeof(making), "%s/new-%u-%d", dir, r->slot, (int)getpid());
	fd = create(making);
	if (fd < 0)
		return fd;
	host_registry_name(name, sizeof(name), r->slot, (uint32_t)getpid());
	snprintf(r->path, sizeof(r->path), "%s/%s", dir, name);
	if (write(fd, &f, sizeof(f)) == (ssize_t)sizeof(f) && !flock(fd, LOCK_EX | LOCK_NB) &&
		!rename(making, r->path))
		return fd;
	err = errno ? -errno : -ENOSPC;
	unlink(making);
	close(fd);
	return err;
}

int host_registry_open(struct host_registry **out, uint32_t slot)
{
	struct host_registry *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->slot = slot;
	lock_init(&r->lock);
	err = counters_open(r);
	if (err)
		goto free_r;
	r->fd = file_open(r);
	if (r->fd < 0)
		log_info("no registry file (%s): nobody can read this process's counters until it is asked "
			 "again",
			strerror(-r->fd));
	*out = r;
	return 0;

free_r:
	free(r);
	return err;
}

static void close_file(struct host_registry *r)
{
	if (r->fd >= 0)
		close(fd_take(&r->fd));
}

/* Whether our file is where others will look for it, and says what it should. */
static bool file_is_there(const struct host_registry *r)
{
	struct host_registry_file f, want = description(r);
	struct stat mine, there;
	char dir[200];

	return !base_rundir(dir, sizeof(dir)) && !strncmp(dir, r->path, strlen(dir)) &&
	       !fstat(r->fd, &mine) && !lstat(r->path, &there) && mine.st_dev == there.st_dev &&
	       mine.st_ino == there.st_ino && pread(r->fd, &f, sizeof(f), 0) == (ssize_t)sizeof(f) &&
	       f.magic == want.magic && f.version == want.version && f.pid == want.pid &&
	       f.slot == want.slot && f.segment == want.segment;
}

void host_registry_look(struct host_registry *r)
{
	int fd;

	if (!r || file_is_there(r))
		return;
	fd = file_open(r);
	if (fd < 0)
		return;
	close_file(r);
	r->fd = fd;
}

void host_registry_close(struct host_registry *r)
{
	if (!r)
		return;
	host_registry_retire(r);
	counters_close(r);
	close_file(r);
	free(r);
}

void host_registry_retire(struct host_registry *r)
{
	if (r)
		unlink(r->path);
}

void host_registry_abandon(struct host_registry *r)
{
	if (!r)
		return;
	if (mmap(r->shown, sizeof(*r->shown), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0) == MAP_FAILED)
		return;
	close_file(r);
}

struct host_adapter_counters *host_registry_adapter(
	struct host_registry *r, struct host_adapter_counters *own)
{
	return r ? &r->shown->adapter : own;
}

struct host_qp_counters *host_registry_qp(
	struct host_registry *r, uint32_t qpn, uint32_t type, struct host_qp_counters *own)
{
	struct host_qp_counters *c = own;

	if (r) {
		lock_take(&r->lock);
		for (uint32_t i = 0; i < REGISTRY_QPS; i++) {
			uint32_t at = (r->free_hint + i) % REGISTRY_QPS;

			if (!r->used[at]) {
				c = &r->shown->qp[at];
				r->used[at] = true;
				r->free_hint = at + 1;
				if (r->shown->nqps <= at)
					r->shown->nqps = at + 1;
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

void host_registry_qp_done(struct host_registry *r, struct host_qp_counters *c)
{
	if (!r)
		return;
	lock_take(&r->lock);
	c->qpn = 0;
	if (c >= r->shown->qp && c < r->shown->qp + REGISTRY_QPS)
		r->used[c - r->shown->qp] = false;
	lock_drop(&r->lock);
}
