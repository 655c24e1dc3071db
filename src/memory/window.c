/* SPDX-License-Identifier: MIT */
#include "memory/window.h"

#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096 };

void windows_init(struct windows *w)
{
	memset(w, 0, sizeof(*w));
}

/* ---- the file ---- */
/* Looked at before it is opened: opening a FIFO or a device does something. */
static int open_checked(const char *path, const struct window_source *s)
{
	struct stat st;
	int look = fd_above_stdio(open(path, O_PATH | O_CLOEXEC)), fd = -1;
	char own[32];

	if (look < 0)
		return -1;
	snprintf(own, sizeof(own), "/proc/self/fd/%d", look);
	if (!fstat(look, &st) && S_ISREG(st.st_mode) && st.st_dev == s->file.dev &&
		st.st_ino == s->file.inode && (uint64_t)st.st_size >= s->off + s->len)
		fd = fd_above_stdio(open(own, (s->write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
	close(look);
	return fd;
}

static int open_file(const struct window_source *s)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)s->pid, s->file.fd);
	return open_checked(path, s);
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
	uint64_t unit = s->file.unit, first = s->off / unit * unit, end = s->off + s->len;
	size_t len = (size_t)((end + unit - 1) / unit * unit - first);

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

void windows_abandon(struct windows *w)
{
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
		if (set[i].id == id)
			return &set[i];
		if (!set[i].id)
			place = &set[i];
	}
	return place;
}

struct window *windows_open(struct windows *w, const struct window_source *s)
{
	struct window *one;
	int fd;

	if (!w->table)
		w->table = calloc(WINDOW_SETS * WINDOW_WAYS, sizeof(*w->table));
	one = w->table ? place_of(w, s->id) : NULL;
	if (!one)
		return NULL;
	if (one->id == s->id && one->version == s->version)
		return one->base ? one : NULL;
	unmap(w, one);
	one->id = s->id;
	one->version = s->version; /* also when it fails: it is not tried again */
	fd = may_map() ? open_file(s) : -1;
	if (fd < 0)
		return NULL;
	map(one, s, fd);
	close(fd);
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
		if (set[i].id && !is_exported(arg, set[i].id, set[i].version))
			unmap(w, &set[i]);
	}
}

/* ---- pages ---- */
static uint64_t first_page(const struct window *w, uint64_t in)
{
	return ((uint64_t)(w->base - (char *)w->map) + in) / PAGE;
}

bool window_is_ready(const struct window *w, uint64_t in, size_t len)
{
	uint64_t first = first_page(w, in), last = first_page(w, in + len - 1);

	return first == last ? w->touched[first] : !memchr(w->touched + first, 0, last - first + 1);
}

void window_touched(struct window *w, uint64_t in, size_t len)
{
	memset(w->touched + first_page(w, in), 1, first_page(w, in + len - 1) - first_page(w, in) + 1);
}
