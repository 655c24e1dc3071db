/* SPDX-License-Identifier: MIT */
#include "link/tcp.h"

#include "base/fd.h"
#include "base/gid.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

/*
 * A host that is gone is noticed after this long, while there is something to send to it or not: the kernel
 * itself would try for a quarter of an hour, or not at all.
 */
enum { GONE_AFTER_MS = 60 * 1000, PROBE_AFTER_S = 20, PROBE_EVERY_S = 10 };

/*
 * To a near peer the kernel lets a sender run megabytes ahead of the receiver, and both find nothing of it in
 * their caches any more. With this bound, which the kernel doubles or cuts to wmem_max, a stream over veth is
 * twice as fast. A far peer gets what the kernel thinks right: there the bound would be one of speed.
 */
enum { NEAR_US = 100, NEAR_BUFFER = 512 * 1024 };

static void set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

static void prepare(int fd)
{
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, PROBE_AFTER_S);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_EVERY_S);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, GONE_AFTER_MS);
}

static void bound_when_near(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	if (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) && info.tcpi_rtt && info.tcpi_rtt <= NEAR_US)
		set(fd, SOL_SOCKET, SO_SNDBUF, NEAR_BUFFER);
}

static int new_socket(int family)
{
	int fd = fd_above_stdio(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	return fd < 0 ? -errno : fd;
}

static int closed_for(int fd)
{
	int err = -errno;

	close(fd);
	return err;
}

int link_tcp_listen(const struct sockaddr *addr, bool v6only, int backlog)
{
	int fd = new_socket(addr->sa_family);

	if (fd < 0)
		return fd;
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (addr->sa_family == AF_INET6)
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6only);
	if (bind(fd, addr, sockaddr_len(addr)) || listen(fd, backlog))
		return closed_for(fd);
	return fd;
}

static void own_name(int fd, struct sockaddr_storage *local)
{
	socklen_t len = sizeof(*local);

	memset(local, 0, sizeof(*local));
	getsockname(fd, (struct sockaddr *)local, &len);
	sockaddr_unmap((struct sockaddr_in6 *)local);
}

int link_tcp_accept(int fd, struct sockaddr_storage *local, struct sockaddr_storage *remote)
{
	socklen_t len = sizeof(*remote);
	int new;

	memset(remote, 0, sizeof(*remote));
	new = fd_above_stdio(accept4(fd, (struct sockaddr *)remote, &len, SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (new < 0)
		return -errno;
	sockaddr_unmap((struct sockaddr_in6 *)remote);
	own_name(new, local);
	prepare(new);
	bound_when_near(new);
	return new;
}

int link_tcp_connect(const struct sockaddr *from, const struct sockaddr *to, uint8_t tclass)
{
	struct sockaddr_storage src = {0}, dst = {0};
	int fd;

	memcpy(&src, from, sockaddr_len(from));
	memcpy(&dst, to, sockaddr_len(to));
	sockaddr_unmap((struct sockaddr_in6 *)&src);
	if (src.ss_family == AF_INET)
		sockaddr_unmap((struct sockaddr_in6 *)&dst);
	fd = new_socket(dst.ss_family);
	if (fd < 0)
		return fd;
	prepare(fd);
	if (tclass && dst.ss_family == AF_INET6)
		set(fd, IPPROTO_IPV6, IPV6_TCLASS, tclass);
	else if (tclass)
		set(fd, IPPROTO_IP, IP_TOS, tclass);
	/* The port may be in use towards others. */
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
	if (bind(fd, (struct sockaddr *)&src, sockaddr_len((struct sockaddr *)&src)))
		return closed_for(fd);
	if (connect(fd, (struct sockaddr *)&dst, sockaddr_len((struct sockaddr *)&dst)) &&
		errno != EINPROGRESS)
		return closed_for(fd);
	return fd;
}

int link_tcp_connected(int fd, struct sockaddr_storage *local)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	if (!err) {
		own_name(fd, local);
		bound_when_near(fd);
	}
	return -err;
}

/* One piece goes without the header of a message, which the kernel would have to fetch and check: a third of
 * what an empty look costs. */
ssize_t link_tcp_send(int fd, const struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
	int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
	ssize_t sent = n == 1 ? send(fd, iov->iov_base, iov->iov_len, flags) : sendmsg(fd, &m, flags);

	return sent < 0 ? -errno : sent;
}

ssize_t link_tcp_receive(int fd, const struct iovec *iov, unsigned n)
{
	struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = n};
	ssize_t got =
		n == 1 ? recv(fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) : recvmsg(fd, &m, MSG_DONTWAIT);

	return got < 0 ? -errno : got;
}

uint32_t link_tcp_mss(int fd)
{
	int mss = 0;
	socklen_t len = sizeof(mss);

	if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss < 0)
		return 0;
	return (uint32_t)mss;
}

void link_tcp_finish(int fd)
{
	shutdown(fd, SHUT_WR);
}

void link_tcp_reset(int fd)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}
