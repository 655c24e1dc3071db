/* SPDX-License-Identifier: MIT */
#include "cm/door.h"

#include "base/fd.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

union address {
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid, mapped, sizeof(mapped));
}

static socklen_t address_of(const uint8_t gid[16], uint16_t port, uint32_t ifindex, union address *a)
{
	memset(a, 0, sizeof(*a));
	if (is_v4(gid)) {
		a->v4.sin_family = AF_INET;
		a->v4.sin_port = htons(port);
		memcpy(&a->v4.sin_addr, gid + 12, 4);
		return sizeof(a->v4);
	}
	a->v6.sin6_family = AF_INET6;
	a->v6.sin6_port = htons(port);
	memcpy(&a->v6.sin6_addr, gid, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr))
		a->v6.sin6_scope_id = ifindex;
	return sizeof(a->v6);
}

static int open_between(const struct cm_path *path, uint32_t ifindex, uint16_t udp_port, union address *from)
{
	const bool v4 = is_v4(path->local);
	const int probe = v4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE; /* DF: the ICRC knows it */
	union address to;
	socklen_t len = address_of(path->local, 0, ifindex, from);
	int fd = fd_above_stdio(socket(from->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (fd < 0)
		return -errno;
	address_of(path->remote, udp_port, ifindex, &to);
	if (setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe,
		    sizeof(probe)) ||
		bind(fd, &from->sa, len) || connect(fd, &to.sa, len) || getsockname(fd, &from->sa, &len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

int cm_door_knock(const struct cm_path *path, uint32_t ifindex, uint16_t udp_port)
{
	const struct cm_msg nothing = {.attr = CM_DREP};
	struct icrc_flow flow = {.dport = udp_port};
	enum { LEN = BTH_LEN + DETH_LEN + MAD_LEN };
	uint8_t p[LEN + ICRC_LEN];
	union address from;
	int fd = open_between(path, ifindex, udp_port, &from);

	if (fd < 0)
		return fd;
	bth_put(p, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, QP_GSI, false, 0);
	put_be32(p + BTH_LEN, GSI_QKEY);
	put_be32(p + BTH_LEN + 4, QP_GSI);
	cm_msg_pack(&nothing, p + BTH_LEN + DETH_LEN);
	memcpy(flow.src, path->local, 16);
	memcpy(flow.dst, path->remote, 16);
	flow.sport = ntohs(from.v4.sin_port); /* at the same place in both */
	icrc_put(p + LEN, icrc_packet(&flow, p, LEN, 0));
	(void)!send(fd, p, sizeof(p), 0);
	return fd;
}

bool cm_door_refused(int fd)
{
	char c;
	bool refused = recv(fd, &c, 1, 0) < 0 && errno == ECONNREFUSED;

	close(fd);
	return refused;
}
