/* SPDX-License-Identifier: MIT */
#include "preload/option.h"
#include "base/cancel.h"
#include "base/export.h"
#include "preload/epoll.h"
#include "preload/names.h"
#include "preload/signals.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>

/* Those that rsockets know. The kernel doubles the sizes it is given, so what it says is halved again. */
static const struct row {
	int level, name;
	int divide;
} rows[] = {
	{SOL_SOCKET, SO_REUSEADDR, 1},
	{SOL_SOCKET, SO_KEEPALIVE, 1},
	{SOL_SOCKET, SO_OOBINLINE, 1},
	{SOL_SOCKET, SO_SNDBUF, 2},
	{SOL_SOCKET, SO_RCVBUF, 2},
	{IPPROTO_TCP, TCP_NODELAY, 1},
	{IPPROTO_IPV6, IPV6_V6ONLY, 1},
};

enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

/* The kernel lets a TCP socket's buffers grow to megabytes. An rsocket's are what they are, and each half of
 * one is a round trip; so they begin large, unless the administrator or the program says how large. */
static void grow_buffers(int rs)
{
	enum { USUAL = 1 << 17, LARGE = 1 << 20 };
	static const int names[] = {SO_SNDBUF, SO_RCVBUF};

	for (int i = 0; i < 2; i++) {
		int value = 0, half = LARGE / 2;
		socklen_t len = sizeof(value);

		if (!rgetsockopt(rs, SOL_SOCKET, names[i], &value, &len) && value == USUAL)
			rsetsockopt(rs, SOL_SOCKET, names[i], &half, sizeof(half));
	}
}

void option_copy(int fd, const struct sock *s, int rs)
{
	grow_buffers(rs);
	for (unsigned i = 0; i < NROWS; i++) {
		int value;
		socklen_t len = sizeof(value);

		if (!(s->options & 1u << i) ||
			real()->getsockopt(fd, rows[i].level, rows[i].name, &value, &len))
			continue;
		value /= rows[i].divide;
		rsetsockopt(rs, rows[i].level, rows[i].name, &value, sizeof(value));
	}
}

static void note(struct sock *s, int level, int name)
{
	for (unsigned i = 0; i < NROWS; i++)
		if (rows[i].level == level && rows[i].name == name)
			s->options |= 1u << i;
}

static void note_timeout(struct sock *s, int name, const void *value, socklen_t len)
{
	struct timeval t;
	int64_t ms;

	if ((name != SO_RCVTIMEO && name != SO_SNDTIMEO) || len < sizeof(t))
		return;
	memcpy(&t, value, sizeof(t));
	ms = t.tv_sec * 1000ll + (t.tv_usec + 999) / 1000;
	if (ms <= 0 || ms > INT_MAX)
		ms = -1;
	*(name == SO_RCVTIMEO ? &s->receive_ms : &s->send_ms) = ms;
}

EXPORTED int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct sock *s = sock_at(fd);

	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (s && level == SOL_RDMA)
		return s->rs >= 0 ? rsetsockopt(s->rs, level, name, value, len) : fail(ENOTCONN);
	if (real()->setsockopt(fd, level, name, value, len))
		return -1;
	if (!s)
		return 0;
	if (level == SOL_SOCKET)
		note_timeout(s, name, value, len);
	note(s, level, name);
	if (s->rs >= 0)
		rsetsockopt(s->rs, level, name, value, len);
	return 0;
}

static int give_error(int error, void *value, socklen_t *len)
{
	if (*len < sizeof(error))
		return fail(EINVAL);
	memcpy(value, &error, sizeof(error));
	*len = sizeof(error);
	return 0;
}

/* What became of a connect, as SO_ERROR tells it. */
static int take_error(int fd, struct sock *s, void *value, socklen_t *len)
{
	int error;

	sock_progress(fd, s);
	error = sock_take_failure(fd, s);
	if (error)
		return give_error(error, value, len);
	if (sock_at(fd) != s)
		return real()->getsockopt(fd, SOL_SOCKET, SO_ERROR, value, len);
	if (s->state == SOCK_CONNECTED || s->state == SOCK_DATAGRAM)
		return rgetsockopt(s->rs, SOL_SOCKET, SO_ERROR, value, len);
	return real()->getsockopt(fd, SOL_SOCKET, SO_ERROR, value, len);
}

EXPORTED int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct sock *s = sock_at(fd);

	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (s && level == SOL_SOCKET && name == SO_ERROR)
		return take_error(fd, s, value, len);
	if (s && s->rs >= 0 && s->state != SOCK_LISTENING &&
		(level == SOL_RDMA || (level == IPPROTO_TCP && name == TCP_MAXSEG)))
		return rgetsockopt(s->rs, level, name, value, len);
	return real()->getsockopt(fd, level, name, value, len);
}

