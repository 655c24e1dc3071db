/* SPDX-License-Identifier: MIT */
/* connect(): by RDMA where the peer listens so, else by TCP. */
#include "preload/sock.h"
#include "base/export.h"
#include "base/log.h"
#include "preload/names.h"
#include "preload/signals.h"

#include <fcntl.h>
#include <rdma/rsocket.h>
#include <string.h>

/* How long a host may be silent before TCP is tried. A REQ is answered in microseconds where somebody
 * listens, and refused in a third of a second where nobody does; a host without RDMA says nothing at all. */
enum { SILENCE_MS = 3000 };

/* To TCP. What connect() says goes to the program at once when it is in connect(), else through SO_ERROR. */
static int connect_plain(int fd, struct sock *s, bool told_later)
{
	struct sock_name to = s->peer;
	int error = real()->connect(fd, &to.sa, to.len) ? errno : 0;

	if (told_later && error && error != EINPROGRESS) {
		rclose(s->rs);
		s->rs = -1;
		s->error = error;
		s->state = SOCK_FAILED;
		return error;
	}
	sock_go_plain(s);
	return error;
}

/* Opens the rsocket and sends it on its way. 0 or an errno. */
static int connect_begin(int fd, struct sock *s, const struct sock_name *to)
{
	struct sock_name at = *to;

	name_unmap(&at);
	s->rs = sock_open_rsocket(fd, s, at.sa.sa_family);
	if (s->rs < 0)
		return errno;
	if (sock_bind_same(fd, s->rs))
		return errno;
	rfcntl(s->rs, F_SETFL, O_NONBLOCK);
	return rconnect(s->rs, &at.sa, at.len) ? errno : 0;
}

static int connect_done(int fd, struct sock *s)
{
	rfcntl(s->rs, F_SETFL, (long)(real()->fcntl(fd, F_GETFL) & O_NONBLOCK));
	s->state = SOCK_CONNECTED;
	return 0;
}

static int connect_failed(int fd, struct sock *s, int error, bool told_later)
{
	log_debug("sockets: no RDMA connection (%s), by TCP", strerror(error));
	return connect_plain(fd, s, told_later);
}

int sock_progress(int fd, struct sock *s, int timeout_ms)
{
	struct pollfd slot = {.fd = s->rs, .events = POLLOUT};
	int64_t until = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
	bool told_later = timeout_ms >= 0;
	socklen_t len = sizeof(int);
	int error = 0, n;

	HANDLERS_WAIT;
	n = rpoll(&slot, 1, ms_until(until < s->deadline ? until : s->deadline));
	if (n < 0 && errno == EINTR)
		return EINTR;
	if (n == 0 && now_ms() < s->deadline)
		return EINPROGRESS;
	if (n > 0 && !rgetsockopt(s->rs, SOL_SOCKET, SO_ERROR, &error, &len) && !error)
		return connect_done(fd, s);
	return connect_failed(fd, s, n == 0 ? ETIMEDOUT : error ? error : errno, told_later);
}

EXPORTED int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sock *s = sock_at(fd);
	int error;

	if (!s)
		return real()->connect(fd, addr, len);
	HANDLERS_WAIT;
	if (s && s->state == SOCK_DATAGRAM)
		return rconnect(s->rs, addr, len);
	if (s && s->state == SOCK_CONNECTING) {
		error = sock_progress(fd, s, 0);
		return fail(error == EINPROGRESS ? EALREADY : error ? error : EISCONN);
	}
	if (s && s->state == SOCK_CONNECTED)
		return fail(EISCONN);
	if (!s || s->state != SOCK_FRESH || !addr || len > sizeof(s->peer.storage) ||
		(addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
		return real()->connect(fd, addr, len);
	memcpy(&s->peer.storage, addr, len);
	s->peer.len = len;
	s->deadline = now_ms() + SILENCE_MS;
	error = connect_begin(fd, s, &s->peer);
	if (!error)
		return connect_done(fd, s);
	if (error == EINPROGRESS) {
		s->state = SOCK_CONNECTING;
		if (real()->fcntl(fd, F_GETFL) & O_NONBLOCK)
			return fail(EINPROGRESS);
		error = sock_progress(fd, s, -1);
	} else {
		error = connect_failed(fd, s, error, false);
	}
	return error ? fail(error) : 0;
}
