/* SPDX-License-Identifier: MIT */
/* connect(): by RDMA where the peer listens so, else by TCP. */
#include "preload/sock.h"
#include "base/asserts.h"
#include "base/cancel.h"
#include "base/export.h"
#include "base/log.h"
#include "preload/config.h"
#include "preload/names.h"
#include "preload/signals.h"

#include <fcntl.h>
#include <rdma/rsocket.h>
#include <string.h>

/* To TCP, without waiting: others may want the lock. */
static int connect_plain(int fd, struct sock *s)
{
	struct sock_name to = s->peer;
	int flags = real()->fcntl(fd, F_GETFL), error;

	real()->fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	error = real()->connect(fd, &to.sa, to.len) ? errno : 0;
	real()->fcntl(fd, F_SETFL, flags);
	if (error && error != EINPROGRESS) {
		s->error = error;
		sock_set_state(s, SOCK_FAILED);
	} else {
		sock_go_plain(s);
	}
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
	sock_set_state(s, SOCK_CONNECTED);
	return 0;
}

static int connect_failed(int fd, struct sock *s, int error)
{
	log_debug("sockets: no RDMA connection (%s), by TCP", strerror(error));
	return connect_plain(fd, s);
}

/* What has become of it. Locked, as are the next ones. */
static void look(int fd, struct sock *s)
{
	struct pollfd slot = {.fd = s->rs, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int error = 0, n = rpoll(&slot, 1, 0);

	assert_that(sock_is_locked(s));
	if (n == 0 && now_ms() < s->deadline)
		return;
	if (n > 0 && !rgetsockopt(s->rs, SOL_SOCKET, SO_ERROR, &error, &len) && !error)
		connect_done(fd, s);
	else
		connect_failed(fd, s, n == 0 ? ETIMEDOUT : error ? error : errno);
}

static int take_failure(struct sock *s)
{
	assert_that(sock_is_locked(s));
	if (s->state != SOCK_FAILED)
		return 0;
	sock_go_plain(s);
	return s->error;
}

static int begin(int fd, struct sock *s, const struct sock_name *to)
{
	int error;

	assert_that(sock_is_locked(s));
	s->peer = *to;
	s->deadline = now_ms() + config_silence_ms();
	error = connect_begin(fd, s, to);
	if (!error)
		return connect_done(fd, s);
	if (error != EINPROGRESS)
		return connect_failed(fd, s, error);
	sock_set_state(s, SOCK_CONNECTING);
	return EINPROGRESS;
}

/* What connect() says that does not wait. */
static int step(int fd, struct sock *s, const struct sock_name *to)
{
	int error = EALREADY;

	if (s->state == SOCK_CONNECTING)
		look(fd, s);
	else if (s->state == SOCK_FRESH)
		error = begin(fd, s, to);
	if (sock_at(fd) == s && s->state == SOCK_CONNECTED)
		return error == EALREADY ? EISCONN : 0;
	return s->state == SOCK_FAILED ? take_failure(s) : error;
}

/* ---- from outside
 * ------------------------------------------------------------------------------------------------- */

int sock_watch(int fd, struct sock *s)
{
	int rs = -1;

	if (s->state != SOCK_CONNECTING || !sock_lock(fd, s))
		return -1;
	if (s->state == SOCK_CONNECTING)
		look(fd, s);
	if (sock_at(fd) == s && s->state == SOCK_CONNECTING) {
		s->watchers++;
		rs = s->rs;
	}
	sock_unlock(s);
	return rs;
}

void sock_progress(int fd, struct sock *s)
{
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (sock_watch(fd, s) >= 0)
		sock_unwatch(s);
}

int sock_take_failure(int fd, struct sock *s)
{
	int error;

	if (s->state != SOCK_FAILED || !sock_lock(fd, s))
		return 0;
	error = take_failure(s);
	sock_unlock(s);
	return error;
}

static void end_watch(struct sock *const *s)
{
	if (*s)
		sock_unwatch(*s);
}

/* Sleeps until the rsocket has something to say. False when interrupted. */
static bool sleep_on(int fd, struct sock *s)
{
	CANCEL_SAFE;
	struct pollfd slot = {.fd = sock_watch(fd, s), .events = POLLOUT};
	__attribute__((cleanup(end_watch))) struct sock *const watched = slot.fd < 0 ? NULL : s;
	bool interrupted;

	if (!watched)
		return true;
	CANCEL_WAITS;
	interrupted = signals_waiting || (rpoll(&slot, 1, ms_until(s->deadline)) < 0 && errno == EINTR);
	cancel_off();
	return !interrupted;
}

/* What connect() says now. False when the kernel has it. */
static bool step_locked(int fd, struct sock *s, const struct sock_name *to, int *error)
{
	CANCEL_SAFE;
	if (!sock_lock(fd, s))
		return false;
	*error = step(fd, s, to);
	sock_unlock(s);
	return true;
}

/* A second connect() waits for the first, as in the kernel. False when the kernel has it now. */
static bool connect_here(int fd, struct sock *s, const struct sock_name *to, bool wait, int *error)
{
	bool waited = false;

	HANDLERS_WAIT;
	for (;; waited = true) {
		if (!step_locked(fd, s, to, error))
			return false;
		if (waited && *error == EISCONN)
			*error = 0;
		if (!wait || (*error != EINPROGRESS && *error != EALREADY))
			return true;
		if (!sleep_on(fd, s)) {
			*error = EINTR;
			return true;
		}
	}
}

static int connect_stream(int fd, struct sock *s, const struct sock_name *to)
{
	bool wait = !(real()->fcntl(fd, F_GETFL) & O_NONBLOCK);
	int error;

	if (connect_here(fd, s, to, wait, &error))
		return error;
	error = real()->connect(fd, &to->sa, to->len) ? errno : 0;
	return wait && error == EISCONN ? 0 : error;
}

/* A datagram socket's peer is a name. */
static int connect_datagram(struct sock *s, const struct sockaddr *addr, socklen_t len)
{
	HANDLERS_WAIT;
	return rconnect(s->rs, addr, len);
}

EXPORTED int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sock *s = sock_at(fd);
	struct sock_name to = {.len = len};
	int error;

	if (s && s->state == SOCK_DATAGRAM)
		return connect_datagram(s, addr, len);
	if (!s || s->state == SOCK_LISTENING || s->state == SOCK_RELAYED || !addr ||
		len > sizeof(to.storage) || (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
		return real()->connect(fd, addr, len);
	memcpy(&to.storage, addr, len);
	error = connect_stream(fd, s, &to);
	return error ? fail(error) : 0;
}
