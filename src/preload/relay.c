/* SPDX-License-Identifier: MIT */
/* Connections that a child process inherits.
 *
 * An rsocket is memory and threads of one process; a child cannot use it. So at a fork each connection gets a
 * pair of Unix sockets. In the child one end takes the place of the connection, under the same numbers: a
 * plain socket, which outlives exec() too. The parent keeps the other end. When the parent closes the
 * connection, as servers that fork for each client do, a thread carries the data between the rsocket and that
 * end until both sides are done.
 *
 * A parent that goes on using the connection itself does so as before; then the child's end stays silent. */
#include "preload/relay.h"
#include "base/cancel.h"
#include "preload/epoll.h"
#include "preload/names.h"
#include "preload/sock.h"

#include <fcntl.h>
#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- carrying data
 * ------------------------------------------------------------------------------------------------ */

enum { ROOM = 1 << 16 };

/* One direction. Empty buffers are filled, full ones emptied, and at the end of the stream the end is passed
 * on. */
struct lane {
	int in, out;
	ssize_t (*receive)(int, void *, size_t, int);
	ssize_t (*send)(int, const void *, size_t, int);
	int (*shutdown)(int, int);
	size_t at, len;
	bool over;
	char room[ROOM];
};

struct relay {
	struct lane to_child, from_child;
	int rs, end;
};

static atomic_int running;

