/* SPDX-License-Identifier: MIT */
/* Of rdmacm.rsocket: names of stream rsockets, their options, and the errors of their calls. */
#include "rsocket.h"

#include "../skip.h"
#include "../surroundings.h"

#include <fcntl.h>
#include <netinet/tcp.h>

void names_are_the_addresses(void **state)
{
	struct sockaddr_in a, b;
	socklen_t la = sizeof(a), lb = sizeof(b);

	w.client = connect_to(&w.address);
	w.server = raccept(w.listener, (struct sockaddr *)&a, &la);
	assert_int_equal(rgetsockname(w.client, (struct sockaddr *)&b, &lb), 0);
	assert_int_equal(la, sizeof(a));
	assert_true(a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr);
	assert_int_equal(rgetpeername(w.client, (struct sockaddr *)&b, &lb), 0);
	assert_true(b.sin_port == w.address.sin_port);
	assert_int_equal(rgetpeername(w.listener, (struct sockaddr *)&b, &lb), -1);
	assert_int_equal(errno, ENOTCONN);
}

/* Of each family's full length, and nothing of ours in it. */
void an_unbound_name_is_its_family_alone(void **state)
{
	static const struct {
		sa_family_t family;
		socklen_t len;
	} of[] = {{AF_INET, sizeof(struct sockaddr_in)}, {AF_INET6, sizeof(struct sockaddr_in6)},
		{AF_IB, sizeof(struct sockaddr_ib)}};
	const char zero[sizeof(struct sockaddr_ib)] = {0};

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		struct sockaddr_storage name;
		socklen_t len = sizeof(name);
		int s = rsocket(of[i].family, SOCK_STREAM, 0);

		memset(&name, 0x5a, sizeof(name));
		assert_int_equal(rgetsockname(s, (struct sockaddr *)&name, &len), 0);
		assert_int_equal(len, of[i].len);
		assert_int_equal(name.ss_family, of[i].family);
		assert_memory_equal((char *)&name + 2, zero, len - 2);
		rclose(s);
	}
}

static int option(int fd, int level, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	assert_int_equal(rgetsockopt(fd, level, name, &v, &len), 0);
	assert_int_equal(len, sizeof(v));
	return v;
}

static void set(int fd, int level, int name, int v)
{
	assert_int_equal(rsetsockopt(fd, level, name, &v, sizeof(v)), 0);
}

void options_are_remembered(void **state)
{
	int s = rsocket(AF_INET6, SOCK_STREAM, IPPROTO_TCP), v = 1;
	struct linger l = {.l_onoff = 0};
	socklen_t len = sizeof(l);
	static const int switches[][2] = {{SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_KEEPALIVE},
		{SOL_SOCKET, SO_OOBINLINE}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_IPV6, IPV6_V6ONLY}};

	for (size_t i = 0; i < sizeof(switches) / sizeof(*switches); i++) {
		assert_int_equal(option(s, switches[i][0], switches[i][1]), 0);
		set(s, switches[i][0], switches[i][1], 1);
		assert_int_equal(option(s, switches[i][0], switches[i][1]), 1);
	}
	set(s, SOL_SOCKET, SO_RCVBUF, 100000);
	assert_int_equal(option(s, SOL_SOCKET, SO_RCVBUF), 200000);
	set(s, SOL_SOCKET, SO_SNDBUF, 1);
	assert_int_equal(option(s, SOL_SOCKET, SO_SNDBUF), 4096);
	set(s, SOL_RDMA, RDMA_SQSIZE, 100);
	set(s, SOL_RDMA, RDMA_RQSIZE, 1 << 20);
	set(s, SOL_RDMA, RDMA_INLINE, 7);
	set(s, SOL_RDMA, RDMA_IOMAPSIZE, 300);
	assert_int_equal(option(s, SOL_RDMA, RDMA_SQSIZE), 100);
	assert_int_equal(option(s, SOL_RDMA, RDMA_RQSIZE), 0xfffe);
	assert_int_equal(option(s, SOL_RDMA, RDMA_INLINE), 7);
	assert_int_equal(option(s, SOL_RDMA, RDMA_IOMAPSIZE), 256);
	set(s, IPPROTO_TCP, TCP_KEEPIDLE, 17);
	assert_int_equal(option(s, IPPROTO_TCP, TCP_KEEPIDLE), 17);
	assert_int_equal(option(s, IPPROTO_TCP, TCP_MAXSEG), 2048);
	assert_int_equal(rgetsockopt(s, SOL_SOCKET, SO_LINGER, &l, &len), 0);
	assert_int_equal(l.l_onoff, 1);
	assert_int_equal(rsetsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &v, sizeof(v)), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(rsetsockopt(s, SOL_SOCKET, SO_RCVBUF, &v, 1), -1);
	assert_int_equal(errno, EINVAL);
	rclose(s);
}

