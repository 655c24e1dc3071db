/* SPDX-License-Identifier: MIT */
#include "memory/window.h"

#include "memory/file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int windows_init(struct windows *w, int fd)
{
	memset(w, 0, sizeof(*w));
	w->fd = fd;
	if (fd < 0 || memory_is_one(fd))
		return 0;
	windows_fini(w);
	return -EPROTO;
}

void windows_fini(struct windows *w)
{
	for (unsigned i = 0; i < WINDOWS; i++) {
		if (w->window[i].base)
			munmap(w->window[i].base, MEMORY_WINDOW);
		w->window[i].base = NULL;
	}
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

char *windows_open(struct windows *w, uint64_t off)
{
	uint64_t number = off / MEMORY_WINDOW;
	unsigned i = number % WINDOWS;
	void *p;

	if (w->fd < 0 || off >= MEMORY_SIZE)
		return NULL;
	if (w->window[i].base)
		munmap(w->window[i].base, MEMORY_WINDOW);
	w->window[i].base = NULL;
	p = mmap(NULL, MEMORY_WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, w->fd,
		(off_t)(number * MEMORY_WINDOW));
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, MEMORY_WINDOW, MADV_DONTFORK);
	madvise(p, MEMORY_WINDOW, MADV_DONTDUMP);
	w->window[i].number = number;
	w->window[i].base = p;
	return (char *)p + off % MEMORY_WINDOW;
}
