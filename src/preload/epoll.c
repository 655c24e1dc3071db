/* SPDX-License-Identifier: MIT */
/* A program's epoll set. Sockets of ours are members here, all other descriptors stay in the kernel's set,
 * which itself is waited for as one more descriptor. Without members the kernel is waited for as if we were
 * not there, but for an eventfd that is readable when there are some: sockets join while others wait.
 *
 * EPOLLET: an event that was reported is not reported again until the program has done what would use it up:
 * any receive for EPOLLIN, a send that did not take everything for EPOLLOUT. That is never less than the
 * kernel reports. EPOLLONESHOT: a member that was reported sleeps until EPOLL_CTL_MOD. */
#include "preload/epoll.h"
#include "preload/signals.h"
#include "base/asserts.h"
#include "base/cancel.h"
#include "base/export.h"
#include "base/fd.h"
#include "preload/sock.h"

#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

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

static struct set *all_sets; /* never shorter; under files_lock */

/* The events of epoll are those of poll, with other things above. */
enum { POLL_BITS = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP };

static struct set *set_at(int fd)
{
	struct file *f = file_at(fd);

	return f && f->kind == FILE_SET ? (struct set *)f : NULL;
}

static struct set *recycled_set(void)
{
	struct set *set;

	pthread_mutex_lock(&files_lock);
	for (set = all_sets; set && set->used; set = set->next)
		;
	if (set)
		set->used = true;
	pthread_mutex_unlock(&files_lock);
	return set;
}

static struct set *new_set(void)
{
	struct set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	set->file.kind = FILE_SET;
	set->used = true;
	pthread_mutex_init(&set->lock, NULL);
	pthread_mutex_lock(&files_lock);
	set->next = all_sets;
	all_sets = set;
	pthread_mutex_unlock(&files_lock);
	return set;
}

/* Programs that close all descriptors they do not know close ours too, and may have others there by now. */
static bool is_eventfd(int fd)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && !(st.st_mode & S_IFMT); /* it is of no type of file */
}

static int open_event(void)
{
	return fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void close_event(int fd)
{
	if (is_eventfd(fd))
		real()->close(fd);
}

static void close_events(struct set *set)
{
	close_event(atomic_exchange(&set->joined, -1));
	for (struct waiter *w = set->waiters; w; w = w->next)
		close_event(fd_take(&w->wake));
}

/* lock held */
static void wake(struct set *set)
{
	assert_that(mutex_is_locked(&set->lock));
	for (struct waiter *w = set->waiters; w; w = w->next)
		if (w->used && is_eventfd(w->wake))
			eventfd_write(w->wake, 1);
}

static void recycle(struct set *set)
{
	pthread_mutex_lock(&set->lock);
	close_events(set);
	pthread_mutex_unlock(&set->lock);
	pthread_mutex_lock(&files_lock);
	set->used = false;
	pthread_mutex_unlock(&files_lock);
}

/* The set of an epoll descriptor, of which there is none: it is new, or was inherited. */
static struct set *make_set(int epfd)
{
	struct set *set = recycled_set();

	if (!set)
		set = new_set();
	if (!set)
		return NULL;
	set->joined = open_event();
	if (set->joined >= 0 && file_put(epfd, &set->file))
		return set;
	recycle(set);
	return NULL;
}

static int begin_set(int epfd)
{
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (epfd >= 0)
		make_set(epfd);
	return epfd;
}

EXPORTED int epoll_create1(int flags)
{
	int epfd = real()->epoll_create1(flags);

	return caller_is_ours(__builtin_return_address(0)) ? epfd : begin_set(epfd);
}

EXPORTED int epoll_create(int size)
{
	int epfd = real()->epoll_create(size);

	return caller_is_ours(__builtin_return_address(0)) ? epfd : begin_set(epfd);
}

void set_end(struct set *set)
{
	pthread_mutex_lock(&set->lock);
	set->n = 0; /* the sockets keep their pointer: they may be in other sets, which they leave at their
		       end */
	pthread_mutex_unlock(&set->lock);
	recycle(set);
}

/* ---- members
 * ------------------------------------------------------------------------------------------------------ */

bool set_has_members(struct set *set)
{
	return atomic_load(&set->n);
}

/* lock held */
static void count(struct set *set, int n)
{
	bool changes = !n != !set->n;
	eventfd_t one;

	assert_that(mutex_is_locked(&set->lock));
	set->n = n;
	if (!changes || !is_eventfd(set->joined))
		return;
	if (n)
		eventfd_write(set->joined, 1);
	else
		eventfd_read(set->joined, &one);
}

static struct member *find(struct set *set, int fd, const struct sock *s)
{
	for (int i = 0; i < set->n; i++)
		if (set->members[i].fd == fd && set->members[i].sock == s)
			return &set->members[i];
	return NULL;
}

static int add_member(struct set *set, int fd, struct sock *s, const struct epoll_event *event)
{
	if (set->n == set->room) {
		int room = set->room ? set->room * 2 : 8;
		struct member *more = realloc(set->members, room * sizeof(*more));

		if (!more)
			return ENOMEM;
		set->members = more;
		set->room = room;
	}
	set->members[set->n] = (struct member){fd, s, event->events, event->data};
	count(set, set->n + 1);
	s->set = set;
	return 0;
}

static int change(struct set *set, int op, int fd, struct sock *s, const struct epoll_event *event)
{
	struct member *m = find(set, fd, s);

	if (op == EPOLL_CTL_ADD ? m != NULL : m == NULL)
		return op == EPOLL_CTL_ADD ? EEXIST : ENOENT;
	atomic_store(&s->seen, 0);
	if (op == EPOLL_CTL_ADD)
		return add_member(set, fd, s, event);
	if (op == EPOLL_CTL_MOD) {
		m->events = event->events;
		m->data = event->data;
	} else {
		*m = set->members[set->n - 1];
		count(set, set->n - 1);
	}
	return 0;
}

EXPORTED int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct sock *s = sock_at(fd);
	struct set *set = set_at(epfd);
	int error;

	if (!s || s->state == SOCK_RELAYED || op < EPOLL_CTL_ADD || op > EPOLL_CTL_MOD)
		return real()->epoll_ctl(epfd, op, fd, event);
	if (!event && op != EPOLL_CTL_DEL)
		return fail(EFAULT);
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (!set)
		set = make_set(epfd);
	if (!set)
		return fail(ENOMEM);
	pthread_mutex_lock(&set->lock);
	error = change(set, op, fd, s, event);
	wake(set);
	pthread_mutex_unlock(&set->lock);
	return error ? fail(error) : 0;
}

