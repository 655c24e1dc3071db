/* SPDX-License-Identifier: MIT */
/* The calls that move data. */
#include "base/cancel.h"
#include "base/export.h"
#include "preload/epoll.h"
#include "preload/names.h"
#include "preload/signals.h"
#include "preload/sock.h"

#include <fcntl.h>
#include <limits.h>
#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

/* The socket whose rsocket carries fd's data, or NULL: ask the kernel. A connect that is under way is looked
 * at first. */
static struct sock *carried(int fd)
{
	struct sock *s = sock_at(fd);

	if (__builtin_expect(!s, 1))
		return NULL;
	if (s->state == SOCK_CONNECTING)
		sock_progress(fd, s);
	return sock_at(fd) == s && (s->state == SOCK_CONNECTED || s->state == SOCK_DATAGRAM) ? s : NULL;
}

static bool connecting(int fd)
{
	struct sock *s = sock_at(fd);

	return s && s->state == SOCK_CONNECTING;
}

/* SO_RCVTIMEO and SO_SNDTIMEO. */
static bool in_time(struct sock *s, int fd, int events, int ms, int flags)
{
	struct pollfd slot = {.fd = s->rs, .events = events};
	int n;

	if (__builtin_expect(ms < 0, 1) || flags & MSG_DONTWAIT || real()->fcntl(fd, F_GETFL) & O_NONBLOCK)
		return true;
	n = rpoll(&slot, 1, ms);
	if (n == 0)
		errno = EAGAIN;
	return n > 0;
}

static ssize_t received(struct sock *s, ssize_t n)
{
	set_used(s, POLLIN);
	return n;
}

/* A write that the peer will never read raises SIGPIPE, unless asked not to. */
static ssize_t sent(struct sock *s, ssize_t n, size_t wanted, int flags)
{
	if (n < 0 || (size_t)n < wanted)
		set_used(s, POLLOUT);
	if (n < 0 && errno == EPIPE && !(flags & MSG_NOSIGNAL)) {
		raise(SIGPIPE);
		errno = EPIPE;
	}
	return n;
}

static size_t total(const struct iovec *iov, size_t n)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

/* ---- in
 * ----------------------------------------------------------------------------------------------------------
 */

#define RECEIVE(fd, flags, ours, theirs)                                                                     \
	struct sock *s = carried(fd);                                                                        \
                                                                                                             \
	if (!s)                                                                                              \
		return connecting(fd) ? fail(EAGAIN) : theirs;                                               \
	HANDLERS_WAIT;                                                                                       \
	return in_time(s, fd, POLLIN, s->receive_ms, flags) ? received(s, ours) : -1

EXPORTED ssize_t read(int fd, void *buf, size_t len)
{
	RECEIVE(fd, 0, rread(s->rs, buf, len), real()->read(fd, buf, len));
}

EXPORTED ssize_t __read_chk(int fd, void *buf, size_t len, size_t size)
{
	RECEIVE(fd, 0, rread(s->rs, buf, len), real()->__read_chk(fd, buf, len, size));
}

EXPORTED ssize_t readv(int fd, const struct iovec *iov, int n)
{
	RECEIVE(fd, 0, rreadv(s->rs, iov, n), real()->readv(fd, iov, n));
}

/* RWF_NOWAIT in words of sockets. */
static int message_flags(int flags)
{
	return flags & RWF_NOWAIT ? MSG_DONTWAIT : 0;
}

/* A socket has no places, so -1 is the only one that can be meant. */
EXPORTED ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};

	if (at != -1)
		return real()->preadv64v2(fd, iov, n, at, flags);
	RECEIVE(fd, message_flags(flags), rrecvmsg(s->rs, &msg, message_flags(flags)),
		real()->preadv64v2(fd, iov, n, at, flags));
}

EXPORTED ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	return preadv64v2(fd, iov, n, at, flags);
}

EXPORTED ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	RECEIVE(fd, flags, rrecv(s->rs, buf, len, flags), real()->recv(fd, buf, len, flags));
}

