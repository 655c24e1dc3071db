/* SPDX-License-Identifier: MIT */
/*
 * Another process's file (memory/file.h) as we see it: a few windows onto it, mapped when they are first
 * looked through. The other one may unmap, punch or die as it likes: no access faults for that.
 *
 * One user at a time.
 */
#ifndef MEMORY_WINDOW_H
#define MEMORY_WINDOW_H

#include <stddef.h>
#include <stdint.h>

enum { WINDOWS = 64 };

struct windows {
	int fd; /* -1: there is none */
	struct {
		uint64_t number;
		char *base; /* NULL: not mapped */
	} window[WINDOWS];
};

/* Takes over the descriptor (-1: none); 0, or -EPROTO when it is not such a file. */
int windows_init(struct windows *w, int fd);
void windows_fini(struct windows *w);
/* Maps the window that has this byte of the file; NULL: it cannot be. */
char *windows_open(struct windows *w, uint64_t off);

/* Where that byte is; NULL: nowhere. It goes on to the end of the window. */
static inline char *windows_at(struct windows *w, uint64_t off)
{
	unsigned i = off >> 30 & (WINDOWS - 1);

	if (__builtin_expect(w->window[i].base && w->window[i].number == off >> 30, 1))
		return w->window[i].base + (off & ((1u << 30) - 1));
	return windows_open(w, off);
}

#endif