/* ---- names
 * ------------------------------------------------------------------------------------------------------- */

static bool has_names(const struct sock *s)
{
	return s && (s->state == SOCK_CONNECTED || s->state == SOCK_DATAGRAM || s->state == SOCK_RELAYED);
}

static int give_name(const struct sock *s, int (*ask)(const struct sock *, struct sock_name *),
	struct sockaddr *addr, socklen_t *len)
{
	struct sock_name n;

	if (ask(s, &n))
		return -1;
	name_give(&n, s->domain, addr, len);
	return 0;
}

EXPORTED int getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct sock *s = sock_at(fd);

	return has_names(s) ? give_name(s, name_peer, addr, len) : real()->getpeername(fd, addr, len);
}

EXPORTED int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct sock *s = sock_at(fd);

	return has_names(s) ? give_name(s, name_own, addr, len) : real()->getsockname(fd, addr, len);
}

EXPORTED int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sock *s = sock_at(fd);

	return s && s->state == SOCK_DATAGRAM ? rbind(s->rs, addr, len) : real()->bind(fd, addr, len);
}

/* ---- flags and duplicates
 * ---------------------------------------------------------------------------------------- */

static void set_nonblock(struct sock *s, bool on)
{
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (s->state == SOCK_LISTENING)
		s->nonblock = on;
	else if (s->rs >= 0 && s->state != SOCK_CONNECTING)
		rfcntl(s->rs, F_SETFL, on ? (long)O_NONBLOCK : 0L);
}

static int set_flags(int fd, struct sock *s, long flags)
{
	bool listening = s->state == SOCK_LISTENING;

	if (real()->fcntl(fd, F_SETFL, listening ? flags | O_NONBLOCK : flags))
		return -1;
	set_nonblock(s, flags & O_NONBLOCK);
	return 0;
}

static int get_flags(int fd, struct sock *s)
{
	int flags = real()->fcntl(fd, F_GETFL);

	if (flags >= 0 && s->state == SOCK_LISTENING && !s->nonblock)
		flags &= ~O_NONBLOCK;
	return flags;
}

/* A new descriptor leads where the old one does. */
static int duplicate(int fd, int copy)
{
	struct file *f = file_at(fd);

	if (copy >= 0 && f)
		file_put(copy, f);
	return copy;
}

static int control(int fd, int cmd, void *arg)
{
	struct sock *s = sock_at(fd);

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duplicate(fd, real()->fcntl(fd, cmd, arg));
	if (s && cmd == F_SETFL)
		return set_flags(fd, s, (long)arg);
	if (s && cmd == F_GETFL)
		return get_flags(fd, s);
	return real()->fcntl(fd, cmd, arg);
}

/* The argument is absent, an int or a pointer: all fit in a pointer's register. */
EXPORTED int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return control(fd, cmd, arg);
}

EXPORTED int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	return control(fd, cmd, arg);
}

/* How much can be read at once, up to a limit that no caller of FIONREAD will mind. */
static int readable(int rs, int *count)
{
	enum { LIMIT = 1 << 16 };
	char *buf = malloc(LIMIT);
	ssize_t n;

	if (!buf)
		return fail(ENOMEM);
	n = rrecv(rs, buf, LIMIT, MSG_PEEK | MSG_DONTWAIT);
	free(buf);
	*count = n < 0 ? 0 : n;
	return 0;
}

EXPORTED int ioctl(int fd, unsigned long request, ...)
{
	struct sock *s = sock_at(fd);
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (s && request == FIONBIO) {
		if (s->state != SOCK_LISTENING && real()->ioctl(fd, request, arg))
			return -1;
		set_nonblock(s, *(int *)arg);
		return 0;
	}
	if (s && request == FIONREAD && (s->state == SOCK_CONNECTED || s->state == SOCK_DATAGRAM))
		return readable(s->rs, arg);
	return real()->ioctl(fd, request, arg);
}

EXPORTED int dup(int fd)
{
	return duplicate(fd, real()->dup(fd));
}

/* What was at the place of the copy ends, as with close(). */
EXPORTED int dup2(int fd, int to)
{
	if (fd != to && real()->fcntl(fd, F_GETFD) >= 0)
		file_take(to);
	return fd == to ? real()->dup2(fd, to) : duplicate(fd, real()->dup2(fd, to));
}

EXPORTED int dup3(int fd, int to, int flags)
{
	if (fd != to && !(flags & ~O_CLOEXEC) && real()->fcntl(fd, F_GETFD) >= 0)
		file_take(to);
	return duplicate(fd, real()->dup3(fd, to, flags));
}
