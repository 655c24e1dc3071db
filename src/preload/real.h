/* SPDX-License-Identifier: MIT */
/* libc's own functions, those that the preload library stands in front of. real()->NAME calls the next in
 * line: libc's, or another preloaded library's. */
#ifndef PRELOAD_REAL_H
#define PRELOAD_REAL_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define REAL_FUNCTIONS(X)                                                                                    \
	X(int, sigaction, (int sig, const struct sigaction *act, struct sigaction *old))                     \
	X(int, socket, (int domain, int type, int protocol))                                                 \
	X(int, listen, (int fd, int backlog))                                                                \
	X(int, bind, (int fd, const struct sockaddr *addr, socklen_t len))                                   \
	X(int, accept4, (int fd, struct sockaddr *addr, socklen_t *len, int flags))                          \
	X(int, connect, (int fd, const struct sockaddr *addr, socklen_t len))                                \
	X(int, shutdown, (int fd, int how))                                                                  \
	X(int, close, (int fd))                                                                              \
	X(int, close_range, (unsigned first, unsigned last, int flags))                                      \
	X(void, closefrom, (int first))                                                                      \
	X(int, fclose, (FILE * stream))                                                                      \
	X(int, getsockname, (int fd, struct sockaddr *addr, socklen_t *len))                                 \
	X(int, getpeername, (int fd, struct sockaddr *addr, socklen_t *len))                                 \
	X(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len))                       \
	X(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t len))                  \
	X(int, fcntl, (int fd, int cmd, ...))                                                                \
	X(int, fcntl64, (int fd, int cmd, ...))                                                              \
	X(int, ioctl, (int fd, unsigned long request, ...))                                                  \
	X(int, dup, (int fd))                                                                                \
	X(int, dup2, (int fd, int to))                                                                       \
	X(int, dup3, (int fd, int to, int flags))                                                            \
	X(ssize_t, read, (int fd, void *buf, size_t len))                                                    \
	X(ssize_t, __read_chk, (int fd, void *buf, size_t len, size_t size))                                 \
	X(ssize_t, readv, (int fd, const struct iovec *iov, int n))                                          \
	X(ssize_t, preadv64v2, (int fd, const struct iovec *iov, int n, off64_t at, int flags))              \
	X(ssize_t, recv, (int fd, void *buf, size_t len, int flags))                                         \
	X(ssize_t, __recv_chk, (int fd, void *buf, size_t len, size_t size, int flags))                      \
	X(ssize_t, recvfrom,                                                                                 \
		(int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addrlen))       \
	X(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags))                                         \
	X(int, recvmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags, struct timespec *timeout))    \
	X(ssize_t, write, (int fd, const void *buf, size_t len))                                             \
	X(ssize_t, writev, (int fd, const struct iovec *iov, int n))                                         \
	X(ssize_t, pwritev64v2, (int fd, const struct iovec *iov, int n, off64_t at, int flags))             \
	X(ssize_t, send, (int fd, const void *buf, size_t len, int flags))                                   \
	X(ssize_t, sendto,                                                                                   \
		(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,                \
			socklen_t addrlen))                                                                  \
	X(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags))                                   \
	X(int, sendmmsg, (int fd, struct mmsghdr *msgs, unsigned n, int flags))                              \
	X(ssize_t, sendfile, (int out, int in, off_t *offset, size_t count))                                 \
	X(ssize_t, sendfile64, (int out, int in, off64_t *offset, size_t count))                             \
	X(ssize_t, splice, (int in, off64_t *in_at, int out, off64_t *out_at, size_t len, unsigned flags))   \
	X(int, poll, (struct pollfd * fds, nfds_t n, int timeout))                                           \
	X(int, ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask)) \
	X(int, select, (int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout))            \
	X(int, pselect,                                                                                      \
		(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,             \
			const sigset_t *mask))                                                               \
	X(int, epoll_create, (int size))                                                                     \
	X(int, epoll_create1, (int flags))                                                                   \
	X(int, epoll_ctl, (int epfd, int op, int fd, struct epoll_event *event))                             \
	X(int, epoll_pwait,                                                                                  \
		(int epfd, struct epoll_event *events, int max, int timeout, const sigset_t *mask))          \
	X(int, epoll_pwait2,                                                                                 \
		(int epfd, struct epoll_event *events, int max, const struct timespec *timeout,              \
			const sigset_t *mask))

#define REAL_MEMBER(ret, name, params) ret(*name) params;
struct real_functions {
	bool found;
	REAL_FUNCTIONS(REAL_MEMBER)
};
#undef REAL_MEMBER

extern struct real_functions real_functions;
void real_find(void);

/* Constructors of other libraries call us before our own has run. */
static inline const struct real_functions *real(void)
{
	if (__builtin_expect(!__atomic_load_n(&real_functions.found, __ATOMIC_ACQUIRE), 0))
		real_find();
	return &real_functions;
}

#endif
