/* SPDX-License-Identifier: MIT */
/* poll(), select() and their kin, over rpoll(), which takes rsockets and the kernel's descriptors alike. */
#include "preload/wait.h"
#include "base/cancel.h"
#include "base/export.h"
#include "preload/epoll.h"
#include "preload/signals.h"
#include "preload/sock.h"

#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

void wait_init(struct wait *w, int cancel)
{
	w->cancel = cancel;
	w->slots = w->few;
	w->owners = w->few_owners;
	w->room = sizeof(w->few) / sizeof(w->few[0]);
	w->watched = NULL;
	w->nwatched = 0;
	wait_clear(w);
}

void wait_clear(struct wait *w)
{
	while (w->nwatched)
		sock_unwatch(w->watched[--w->nwatched]);
	w->n = 0;
	w->deadline = INT64_MAX;
}

static void free_slots(struct wait *w)
{
	if (w->slots != w->few) {
		free(w->slots);
		free(w->owners);
	}
}

void wait_fini(struct wait *w)
{
	wait_clear(w);
	free(w->watched);
	free_slots(w);
}

static bool grow(struct wait *w)
{
	nfds_t room = w->room * 4;
	struct pollfd *slots = malloc(room * sizeof(*slots));
	int *owners = malloc(room * sizeof(*owners));

	if (!slots || !owners) {
		free(slots);
		free(owners);
		return false;
	}
	memcpy(slots, w->slots, w->n * sizeof(*slots));
	memcpy(owners, w->owners, w->n * sizeof(*owners));
	free_slots(w);
	w->slots = slots;
	w->owners = owners;
	w->room = room;
	return true;
}

void wait_add_slot(struct wait *w, int owner, int fd, int events)
{
	if (w->n == w->room && !grow(w))
		return;
	w->slots[w->n] = (struct pollfd){.fd = fd, .events = events};
	w->owners[w->n++] = owner;
}

/* It wakes us; whether the program is to know is found out then. */
static void add_connect(struct wait *w, struct sock *s, int rs)
{
	struct sock **more = realloc(w->watched, (w->nwatched + 1) * sizeof(*more));

	if (s->deadline < w->deadline)
		w->deadline = s->deadline;
	if (!more) {
		sock_unwatch(s);
		return;
	}
	w->watched = more;
	w->watched[w->nwatched++] = s;
	wait_add_slot(w, -1, rs, POLLOUT);
}

static int add_sock(struct wait *w, int owner, int fd, struct sock *s, int events)
{
	int rs = sock_watch(fd, s);

	if (rs >= 0) {
		add_connect(w, s, rs);
		return 0;
	}
	if (sock_at(fd) != s) {
		wait_add_slot(w, owner, fd, events);
		return 0;
	}
	switch (atomic_load(&s->state)) {
	case SOCK_FAILED:
		return POLLERR | POLLHUP | (events & (POLLIN | POLLOUT));
	case SOCK_CONNECTED:
	case SOCK_DATAGRAM:
		wait_add_slot(w, owner, s->rs, events);
		return 0;
	case SOCK_LISTENING:
		sock_listen_again(fd, s);
		if (s->rs >= 0)
			wait_add_slot(w, owner, s->rs, events);
		break;
	default:
		break;
	}
	wait_add_slot(w, owner, fd, events);
	return 0;
}

int wait_add(struct wait *w, int owner, int fd, int events)
{
	struct file *f = file_at(fd);

	if (f && f->kind == FILE_SOCK)
		return add_sock(w, owner, fd, (struct sock *)f, events);
	wait_add_slot(w, owner, fd, events);
	return f ? set_wait_add(w, owner, (struct set *)f) : 0;
}

/* rpoll() calls poll() or ppoll(), which are ours, with the kernel's sockets of the slots. */
static _Thread_local bool inside;

static void leave_rpoll(const bool *unused)
{
	(void)unused;
	cancel_off();
	inside = false;
}

static int rpoll_inside(struct wait *w, int ms)
{
	__attribute__((cleanup(leave_rpoll), unused)) const bool in = inside = true;

	cancel_restore(w->cancel);
	return rpoll(w->slots, w->n, ms);
}

bool wait_sleep(struct wait *w, int64_t deadline, int *n)
{
	if (signals_waiting) {
		*n = fail(EINTR);
		return false;
	}
	*n = rpoll_inside(w, ms_until(deadline < w->deadline ? deadline : w->deadline));
	if (*n == 0)
		return now_ms() < deadline;
	for (nfds_t i = 0; *n > 0 && i < w->n; i++)
		if (w->owners[i] < 0 && w->slots[i].revents)
			return true;
	return false;
}

static bool is_more_than_the_kernels(int fd)
{
	struct file *f = file_at(fd);

	return f && (f->kind == FILE_SOCK || set_has_members((struct set *)f));
}

bool wait_needed(struct pollfd *fds, nfds_t n)
{
	for (nfds_t i = 0; i < n; i++)
		if (is_more_than_the_kernels(fds[i].fd))
			return true;
	return false;
}

static int count_ready(const struct pollfd *fds, nfds_t n)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++)
		ready += fds[i].revents != 0;
	return ready;
}

/* One round: what is ready, by then. True when another is needed. */
static bool poll_once(struct wait *w, struct pollfd *fds, nfds_t n, int64_t deadline, int *result)
{
	bool again;

	wait_clear(w);
	for (nfds_t i = 0; i < n; i++) {
		fds[i].revents = wait_add(w, i, fds[i].fd, fds[i].events);
		if (fds[i].revents)
			deadline = 0;
	}
	again = wait_sleep(w, deadline, result);
	if (*result < 0)
		return false;
	for (nfds_t i = 0; i < w->n; i++)
		if (w->owners[i] >= 0)
			fds[w->owners[i]].revents |= w->slots[i].revents;
	*result = count_ready(fds, n);
	return again && !*result;
}

