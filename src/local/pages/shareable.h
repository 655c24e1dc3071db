/* SPDX-License-Identifier: MIT */
/*
 * Memory that others can map as it is: a stretch of a MAP_SHARED mapping of a file (memfd, tmpfs, hugetlbfs,
 * any other). Nothing is opened, moved or changed: who may look into this process finds the file by itself,
 * by its name or by a descriptor that the program has of it, and compares device and inode
 * (local/pages/window.h).
 */
#ifndef LOCAL_PAGES_SHAREABLE_H
#define LOCAL_PAGES_SHAREABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file of this process, as another finds it. */
struct shared_file {
	int fd; /* a descriptor that may still be its; -1: none is known */
	uint64_t dev, inode;
};

/* Fills in a file that we have; false: it is none. */
bool shared_file_of(int fd, struct shared_file *f);
/*
 * Which file [addr, addr + len) lies in, and at which offset; false: in none, or not as a whole. The memory
 * is mapped and its first page has been touched. A handful of system calls, whatever the length.
 */
bool shareable_find(const void *addr, size_t len, struct shared_file *f, uint64_t *off);
/*
 * Whether a process has [off, off + len) of the file mapped at `host`, shared, and (write) writable, as the
 * kernel tells it. Who says so of itself without that would have us open what it may not.
 */
bool shareable_is_mapped(
	pid_t pid, const struct shared_file *f, uint64_t host, uint64_t off, uint64_t len, bool write);

#endif
