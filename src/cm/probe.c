/* SPDX-License-Identifier: MIT */
#include "cm/probe.h"

#include "base/fd.h"
#include "base/gid.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static int open_between(
	const struct cm_path *path, uint32_t ifindex, uint16_t udp_port, struct sockaddr_storage *from)
{
	const bool v4 = gid_is_v4(path->local);
	const int probe = v4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE; /* DF: the ICRC knows it */
	struct sockaddr_storage to;
	struct sockaddr *at = (struct sockaddr *)from;
	socklen_t len;
	int fd;

	gid_to_sockaddr(path->local, 0, ifindex, from);
	gid_to_sockaddr(path->remote, udp_port, ifindex, &to);
	len = sockaddr_len(at);
	fd = fd_above_stdio(socket(at->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe,
		    sizeof(probe)) ||
		bind(fd, at, len) || connect(fd, (struct sockaddr *)&to, len) || getsockname(fd, at, &len)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

int cm_probe_send(const struct cm_path *path, uint32_t ifindex, uint16_t udp_port)
{
	const struct cm_msg nothing = {.attr = CM_DREP};
	struct icrc_flow flow = {.dport = udp_port};
	enum { LEN = BTH_LEN + DETH_LEN + MAD_LEN };
	uint8_t p[LEN + ICRC_LEN];
	struct sockaddr_storage from;
	int fd = open_between(path, ifindex, udp_port, &from);

	if (fd < 0)
		return fd;
	bth_put(p, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, QP_GSI, false, 0);
	put_be32(p + BTH_LEN, GSI_QKEY);
	put_be32(p + BTH_LEN + 4, QP_GSI);
	cm_msg_pack(&nothing, p + BTH_LEN + DETH_LEN);
	memcpy(flow.src, path->local, 16);
	memcpy(flow.dst, path->remote, 16);
	flow.sport = ntohs(((struct sockaddr_in *)&from)->sin_port); /* at the same place in both */
	icrc_put(p + LEN, icrc_packet(&flow, p, LEN, 0));
	(void)!send(fd, p, sizeof(p), 0);
	return fd;
}

bool cm_probe_refused(int fd)
{
	char c;
	bool refused = recv(fd, &c, 1, 0) < 0 && errno == ECONNREFUSED;

	close(fd);
	return refused;
}
