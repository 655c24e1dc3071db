/* SPDX-License-Identifier: MIT */
/* Waiting for a program's epoll set, for the sockets of ours and the kernel's set at once. */
#include "preload/epoll_parts.h"
#include "preload/signals.h"
#include "base/cancel.h"
#include "base/export.h"

#include <stdlib.h>
#include <sys/eventfd.h>

/* The events of epoll are those of poll, with other things above. */
enum { POLL_BITS = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP };

/* ---- what there is to report ---- */
/* What of a member is still to be reported. */
static int wanted(const struct member *m)
{
	int events = m->events & POLL_BITS;

	if (m->events & EPOLLET)
		events &= ~atomic_load(&m->sock->seen);
	return events;
}

/* A member that is asleep, or has nothing more to say, has no slot. */
static bool silent(const struct member *m)
{
	if (!(m->events & ~(EPOLLET | EPOLLONESHOT)))
		return true;
	return m->events & EPOLLET && !wanted(m);
}

/* A copy of one: who goes through them may not hold the lock, and others add and take away meanwhile. */
static bool member_at(struct set *set, int i, struct member *m)
{
	bool found;

	pthread_mutex_lock(&set->lock);
	found = i < set->n;
	if (found)
		*m = set->members[i];
	pthread_mutex_unlock(&set->lock);
	return found;
}

static int add_members(struct wait *w, struct set *set, int owner)
{
	struct member m;
	int ready = 0;

	for (int i = 0; member_at(set, i, &m); i++)
		if (!silent(&m) && sock_at(m.fd) == m.sock)
			ready |= wait_add(w, owner < 0 ? m.fd : owner, m.fd, wanted(&m));
	return ready;
}

int set_wait_add(struct wait *w, int owner, struct set *set)
{
	return add_members(w, set, owner) ? POLLIN : 0;
}

/* Reports a member once for the slots it has. */
static bool report(struct set *set, int fd, int revents, struct epoll_event *event)
{
	bool found = false;

	pthread_mutex_lock(&set->lock);
	for (int i = 0; i < set->n && !found; i++) {
		struct member *m = &set->members[i];

		if (m->fd != fd)
			continue;
		revents &= (m->events & POLL_BITS) | EPOLLERR | EPOLLHUP;
		if (m->events & EPOLLET)
			revents &= ~atomic_fetch_or(&m->sock->seen, revents);
		if (!revents || !(m->events & ~(EPOLLET | EPOLLONESHOT)))
			continue;
		*event = (struct epoll_event){.events = revents, .data = m->data};
		if (m->events & EPOLLONESHOT)
			m->events &= EPOLLET | EPOLLONESHOT;
		found = true;
	}
	pthread_mutex_unlock(&set->lock);
	return found;
}

/* The slots of one socket lie side by side. */
static int collect(struct set *set, const struct wait *w, struct epoll_event *events, int max)
{
	int n = 0;

	for (nfds_t i = 0; i < w->n && n < max; i++) {
		int fd = w->owners[i], revents = w->slots[i].revents;

		while (i + 1 < w->n && w->owners[i + 1] == fd)
			revents |= w->slots[++i].revents;
		if (fd >= 0 && revents && report(set, fd, revents, &events[n]))
			n++;
	}
	return n;
}

/* Sockets whose connect failed are ready without a slot. */
static int collect_failed(struct set *set, struct epoll_event *events, int max)
{
	struct member m;
	int n = 0;

	for (int i = 0; n < max && member_at(set, i, &m); i++) {
		if (m.sock->state == SOCK_FAILED &&
			report(set, m.fd, EPOLLERR | EPOLLHUP | (m.events & (EPOLLIN | EPOLLOUT)),
				&events[n]))
			n++;
	}
	return n;
}

/* ---- waiting ---- */
static struct waiter *free_waiter(struct set *set)
{
	struct waiter *w;

	for (w = set->waiters; w && w->used; w = w->next)
		;
	if (w)
		return w;
	w = malloc(sizeof(*w));
	if (!w)
		return NULL;
	*w = (struct waiter){.next = set->waiters, .wake = -1};
	return set->waiters = w;
}

static struct waiter *begin_waiting(struct set *set)
{
	struct waiter *w;

	pthread_mutex_lock(&set->lock);
	w = free_waiter(set);
	if (w) {
		w->used = true;
		w->wake = w->wake < 0 ? set_open_event() : w->wake;
	}
	pthread_mutex_unlock(&set->lock);
	return w;
}

static void stop_waiting(struct set *set, struct waiter *w)
{
	pthread_mutex_lock(&set->lock);
	w->used = false;
	pthread_mutex_unlock(&set->lock);
}

