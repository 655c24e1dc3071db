/* SPDX-License-Identifier: MIT */
/* What a stretch of a process's memory is, as the kernel tells it. */
#ifndef LOCAL_PAGES_MAPS_H
#define LOCAL_PAGES_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Part of the address space with one kind of memory. `plain`: private, anonymous, readable and writable, and
 * no stack: what malloc() and mmap() give. Of other memory `dev`, `inode` and `off` say which file it is;
 * `shared`: a mapping of that file itself, of which somebody may have a descriptor.
 */
struct area {
	uintptr_t start, end;
	bool plain, shared;
	int prot;
	uint64_t dev, inode, off;
};

struct areas {
	struct area *area;
	size_t n, room;
	size_t all; /* how many the process has */
};

/*
 * The areas that meet [from, to), cut to it, in order. 0 or -errno; the caller's to areas_free() in any case.
 * Allocates: nothing may be frozen (local/pages/freeze.h).
 */
int areas_read(struct areas *a, uintptr_t from, uintptr_t to);
/* The same of another process, whose stacks are not looked for. */
int areas_read_of(pid_t pid, struct areas *a, uintptr_t from, uintptr_t to);
void areas_free(struct areas *a);
/* By the name of a shared mapping: false for what exists for the mapping alone. */
bool area_has_file(const char *name);

/* Threads of this process. */
unsigned maps_threads(void);
/* Whether the kernel holds pages of this process for io_uring: it would go on with the old ones. */
bool maps_pinned(void);

#endif
