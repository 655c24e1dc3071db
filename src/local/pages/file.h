/* SPDX-License-Identifier: MIT */
/*
 * The file, without a name, on which memory of this process lies that others may map: one for all of it, so
 * that no registration costs a descriptor. It is longer than any memory, nobody can change its length (so
 * nobody is surprised by SIGBUS), and no part of it is given out twice.
 */
#ifndef LOCAL_PAGES_FILE_H
#define LOCAL_PAGES_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEMORY_PAGE = 4096 };

static const uint64_t MEMORY_SIZE = 1ull << 62;

struct area;

/* Made on first use: its descriptor, or -errno. */
int memory_file(void);
/* Whether an area of our memory lies on it. */
bool memory_has(const struct area *a);

/*
 * A part of the file that was never used before. Behind it is as much that never will be: a mapping that the
 * program makes longer (mremap) meets nobody else's bytes.
 */
uint64_t memory_part(size_t len);
/* Whether [off, off + len) holds nothing. */
bool memory_is_hole(uint64_t off, size_t len);
/* Copies into the file, or out of it what it holds; 0 or -errno. */
int memory_put(uint64_t off, const void *from, size_t len);
int memory_get(uint64_t off, void *to, size_t len);
/* Gives the pages back. */
void memory_punch(uint64_t off, size_t len);
/* Nothing of ours lies on it any more; or after fork, in the child, it is the parent's. */
void memory_forget(void);

#endif
