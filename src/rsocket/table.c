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

/*
 * Uses count the threads inside calls for a number, whether or not there is an rsocket under it. Who closes
 * takes the rsocket out and leaves it to the last of them: the number, which is a descriptor, is free for
 * another only after that.
 */
enum { RETIRED = 1 << 30 };

struct entry {
	_Atomic(struct rsock *) rs;
	_Atomic int uses; /* with RETIRED: the last frees `retired` */
	struct rsock *retired;
};

struct page {
	struct entry entry[PAGE];
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
	for (int i = 0; i < PAGES; i++)
		for (int k = 0; pages[i] && k < PAGE; k++)
			pages[i]->entry[k].uses = 0;
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

static struct entry *entry_of(int fd)
{
	struct page *p = page_of(fd);

	return p ? &p->entry[fd & (PAGE - 1)] : NULL;
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
	entry_of(fd)->rs = rs;
	return 0;
}

void rsock_remove(struct rsock *rs)
{
	struct entry *e = entry_of(rs->fd);

	if (e)
		e->rs = NULL;
}

static void unuse(struct entry *e)
{
	int last = RETIRED;

	if (atomic_fetch_sub(&e->uses, 1) != RETIRED + 1)
		return;
	/* one that looked in vain came and went meanwhile, and was the last too: one of us is first */
	if (atomic_compare_exchange_strong(&e->uses, &last, 0))
		e->retired->ops->free(e->retired);
}

struct rsock *rsock_get(int fd)
{
	struct entry *e = entry_of(fd);
	struct rsock *rs;

	if (!e)
		return NULL;
	atomic_fetch_add(&e->uses, 1);
	rs = e->rs;
	if (rs && rs->owner == generation)
		return rs;
	unuse(e);
	return NULL;
}

void rsock_put(struct rsock *rs)
{
	unuse(entry_of(rs->fd));
}

bool rsock_retire(struct rsock *rs)
{
	struct entry *e = entry_of(rs->fd);

	if (!atomic_exchange(&e->rs, NULL))
		return false;
	e->retired = rs;
	atomic_fetch_or(&e->uses, RETIRED);
	return true;
}

int rsock_forget(int fd)
{
	struct entry *e = entry_of(fd);
	struct rsock *rs = e ? e->rs : NULL;

	if (!rs || rs->owner == generation)
		return -EBADF;
	e->rs = NULL;
	return 0;
}