int wait_poll(struct pollfd *fds, nfds_t n, int64_t deadline)
{
	HANDLERS_WAIT;
	CANCEL_SAFE;
	__attribute__((cleanup(wait_fini))) struct wait w;
	int result;

	wait_init(&w, cancel_before);
	while (poll_once(&w, fds, n, deadline, &result))
		;
	return result;
}

/* ---- signals
 * ------------------------------------------------------------------------------------------------------ */

/* The kernel changes the mask and waits in one step. Here a signal that comes between the look and the wait,
 * a microsecond, does not end the wait; its handler has run all the same. */
bool wait_mask_begin(struct wait_mask *m, const sigset_t *mask)
{
	sigset_t pending;
	bool due = false;

	m->mask = mask;
	if (!mask)
		return false;
	sigpending(&pending);
	for (int sig = 1; sig < NSIG; sig++)
		due |= sigismember(&pending, sig) > 0 && sigismember(mask, sig) == 0;
	pthread_sigmask(SIG_SETMASK, mask, &m->saved);
	return due;
}

void wait_mask_end(struct wait_mask *m)
{
	if (m->mask)
		pthread_sigmask(SIG_SETMASK, &m->saved, NULL);
}

static int poll_masked(struct pollfd *fds, nfds_t n, int64_t deadline, const sigset_t *mask)
{
	__attribute__((cleanup(wait_mask_end))) struct wait_mask m;

	return wait_mask_begin(&m, mask) ? fail(EINTR) : wait_poll(fds, n, deadline);
}

/* ---- poll
 * ---------------------------------------------------------------------------------------------------------
 */

int64_t wait_deadline(const struct timespec *t)
{
	if (!t)
		return INT64_MAX;
	if (t->tv_sec > INT32_MAX)
		return INT64_MAX;
	return now_ms() + t->tv_sec * 1000ll + (t->tv_nsec + 999999) / 1000000;
}

EXPORTED int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (inside || !wait_needed(fds, n))
		return real()->poll(fds, n, timeout);
	return wait_poll(fds, n, timeout < 0 ? INT64_MAX : timeout ? now_ms() + timeout : 0);
}

EXPORTED int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
EXPORTED int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size)
{
	if (size / sizeof(*fds) < n)
		abort();
	return poll(fds, n, timeout);
}

EXPORTED int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	if (inside || !wait_needed(fds, n))
		return real()->ppoll(fds, n, timeout, mask);
	return poll_masked(fds, n, wait_deadline(timeout), mask);
}

EXPORTED int __ppoll_chk(
	struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size);
EXPORTED int __ppoll_chk(
	struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask, size_t size)
{
	if (size / sizeof(*fds) < n)
		abort();
	return ppoll(fds, n, timeout, mask);
}

/* ---- select
 * ------------------------------------------------------------------------------------------------------- */

/* What each of the three sets means in words of poll, asked and answered; as in the kernel. */
static const struct {
	int asked, answered;
} meaning[3] = {
	{POLLIN, POLLIN | POLLHUP | POLLERR},
	{POLLOUT, POLLOUT | POLLERR},
	{POLLPRI, POLLPRI},
};

static int events_of(fd_set *const sets[3], int fd)
{
	int events = 0;

	for (int i = 0; i < 3; i++)
		if (sets[i] && FD_ISSET(fd, sets[i]))
			events |= meaning[i].asked;
	return events;
}

static bool select_needed(int n, fd_set *const sets[3])
{
	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++)
		if (events_of(sets, fd) && is_more_than_the_kernels(fd))
			return true;
	return false;
}

static int answer(fd_set *const sets[3], const struct pollfd *fds, nfds_t n)
{
	int ready = 0;

	for (nfds_t k = 0; k < n; k++)
		for (int i = 0; i < 3; i++) {
			if (!sets[i] || !(fds[k].events & meaning[i].asked))
				continue;
			if (fds[k].revents & meaning[i].answered)
				ready++;
			else
				FD_CLR(fds[k].fd, sets[i]);
		}
	return ready;
}

static int select_by_poll(int n, fd_set *const sets[3], int64_t deadline, const sigset_t *mask)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t used = 0;
	int result;

	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++) {
		int events = events_of(sets, fd);

		if (events)
			fds[used++] = (struct pollfd){.fd = fd, .events = events};
	}
	result = poll_masked(fds, used, deadline, mask);
	if (result < 0)
		return result;
	for (nfds_t i = 0; i < used; i++)
		if (fds[i].revents & POLLNVAL)
			return fail(EBADF);
	return answer(sets, fds, used);
}

EXPORTED int select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	fd_set *const sets[3] = {in, out, except};
	struct timespec t;
	int64_t deadline;
	int result;

	if (!select_needed(n, sets))
		return real()->select(n, in, out, except, timeout);
	if (timeout)
		TIMEVAL_TO_TIMESPEC(timeout, &t);
	deadline = wait_deadline(timeout ? &t : NULL);
	result = select_by_poll(n, sets, deadline, NULL);
	if (timeout && deadline != INT64_MAX) { /* Linux says how much was left */
		int64_t left = deadline - now_ms();

		left = left < 0 ? 0 : left;
		*timeout = (struct timeval){.tv_sec = left / 1000, .tv_usec = left % 1000 * 1000};
	}
	return result;
}

EXPORTED int pselect(
	int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout, const sigset_t *mask)
{
	fd_set *const sets[3] = {in, out, except};

	if (!select_needed(n, sets))
		return real()->pselect(n, in, out, except, timeout, mask);
	return select_by_poll(n, sets, wait_deadline(timeout), mask);
}