void the_path_of_a_connection_can_be_read(void **state)
{
	char path[512];
	socklen_t len = sizeof(path);

	connect_pair();
	assert_int_equal(rgetsockopt(w.client, SOL_RDMA, RDMA_ROUTE, path, &len), 0);
	assert_int_equal(len, sizeof(struct ibv_path_data));
	assert_true(option(w.client, IPPROTO_TCP, TCP_MAXSEG) >= 256);
	assert_int_equal(rsetsockopt(w.client, SOL_RDMA, RDMA_ROUTE, path, len), -1); /* too late */
	assert_int_equal(errno, EINVAL);
}

#define fails(call, error)                                                                                   \
	do {                                                                                                 \
		assert_true((call) == -1);                                                                   \
		assert_int_equal(errno, error);                                                              \
	} while (0)

void mistakes_are_told_as_sockets_tell_them(void **state)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);
	char c;

	fails(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
	fails(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
	fails(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
	fails(rsend(1000000, "x", 1, 0), EBADF);
	fails(rsend(0, "x", 1, 0), EBADF);
	fails(rclose(-1), EBADF);
	fails(rfcntl(s, F_GETFD), ENOTSUP);
	fails(rsend(s, "x", 1, 0), ENOTCONN);
	fails(rrecv(s, &c, 1, 0), ENOTCONN);
	fails(rshutdown(s, SHUT_RDWR), ENOTCONN);
	fails(raccept(s, NULL, NULL), EINVAL);
	fails(rbind(s, (struct sockaddr *)&w.address, sizeof(w.address)), EADDRINUSE);
	fails(riomap(s, &c, 1, PROT_WRITE, 0, 0), EINVAL);
	fails(rconnect(w.listener, (struct sockaddr *)&w.address, sizeof(w.address)), EINVAL);
	assert_int_equal(rclose(s), 0);
	connect_pair();
	fails(rsendto(w.client, "x", 1, 0, (struct sockaddr *)&w.address, sizeof(w.address)), EISCONN);
	fails(rshutdown(w.client, 77), EINVAL);
	assert_int_equal(rsend(w.client, "x", 0, 0), 0);
	assert_int_equal(rrecv(w.client, &c, 0, 0), 0);
}

void ipv6_too(void **state)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	socklen_t len = sizeof(a);
	int l;
	char c;

	if (!surroundings_ipv6())
		skip_because("there is no IPv6 here");
	l = rsocket(AF_INET6, SOCK_STREAM, 0);
	assert_int_equal(rbind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(rlisten(l, 1), 0);
	assert_int_equal(rgetsockname(l, (struct sockaddr *)&a, &len), 0);
	w.client = rsocket(AF_INET6, SOCK_STREAM, 0);
	assert_int_equal(rconnect(w.client, (struct sockaddr *)&a, sizeof(a)), 0);
	w.server = raccept(l, (struct sockaddr *)&a, &len);
	assert_int_equal(a.sin6_family, AF_INET6);
	assert_int_equal(rsend(w.client, "6", 1, 0), 1);
	assert_int_equal(rrecv(w.server, &c, 1, 0), 1);
	rclose(l);
}