EXPORTED ssize_t __recv_chk(int fd, void *buf, size_t len, size_t size, int flags)
{
	RECEIVE(fd, flags, rrecv(s->rs, buf, len, flags), real()->__recv_chk(fd, buf, len, size, flags));
}

/* A stream tells no address. */
static ssize_t receive_from(
	struct sock *s, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addrlen)
{
	struct sock_name from = {.len = sizeof(from.storage)};
	ssize_t n;

	if (s->state != SOCK_DATAGRAM || !addr || !addrlen) {
		n = rrecv(s->rs, buf, len, flags);
		if (n >= 0 && addrlen)
			*addrlen = 0;
		return n;
	}
	n = rrecvfrom(s->rs, buf, len, flags, &from.sa, &from.len);
	if (n >= 0)
		name_give(&from, s->domain, addr, addrlen);
	return n;
}

EXPORTED ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addrlen)
{
	RECEIVE(fd, flags, receive_from(s, buf, len, flags, addr, addrlen),
		real()->recvfrom(fd, buf, len, flags, addr, addrlen));
}

EXPORTED ssize_t __recvfrom_chk(
	int fd, void *buf, size_t len, size_t size, int flags, struct sockaddr *addr, socklen_t *addrlen);
EXPORTED ssize_t __recvfrom_chk(
	int fd, void *buf, size_t len, size_t size, int flags, struct sockaddr *addr, socklen_t *addrlen)
{
	if (len > size)
		abort();
	return recvfrom(fd, buf, len, flags, addr, addrlen);
}

static ssize_t receive_msg(struct sock *s, struct msghdr *msg, int flags)
{
	ssize_t n;

	msg->msg_controllen = 0;
	msg->msg_flags = 0;
	if (msg->msg_iovlen == 1)
		return receive_from(s, msg->msg_iov->iov_base, msg->msg_iov->iov_len, flags, msg->msg_name,
			msg->msg_name ? &msg->msg_namelen : NULL);
	n = rrecvmsg(s->rs, &(struct msghdr){.msg_iov = msg->msg_iov, .msg_iovlen = msg->msg_iovlen}, flags);
	msg->msg_namelen = 0;
	return n;
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	RECEIVE(fd, flags, receive_msg(s, msg, flags), real()->recvmsg(fd, msg, flags));
}

/* Several messages: the first may be waited for, the others are what is there. */
EXPORTED int recvmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout)
{
	unsigned i;

	if (!carried(fd))
		return real()->recvmmsg(fd, msgs, n, flags, timeout);
	for (i = 0; i < n; i++) {
		ssize_t got = recvmsg(fd, &msgs[i].msg_hdr, i ? flags | MSG_DONTWAIT : flags);

		if (got < 0)
			return i ? (int)i : -1;
		msgs[i].msg_len = got;
	}
	return i;
}

/* ---- out
 * ---------------------------------------------------------------------------------------------------------
 */

#define SEND(fd, flags, wanted, ours, theirs)                                                                \
	struct sock *s = carried(fd);                                                                        \
                                                                                                             \
	if (!s)                                                                                              \
		return connecting(fd) ? fail(EAGAIN) : theirs;                                               \
	HANDLERS_WAIT;                                                                                       \
	return in_time(s, fd, POLLOUT, s->send_ms, flags) ? sent(s, ours, wanted, flags) : -1

EXPORTED ssize_t write(int fd, const void *buf, size_t len)
{
	SEND(fd, 0, len, rwrite(s->rs, buf, len), real()->write(fd, buf, len));
}

EXPORTED ssize_t writev(int fd, const struct iovec *iov, int n)
{
	SEND(fd, 0, total(iov, n), rwritev(s->rs, iov, n), real()->writev(fd, iov, n));
}

EXPORTED ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	SEND(fd, flags, len, rsend(s->rs, buf, len, flags), real()->send(fd, buf, len, flags));
}

static ssize_t send_to(struct sock *s, const void *buf, size_t len, int flags, const struct sockaddr *addr,
	socklen_t addrlen)
{
	if (s->state != SOCK_DATAGRAM || !addr)
		return rsend(s->rs, buf, len, flags);
	return rsendto(s->rs, buf, len, flags, addr, addrlen);
}