/* Or the program has closed the descriptor. */
static void was_woken(struct set *set, struct waiter *w)
{
	eventfd_t count;

	pthread_mutex_lock(&set->lock);
	if (!set_is_eventfd(w->wake))
		w->wake = set_open_event();
	else
		eventfd_read(w->wake, &count);
	pthread_mutex_unlock(&set->lock);
}

enum { KERNEL = -2, WAKE = -3 }; /* owners of slots that are nobody's socket */

static int wait_once(struct set *set, struct waiter *me, struct wait *w, int epfd, struct epoll_event *events,
	int max, int64_t deadline, bool *again)
{
	int n, result;

	wait_clear(w);
	if (add_members(w, set, -1))
		deadline = 0;
	wait_add_slot(w, KERNEL, epfd, POLLIN);
	wait_add_slot(w, WAKE, me->wake, POLLIN);
	*again = wait_sleep(w, deadline, &result);
	if (result < 0)
		return result;
	if (w->slots[w->n - 1].revents) {
		was_woken(set, me);
		*again = true;
	}
	n = collect(set, w, events, max);
	n += collect_failed(set, events + n, max - n);
	if (n < max && w->slots[w->n - 2].revents) {
		result = real()->epoll_pwait(epfd, events + n, max - n, 0, NULL);
		n += result > 0 ? result : 0;
	}
	*again |= now_ms() < deadline;
	return n;
}

struct waiting {
	struct set *set;
	struct waiter *me;
};

static void waits_no_more(const struct waiting *w)
{
	if (w->me)
		stop_waiting(w->set, w->me);
}

static int wait_set(struct set *set, int epfd, struct epoll_event *events, int max, int64_t deadline)
{
	HANDLERS_WAIT;
	CANCEL_SAFE;
	__attribute__((cleanup(waits_no_more))) const struct waiting waiting = {set, begin_waiting(set)};
	__attribute__((cleanup(wait_fini))) struct wait w;
	bool again;
	int n;

	wait_init(&w, cancel_before);
	if (!waiting.me)
		return fail(ENOMEM);
	do
		n = wait_once(set, waiting.me, &w, epfd, events, max, deadline, &again);
	while (n == 0 && again);
	return n;
}

static int wait_masked(struct set *set, int epfd, struct epoll_event *events, int max, int64_t deadline,
	const sigset_t *mask)
{
	__attribute__((cleanup(wait_mask_end))) struct wait_mask m;

	return wait_mask_begin(&m, mask) ? fail(EINTR) : wait_set(set, epfd, events, max, deadline);
}

/* Nothing is held: handlers run, and the thread is cancelled, as the kernel has it. False when there is an
 * answer. */
static bool wait_without_members(struct set *set, int epfd, struct epoll_event *events, int max,
	const struct timespec *limit, const sigset_t *mask, int *n)
{
	struct pollfd p[2] = {{.fd = epfd, .events = POLLIN}, {.fd = set->joined, .events = POLLIN}};

	*n = real()->ppoll(p, 2, limit, mask);
	if (*n <= 0)
		return false;
	if (p[1].revents && !set_has_members(set) && !set_is_eventfd(p[1].fd))
		atomic_store(&set->joined, -1); /* which ppoll() passes over */
	*n = p[0].revents ? real()->epoll_pwait(epfd, events, max, 0, NULL) : 0;
	return *n == 0; /* somebody has joined, or another thread was faster */
}

static int wait_program(struct set *set, int epfd, struct epoll_event *events, int max,
	const struct timespec *limit, const sigset_t *mask)
{
	int64_t deadline = wait_deadline(limit);
	struct timespec left;
	int n;

	while (!set_has_members(set)) {
		int ms;

		if (!wait_without_members(set, epfd, events, max, limit, mask, &n))
			return n;
		ms = ms_until(deadline);
		if (!ms && !set_has_members(set))
			return 0;
		left = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
		limit = ms < 0 ? NULL : &left;
	}
	return wait_masked(set, epfd, events, max, deadline, mask);
}

EXPORTED int epoll_pwait(int epfd, struct epoll_event *events, int max, int timeout, const sigset_t *mask)
{
	struct timespec limit = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000};
	struct set *set = set_at(epfd);

	if (!set || max <= 0)
		return real()->epoll_pwait(epfd, events, max, timeout, mask);
	return wait_program(set, epfd, events, max, timeout < 0 ? NULL : &limit, mask);
}

EXPORTED int epoll_pwait2(
	int epfd, struct epoll_event *events, int max, const struct timespec *timeout, const sigset_t *mask)
{
	struct set *set = set_at(epfd);

	if (!real()->epoll_pwait2)
		return fail(ENOSYS);
	if (!set || max <= 0)
		return real()->epoll_pwait2(epfd, events, max, timeout, mask);
	return wait_program(set, epfd, events, max, timeout, mask);
}

EXPORTED int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
	return epoll_pwait(epfd, events, max, timeout, NULL);
}
