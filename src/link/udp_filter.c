/* SPDX-License-Identifier: MIT */
/*
 * What is neither for an address of this host alone nor for a group that was joined is dropped by the kernel,
 * before it wakes anybody: a broadcast is delivered to every socket of the port, and so to every process.
 *
 * A classic BPF program on the socket, which needs no privilege. It sees how the packet came on the wire, and
 * where to; the broadcast addresses of interfaces it has to be told, and told again when interfaces change.
 * Groups are the kernel's business: with IP_MULTICAST_ALL off a socket gets those it joined. Who is not told
 * in time finds out from IP_PKTINFO (udp_receive.c).
 */
#include "link/udp_parts.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <string.h>

enum { MOST_ADDRESSES = 240, MOST_CODE = 16 + MOST_ADDRESSES }; /* a jump is a byte */
enum { V4_DST = 16, V6_DST = 24 };                              /* in their headers */

struct addresses {
	uint32_t a[MOST_ADDRESSES]; /* in host order */
	unsigned n;
};

static uint32_t v4_of(const struct sockaddr *sa)
{
	return sa && sa->sa_family == AF_INET ? ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) : 0;
}

static void add(struct addresses *all, uint32_t a)
{
	for (unsigned i = 0; i < all->n; i++) {
		if (all->a[i] == a)
			return;
	}
	if (a && all->n < MOST_ADDRESSES)
		all->a[all->n++] = a;
}

static void drop(struct addresses *all, uint32_t a)
{
	for (unsigned i = 0; i < all->n; i++) {
		if (all->a[i] == a)
			all->a[i] = all->a[--all->n];
	}
}

/* What Linux delivers as a broadcast: of each interface the last address, what it was told, and (before 5.14)
 * the first; but nothing that is an address of ours. */
static struct addresses find_broadcasts(void)
{
	struct addresses all = {.n = 0};
	struct ifaddrs *list, *i;

	add(&all, INADDR_BROADCAST);
	if (getifaddrs(&list))
		return all;
	for (i = list; i; i = i->ifa_next) {
		uint32_t a = v4_of(i->ifa_addr), mask = v4_of(i->ifa_netmask);

		if (!a)
			continue;
		if (i->ifa_flags & IFF_BROADCAST)
			add(&all, v4_of(i->ifa_broadaddr));
		if (mask < 0xfffffffe) { /* a /31 or /32 has none */
			add(&all, a | ~mask);
			add(&all, a & mask);
		}
	}
	for (i = list; i; i = i->ifa_next)
		drop(&all, v4_of(i->ifa_addr));
	freeifaddrs(list);
	return all;
}

#define STMT(code, k)         ((struct sock_filter)BPF_STMT(code, (uint32_t)(k)))
#define JUMP(code, k, jt, jf) ((struct sock_filter)BPF_JUMP(code, (uint32_t)(k), jt, jf))

/*
 *	A = destination;  a group: accept;  each broadcast address: drop
 *	A = how it came;  to this host alone: accept;  else (broadcast, group, sent to all by ourselves): drop
 */
static unsigned v4_program(struct sock_filter code[MOST_CODE])
{
	struct addresses all = find_broadcasts();
	unsigned n = 0;

	code[n++] = STMT(BPF_LD | BPF_W | BPF_ABS, SKF_NET_OFF + V4_DST);
	code[n++] = JUMP(BPF_JMP | BPF_JGE | BPF_K, 0xf0000000, 1, 0);
	code[n++] = JUMP(BPF_JMP | BPF_JGE | BPF_K, 0xe0000000, all.n + 3, 0); /* to the end: accept */
	for (unsigned i = 0; i < all.n; i++)
		code[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, all.a[i], all.n - i + 1, 0);
	code[n++] = STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE);
	code[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_HOST, 1, 0);
	code[n++] = STMT(BPF_RET | BPF_K, 0);
	code[n++] = STMT(BPF_RET | BPF_K, UINT32_MAX);
	return n;
}

static unsigned v6_program(struct sock_filter code[MOST_CODE])
{
	unsigned n = 0;

	code[n++] = STMT(BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + V6_DST);
	code[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xff, 3, 0);
	code[n++] = STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE);
	code[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_HOST, 1, 0);
	code[n++] = STMT(BPF_RET | BPF_K, 0);
	code[n++] = STMT(BPF_RET | BPF_K, UINT32_MAX);
	return n;
}

void link_udp_filter(struct udp_link *l)
{
	struct sock_filter code[MOST_CODE];
	struct sock_fprog prog;

	memset(&prog, 0, sizeof(prog)); /* the kernel is handed its padding too */
	prog.filter = code;
	prog.len = (unsigned short)v4_program(code);
	if (setsockopt(l->steer.fd4, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)))
		log_info("broadcasts to the UDP port will wake us: %s", strerror(errno));
	prog.len = (unsigned short)v6_program(code);
	if (l->steer.fd6 >= 0)
		setsockopt(l->steer.fd6, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
}
