/* SPDX-License-Identifier: MIT */
/*
 * Memory that others can map as it is: a stretch of a MAP_SHARED mapping of a regular file (memfd, tmpfs,
 * hugetlbfs, any other) of which this process has an open descriptor. Nothing is opened, moved or changed;
 * whoever may look into this process opens the file through /proc/PID/fd and compares device and inode.
 */
#ifndef MEMORY_SHAREABLE_H
#define MEMORY_SHAREABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file of this process, as another finds it. */
struct shared_file {
	int fd;        /* the program's own; it may close it at any time */
	uint32_t unit; /* mappings of it begin and end at multiples of this */
	uint64_t dev, inode;
};

/* Fills in a file that is known; false: it cannot be mapped by others. */
bool shared_file_of(int fd, struct shared_file *f);
/*
 * Which file [addr, addr + len) lies in, and at which offset; false: in none, or not as a whole. The memory
 * is mapped and its first page has been touched. A handful of system calls, whatever the length.
 */
bool shareable_find(const void *addr, size_t len, struct shared_file *f, uint64_t *off);

#endif
