/* SPDX-License-Identifier: MIT */
/* RoCEv2 over plain UDP sockets: their life. What moves is in udp_send.c and udp_receive.c. */
#include "link/udp.h"

#include "base/env.h"
#include "base/fd.h"
#include "base/log.h"
#include "link/udp_parts.h"
#include "observe/probe.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SOCKBUF = 4 << 20 }; /* asked for; the kernel gives what net.core.*mem_max allows */

static int udp_fds(struct link *link, int fds[4])
{
	struct udp_link *l = (struct udp_link *)link;
	int n = 0;

	fds[n++] = l->steer.fd4;
	if (l->steer.fd6 >= 0)
		fds[n++] = l->steer.fd6;
	fds[n++] = l->steer.hand_fd;
	return n;
}

static int udp_mcast(struct link *link, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	struct udp_link *l = (struct udp_link *)link;

	if (gid_is_v4(mgid)) {
		struct ip_mreqn r = {.imr_ifindex = (int)ifindex};

		memcpy(&r.imr_multiaddr, mgid + 12, 4);
		return setsockopt(l->steer.fd4, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &r,
			       sizeof(r))
			       ? -errno
			       : 0;
	} else {
		struct ipv6_mreq r = {.ipv6mr_interface = ifindex};

		memcpy(&r.ipv6mr_multiaddr, mgid, 16);
		l->v6_seen = true;
		return setsockopt(l->steer.fd6, IPPROTO_IPV6,
			       join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &r, sizeof(r))
			       ? -errno
			       : 0;
	}
}

static void udp_interfaces_changed(struct link *link)
{
	link_udp_filter((struct udp_link *)link);
}

static void udp_close(struct link *link)
{
	struct udp_link *l = (struct udp_link *)link;

	steer_leave(&l->steer);
	if (l->frag4 >= 0)
		close(l->frag4);
	if (l->frag6 >= 0)
		close(l->frag6);
	munmap(l->rx_buf, (size_t)UDP_RX_MSGS * UDP_RX_BUF);
	free(l);
}

static void udp_abandon(struct link *link)
{
	struct udp_link *l = (struct udp_link *)link;

	steer_abandon(&l->steer);
	if (l->frag4 >= 0)
		close(l->frag4);
	if (l->frag6 >= 0)
		close(l->frag6);
}

static const struct link_ops udp_ops = {
	.send = link_udp_send,
	.receive = link_udp_receive,
	.hand_over = link_udp_hand_over,
	.fds = udp_fds,
	.mcast = udp_mcast,
	.interfaces_changed = udp_interfaces_changed,
	.close = udp_close,
	.abandon = udp_abandon,
};

static void asked_to_look(void *arg)
{
	struct udp_link *l = arg;

	if (l->link.look)
		l->link.look(l->link.look_arg);
}

/* ---- opening ---- */
static void set(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		PROBE(CALL_FAILED, .call = "setsockopt", .error = errno);
}

static int open_socket(int family)
{
	int fd = fd_above_stdio(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (fd < 0)
		return -errno;
	set(fd, SOL_SOCKET, SO_REUSEPORT, 1);
	set(fd, SOL_SOCKET, SO_RCVBUF, SOCKBUF);
	set(fd, SOL_SOCKET, SO_SNDBUF, SOCKBUF);
	set(fd, IPPROTO_UDP, UDP_GRO, 1);
	if (family == AF_INET) {
		set(fd, IPPROTO_IP, IP_PKTINFO, 1);
		set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
		set(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
		set(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1);
	} else {
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
		set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
		set(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
		set(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1);
		set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1); /* Linux's rxe sends no checksum */
	}
	return fd;
}

static uint32_t received_most(int fd)
{
	int v = 0;
	socklen_t len = sizeof(v);

	getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &v, &len);
	return (uint32_t)v;
}

/* Older kernels take no notice of UDP_SEGMENT in a message: a batch would go out as one packet. */
static bool can_batch(int fd)
{
	int none = 0;

	if (!env_value(ANYRDMA_GSO))
		return false;
	if (!setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &none, sizeof(none)))
		return true;
	log_info("no UDP_SEGMENT here (%s): sending packets one by one", strerror(errno));
	return false;
}

int link_udp_open(struct link **out, uint16_t port, uint32_t *slot)
{
	struct udp_link *l = calloc(1, sizeof(*l));
	int fd4, fd6, err;

	if (!l)
		return -ENOMEM;
	fd4 = open_socket(AF_INET);
	if (fd4 < 0) {
		err = fd4;
		goto free_link;
	}
	fd6 = open_socket(AF_INET6);
	if (fd6 == -EMFILE) { /* any other error: no IPv6 here */
		err = fd6;
		goto close_sockets;
	}
	l->rx_buf = mmap(NULL, (size_t)UDP_RX_MSGS * UDP_RX_BUF, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l->rx_buf == MAP_FAILED) {
		err = -ENOMEM;
		goto close_sockets;
	}
	for (unsigned i = 0; i < UDP_RX_MSGS; i++) {
		l->rx_iov[i] = (struct iovec){l->rx_buf + (size_t)i * UDP_RX_BUF, UDP_RX_BUF};
		l->rx_msg[i].msg_hdr.msg_iov = &l->rx_iov[i];
		l->rx_msg[i].msg_hdr.msg_iovlen = 1;
		l->rx_msg[i].msg_hdr.msg_name = &l->rx_from[i];
		l->rx_msg[i].msg_hdr.msg_control = l->rx_control[i];
		link_udp_rx_ready(l, i);
	}
	l->link.ops = &udp_ops;
	l->link.rcvbuf = received_most(fd4);
	l->port = port;
	l->gso = can_batch(fd4);
	l->frag4 = l->frag6 = -1;
	pthread_mutex_init(&l->frag_mutex, NULL);
	err = steer_join(&l->steer, port, fd4, fd6 < 0 ? -1 : fd6);
	if (err)
		goto unmap;
	l->steer.on_look = asked_to_look;
	l->steer.on_look_arg = l;
	*slot = l->steer.slot;
	link_udp_filter(l);
	*out = &l->link;
	return 0;

unmap:
	munmap(l->rx_buf, (size_t)UDP_RX_MSGS * UDP_RX_BUF);
close_sockets:
	close(fd4);
	if (fd6 >= 0)
		close(fd6);
free_link:
	free(l);
	return err;
}