static bool would_block(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void lane_end(struct lane *l)
{
	l->over = true;
	l->shutdown(l->out, SHUT_WR);
}

static void lane_fill(struct lane *l)
{
	ssize_t n = l->receive(l->in, l->room, ROOM, MSG_DONTWAIT);

	if (n > 0) {
		l->at = 0;
		l->len = n;
	} else if (n == 0 || !would_block()) {
		lane_end(l);
	}
}

static void lane_empty(struct lane *l)
{
	ssize_t n = l->send(l->out, l->room + l->at, l->len - l->at, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n > 0)
		l->at += n;
	else if (n < 0 && !would_block())
		l->over = true;
	if (l->at == l->len)
		l->at = l->len = 0;
}

static void lane_move(struct lane *l, const struct pollfd *in, const struct pollfd *out)
{
	if (l->over)
		return;
	if (l->len && out->revents)
		lane_empty(l);
	else if (!l->len && in->revents)
		lane_fill(l);
}

/* What a lane waits for at its two ends. */
static void lane_want(const struct lane *l, struct pollfd *in, struct pollfd *out)
{
	if (l->over)
		return;
	if (l->len)
		out->events |= POLLOUT;
	else
		in->events |= POLLIN;
}

static void *relay_run(void *arg)
{
	struct relay *r = arg;

	while (!r->to_child.over || !r->from_child.over) {
		struct pollfd fds[2] = {{.fd = r->rs}, {.fd = r->end}};

		lane_want(&r->to_child, &fds[0], &fds[1]);
		lane_want(&r->from_child, &fds[1], &fds[0]);
		if (!fds[0].events) /* a hang-up alone would wake us again and again */
			fds[0].fd = -1;
		if (!fds[1].events && !r->from_child.over)
			fds[1].fd = -1;
		if (rpoll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (r->from_child.over && fds[1].revents & POLLHUP)
			break; /* the child's end is closed: nobody reads what may still come */
		lane_move(&r->to_child, &fds[0], &fds[1]);
		lane_move(&r->from_child, &fds[1], &fds[0]);
	}
	rclose(r->rs);
	real()->close(r->end);
	free(r);
	atomic_fetch_sub(&running, 1);
	return NULL;
}

void relay_start(struct sock *s)
{
	struct relay *r = malloc(sizeof(*r));
	pthread_t thread;
	sigset_t all, saved;

	if (!r) {
		rclose(s->rs);
		real()->close(s->relay);
		return;
	}
	r->rs = s->rs;
	r->end = s->relay;
	r->to_child = (struct lane){.in = r->rs, .out = r->end};
	r->to_child.receive = rrecv;
	r->to_child.send = real()->send;
	r->to_child.shutdown = real()->shutdown;
	r->from_child = (struct lane){.in = r->end, .out = r->rs};
	r->from_child.receive = real()->recv;
	r->from_child.send = rsend;
	r->from_child.shutdown = rshutdown;
	rfcntl(r->rs, F_SETFL, (long)O_NONBLOCK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	atomic_fetch_add(&running, 1);
	if (pthread_create(&thread, NULL, relay_run, r)) {
		atomic_fetch_sub(&running, 1);
		rclose(r->rs);
		real()->close(r->end);
		free(r);
	} else {
		pthread_detach(thread);
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
}

/* The connection is in this process: it stays until its children are done with theirs. */
__attribute__((destructor)) static void relay_wait(void)
{
	while (atomic_load(&running))
		usleep(10000);
}

/* ---- fork
 * ---------------------------------------------------------------------------------------------------------
 */

/* Ends for the child, beside the connections; only between before_fork and after. */
static struct inherited {
	struct sock *sock;
	int end;
} * inherited;
static int ninherited;
static int fork_cancel; /* of the thread that forks, under files_lock */

/* Calls each for every socket, once. */
static void each_sock(void (*each)(struct sock *s))
{
	for (int fd = 0; fd <= files_highest; fd++) {
		struct sock *s = sock_at(fd);

		if (s && file_next_fd(&s->file, -1) == fd)
			each(s);
	}
}

static void make_pair(struct sock *s)
{
	struct inherited *more;
	int pair[2];

	if (s->state != SOCK_CONNECTED)
		return;
	more = realloc(inherited, (ninherited + 1) * sizeof(*more));
	if (!more)
		return;
	inherited = more;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return;
	if (s->relay >= 0) /* an earlier child's */
		real()->close(s->relay);
	s->relay = pair[0];
	if (name_peer(s, &s->peer) || name_own(s, &s->name))
		s->peer.len = s->name.len = 0;
	inherited[ninherited++] = (struct inherited){s, pair[1]};
}

static void before_fork(void)
{
	int cancel = cancel_off();

	pthread_mutex_lock(&files_lock);
	fork_cancel = cancel;
	each_sock(make_pair);
}

static void in_parent(void)
{
	int cancel = fork_cancel;

	while (ninherited)
		real()->close(inherited[--ninherited].end);
	pthread_mutex_unlock(&files_lock);
	cancel_restore(cancel);
}

/* The end takes the place of the connection under all its numbers, each as it was about exec(). */
static void take_place(struct sock *s, int end)
{
	int nonblock = 0;

	for (int fd = file_next_fd(&s->file, -1); fd >= 0; fd = file_next_fd(&s->file, fd)) {
		int cloexec = real()->fcntl(fd, F_GETFD) & FD_CLOEXEC;

		nonblock = real()->fcntl(fd, F_GETFL) & O_NONBLOCK;
		real()->dup3(end, fd, cloexec ? O_CLOEXEC : 0);
	}
	real()->fcntl(end, F_SETFL, nonblock);
	real()->close(end);
	real()->close(s->relay);
	s->relay = -1;
	s->rs = -1;
	sock_set_state(s, SOCK_RELAYED);
}

/* What else the parent had under way is not the child's. */
static void disown(struct sock *s)
{
	s->set = NULL;
	s->watchers = 0;
	if (s->state == SOCK_RELAYED)
		return;
	s->rs = -1;
	if (s->state == SOCK_LISTENING)
		s->deadline = 0;
	else if (s->state != SOCK_FAILED && s->state != SOCK_FRESH)
		sock_set_state(s, SOCK_FRESH);
}

static void in_child(void)
{
	files_own();
	while (ninherited) {
		struct inherited *i = &inherited[--ninherited];

		take_place(i->sock, i->end);
	}
	sock_after_fork();
	set_after_fork();
	each_sock(disown);
	atomic_store(&running, 0);
	pthread_mutex_unlock(&files_lock);
	cancel_restore(fork_cancel);
}

__attribute__((constructor)) static void relay_init(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}
