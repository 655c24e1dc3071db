/* SPDX-License-Identifier: MIT */
/*
 * rpoll and rselect, over rsockets and ordinary descriptors in one set.
 *
 * An rsocket is not ready because a descriptor is readable: its completion channel also tells of credits and
 * acknowledges. So a thread asks the rsockets themselves, and sleeps on their descriptors only to learn when
 * to ask again. What made a descriptor readable may be taken away by another thread that works on the same
 * rsocket; who does that calls rsock_wake, and the sleepers' own descriptors wake them.
 */
#include "rsocket/rsock.h"
#include "rsocket/service.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- sleepers ---- */
struct sleeper {
	struct list node;
	int fd;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list sleepers = {&sleepers, &sleepers};
static unsigned owner;

/* A child has none of its parent's threads. */
static void lock_sleepers(void)
{
	if (owner != rsock_generation()) {
		pthread_mutex_init(&mutex, NULL);
		list_init(&sleepers);
		owner = rsock_generation();
	}
	pthread_mutex_lock(&mutex);
}

static int lie_down(struct sleeper *s)
{
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0)
		return -errno;
	lock_sleepers();
	list_add_tail(&sleepers, &s->node);
	pthread_mutex_unlock(&mutex);
	return 0;
}

static void get_up(struct sleeper *s)
{
	lock_sleepers();
	list_del(&s->node);
	pthread_mutex_unlock(&mutex);
	close(s->fd);
}

void rsock_wake(struct rsock *rs)
{
	uint64_t one = 1;

	if (!rs->polled)
		return;
	lock_sleepers();
	list_for_each(n, &sleepers)
	{
		(void)!write(container_of(n, struct sleeper, node)->fd, &one, sizeof(one));
	}
	pthread_mutex_unlock(&mutex);
}

/* ---- one look ---- */
struct set {
	struct pollfd *fds; /* the program's */
	nfds_t n;
	struct rsock **rs;   /* which of them are rsockets: ours until we are done, whoever closes them */
	struct pollfd *real; /* what poll gets: n of them, and the sleeper's */
	bool mixed;          /* there are ordinary descriptors */
};

/* Asks all rsockets, and the kernel for the others. The number of those with something to say, or -errno. */
static int look(struct set *s)
{
	int ready = 0;

	for (nfds_t i = 0; i < s->n; i++) {
		struct rsock *rs = s->rs[i];

		s->fds[i].revents = rs ? rs->ops->poll(rs, s->fds[i].events) : 0;
		ready += s->fds[i].revents != 0;
	}
	if (!s->mixed)
		return ready;
	for (nfds_t i = 0; i < s->n; i++)
		s->real[i] = (struct pollfd){.fd = s->rs[i] ? -1 : s->fds[i].fd, .events = s->fds[i].events};
	if (poll(s->real, s->n, 0) < 0)
		return -errno;
	for (nfds_t i = 0; i < s->n; i++) {
		if (s->real[i].fd >= 0)
			s->fds[i].revents = s->real[i].revents;
		ready += s->real[i].revents != 0;
	}
	return ready;
}

/* ---- sleeping ---- */
static void arm(struct set *s)
{
	for (nfds_t i = 0; i < s->n; i++) {
		struct rsock *rs = s->rs[i];

		if (!rs)
			continue;
		rs->polled++;
		rs->ops->arm(rs);
	}
}

static void fill_real(struct set *s, const struct sleeper *me)
{
	for (nfds_t i = 0; i < s->n; i++) {
		struct rsock *rs = s->rs[i];

		s->real[i] = (struct pollfd){
			.fd = rs ? rs->ops->arm(rs) : s->fds[i].fd, .events = rs ? POLLIN : s->fds[i].events};
	}
	s->real[s->n] = (struct pollfd){.fd = me->fd, .events = POLLIN};
}

static void disarm(struct set *s)
{
	for (nfds_t i = 0; i < s->n; i++) {
		struct rsock *rs = s->rs[i];

		if (!rs)
			continue;
		if (s->real[i].revents)
			rs->ops->disarm(rs);
		rs->polled--;
	}
}

struct sleep {
	struct set *s;
	struct sleeper me;
};

/* Others know of us, also when we are cancelled. */
static void wake_up(void *arg)
{
	struct sleep *z = arg;

	disarm(z->s);
	get_up(&z->me);
}

static int sleep_armed(struct sleep *z, int ms)
{
	int err;

	pthread_cleanup_push(wake_up, z);
	rsock_wait_begin();
	err = rsock_sleep(z->s->real, z->s->n + 1, ms);
	rsock_wait_end();
	pthread_cleanup_pop(0);
	return err;
}

/* Until something may have changed: what look says afterwards. */
static int sleep_once(struct set *s, int ms)
{
	struct sleep z = {.s = s};
	int ready = lie_down(&z.me), err = 0;

	if (ready < 0)
		return ready;
	arm(s);
	ready = look(s); /* what came before we armed */
	fill_real(s, &z.me);
	if (!ready)
		err = sleep_armed(&z, ms);
	wake_up(&z);
	if (ready || err)
		return ready ? ready : err;
	return look(s);
}

