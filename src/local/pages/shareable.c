/* SPDX-License-Identifier: MIT */
#include "local/pages/shareable.h"

#include "local/pages/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* As in <linux/fs.h> of Linux 6.11 and later. */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY_IOCTL _IOWR('f', 17, struct procmap_query)
enum { VMA_READABLE = 1, VMA_WRITABLE = 2, VMA_EXECUTABLE = 4, VMA_SHARED = 8 };

/* Asks about one address. 0, or -errno: the kernel does not know the question, or nothing is there. */
static int query(int maps_fd, uint64_t addr, struct area *a)
{
	char name[64] = "";
	struct procmap_query q = {.size = sizeof(q),
		.query_addr = addr,
		.vma_name_size = sizeof(name),
		.vma_name_addr = (uintptr_t)name};
	int err = ioctl(maps_fd, PROCMAP_QUERY_IOCTL, &q) ? errno : 0;

	if (err == ENAMETOOLONG) { /* a real one */
		q.vma_name_size = 0;
		q.vma_name_addr = 0;
		err = ioctl(maps_fd, PROCMAP_QUERY_IOCTL, &q) ? errno : 0;
	}
	if (err)
		return -err;
	*a = (struct area){.start = q.vma_start,
		.end = q.vma_end,
		.shared = (q.vma_flags & VMA_SHARED) && area_has_file(name),
		.prot = (q.vma_flags & VMA_READABLE ? PROT_READ : 0) |
			(q.vma_flags & VMA_WRITABLE ? PROT_WRITE : 0),
		.dev = makedev(q.dev_major, q.dev_minor),
		.inode = q.inode,
		.off = q.vma_offset};
	return 0;
}

/* Bit 61 of its entry: a page of a file or of shared memory. Reading all mappings is for these alone. */
static bool may_be_file(const void *addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;
	ssize_t n;

	if (fd < 0)
		return true;
	n = pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)addr / PAGE * sizeof(entry)));
	close(fd);
	return n != (ssize_t)sizeof(entry) || !(entry >> 63) || (entry >> 61 & 1);
}

static bool read_maps(const void *addr, size_t len, struct area *a)
{
	struct areas all;
	bool found;

	if (!may_be_file(addr))
		return false;
	found = !areas_read(&all, (uintptr_t)addr, (uintptr_t)addr + len) && all.n;
	if (found)
		*a = all.area[0]; /* cut to what was asked for */
	areas_free(&all);
	return found;
}

static bool is_unknown(int err)
{
	return err == -ENOTTY || err == -EINVAL;
}

static int query_self(const void *addr, struct area *a)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC),
	    err = fd < 0 ? -errno : query(fd, (uintptr_t)addr, a);

	if (fd >= 0)
		close(fd);
	return err;
}

static bool find_area(const void *addr, size_t len, struct area *a)
{
	static _Atomic bool unknown; /* the kernel does not know the question */
	int err = unknown ? -ENOTTY : query_self(addr, a);

	if (is_unknown(err)) {
		unknown = true;
		return read_maps(addr, len, a);
	}
	return !err;
}

bool shareable_find(const void *addr, size_t len, struct shared_file *f, uint64_t *off)
{
	uintptr_t start = (uintptr_t)addr;
	struct area a = {.start = 0};

	if (!find_area(addr, len, &a) || !a.shared || !a.inode || a.start > start || a.end < start + len)
		return false;
	*f = (struct shared_file){.fd = -1, .dev = a.dev, .inode = a.inode};
	*off = a.off + (start - a.start);
	return true;
}

/* ---- another process's ---- */
/* A program may have split its mapping; not into crumbs. */
enum { MOST_PARTS = 64 };

struct claim {
	const struct shared_file *file;
	uint64_t host, off, len;
	int prot;
};

/* Whether it holds for the part that begins `done` bytes into it. */
static bool holds(const struct claim *c, const struct area *a, uint64_t done)
{
	uint64_t host = c->host + done;

	return a->shared && a->dev == c->file->dev && a->inode == c->file->inode &&
	       (a->prot & c->prot) == c->prot && a->start <= host && a->end > host &&
	       a->off + (host - a->start) == c->off + done;
}

static bool holds_in(const struct claim *c, const struct areas *all)
{
	uint64_t done = 0;

	for (size_t i = 0; i < all->n && done < c->len && holds(c, &all->area[i], done); i++)
		done = all->area[i].end - c->host;
	return done >= c->len;
}

/* By single questions. 1, 0, or -errno: the kernel does not know them. */
static int ask_parts(const struct claim *c, int maps_fd)
{
	uint64_t done = 0;
	struct area a;
	int err;

	for (int i = 0; i < MOST_PARTS && done < c->len; i++) {
		err = query(maps_fd, c->host + done, &a);
		if (err)
			return is_unknown(err) ? err : 0;
		if (!holds(c, &a, done))
			return 0;
		done = a.end - c->host;
	}
	return done >= c->len;
}

static bool read_parts(const struct claim *c, pid_t pid)
{
	struct areas all;
	bool held = !areas_read_of(pid, &all, c->host, c->host + c->len) && holds_in(c, &all);

	areas_free(&all);
	return held;
}

bool shareable_is_mapped(
	pid_t pid, const struct shared_file *f, uint64_t host, uint64_t off, uint64_t len, bool write)
{
	struct claim c = {f, host, off, len, PROT_READ | (write ? PROT_WRITE : 0)};
	char path[32];
	int fd, held;

	if (host + len < host || off + len < off)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	held = ask_parts(&c, fd);
	close(fd);
	return held < 0 ? read_parts(&c, pid) : held;
}

/* ---- a descriptor's ---- */
bool shared_file_of(int fd, struct shared_file *f)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return false;
	*f = (struct shared_file){.fd = fd, .dev = st.st_dev, .inode = st.st_ino};
	return true;
}
