/* SPDX-License-Identifier: MIT */
/* The 27 rsocket calls: which rsocket, which kind, and errors as sockets say them. */
#include "cm/service.h"
#include "hca/adapter.h"
#include "rsocket/rsock.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdarg.h>
#include <unistd.h>

static int64_t result(int64_t ret)
{
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
}

static void put(void *rs)
{
	if (rs)
		rsock_put(rs);
}

/*
 * Calls an operation of the kind, with rs first; a call the kind does not have is not supported. The
 * reference is let go of also by a thread that is cancelled in it.
 */
#define CALL(fd, op, ...)                                                                                    \
	({                                                                                                   \
		struct rsock *rs = rsock_get(fd);                                                            \
		int64_t ret;                                                                                 \
                                                                                                             \
		pthread_cleanup_push(put, rs);                                                               \
		ret = !rs ? -EBADF : !rs->ops->op ? -EOPNOTSUPP : rs->ops->op(rs, ##__VA_ARGS__);            \
		pthread_cleanup_pop(1);                                                                      \
		result(ret);                                                                                 \
	})

/* ---- life ---- */
int rsocket(int domain, int type, int protocol)
{
	CANCEL_SAFE;
	struct rsock *rs;
	bool stream = type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP);
	bool dgram = type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP);
	int err;

	if ((domain != AF_INET && domain != AF_INET6 && (domain != AF_IB || !stream)) || (!stream && !dgram))
		return (int)result(-ENOTSUP);
	err = stream ? rsock_stream_new(domain, &rs) : rsock_dgram_new(domain, &rs);
	return (int)result(err ? err : rs->fd);
}

int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	CANCEL_SAFE;

	return (int)CALL(socket, bind, addr, addrlen);
}

int rlisten(int socket, int backlog)
{
	CANCEL_SAFE;

	return (int)CALL(socket, listen, backlog);
}

int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	RSOCK_CANCEL_SAFE;
	struct rsock *new;

	if (CALL(socket, accept, &new) < 0)
		return -1;
	if (addr && addrlen)
		new->ops->getpeername(new, addr, addrlen);
	return new->fd;
}

int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	RSOCK_CANCEL_SAFE;

	return (int)CALL(socket, connect, addr, addrlen);
}

int rshutdown(int socket, int how)
{
	CANCEL_SAFE;

	return (int)CALL(socket, shutdown, how);
}

int rclose(int socket)
{
	CANCEL_SAFE;
	struct rsock *rs = rsock_get(socket);
	bool first;

	if (!rs) {
		int err = rsock_forget(socket);

		return err ? (int)result(err) : close(socket);
	}
	first = rsock_retire(rs);
	if (first && rs->ops->end)
		rs->ops->end(rs);
	rsock_put(rs);
	return (int)result(first ? 0 : -EBADF);
}

/* ---- data ---- */
ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr, socklen_t *addrlen)
{
	RSOCK_CANCEL_SAFE;
	struct iovec iov = {.iov_base = buf, .iov_len = len};

	return CALL(socket, recv, &iov, 1, flags, src_addr, src_addr ? addrlen : NULL);
}

ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return rrecvfrom(socket, buf, len, flags, NULL, NULL);
}

ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	RSOCK_CANCEL_SAFE;
	ssize_t ret;

	if (msg->msg_control && msg->msg_controllen)
		return result(-ENOTSUP);
	ret = CALL(socket, recv, msg->msg_iov, (int)msg->msg_iovlen, flags, msg->msg_name,
		msg->msg_name ? &msg->msg_namelen : NULL);
	if (ret >= 0)
		msg->msg_flags = 0;
	return ret;
}

ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecvfrom(socket, buf, count, 0, NULL, NULL);
}

ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	RSOCK_CANCEL_SAFE;

	return CALL(socket, recv, iov, iovcnt, 0, NULL, NULL);
}

ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr,
	socklen_t addrlen)
{
	RSOCK_CANCEL_SAFE;
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return CALL(socket, send, &iov, 1, flags, dest_addr, addrlen);
}

ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return rsendto(socket, buf, len, flags, NULL, 0);
}

ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	RSOCK_CANCEL_SAFE;

	if (msg->msg_control && msg->msg_controllen)
		return result(-ENOTSUP);
	return CALL(socket, send, msg->msg_iov, (int)msg->msg_iovlen, flags, msg->msg_name, msg->msg_namelen);
}

ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsendto(socket, buf, count, 0, NULL, 0);
}

ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	RSOCK_CANCEL_SAFE;

	return CALL(socket, send, iov, iovcnt, 0, NULL, 0);
}

/* ---- waiting ---- */
int rsock_sleep(struct pollfd *fds, nfds_t n, int ms)
{
	struct rcm *cm;
	int err = rcm_get(&cm);

	return err ? err : hca_engine_wait_fds(&cm->host.adapter->engine, fds, (unsigned)n, ms);
}

int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	RSOCK_CANCEL_SAFE;

	return (int)result(rsock_poll(fds, nfds, timeout));
}

int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	RSOCK_CANCEL_SAFE;

	return (int)result(rsock_select(nfds, readfds, writefds, exceptfds, timeout));
}

/* ---- names and options ---- */
int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	CANCEL_SAFE;

	return (int)CALL(socket, getpeername, addr, addrlen);
}

int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	CANCEL_SAFE;

	return (int)CALL(socket, getsockname, addr, addrlen);
}

int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	CANCEL_SAFE;

	return (int)CALL(socket, setsockopt, level, optname, optval, optlen);
}

int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	CANCEL_SAFE;

	return (int)CALL(socket, getsockopt, level, optname, optval, optlen);
}

static int control(struct rsock *rs, int cmd, va_list args)
{
	if (cmd == F_GETFL)
		return rs->flags;
	if (cmd != F_SETFL)
		return -ENOTSUP;
	rs->flags = va_arg(args, int);
	return 0;
}

int rfcntl(int socket, int cmd, ...)
{
	CANCEL_SAFE;
	struct rsock *rs = rsock_get(socket);
	va_list args;
	int ret;

	va_start(args, cmd);
	ret = rs ? control(rs, cmd, args) : -EBADF;
	va_end(args);
	put(rs);
	return (int)result(ret);
}

/* ---- memory that the other side writes to ---- */
off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	CANCEL_SAFE;

	return CALL(socket, iomap, buf, len, prot, flags, offset);
}

int riounmap(int socket, void *buf, size_t len)
{
	CANCEL_SAFE;

	return (int)CALL(socket, iounmap, buf, len);
}

size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	RSOCK_CANCEL_SAFE;

	return (size_t)CALL(socket, iowrite, buf, count, offset, flags);
}