static int ms_left(uint64_t deadline)
{
	uint64_t now = rs_now(), most = rsock_config()->wake_up_ms, left;

	if (deadline == UINT64_MAX)
		return (int)most;
	left = deadline > now ? (deadline - now + 999999) / 1000000 : 0;
	return (int)(left < most ? left : most);
}

static int wait_for(struct set *s, int timeout)
{
	uint64_t begin = timeout ? rs_now() : 0;
	uint64_t deadline = timeout < 0 ? UINT64_MAX : begin + (uint64_t)timeout * 1000000;
	uint64_t spin = begin + (uint64_t)rsock_config()->polling_us * 1000;
	int ready;

	do {
		ready = look(s);
	} while (!ready && timeout && rs_now() < spin);
	while (!ready && timeout) {
		int ms = ms_left(deadline);

		if (!ms)
			break;
		ready = sleep_once(s, ms);
	}
	return ready;
}

/* ---- the rsockets of a set ---- */
enum { FEW = 16 };

static bool get_all(struct set *s, struct rsock **few_rs, struct pollfd *few_real)
{
	s->rs = s->n < FEW ? few_rs : malloc(s->n * sizeof(*s->rs));
	s->real = s->n < FEW ? few_real : malloc((s->n + 1) * sizeof(*s->real));
	for (nfds_t i = 0; s->rs && s->real && i < s->n; i++) {
		s->rs[i] = rsock_get(s->fds[i].fd);
		s->mixed |= !s->rs[i];
	}
	return s->rs && s->real;
}

static void free_all(struct set *s)
{
	if (s->n < FEW)
		return;
	free(s->rs);
	free(s->real);
}

static void put_all(void *set)
{
	struct set *s = set;

	for (nfds_t i = 0; i < s->n; i++)
		if (s->rs[i])
			rsock_put(s->rs[i]);
	free_all(s);
}

int rsock_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct set s = {.fds = fds, .n = n};
	struct rsock *few_rs[FEW];
	struct pollfd few_real[FEW];
	int ret;

	if (n > INT_MAX / sizeof(*s.real) - 1)
		return -EINVAL;
	if (!get_all(&s, few_rs, few_real)) {
		free_all(&s);
		return -ENOMEM;
	}
	pthread_cleanup_push(put_all, &s);
	ret = wait_for(&s, timeout);
	pthread_cleanup_pop(1);
	return ret;
}

/* ---- select ---- */
static nfds_t from_sets(int nfds, const fd_set *rd, const fd_set *wr, const fd_set *ex, struct pollfd *fds)
{
	nfds_t n = 0;

	for (int fd = 0; fd < nfds; fd++) {
		short events = (short)((rd && FD_ISSET(fd, rd) ? POLLIN : 0) |
				       (wr && FD_ISSET(fd, wr) ? POLLOUT : 0) |
				       (ex && FD_ISSET(fd, ex) ? POLLPRI : 0));

		if (events)
			fds[n++] = (struct pollfd){.fd = fd, .events = events};
	}
	return n;
}

static int mark(fd_set *set, const struct pollfd *p, short asked, int revents)
{
	if (!set || !(p->events & asked) || !(p->revents & revents))
		return 0;
	FD_SET(p->fd, set);
	return 1;
}

static int to_sets(const struct pollfd *fds, nfds_t n, fd_set *rd, fd_set *wr, fd_set *ex)
{
	int bits = 0;

	for (nfds_t i = 0; i < n; i++) {
		if (fds[i].revents & POLLNVAL)
			return -EBADF;
	}
	if (rd)
		FD_ZERO(rd);
	if (wr)
		FD_ZERO(wr);
	if (ex)
		FD_ZERO(ex);
	for (nfds_t i = 0; i < n; i++) {
		bits += mark(rd, &fds[i], POLLIN, POLLIN | POLLHUP | POLLERR);
		bits += mark(wr, &fds[i], POLLOUT, POLLOUT | POLLHUP | POLLERR);
		bits += mark(ex, &fds[i], POLLPRI, POLLPRI | POLLHUP | POLLERR);
	}
	return bits;
}

static int timeout_ms(const struct timeval *t)
{
	int64_t ms = t ? (int64_t)t->tv_sec * 1000 + (t->tv_usec + 999) / 1000 : -1;

	return ms < INT_MAX ? (int)ms : INT_MAX;
}

static int select_with(
	struct pollfd *fds, int nfds, fd_set *rd, fd_set *wr, fd_set *ex, const struct timeval *timeout)
{
	nfds_t n = from_sets(nfds, rd, wr, ex, fds);
	int ret = rsock_poll(fds, n, timeout_ms(timeout));

	return ret < 0 ? ret : to_sets(fds, n, rd, wr, ex);
}

int rsock_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct pollfd *fds;
	int ret;

	if (nfds < 0 || nfds > FD_SETSIZE)
		return -EINVAL;
	fds = calloc((size_t)nfds + 1, sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	pthread_cleanup_push(free, fds);
	ret = select_with(fds, nfds, readfds, writefds, exceptfds, timeout);
	pthread_cleanup_pop(1);
	return ret;
}