/* Calls what(set, member) for each place of a socket in any set, and takes it out. */
static void leave_sets(struct sock *s, void (*what)(struct set *, struct member *))
{
	if (!s->set)
		return;
	pthread_mutex_lock(&files_lock);
	for (struct set *set = all_sets; set; set = set->next) {
		pthread_mutex_lock(&set->lock);
		for (int i = set->n - 1; i >= 0; i--)
			if (set->members[i].sock == s) {
				if (what)
					what(set, &set->members[i]);
				set->members[i] = set->members[set->n - 1];
				count(set, set->n - 1);
				wake(set);
			}
		pthread_mutex_unlock(&set->lock);
	}
	s->set = NULL;
	pthread_mutex_unlock(&files_lock);
}

void set_remove(struct sock *s)
{
	leave_sets(s, NULL);
}

static void give_to_kernel(struct set *set, struct member *m)
{
	struct epoll_event event = {.events = m->events, .data = m->data};

	real()->epoll_ctl(file_next_fd(&set->file, -1), EPOLL_CTL_ADD, m->fd, &event);
}

void set_hand_over(struct sock *s)
{
	leave_sets(s, give_to_kernel);
}

void set_used(struct sock *s, int events)
{
	struct set *set = s->set;

	if (__builtin_expect(!set, 1) || !(atomic_load(&s->seen) & events))
		return;
	CANCEL_SAFE; /* what was received must reach the program */
	atomic_fetch_and(&s->seen, ~events);
	pthread_mutex_lock(&set->lock);
	wake(set);
	pthread_mutex_unlock(&set->lock);
}

/* Another thread of the parent may have held the lock, and the parent's waiters need their eventfds alone. */
void set_after_fork(void)
{
	for (struct set *set = all_sets; set; set = set->next) {
		pthread_mutex_init(&set->lock, NULL);
		for (struct waiter *w = set->waiters; w; w = w->next)
			w->used = false;
		set->n = 0;
		set->used = set->file.descriptors;
		if (!set->used)
			continue;
		close_events(set);
		set->joined = open_event();
	}
}

/* ---- waiting
 * ------------------------------------------------------------------------------------------------------ */

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
		w->wake = w->wake < 0 ? open_event() : w->wake;
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
	if (!is_eventfd(w->wake))
		w->wake = open_event();
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
	if (p[1].revents && !set_has_members(set) && !is_eventfd(p[1].fd))
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
