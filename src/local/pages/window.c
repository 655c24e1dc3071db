/* SPDX-License-Identifier: MIT */
#include "local/pages/window.h"

#include "base/cancel.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PAGE = 4096 };

void windows_init(struct windows *w)
{
	memset(w, 0, sizeof(*w));
}

/* ---- the file ---- */
static bool is_it(const struct stat *st, const struct window_source *s)
{
	return S_ISREG(st->st_mode) && st->st_dev == s->file.dev && st->st_ino == s->file.inode;
}

/* Looked at before it is opened: opening a FIFO or a device does something. */
static int open_checked(const char *path, const struct window_source *s)
{
	struct stat st;
	int look = fd_above_stdio(open(path, O_PATH | O_CLOEXEC)), fd = -1;
	char own[32];

	if (look < 0)
		return -1;
	snprintf(own, sizeof(own), "/proc/self/fd/%d", look);
	if (!fstat(look, &st) && is_it(&st, s))
		fd = fd_above_stdio(open(own, (s->write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
	close(look);
	return fd;
}

/* Whether one of our program's own can be mapped as it should be. */
static bool own_fits(int fd, const struct window_source *s)
{
	int mode = fcntl(fd, F_GETFL);

	return mode >= 0 && ((mode & O_ACCMODE) == O_RDWR || (!s->write && (mode & O_ACCMODE) == O_RDONLY));
}

/* The number of a descriptor of it that the process has; -1: it has none that fits, or we may not look. */
static int find_descriptor(const char *process, const struct window_source *s,
	bool (*fits)(int fd, const struct window_source *s))
{
	char path[48];
	DIR *fds;
	struct dirent *d;
	struct stat st;
	int fd = -1;

	snprintf(path, sizeof(path), "/proc/%s/fd", process);
	fds = opendir(path);
	while (fds && fd < 0 && (d = readdir(fds))) {
		if (d->d_name[0] != '.' && !fstatat(dirfd(fds), d->d_name, &st, 0) && is_it(&st, s) &&
			(!fits || fits(atoi(d->d_name), s)))
			fd = atoi(d->d_name);
	}
	if (fds)
		closedir(fds);
	return fd;
}

static int open_descriptor(const struct window_source *s, int number)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)s->pid, number);
	return number < 0 ? -1 : open_checked(path, s);
}

/* By the name that the process's own mapping has, as that process sees it. */
static int open_name(const struct window_source *s)
{
	char path[48], line[PATH_MAX + 128], name[PATH_MAX + 64];
	int fd = -1, at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)s->pid);
	f = fopen(path, "re");
	while (f && fd < 0 && fgets(line, sizeof(line), f)) {
		unsigned long long inode = 0;

		at = 0;
		if (sscanf(line, "%*s %*s %*s %*s %llu %n", &inode, &at) != 1 || inode != s->file.inode ||
			!at || line[at] != '/')
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(name, sizeof(name), "/proc/%d/root%s", (int)s->pid, line + at);
		fd = open_checked(name, s);
	}
	if (f)
		fclose(f);
	return fd;
}

static int open_theirs(const struct window_source *s)
{
	char process[16];
	int fd = open_descriptor(s, s->file.fd);

	if (fd < 0)
		fd = open_name(s);
	if (fd < 0) {
		snprintf(process, sizeof(process), "%d", (int)s->pid);
		fd = open_descriptor(s, find_descriptor(process, s, NULL));
	}
	return fd;
}

/*
 * Whether our program has a record lock on it: to close any descriptor of a file takes them away (fcntl(2),
 * F_SETLK). Few processes have any, so the kernel's list is short; devices are not compared, since some file
 * systems have several.
 */
static bool is_locked_by_us(const struct window_source *s)
{
	FILE *f = fopen("/proc/locks", "re");
	unsigned long long inode;
	bool locked = !f;
	char line[256];
	int pid;

	while (f && !locked && fgets(line, sizeof(line), f))
		locked = sscanf(line, "%*d: POSIX %*s %*s %d %*x:%*x:%llu", &pid, &inode) == 2 &&
			 pid == getpid() && inode == s->file.inode;
	if (f)
		fclose(f);
	return locked;
}

/* Where that is so, one of the program's own descriptors is used, and stays open. *close_it: it is ours. */
static int open_file(const struct window_source *s, bool *close_it)
{
	*close_it = !is_locked_by_us(s);
	return *close_it ? open_theirs(s) : find_descriptor("self", s, own_fits);
}

/* Mappings of it begin and end at multiples of this; 0: it is not as long as it should be. */
static uint64_t unit_of(int fd, const struct window_source *s)
{
	struct statfs fs;
	struct stat st;

	if (fstat(fd, &st) || (uint64_t)st.st_size < s->off + s->len || fstatfs(fd, &fs))
		return 0;
	return fs.f_type == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : PAGE;
}

/* ---- the mapping ---- */
/* The program's limit is for its own memory. */
static bool may_map(void)
{
	struct rlimit r;

	return !getrlimit(RLIMIT_AS, &r) && r.rlim_cur == RLIM_INFINITY;
}

