/* SPDX-License-Identifier: MIT */
/*
 * A request that nobody answers for a second: is there anybody? The host is asked once a second for a while.
 * When it has said twice that it takes no RoCE packets the program is told, and need not wait for the last
 * attempt of the request, 77 s later. Twice and only then, since what says so is not authenticated; and a
 * host that says so of every packet does not say it of every one in a hurry.
 *
 * One on which no RDMA program runs answers a packet to the port by ICMP, port unreachable, which the
 * adapter's socket, shared by all traffic, is not told. A socket that is connected to the one host is. What
 * it sends is a whole RoCE packet, so that a card takes it and not the kernel behind it; a DREP for no
 * connection, so that nobody answers.
 */
#include "cm/probe.h"

#include "base/fd.h"
#include "base/gid.h"
#include "cm/id.h"
#include "hca/adapter.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

/* ---- one packet ---- */
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

/* A descriptor to ask a moment later, or -errno. */
static int send_probe(const struct cm_path *path, uint32_t ifindex, uint16_t pkey, uint16_t udp_port)
{
	const struct cm_msg nothing = {.attr = CM_DREP};
	struct icrc_flow flow = {.dport = udp_port};
	enum { LEN = BTH_LEN + DETH_LEN + MAD_LEN };
	uint8_t p[LEN + ICRC_LEN];
	struct sockaddr_storage from;
	int fd = open_between(path, ifindex, udp_port, &from);

	if (fd < 0)
		return fd;
	bth_put(p, IBT_UD | OP_SEND_ONLY, false, 0, pkey, QP_GSI, false, 0);
	put_be32(p + BTH_LEN, GSI_QKEY);
	put_be32(p + BTH_LEN + 4, QP_GSI);
	cm_msg_pack(&nothing, p + BTH_LEN + DETH_LEN);
	memcpy(flow.src, path->local, 16);
	memcpy(flow.dst, path->remote, 16);
	flow.sport = sockaddr_port((struct sockaddr *)&from);
	icrc_put(p + LEN, icrc_packet(&flow, p, LEN, 0));
	(void)!send(fd, p, sizeof(p), 0);
	return fd;
}

/* Whether the host has said that nobody is there. Closes the descriptor. */
static bool was_refused(int fd)
{
	char c;
	bool refused = recv(fd, &c, 1, 0) < 0 && errno == ECONNREFUSED;

	close(fd);
	return refused;
}

/* ---- once a second ---- */
enum { BETWEEN_NS = 1000 * 1000 * 1000, PROBES = 6, ENOUGH = 2 };

static bool waits(const struct rcm_id *id)
{
	return id->conn && (id->conn->state == CM_S_REQ_SENT || id->conn->state == CM_S_SIDR_REQ_SENT);
}

static void look(struct cm_host_timer *t, uint64_t now)
{
	struct rcm_id *id = container_of(t, struct rcm_id, probe.timer);
	struct rcm_probe *d = &id->probe;
	struct cm_host *h = &id->cm->host;

	if (d->fd > 0)
		d->refusals += was_refused(d->fd);
	d->fd = 0;
	if (!waits(id))
		return;
	if (d->refusals == ENOUGH) {
		cm_give_up(&h->core, id->conn, now);
		return;
	}
	if (d->probes++ == PROBES)
		return;
	d->fd = send_probe(&id->conn->path, id->path.ifindex, id->path.pkey, h->adapter->udp_port);
	cm_host_timer_set(h, t, now + BETWEEN_NS);
}

void rcm_probe_watch(struct rcm_id *id)
{
	assert_locked(&id->cm->host.lock);
	id->probe.timer.due = look;
	cm_host_timer_set(&id->cm->host, &id->probe.timer, cm_host_now(&id->cm->host) + BETWEEN_NS);
}

void rcm_probe_leave(struct rcm_id *id)
{
	assert_locked(&id->cm->host.lock);
	cm_host_timer_clear(&id->cm->host, &id->probe.timer);
	if (id->probe.fd > 0)
		was_refused(id->probe.fd);
	id->probe.fd = 0;
}

int rcm_probe_verdict(const struct rcm_id *id)
{
	return id->probe.refusals == ENOUGH ? -ECONNREFUSED : -ETIMEDOUT;
}
