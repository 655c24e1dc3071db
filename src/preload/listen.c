/* SPDX-License-Identifier: MIT */
/* listen() and accept(): by RDMA and by TCP at the same port. Who calls by TCP gets a plain socket. */
#include "preload/sock.h"
#include "base/asserts.h"
#include "base/cancel.h"
#include "base/export.h"
#include "base/log.h"
#include "preload/names.h"
#include "preload/signals.h"
#include "preload/wait.h"

#include <fcntl.h>
#include <rdma/rsocket.h>
#include <string.h>

/* How often a process that inherited a listener asks whether the port is free. */
enum { LISTEN_AGAIN_MS = 100 };

/* An rsocket that listens where fd does, or -1. */
static int listen_beside(int fd, struct sock *s, int backlog)
{
	int rs = sock_open_rsocket(fd, s, s->domain);

	if (rs < 0)
		return -1;
	/* who does not get in goes by TCP after a while; so let them in, a queue costs little */
	if (sock_bind_same(fd, rs) || rlisten(rs, backlog < SOMAXCONN ? SOMAXCONN : backlog)) {
		log_info("sockets: cannot listen by RDMA (%s), by TCP alone", strerror(errno));
		rclose(rs);
		return -1;
	}
	rfcntl(rs, F_SETFL, O_NONBLOCK);
	return rs;
}

/* Two sockets are waited for, so neither may block. */
static void begin_listening(int fd, struct sock *s, int rs)
{
	int flags = real()->fcntl(fd, F_GETFL);

	assert_that(sock_is_locked(s));
	s->rs = rs;
	s->nonblock = flags & O_NONBLOCK;
	real()->fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	sock_set_state(s, SOCK_LISTENING);
}

EXPORTED int listen(int fd, int backlog)
{
	struct sock *s = sock_at(fd);
	int rs;

	if (real()->listen(fd, backlog))
		return -1;
	if (!s)
		return 0;
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (!sock_lock(fd, s))
		return 0;
	if (s->state == SOCK_FRESH) {
		rs = listen_beside(fd, s, backlog);
		if (rs >= 0)
			begin_listening(fd, s, rs);
		else
			sock_go_plain(s);
	}
	sock_unlock(s);
	return 0;
}

void sock_listen_again(int fd, struct sock *s)
{
	if (s->rs >= 0 || now_ms() < s->deadline || !sock_lock(fd, s))
		return;
	if (s->rs < 0 && now_ms() >= s->deadline) {
		s->deadline = now_ms() + LISTEN_AGAIN_MS;
		s->rs = listen_beside(fd, s, 0);
	}
	sock_unlock(s);
}

/* A connection that came by RDMA, as a socket of the program's. */
static int wrap(struct sock *listener, int rs, int flags)
{
	int fd = real()->socket(listener->domain, SOCK_STREAM | (flags & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
	struct sock *s = fd >= 0 ? sock_new(SOCK_CONNECTED, listener->domain, rs) : NULL;

	if (!s || !file_put(fd, &s->file)) {
		int error = fd < 0 ? errno : EMFILE;

		if (s)
			sock_recycle(s);
		if (fd >= 0)
			real()->close(fd);
		rclose(rs);
		return fail(error);
	}
	rfcntl(rs, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0L);
	return fd;
}

/* Whoever has called, by RDMA or by TCP; -1 with EAGAIN when nobody has. */
static int accept_any(int fd, struct sock *s, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct sock_name peer = {.len = sizeof(peer.storage)};
	int rs = s->rs < 0 ? -1 : raccept(s->rs, &peer.sa, &peer.len);
	int accepted;

	if (rs < 0)
		return real()->accept4(fd, addr, len, flags);
	accepted = wrap(s, rs, flags);
	if (accepted >= 0)
		name_give(&peer, s->domain, addr, len);
	return accepted;
}

static int accept_now(int fd, struct sock *s, struct sockaddr *addr, socklen_t *len, int flags)
{
	CANCEL_SAFE;
	sock_listen_again(fd, s);
	return accept_any(fd, s, addr, len, flags);
}

EXPORTED int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	struct sock *s = sock_at(fd);
	struct pollfd caller = {.fd = fd, .events = POLLIN};
	int64_t until;
	int accepted, n;

	if (!s || s->state != SOCK_LISTENING)
		return real()->accept4(fd, addr, len, flags);
	HANDLERS_WAIT;
	until = s->receive_ms < 0 ? INT64_MAX : now_ms() + s->receive_ms;
	for (;;) {
		accepted = accept_now(fd, s, addr, len, flags);
		if (accepted >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK) || s->nonblock)
			return accepted;
		n = wait_poll(&caller, 1, until);
		if (n <= 0)
			return n < 0 ? n : fail(EAGAIN);
	}
}

EXPORTED int accept(int fd, struct sockaddr *addr, socklen_t *len)
{
	return accept4(fd, addr, len, 0);
}
