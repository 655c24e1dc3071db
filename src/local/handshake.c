/* SPDX-License-Identifier: MIT */
#include "local/handshake.h"

#include "base/cancel.h"
#include "base/cred.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

static socklen_t name_of(struct sockaddr_un *sa, uint16_t port, uint32_t slot)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1,
				   "anyrdma/%u/%u/memory", port, slot));
}

static int new_socket(void)
{
	int fd = fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	return fd < 0 ? -errno : fd;
}

/* Whoever was first may have any name: only its user says whose process it is. */
static bool same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && user_is_us(&cred);
}

int handshake_pid(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	return cred.pid;
}

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

int handshake_process(int fd)
{
	struct pollfd p = {.fd = -1, .events = POLLIN};
	socklen_t len = sizeof(p.fd);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &p.fd, &len))
		return -errno;
	p.fd = fd_above_stdio(p.fd);
	if (p.fd < 0)
		return -errno;
	if (poll(&p, 1, 0) <= 0)
		return p.fd;
	close(p.fd);
	return -ESRCH;
}

int handshake_listen(uint16_t port, uint32_t slot)
{
	struct sockaddr_un sa;
	socklen_t len = name_of(&sa, port, slot);
	int fd = new_socket();

	if (fd >= 0 && (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, BACKLOG))) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

int handshake_connect(uint16_t port, uint32_t slot)
{
	struct sockaddr_un sa;
	socklen_t len = name_of(&sa, port, slot);
	int fd = new_socket(), err = 0;

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&sa, len))
		err = -errno;
	else if (!same_user(fd))
		err = -EPERM;
	if (!err)
		return fd;
	close(fd);
	return err;
}

int handshake_accept(int listen_fd)
{
	int fd = fd_above_stdio(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

	if (fd < 0)
		return errno == ECONNABORTED ? -EPERM : -errno;
	if (same_user(fd))
		return fd;
	close(fd);
	return -EPERM;
}

int handshake_send(int fd, const struct handshake_msg *msg, int pass)
{
	struct handshake_msg w = *msg;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {&w, sizeof(w)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	w.magic = HANDSHAKE_MAGIC;
	w.version = HANDSHAKE_VERSION;
	if (pass >= 0) {
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &pass, sizeof(int));
	}
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(w) ? 0 : -errno;
}

/* Of the descriptors that came the first is kept; others have no business here. */
static int take_passed(struct msghdr *m)
{
	int kept = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = c->cmsg_len < CMSG_LEN(0) ? 0 : (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (kept < 0)
				kept = fd_above_stdio(fd);
			else
				close(fd);
		}
	}
	return kept;
}

int handshake_receive(int fd, struct handshake_msg *msg, int *passed)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = {msg, sizeof(*msg)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*passed = -1;
	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (!n)
		return -ECONNRESET;
	*passed = take_passed(&m);
	if (n == 1 && *passed < 0)
		return 0;
	if (n == (ssize_t)sizeof(*msg) && !(m.msg_flags & MSG_TRUNC) && msg->magic == HANDSHAKE_MAGIC &&
		msg->version == HANDSHAKE_VERSION)
		return 1;
	if (*passed >= 0)
		close(*passed);
	*passed = -1;
	return -EPROTO;
}

void handshake_ring(int fd)
{
	int cancel = cancel_off(); /* whoever posts a request rings, under locks */

	/* Full: then the other one has enough to wake up for. Gone: that is noticed elsewhere. */
	(void)!send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	cancel_restore(cancel);
}
