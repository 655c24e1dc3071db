/* SPDX-License-Identifier: MIT */
#include "link/meet.h"

#include "base/cancel.h"
#include "base/fd.h"
#include "base/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

int meet_pid(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	return cred.pid;
}

int meet_listen(uint16_t port, uint32_t slot)
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

int meet_connect(uint16_t port, uint32_t slot)
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

int meet_accept(int listen_fd)
{
	int fd = fd_above_stdio(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

	if (fd < 0)
		return errno == ECONNABORTED ? -EPERM : -errno;
	if (same_user(fd))
		return fd;
	close(fd);
	return -EPERM;
}

int meet_say(int fd, uint32_t slot, int pass, int also)
{
	struct meet_hello h = {.magic = MEET_MAGIC, .version = MEET_VERSION, .slot = slot};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(MEET_PASSED * sizeof(int))] = {0};
	int fds[MEET_PASSED] = {pass, also};
	size_t len = (also < 0 ? 1 : 2) * sizeof(int);
	struct iovec iov = {&h, sizeof(h)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(len)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), fds, len);
	return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(h) ? 0 : -errno;
}

/* Every descriptor that came: the first ones are kept, others have no business here. */
static unsigned take_passed(struct msghdr *m, int passed[MEET_PASSED])
{
	unsigned kept = 0;

	passed[0] = passed[1] = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = c->cmsg_len < CMSG_LEN(0) ? 0 : (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (kept < MEET_PASSED)
				passed[kept++] = fd_above_stdio(fd);
			else
				close(fd);
		}
	}
	return kept;
}

void meet_close(const int passed[MEET_PASSED])
{
	for (int i = 0; i < MEET_PASSED; i++) {
		if (passed[i] >= 0)
			close(passed[i]);
	}
}

int meet_hear(int fd, uint32_t *slot, int passed[MEET_PASSED])
{
	struct meet_hello h;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = {&h, sizeof(h)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	unsigned got;

	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (!n)
		return -ECONNRESET;
	got = take_passed(&m, passed);
	if (n == 1 && !got)
		return 0;
	if (n == (ssize_t)sizeof(h) && got && h.magic == MEET_MAGIC && h.version == MEET_VERSION) {
		*slot = h.slot;
		return 1;
	}
	meet_close(passed);
	return -EPROTO;
}

void meet_ring(int fd)
{
	int cancel = cancel_off(); /* whoever posts a request rings, under locks */

	/* Full: then the other one has enough to wake up for. Gone: that is noticed elsewhere. */
	(void)!send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	cancel_restore(cancel);
}

int meet_memory(const char *name, size_t size)
{
	int fd = fd_above_stdio(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	int err;

	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, (off_t)size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int meet_read_only(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) ? -errno : 0;
}

void *meet_map(int fd, size_t size, int prot, void *at)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	void *p;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) || st.st_size != (off_t)size)
		return NULL;
	/* The kernel would refuse it, and may have cleared the place by then. */
	if ((prot & PROT_WRITE) && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return NULL;
	p = mmap(at, size, prot, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED)
		return NULL;
	madvise(p, size, MADV_DONTFORK); /* a child has no part in it */
	return p;
}

void meet_vacate(void *at, size_t size)
{
	mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	madvise(at, size, MADV_DONTFORK);
}