/* Without a page: a process that locks all its memory (mlockall) does not mean what is another's. */
static void *map_unlocked(size_t len, int prot, int flags, int fd, uint64_t off)
{
	void *p = mmap(NULL, len, PROT_NONE, flags | MAP_NORESERVE, fd, (off_t)off);

	if (p == MAP_FAILED)
		return NULL;
	munlock(p, len);
	madvise(p, len, MADV_DONTFORK);
	madvise(p, len, MADV_DONTDUMP);
	if (!mprotect(p, len, prot))
		return p;
	munmap(p, len);
	return NULL;
}

static void map(struct window *w, const struct window_source *s, int fd)
{
	uint64_t unit = unit_of(fd, s), first, end = s->off + s->len;
	size_t len;

	if (!unit)
		return;
	first = s->off / unit * unit;
	len = (size_t)((end + unit - 1) / unit * unit - first);
	w->map = map_unlocked(len, PROT_READ | (s->write ? PROT_WRITE : 0), MAP_SHARED, fd, first);
	if (!w->map)
		return;
	w->touched = map_unlocked(len / PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!w->touched) {
		munmap(w->map, len);
		w->map = NULL;
		return;
	}
	w->map_len = len;
	w->base = (char *)w->map + (s->off - first);
}

/* A descriptor of the program's own may have become another file's meanwhile. */
static bool is_mapped_here(const struct window *w, const struct window_source *s)
{
	return w->base &&
	       shareable_is_mapped(getpid(), &s->file, (uintptr_t)w->base, s->off, s->len, s->write);
}

static void unmap(struct windows *all, struct window *w)
{
	if (w->map) {
		munmap(w->map, w->map_len);
		munmap(w->touched, w->map_len / PAGE);
	}
	memset(w, 0, sizeof(*w));
	all->closed++;
}

void windows_fini(struct windows *w)
{
	for (unsigned i = 0; w->table && i < WINDOW_SETS * WINDOW_WAYS; i++)
		unmap(w, &w->table[i]);
	free(w->table);
	w->table = NULL;
}

/* ---- finding it ---- */
static struct window *set_of(struct windows *w, uint32_t id)
{
	return w->table + (id * 0x9e3779b1u >> 20) % WINDOW_SETS * WINDOW_WAYS;
}

/* Its window, one of its older versions, or a free place; NULL: there is none. */
static struct window *place_of(struct windows *w, uint32_t id)
{
	struct window *set = set_of(w, id), *place = NULL;

	for (unsigned i = 0; i < WINDOW_WAYS; i++) {
		if (set[i].of.id == id)
			return &set[i];
		if (!set[i].of.id)
			place = &set[i];
	}
	return place;
}

/* All that is said about it: of two regions one may have had the other's number and version. */
static bool is_same(const struct window_source *a, const struct window_source *b)
{
	return a->id == b->id && a->version == b->version && a->pid == b->pid && a->file.dev == b->file.dev &&
	       a->file.inode == b->file.inode && a->host == b->host && a->off == b->off && a->len == b->len &&
	       a->write == b->write;
}

static void fill(struct windows *all, struct window *w, const struct window_source *s)
{
	bool close_it = false;
	int fd = -1;

	if (may_map() && shareable_is_mapped(s->pid, &s->file, s->host, s->off, s->len, s->write))
		fd = open_file(s, &close_it);
	if (fd >= 0)
		map(w, s, fd);
	if (close_it && fd >= 0)
		close(fd);
	if (fd >= 0 && !is_mapped_here(w, s))
		unmap(all, w);
	w->of = *s; /* also when it failed: it is not tried again */
}

struct window *windows_open(struct windows *w, const struct window_source *s)
{
	struct window *one;
	int cancel;

	if (!w->table)
		w->table = calloc(WINDOW_SETS * WINDOW_WAYS, sizeof(*w->table));
	one = w->table ? place_of(w, s->id) : NULL;
	if (!one)
		return NULL;
	if (is_same(&one->of, s))
		return one->base ? one : NULL;
	cancel = cancel_off(); /* whoever posts a request comes here, under locks */
	unmap(w, one);
	fill(w, one, s);
	cancel_restore(cancel);
	return one->base ? one : NULL;
}

void windows_sweep(
	struct windows *w, bool (*is_exported)(void *arg, uint32_t id, uint32_t version), void *arg)
{
	struct window *set;

	if (!w->table)
		return;
	set = w->table + w->hand++ % WINDOW_SETS * WINDOW_WAYS;
	for (unsigned i = 0; i < WINDOW_WAYS; i++) {
		if (set[i].of.id && !is_exported(arg, set[i].of.id, set[i].of.version))
			unmap(w, &set[i]);
	}
}

/* ---- pages ---- */
static uint64_t first_page(const struct window *w, uint64_t in)
{
	return ((uint64_t)(w->base - (char *)w->map) + in) / PAGE;
}

static bool is_inside(const struct window *w, uint64_t in, size_t len)
{
	return len && in <= w->of.len && len <= w->of.len - in;
}

bool window_is_ready(const struct window *w, uint64_t in, size_t len)
{
	uint64_t first = first_page(w, in), last = first_page(w, in + len - 1);

	if (!is_inside(w, in, len))
		return false;
	return first == last ? w->touched[first] : !memchr(w->touched + first, 0, last - first + 1);
}

void window_touched(struct window *w, uint64_t in, size_t len)
{
	if (is_inside(w, in, len))
		memset(w->touched + first_page(w, in), 1,
			first_page(w, in + len - 1) - first_page(w, in) + 1);
}
