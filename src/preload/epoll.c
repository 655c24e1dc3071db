/* SPDX-License-Identifier: MIT */
/* A program's epoll set. Sockets of ours are members here, all other descriptors stay in the kernel's set,
 * which itself is waited for as one more descriptor. Without members the kernel is waited for as if we were
 * not there, but for an eventfd that is readable when there are some: sockets join while others wait.
 *
 * EPOLLET: an event that was reported is not reported again until the program has done what would use it up:
 * any receive for EPOLLIN, a send that did not take everything for EPOLLOUT. That is never less than the
 * kernel reports. EPOLLONESHOT: a member that was reported sleeps until EPOLL_CTL_MOD. */
#include "preload/epoll_parts.h"
#include "preload/signals.h"
#include "base/asserts.h"
#include "base/cancel.h"
#include "base/export.h"
#include "base/fd.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

static struct set *all_sets; /* never shorter; under files_lock */

struct set *set_at(int fd)
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

bool set_is_eventfd(int fd)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && !(st.st_mode & S_IFMT); /* it is of no type of file */
}

int set_open_event(void)
{
	return fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void close_event(int fd)
{
	if (set_is_eventfd(fd))
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
		if (w->used && set_is_eventfd(w->wake))
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
	set->joined = set_open_event();
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
	if (!changes || !set_is_eventfd(set->joined))
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
		set->joined = set_open_event();
	}
}
