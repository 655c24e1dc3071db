/* SPDX-License-Identifier: MIT */
#include "memory/shareable.h"

#include "memory/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
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

/* Asks the kernel about one address. 0, or -errno: it does not know the question, or nothing is there. */
static int query(const void *addr, struct area *a)
{
	char name[64] = "";
	struct procmap_query q = {.size = sizeof(q),
		.query_addr = (uintptr_t)addr,
		.vma_name_size = sizeof(name),
		.vma_name_addr = (uintptr_t)name};
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = ioctl(fd, PROCMAP_QUERY_IOCTL, &q) ? errno : 0;
	if (err == ENAMETOOLONG) { /* a real one */
		q.vma_name_size = 0;
		q.vma_name_addr = 0;
		err = ioctl(fd, PROCMAP_QUERY_IOCTL, &q) ? errno : 0;
	}
	close(fd);
	if (err)
		return -err;
	*a = (struct area){.start = q.vma_start,
		.end = q.vma_end,
		.shared = (q.vma_flags & VMA_SHARED) && area_has_file(name),
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

static bool find_area(const void *addr, size_t len, struct area *a)
{
	static _Atomic bool unknown; /* the kernel does not know the question */
	int err = unknown ? -ENOTTY : query(addr, a);

	if (err == -ENOTTY || err == -EINVAL) {
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

bool shared_file_of(int fd, struct shared_file *f)
{
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return false;
	*f = (struct shared_file){.fd = fd, .dev = st.st_dev, .inode = st.st_ino};
	return true;
}
