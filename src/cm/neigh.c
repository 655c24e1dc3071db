/* SPDX-License-Identifier: MIT */
#include "cm/neigh.h"

#include "base/gid.h"
#include "wire/ibt.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- one question to the kernel ---- */
struct question {
	struct nlmsghdr h;
	union {
		struct rtmsg route;
		struct ndmsg neigh;
	};
	uint8_t attrs[128];
};

static void begin(struct question *q, uint16_t type, size_t body)
{
	memset(q, 0, sizeof(*q));
	q->h.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
	q->h.nlmsg_type = type;
	q->h.nlmsg_flags = NLM_F_REQUEST;
}

static void attach(struct question *q, uint16_t type, const void *value, size_t len)
{
	struct rtattr *a = (struct rtattr *)((uint8_t *)q + NLMSG_ALIGN(q->h.nlmsg_len));

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), value, len);
	q->h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->h.nlmsg_len) + RTA_LENGTH(len));
}

struct answer {
	union {
		struct nlmsghdr h;
		uint8_t bytes[4096];
	};
};

/* 0 with an answer of the type that was hoped for, or -errno. */
static int ask(const struct question *q, uint16_t type, struct answer *a)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), err = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = send(fd, q, q->h.nlmsg_len, 0);
	if (n > 0)
		n = recv(fd, a, sizeof(*a), 0);
	if (n < 0)
		err = -errno;
	else if (!NLMSG_OK(&a->h, (size_t)n))
		err = -EBADMSG;
	else if (a->h.nlmsg_type == NLMSG_ERROR)
		err = ((struct nlmsgerr *)NLMSG_DATA(&a->h))->error;
	else if (a->h.nlmsg_type != type)
		err = -EBADMSG;
	close(fd);
	return err;
}

static const void *attr_of(const struct answer *a, size_t body, uint16_t type, size_t len)
{
	const struct rtattr *r = (const struct rtattr *)(a->bytes + NLMSG_SPACE(body));
	size_t left = a->h.nlmsg_len > NLMSG_SPACE(body) ? a->h.nlmsg_len - NLMSG_SPACE(body) : 0;

	for (; RTA_OK(r, left); r = RTA_NEXT(r, left)) {
		if (r->rta_type == type && RTA_PAYLOAD(r) == len)
			return RTA_DATA(r);
	}
	return NULL;
}

/* ---- addresses ---- */
static const void *raw(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
					 : (const void *)&((const struct sockaddr_in *)sa)->sin_addr;
}

static size_t raw_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? 16 : 4;
}

/* ---- the hop ---- */
/* Neighbours have no link address there. */
static bool has_no_neighbours(uint32_t ifindex)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool no = fd < 0 || !if_indextoname(ifindex, r.ifr_name) || ioctl(fd, SIOCGIFFLAGS, &r) ||
		  r.ifr_flags & (IFF_NOARP | IFF_LOOPBACK | IFF_POINTOPOINT);

	if (fd >= 0)
		close(fd);
	return no;
}

void cm_neigh_find(
	struct cm_neigh *hop, const struct sockaddr *src, const struct sockaddr *dst, uint32_t ifindex)
{
	const size_t len = raw_len(dst), body = sizeof(struct rtmsg);
	const struct rtmsg *route;
	const void *gateway;
	struct question q;
	struct answer a;

	memset(hop, 0, sizeof(*hop));
	memcpy(&hop->to, dst, sockaddr_len(dst));
	begin(&q, RTM_GETROUTE, body);
	q.route.rtm_family = (uint8_t)dst->sa_family;
	q.route.rtm_dst_len = q.route.rtm_src_len = (uint8_t)(len * 8);
	attach(&q, RTA_DST, raw(dst), len);
	attach(&q, RTA_SRC, raw(src), len);
	if (dst->sa_family == AF_INET6 && ((const struct sockaddr_in6 *)dst)->sin6_scope_id)
		attach(&q, RTA_OIF, &ifindex, sizeof(ifindex));
	if (ask(&q, RTM_NEWROUTE, &a))
		return;
	route = NLMSG_DATA(&a.h);
	if (route->rtm_type != RTN_UNICAST || has_no_neighbours(ifindex) ||
		attr_of(&a, body, RTA_VIA, sizeof(struct rtvia) + 16)) /* IPv4 behind an IPv6 router */
		return;
	gateway = attr_of(&a, body, RTA_GATEWAY, len);
	memcpy(hop->addr, gateway ? gateway : raw(dst), len);
	hop->ifindex = ifindex;
}

int cm_neigh_source(const struct sockaddr *dst, struct sockaddr_storage *src)
{
	const size_t len = raw_len(dst), body = sizeof(struct rtmsg);
	const void *addr;
	struct question q;
	struct answer a;
	int err;

	begin(&q, RTM_GETROUTE, body);
	q.route.rtm_family = (uint8_t)dst->sa_family;
	q.route.rtm_dst_len = (uint8_t)(len * 8);
	attach(&q, RTA_DST, raw(dst), len);
	err = ask(&q, RTM_NEWROUTE, &a);
	if (err)
		return err;
	addr = attr_of(&a, body, RTA_PREFSRC, len);
	if (!addr)
		return -EADDRNOTAVAIL;
	memset(src, 0, sizeof(*src));
	memcpy(src, dst, sockaddr_len(dst));
	sockaddr_set_port((struct sockaddr *)src, 0);
	memcpy((void *)raw((struct sockaddr *)src), addr, len);
	return 0;
}

bool cm_neigh_known(const struct cm_neigh *hop)
{
	const uint16_t valid = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
	const struct sockaddr *to = (const struct sockaddr *)&hop->to;
	struct question q;
	struct answer a;
	int err;

	if (!hop->ifindex)
		return true;
	begin(&q, RTM_GETNEIGH, sizeof(struct ndmsg));
	q.neigh.ndm_family = (uint8_t)to->sa_family;
	q.neigh.ndm_ifindex = (int)hop->ifindex;
	attach(&q, NDA_DST, hop->addr, raw_len(to));
	err = ask(&q, RTM_NEWNEIGH, &a);
	if (err)
		return err != -ENOENT;
	return ((const struct ndmsg *)NLMSG_DATA(&a.h))->ndm_state & valid;
}

/*
 * A datagram without content to the adapter's port, through the interface: it leaves when the hop has
 * answered, and whoever gets it drops it.
 */
void cm_neigh_ask(const struct cm_neigh *hop)
{
	const int v6 = hop->to.ss_family == AF_INET6;
	const uint32_t through = htonl(hop->ifindex);
	struct sockaddr_storage to = hop->to;
	int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	sockaddr_set_port((struct sockaddr *)&to, ROCE_UDP_PORT);
	setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_UNICAST_IF : IP_UNICAST_IF, &through,
		sizeof(through));
	(void)!sendto(fd, "", 0, 0, (struct sockaddr *)&to, sockaddr_len((struct sockaddr *)&to));
	close(fd);
}