EXPORTED ssize_t sendto(
	int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addrlen)
{
	SEND(fd, flags, len, send_to(s, buf, len, flags, addr, addrlen),
		real()->sendto(fd, buf, len, flags, addr, addrlen));
}

static void free_buffer(char *const *p)
{
	free(*p);
}

/* A datagram is one piece; a stream goes piece by piece. */
static ssize_t send_msg(struct sock *s, const struct msghdr *msg, int flags)
{
	__attribute__((cleanup(free_buffer))) char *whole = NULL;
	size_t len = total(msg->msg_iov, msg->msg_iovlen), at = 0;

	if (s->state != SOCK_DATAGRAM)
		return rsendmsg(s->rs,
			&(struct msghdr){.msg_iov = msg->msg_iov, .msg_iovlen = msg->msg_iovlen}, flags);
	whole = malloc(len + 1);
	if (!whole)
		return fail(ENOMEM);
	for (size_t i = 0; i < msg->msg_iovlen; at += msg->msg_iov[i++].iov_len)
		memcpy(whole + at, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
	return send_to(s, whole, len, flags, msg->msg_name, msg->msg_namelen);
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	SEND(fd, flags, total(msg->msg_iov, msg->msg_iovlen), send_msg(s, msg, flags),
		real()->sendmsg(fd, msg, flags));
}

EXPORTED ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off64_t at, int flags)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};

	if (at != -1)
		return real()->pwritev64v2(fd, iov, n, at, flags);
	SEND(fd, message_flags(flags), total(iov, n), send_msg(s, &msg, message_flags(flags)),
		real()->pwritev64v2(fd, iov, n, at, flags));
}

EXPORTED ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	return pwritev64v2(fd, iov, n, at, flags);
}

EXPORTED int sendmmsg(int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	unsigned i;

	if (!carried(fd))
		return real()->sendmmsg(fd, msgs, n, flags);
	for (i = 0; i < n; i++) {
		ssize_t put = sendmsg(fd, &msgs[i].msg_hdr, flags);

		if (put < 0)
			return i ? (int)i : -1;
		msgs[i].msg_len = put;
	}
	return i;
}

/* The file moves on by what was sent, not by what was read. */
static ssize_t send_file(int fd, int in, off64_t *offset, size_t count)
{
	enum { PIECE = 1 << 16 };
	off64_t at = offset ? *offset : lseek64(in, 0, SEEK_CUR);
	__attribute__((cleanup(free_buffer))) char *buf = malloc(PIECE);
	size_t done = 0;
	ssize_t n = 0, put = 0;

	if (!buf || at < 0)
		return buf ? -1 : fail(ENOMEM);
	while (done < count) {
		n = pread64(in, buf, count - done < PIECE ? count - done : PIECE, at + done);
		put = n > 0 ? write(fd, buf, n) : n;
		if (put > 0)
			done += put;
		if (put <= 0 || put < n)
			break;
	}
	if (offset)
		*offset = at + done;
	else
		lseek64(in, at + done, SEEK_SET);
	return done ? (ssize_t)done : put;
}

EXPORTED ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	return carried(out) ? send_file(out, in, offset, count) : real()->sendfile64(out, in, offset, count);
}

/* off_t has 64 bits wherever this is built. */
EXPORTED ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	_Static_assert(sizeof(off_t) == sizeof(off64_t), "sendfile is sendfile64");
	return sendfile64(out, in, offset, count);
}

/* Programs that splice know how to do without. */
EXPORTED ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags)
{
	if (carried(in) || carried(out))
		return fail(EINVAL);
	return real()->splice(in, in_at, out, out_at, len, flags);
}

EXPORTED int shutdown(int fd, int how)
{
	struct sock *s = carried(fd);

	HANDLERS_WAIT;
	CANCEL_SAFE;
	return s && s->state == SOCK_CONNECTED ? rshutdown(s->rs, how) : real()->shutdown(fd, how);
}
