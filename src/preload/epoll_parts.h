/* SPDX-License-Identifier: MIT */
/* The inside of epoll sets: epoll.c has the sets and their members, epoll_wait.c waits for them. */
#ifndef PRELOAD_EPOLL_PARTS_H
#define PRELOAD_EPOLL_PARTS_H

#include "preload/epoll.h"
#include "preload/sock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

struct member {
	int fd;
	struct sock *sock;
	uint32_t events; /* 0: was reported, with EPOLLONESHOT */
	epoll_data_t data;
};

/* A thread in epoll_wait(). Each has a descriptor of its own: of one for all, the first would take what
 * wakes the others. */
struct waiter {
	struct waiter *next;
	bool used;
	int wake; /* eventfd: the members have changed; or -1 */
};

struct set {
	struct file file;
	bool used;              /* from before its first descriptor until after its last; under files_lock */
	atomic_int joined;      /* eventfd, readable while there are members; -1: the program has closed it */
	pthread_mutex_t lock;   /* the following; inside files_lock */
	struct waiter *waiters; /* as many as ever waited at a time */
	struct member *members;
	atomic_int n; /* read without the lock too: handlers of signals may leave by longjmp() */
	int room;
	struct set *next; /* of all */
};

/* NULL: it is no set, or one of which nothing is known yet. */
struct set *set_at(int fd);
/* Programs that close all descriptors they do not know close ours too, and may have others there by now. */
bool set_is_eventfd(int fd);
int set_open_event(void);

#endif
