/* SPDX-License-Identifier: MIT */
/*
 * Which descriptor is which rsocket. Look-ups take no lock: every call of a program begins with one. Pages of
 * the table are never freed.
 */
#include "rsocket/rsock.h"

#include "base/cancel.h"
#include "rsocket/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_BITS = 10, PAGE = 1 << PAGE_BITS, PAGES = 1 << 11 }; /* two million descriptors */

struct page {
	_Atomic(struct rsock *) entry[PAGE];
};

static _Atomic(struct page *) pages[PAGES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned generation;

__thread int rsock_cancel = PTHREAD_CANCEL_DISABLE;

/* The parent's rsockets have queue pairs and threads that the child has not. */
static void in_child(void)
{
	CANCEL_SAFE; /* it closes files */
	pthread_mutex_init(&mutex, NULL);
	rs_service_in_child();
	generation++;
}

static void watch_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

unsigned rsock_generation(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_fork);
	return generation;
}

void rsock_init(struct rsock *rs, const struct rsock_ops *ops, int domain, int type)
{
	rs->ops = ops;
	rs->domain = domain;
	rs->type = type;
	rs->fd = -1;
	rs->flags = O_RDWR;
	rs->owner = rsock_generation();
	rs->sizes = rsock_config()->sizes;
}

static struct page *page_of(int fd)
{
	return fd >= 0 && fd < PAGE * PAGES ? pages[fd >> PAGE_BITS] : NULL;
}

static struct page *make_page(int fd)
{
	struct page *p;

	if (fd < 0 || fd >= PAGE * PAGES)
		return NULL;
	pthread_mutex_lock(&mutex);
	p = page_of(fd);
	if (!p) {
		p = calloc(1, sizeof(*p));
		pages[fd >> PAGE_BITS] = p;
	}
	pthread_mutex_unlock(&mutex);
	return p;
}

int rsock_insert(struct rsock *rs, int fd)
{
	struct page *p = make_page(fd);

	if (!p)
		return -ENOMEM;
	rs->fd = fd;
	p->entry[fd & (PAGE - 1)] = rs;
	return 0;
}

void rsock_remove(struct rsock *rs)
{
	struct page *p = page_of(rs->fd);

	if (p)
		p->entry[rs->fd & (PAGE - 1)] = NULL;
}

static struct rsock *entry(int fd)
{
	struct page *p = page_of(fd);

	return p ? p->entry[fd & (PAGE - 1)] : NULL;
}

struct rsock *rsock_of(int fd)
{
	struct rsock *rs = entry(fd);

	return rs && rs->owner == generation ? rs : NULL;
}

int rsock_forget(int fd)
{
	struct rsock *rs = entry(fd);

	if (!rs || rs->owner == generation)
		return -EBADF;
	rsock_remove(rs);
	return 0;
}
