/* SPDX-License-Identifier: MIT */
/* What the preload library knows about descriptors: nothing (NULL: they are the kernel's alone), a socket, or
 * an epoll set that has such sockets in it. Looked up without a lock. Records are recycled and never freed,
 * so that a thread which still uses a descriptor that another one closes finds a record, if not its own: as
 * with descriptors. */
#ifndef PRELOAD_FILE_H
#define PRELOAD_FILE_H

#include "preload/real.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { FD_LIMIT = 1 << 16 }; /* descriptors above are left alone */

enum file_kind { FILE_SOCK, FILE_SET };

struct file {
	enum file_kind kind;
	int descriptors; /* that lead here; under files_lock */
};

extern _Atomic(struct file *) files[FD_LIMIT];
extern atomic_int files_highest; /* the highest descriptor that ever led somewhere */
extern pthread_mutex_t files_lock;

static inline struct file *file_at(int fd)
{
	return (unsigned)fd < FD_LIMIT ? atomic_load_explicit(&files[fd], memory_order_acquire) : NULL;
}

/* file_put: the descriptor leads to f, too. False when it is above the limit. */
bool file_put(int fd, struct file *f);

/* After fork: the descriptors are this process's. */
void files_own(void);

/* file_take: fd leads nowhere any more, as the program will close it; the last one ends the file. */
void file_take(int fd);

/* file_drop: no descriptor leads there any more; the file itself is left. False when none did. Under
 * files_lock. */
bool file_drop(struct file *f);

/* The descriptors that lead to a file, one after another: begins with -1, ends with -1. */
int file_next_fd(const struct file *f, int fd);

static inline int fail(int error)
{
	errno = error;
	return -1;
}

#endif
