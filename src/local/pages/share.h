/* SPDX-License-Identifier: MIT */
/*
 * Registered memory that others on this host can map: the whole pages inside a region, as far as they are
 * plain memory (local/pages/maps.h), lie on our file (local/pages/file.h) from the first registration that
 * holds them until the last is gone. Then they are private pages again, as they were: whatever the program
 * does with memory that is not registered (fork, madvise, mremap, give it back to an allocator that trusts it
 * to be zero after MADV_DONTNEED) means what it always did.
 *
 *   plain pages -- share_take() --> on the file, held by n regions -- the last share_drop() --> plain pages
 *
 * One lock for all, held across fork: in the child, pages on the file are private copies.
 */
#ifndef LOCAL_PAGES_SHARE_H
#define LOCAL_PAGES_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct share;

/* [start, start + len) of our memory is [off, off + len) of the file. */
struct share_run {
	uintptr_t start;
	uint64_t off;
	size_t len;
};

/*
 * Moves what can be moved of a region. *run: the longest stretch that others can map; NULL and no length when
 * there is none, which has been said at log level info. May take the time of a copy.
 */
struct share *share_take(void *addr, size_t len, struct share_run *run);
/*
 * When nobody uses the region any more: what no other region has goes back. 0; or -errno when it could not
 * all go back, and `s` is held as before. NULL does nothing.
 */
int share_drop(struct share *s);
/* The file, to be passed to others, until share_file_put(): a descriptor, or -errno. */
int share_file_get(void);
void share_file_put(void);

/* Around fork; the lock is the innermost. */
void share_fork_prepare(void);
void share_fork_parent(void);
void share_fork_child(void);

#endif
