/* SPDX-License-Identifier: MIT */
/*
 * Descriptors lie in a table by their number. An event names the number and how often it was given away (its
 * generation), so that what the kernel reported for a descriptor that was closed in the same round, and
 * opened again as another one, reaches nobody.
 *
 * Timers are a list in order: there are a dozen of them. What has thousands of deadlines (the subnet, the MAD
 * layer) keeps its own order and has one timer here.
 */
#include "fabricd/loop.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { BATCH = 64, HOOKS = 8 };

struct watch {
	loop_fn *fn; /* NULL: not watched */
	void *arg;
	uint32_t generation;
};

struct loop {
	int epoll;
	bool stopped, hurries;
	uint64_t now;
	struct watch *watch; /* by descriptor */
	int nwatches;
	struct list timers;
	struct {
		loop_timer_fn *fn;
		void *arg;
	} hook[HOOKS];
	unsigned nhooks;
};

struct loop *loop_open(void)
{
	struct loop *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	list_init(&l->timers);
	l->now = clock_ns();
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll < 0) {
		free(l);
		return NULL;
	}
	return l;
}

void loop_close(struct loop *l)
{
	if (!l)
		return;
	while (!list_empty(&l->timers))
		list_pop(&l->timers);
	close(l->epoll);
	free(l->watch);
	free(l);
}

static int make_room(struct loop *l, int fd)
{
	int n = l->nwatches ? l->nwatches : 64;
	struct watch *grown;

	if (fd < l->nwatches)
		return 0;
	while (n <= fd)
		n *= 2;
	grown = realloc(l->watch, (size_t)n * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	for (int i = l->nwatches; i < n; i++)
		grown[i] = (struct watch){0};
	l->watch = grown;
	l->nwatches = n;
	return 0;
}

static int control(struct loop *l, int op, int fd, uint32_t events)
{
	struct epoll_event e = {
		.events = events, .data.u64 = (uint64_t)l->watch[fd].generation << 32 | (uint32_t)fd};

	return epoll_ctl(l->epoll, op, fd, &e) ? -errno : 0;
}

int loop_add(struct loop *l, int fd, uint32_t events, loop_fn *fn, void *arg)
{
	int err = fd < 0 ? -EBADF : make_room(l, fd);

	if (err)
		return err;
	if (l->watch[fd].fn)
		return -EEXIST;
	l->watch[fd].generation++;
	err = control(l, EPOLL_CTL_ADD, fd, events);
	if (err)
		return err;
	l->watch[fd].fn = fn;
	l->watch[fd].arg = arg;
	return 0;
}

int loop_change(struct loop *l, int fd, uint32_t events)
{
	return fd >= 0 && fd < l->nwatches && l->watch[fd].fn ? control(l, EPOLL_CTL_MOD, fd, events)
							      : -ENOENT;
}

void loop_remove(struct loop *l, int fd)
{
	if (fd < 0 || fd >= l->nwatches || !l->watch[fd].fn)
		return;
	l->watch[fd].fn = NULL;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void loop_timer_init(struct loop_timer *t, loop_timer_fn *fn, void *arg)
{
	list_init(&t->node);
	t->at = UINT64_MAX;
	t->fn = fn;
	t->arg = arg;
}

void loop_timer_stop(struct loop_timer *t)
{
	list_del(&t->node);
	t->at = UINT64_MAX;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at)
{
	struct list *before;

	if (t->at == at)
		return;
	loop_timer_stop(t);
	if (at == UINT64_MAX)
		return;
	t->at = at;
	for (before = l->timers.next; before != &l->timers; before = before->next)
		if (container_of(before, struct loop_timer, node)->at > at)
			break;
	list_add_tail(before, &t->node);
}

void loop_before_sleep(struct loop *l, loop_timer_fn *fn, void *arg)
{
	if (l->nhooks == HOOKS)
		abort(); /* our own mistake */
	l->hook[l->nhooks].fn = fn;
	l->hook[l->nhooks++].arg = arg;
}

void loop_hurry(struct loop *l)
{
	l->hurries = true;
}

uint64_t loop_now(const struct loop *l)
{
	return l->now;
}

/* Those that are due now; one that sets itself again for now waits for the next round. */
static void run_timers(struct loop *l)
{
	struct list due;

	list_init(&due);
	while (!list_empty(&l->timers) && container_of(l->timers.next, struct loop_timer, node)->at <= l->now)
		list_add_tail(&due, list_pop(&l->timers));
	while (!list_empty(&due)) {
		struct loop_timer *t = container_of(list_pop(&due), struct loop_timer, node);

		t->at = UINT64_MAX;
		t->fn(t->arg, l->now);
	}
}

/* Milliseconds until the first timer, rounded up: early would mean to come again. -1: no timer. */
static int patience(const struct loop *l)
{
	uint64_t now = clock_ns(), at;

	if (list_empty(&l->timers))
		return -1;
	at = container_of(l->timers.next, struct loop_timer, node)->at;
	if (at <= now)
		return 0;
	at = (at - now + 999999) / 1000000;
	return at > 3600000 ? 3600000 : (int)at;
}

static void dispatch(struct loop *l, const struct epoll_event *e)
{
	int fd = (int)(uint32_t)e->data.u64;
	const struct watch *w = &l->watch[fd];

	if (w->fn && w->generation == (uint32_t)(e->data.u64 >> 32))
		w->fn(w->arg, e->events);
}

int loop_run(struct loop *l)
{
	struct epoll_event events[BATCH];

	while (!l->stopped) {
		int n;

		for (unsigned i = 0; i < l->nhooks; i++)
			l->hook[i].fn(l->hook[i].arg, l->now);
		n = epoll_wait(l->epoll, events, BATCH, l->hurries ? 0 : patience(l));
		l->hurries = false;
		if (n < 0 && errno != EINTR)
			return -errno;
		l->now = clock_ns();
		run_timers(l);
		for (int i = 0; i < n; i++)
			dispatch(l, &events[i]);
	}
	l->stopped = false; /* a stop ends one run */
	return 0;
}

void loop_stop(struct loop *l)
{
	l->stopped = true;
}
