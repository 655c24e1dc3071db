/* SPDX-License-Identifier: MIT */
/*
 * The service thread: asleep in epoll_wait until a descriptor is readable, a time has come, or somebody rings
 * the bell because the list of watches changed.
 */
#include "rsocket/service.h"

#include "base/asserts.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct service {
	pthread_mutex_t mutex; /* guards everything below */
	pthread_cond_t idle;   /* running became NULL */
	struct list watches;
	struct timers timers; /* of watches */
	bool up;
	pthread_t thread;
	int epoll, bell;
	struct rs_watch *running;
} sv = {.mutex = PTHREAD_MUTEX_INITIALIZER,
	.idle = PTHREAD_COND_INITIALIZER,
	.watches = {&sv.watches, &sv.watches}};

uint64_t rs_now(void)
{
	return clock_ns();
}

/* ---- the thread ---- */
/* mutex held; the callback runs without it */
static void run(struct rs_watch *w)
{
	assert_that(mutex_is_locked(&sv.mutex));
	sv.running = w;
	pthread_mutex_unlock(&sv.mutex);
	w->run(w, rs_now());
	pthread_mutex_lock(&sv.mutex);
	sv.running = NULL;
	pthread_cond_broadcast(&sv.idle);
}

static bool still_watched(const struct rs_watch *w)
{
	list_for_each(n, &sv.watches) if (n == &w->node) return true;
	return false;
}

static int sleep_ms(void)
{
	uint64_t due = timers_next(&sv.timers), now = rs_now();

	if (due == UINT64_MAX)
		return -1;
	due = due > now ? (due - now) / 1000000 + 1 : 0;
	return due < INT_MAX ? (int)due : INT_MAX;
}

static void *serve(void *arg)
{
	struct epoll_event ev;
	uint64_t rung;

	pthread_mutex_lock(&sv.mutex);
	while (!list_empty(&sv.watches)) {
		int ms = sleep_ms(), n;

		pthread_mutex_unlock(&sv.mutex);
		n = epoll_wait(sv.epoll, &ev, 1, ms);
		pthread_mutex_lock(&sv.mutex);
		if (n == 1 && !ev.data.ptr)
			(void)!read(sv.bell, &rung, sizeof(rung));
		else if (n == 1 && still_watched(ev.data.ptr))
			run(ev.data.ptr);
		while (timers_next(&sv.timers) <= rs_now())
			run(container_of(timers_first(&sv.timers), struct rs_watch, timer));
	}
	sv.up = false; /* first: a child would close them */
	close(sv.epoll);
	close(sv.bell);
	pthread_mutex_unlock(&sv.mutex);
	return NULL;
}

/* Signals are the program's threads' business. */
static int create_thread(void)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	err = pthread_create(&sv.thread, &attr, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

static int start(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int err;

	sv.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (sv.epoll < 0)
		return -errno;
	sv.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sv.bell < 0 || epoll_ctl(sv.epoll, EPOLL_CTL_ADD, sv.bell, &ev))
		err = -errno;
	else
		err = create_thread();
	if (err) {
		close(sv.epoll);
		if (sv.bell >= 0)
			close(sv.bell);
		return err;
	}
	sv.up = true;
	return 0;
}

/* ---- watching ---- */
/* A child has neither the thread nor its parent's watches. */
void rs_service_in_child(void)
{
	if (sv.up) {
		close(sv.epoll);
		close(sv.bell);
	}
	pthread_mutex_init(&sv.mutex, NULL);
	pthread_cond_init(&sv.idle, NULL);
	list_init(&sv.watches);
	sv.timers = (struct timers){0};
	sv.up = false;
	sv.running = NULL;
}

static void ring(void)
{
	uint64_t one = 1;

	(void)!write(sv.bell, &one, sizeof(one));
}

int rs_watch(struct rs_watch *w)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = w};
	int err = 0;

	pthread_mutex_lock(&sv.mutex);
	if (w->watched)
		goto out;
	list_add_tail(&sv.watches, &w->node); /* before the thread looks whether there is anything to do */
	if (!sv.up)
		err = start();
	if (!err && epoll_ctl(sv.epoll, EPOLL_CTL_ADD, w->fd, &ev))
		err = -errno;
	if (err)
		list_del(&w->node);
	w->watched = !err;
	if (w->watched && w->due)
		timer_set(&sv.timers, &w->timer, w->due);
	if (sv.up)
		ring();
out:
	pthread_mutex_unlock(&sv.mutex);
	return err;
}

void rs_unwatch(struct rs_watch *w)
{
	pthread_mutex_lock(&sv.mutex);
	if (w->watched) {
		w->watched = false;
		list_del(&w->node);
		timer_clear(&sv.timers, &w->timer);
		epoll_ctl(sv.epoll, EPOLL_CTL_DEL, w->fd, NULL);
		ring();
	}
	while (sv.up && sv.running == w && !pthread_equal(sv.thread, pthread_self()))
		pthread_cond_wait(&sv.idle, &sv.mutex);
	pthread_mutex_unlock(&sv.mutex);
}

void rs_watch_due(struct rs_watch *w, uint64_t at)
{
	pthread_mutex_lock(&sv.mutex);
	w->due = at;
	if (w->watched) {
		timer_set(&sv.timers, &w->timer, at);
		if (!pthread_equal(sv.thread, pthread_self()))
			ring();
	}
	pthread_mutex_unlock(&sv.mutex);
}
