/* SPDX-License-Identifier: MIT */
#include "preload/file.h"
#include "base/asserts.h"
#include "base/cancel.h"
#include "preload/epoll.h"
#include "preload/signals.h"
#include "preload/sock.h"

#include <unistd.h>

_Atomic(struct file *) files[FD_LIMIT];
pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
atomic_int files_highest = -1;

static pid_t owner; /* 0: nobody has put a file yet */

void files_own(void)
{
	owner = getpid();
}

/* The child of a vfork() has our memory, but its own descriptors: what it does to those is not done here. */
static bool is_borrowed(void)
{
	return owner && owner != getpid();
}

bool file_put(int fd, struct file *f)
{
	if ((unsigned)fd >= FD_LIMIT || is_borrowed())
		return false;
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (!owner)
		files_own();
	file_take(fd); /* was closed behind our back */
	pthread_mutex_lock(&files_lock);
	f->descriptors++;
	if (fd > files_highest)
		files_highest = fd;
	atomic_store_explicit(&files[fd], f, memory_order_release);
	pthread_mutex_unlock(&files_lock);
	return true;
}

void file_take(int fd)
{
	struct file *f;
	bool last;

	if (!file_at(fd) || is_borrowed())
		return;
	HANDLERS_WAIT;
	CANCEL_SAFE;
	pthread_mutex_lock(&files_lock);
	f = atomic_exchange(&files[fd], NULL);
	last = f && --f->descriptors == 0;
	pthread_mutex_unlock(&files_lock);
	if (!last)
		return;
	if (f->kind == FILE_SOCK)
		sock_end((struct sock *)f);
	else
		set_end((struct set *)f);
}

int file_next_fd(const struct file *f, int fd)
{
	while (++fd <= files_highest)
		if (atomic_load(&files[fd]) == f)
			return fd;
	return -1;
}

bool file_drop(struct file *f)
{
	bool any = f->descriptors;

	assert_that(mutex_is_locked(&files_lock));
	for (int fd = file_next_fd(f, -1); fd >= 0; fd = file_next_fd(f, fd))
		atomic_store(&files[fd], NULL);
	f->descriptors = 0;
	return any;
}
