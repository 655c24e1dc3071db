/* SPDX-License-Identifier: MIT */
/*
 * Memory of another process as we have it mapped: one window for each of its regions that lies in a file
 * which we can open (local/pages/shareable.h), made when it is first used, with the rights of the region.
 *
 * It is believed only what the kernel says too: that the process itself has that file mapped there, with
 * these rights. Else it could name a file that it may not open, and we may.
 *
 * The first access to each page is left to the kernel (process_vm_*), which finds or makes it for the other
 * process and charges it there; from then on it is ours to touch. A file may become shorter at any time:
 * accesses are guarded (base/guard.h).
 *
 * The other process may say something else about a region at any time, and under the same number: a window is
 * for what was said when it was opened, and for nothing else.
 *
 * One user at a time.
 */
#ifndef LOCAL_PAGES_WINDOW_H
#define LOCAL_PAGES_WINDOW_H

#include "local/pages/shareable.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What the other process exports: [off, off + len) of a file, which it has at `host`. */
struct window_source {
	uint32_t id, version; /* the region's number, and how often what is said about it has changed */
	pid_t pid;
	struct shared_file file;
	uint64_t host, off, len;
	bool write;
};

struct window {
	struct window_source of; /* id 0: none */
	char *base;              /* of the first byte; NULL: it could not be mapped */
	void *map;
	size_t map_len;
	uint8_t *touched; /* a byte for each page of the mapping */
};

enum { WINDOW_WAYS = 8, WINDOW_SETS = 64 };

struct windows {
	struct window *table; /* WINDOW_SETS * WINDOW_WAYS; NULL: none was needed yet */
	uint32_t closed;      /* how many were: pointers to windows are good until the next */
	unsigned hand;        /* see windows_sweep() */
};

void windows_init(struct windows *w);
void windows_fini(struct windows *w);
/* The window onto it; NULL: it has none, now or for ever. May map, and allocate. */
struct window *windows_open(struct windows *w, const struct window_source *s);
/* Closes a few of those that nobody exports any more. */
void windows_sweep(
	struct windows *w, bool (*is_exported)(void *arg, uint32_t id, uint32_t version), void *arg);

/* Whether [in, in + len) is in the window and may be touched. */
bool window_is_ready(const struct window *w, uint64_t in, size_t len);
/* The kernel has been there. What is not in the window is left out. */
void window_touched(struct window *w, uint64_t in, size_t len);

#endif
