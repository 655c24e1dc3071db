/* SPDX-License-Identifier: MIT */
/*
 * From addresses to devices. The kernel's routing says which of our addresses leads to a destination: a UDP
 * socket is connected and asked for its name, which sends nothing. The device is the one whose GID table has
 * that address. Then somebody must be there, or the router on the way (cm/neigh.h): asked as often as Linux's
 * rdma_cm asks, until the program's patience is over.
 */
#include "cm/addr.h"

#include "base/gid.h"
#include "cm/event.h"
#include "cm/fabric.h"
#include "cm/id.h"
#include "cm/listen.h"
#include "cm/route.h"
#include "cm/verbs.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/fabric.h"
#include "host/ports.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses ---- */
bool rcm_is_any(const struct sockaddr *sa)
{
	uint8_t gid[16];

	gid_of_sockaddr(sa, gid);
	return gid_is_zero(gid) || (sa->sa_family == AF_INET && !memcmp(gid + 12, "\0\0\0\0", 4));
}

bool rcm_is_loopback(const struct sockaddr *sa)
{
	if (sockaddr_is_ib(sa))
		return false;
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)sa)->sin6_addr);
	return be32toh(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/* ---- the device ---- */
/* Whom a request came to is known, and datagrams are RoCE's; else it is the user's choice. */
static enum ibv_transport_type transport_of(const struct rcm_id *id)
{
	if (id->passive)
		return id->iwarp_conn ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	return rcm_is_ud(id) ? IBV_TRANSPORT_IB : IBV_TRANSPORT_UNKNOWN;
}

int rcm_bind_device(struct rcm_id *id, const uint8_t gid[16], uint32_t ifindex)
{
	unsigned index = 0;
	struct rcm_device *d;
	const struct hca_port *port;
	struct ibv_port_attr attr;
	int err = rcm_device_of(id->cm, gid, ifindex, transport_of(id), &d, &port, &index);

	/* What this host sends itself comes in by the loopback interface, whatever its address. */
	if (err && ifindex)
		err = rcm_device_of(id->cm, gid, 0, transport_of(id), &d, &port, &index);
	if (err)
		return err;
	if (ibv_query_port(d->verbs, port->num, &attr))
		return -ENODEV;
	cm_host_lock(&id->cm->host);
	id->dev = d;
	cm_host_unlock(&id->cm->host);
	id->pub.verbs = d->verbs;
	id->pub.port_num = id->path.port = port->num;
	if (!id->path.pkey)
		id->path.pkey = hca_port_default_pkey(port);
	id->path.lmc = attr.lmc;
	if (!id->pub.pd)
		id->pub.pd = d->pd;
	memcpy(id->path.local, gid, 16);
	id->path.ifindex = hca_port_is_ib(port) ? port->ib.index + 1 : d->ifindex;
	id->path.sgid_index = index;
	if (!id->path.mtu || id->path.mtu > attr.active_mtu)
		id->path.mtu = attr.active_mtu;
	return 0;
}

/* ---- binding ---- */
/* What the kernel says to a bind of its own: whether the address is ours, whether the port is for us. */
static int try_bind(const struct sockaddr *sa, int type, int protocol)
{
	int fd = socket(sa->sa_family, type | SOCK_CLOEXEC, protocol), err = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)); /* as link_tcp_listen() does */
	if (bind(fd, sa, sockaddr_len(sa)))
		err = -errno;
	close(fd);
	return err;
}

/* An address of the host's without a device is ENODEV, any other EADDRNOTAVAIL. */
static int why_no_device(const struct rcm_id *id, const struct sockaddr *addr)
{
	struct sockaddr_storage sa = {0};

	if (rcm_is_on_fabric(id))
		return -EADDRNOTAVAIL;
	memcpy(&sa, addr, sockaddr_len(addr));
	sockaddr_set_port((struct sockaddr *)&sa, 0);
	return try_bind((struct sockaddr *)&sa, SOCK_DGRAM, 0) == -EADDRNOTAVAIL ? -EADDRNOTAVAIL : -ENODEV;
}

/*
 * Low ports are for the privileged. Asked in the port space of UDP-Lite, where nobody can be disturbed;
 * kernels without it get the benefit of the doubt.
 */
static int may_claim(const struct sockaddr *sa)
{
	struct sockaddr_in probe = {.sin_family = AF_INET, .sin_port = htons(sockaddr_port(sa))};

	if (!sockaddr_port(sa) || sockaddr_port(sa) >= IPPORT_RESERVED)
		return 0;
	return try_bind((struct sockaddr *)&probe, SOCK_DGRAM, IPPROTO_UDPLITE) == -EACCES ? -EACCES : 0;
}

static int claim_port(struct rcm_id *id, struct sockaddr *sa)
{
	struct host_ports *ports = id->cm->host.adapter->ports;
	struct host_port_claim c = {
		.ps = (uint16_t)cm_service_space(rcm_service_of(id, 0)),
		.port = sockaddr_port(sa),
		.v6 = sa->sa_family != AF_INET,
		.afonly = id->afonly,
		.reuse = id->reuse,
		.host = hca_fabric_host_tag(id->cm->host.adapter),
	};
	int err;

	if (!ports)
		return -ENODEV;
	gid_of_sockaddr(sa, c.addr);
	if (rcm_is_any(sa))
		memset(c.addr, 0, 16);
	err = host_ports_claim(ports, &c, &id->port);
	if (!err)
		sockaddr_set_port(sa, c.port);
	return err;
}

/* iWARP's ports are TCP's: what is chosen for the program should not be another's there. */
static bool is_taken(const struct rcm_id *id, const struct sockaddr *sa)
{
	return id->pub.ps == RDMA_PS_TCP && (!id->dev || rcm_is_iwarp(id)) &&
	       verbs_device_any(id->cm->host.adapter, IBV_TRANSPORT_IWARP) &&
	       try_bind(sa, SOCK_STREAM, 0) == -EADDRINUSE;
}

static int choose_port(struct rcm_id *id, struct sockaddr *sa)
{
	enum { TRIES = 100 };
	int err = claim_port(id, sa);

	for (int i = 0; i < TRIES && !err && is_taken(id, sa); i++) {
		host_ports_release(id->cm->host.adapter->ports, id->port);
		id->port = 0;
		sockaddr_set_port(sa, 0);
		err = claim_port(id, sa);
	}
	return err;
}

int rcm_bind_address(struct rcm_id *id)
{
	struct sockaddr *sa = &id->pub.route.addr.src_addr;
	uint8_t gid[16];

	if (id->dev || rcm_is_any(sa))
		return 0;
	if (!rcm_gid_of(id, sa, gid))
		return -ENODEV;
	return rcm_bind_device(id, gid, sockaddr_scope(sa));
}

/*
 * Linux takes the address of the loopback interface for a wildcard. We have a device there; but libfabric
 * binds to it, and to no port, in order to see all devices: then it comes with rdma_listen.
 */
int rcm_bind(struct rcm_id *id, const struct sockaddr *addr)
{
	struct sockaddr *sa = &id->pub.route.addr.src_addr;
	uint8_t gid[16];
	int err = 0;

	if (id->state != RCM_IDLE)
		return -EINVAL;
	if (!addr)
		return -EINVAL;
	if (!rcm_address_is_known(id, addr))
		return -EAFNOSUPPORT;
	gid_of_sockaddr(addr, gid);
	if (sockaddr_is_ip(addr) && gid_is_link_local(gid) && !sockaddr_scope(addr))
		return -EINVAL;
	memcpy(&id->pub.route.addr.src_storage, addr, sockaddr_len(addr));
	if (sockaddr_is_ib(addr))
		err = rcm_choose_service(id, (struct sockaddr_ib *)sa);
	id->chose_port = sockaddr_port(sa);
	if (!err && (id->pub.ps != RDMA_PS_TCP || !rcm_is_loopback(addr) || id->chose_port))
		err = rcm_bind_address(id);
	if (err == -ENODEV)
		err = why_no_device(id, addr);
	if (!err)
		err = may_claim(sa);
	if (!err)
		err = id->chose_port ? claim_port(id, sa) : choose_port(id, sa);
	if (err)
		memset(&id->pub.route.addr.src_storage, 0, sizeof(id->pub.route.addr.src_storage));
	else
		id->state = RCM_BOUND;
	return err;
}

int rcm_bind_any(struct rcm_id *id, sa_family_t family)
{
	struct sockaddr_storage any = {.ss_family = family};

	return id->state == RCM_IDLE ? rcm_bind(id, (struct sockaddr *)&any) : 0;
}

/* ---- resolving ---- */
/* Our address on the way to dst: 0 or -errno. */
static int source_for(const struct sockaddr *dst, struct sockaddr_storage *src)
{
	int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	socklen_t len = sizeof(*src);
	struct sockaddr_storage to = {0};

	if (fd < 0)
		return cm_neigh_source(dst, src); /* UDP may be refused, and iWARP needs none */
	memcpy(&to, dst, sockaddr_len(dst));
	if (!sockaddr_port(dst))
		sockaddr_set_port((struct sockaddr *)&to, 1);
	if (connect(fd, (struct sockaddr *)&to, sockaddr_len(dst)) ||
		getsockname(fd, (struct sockaddr *)src, &len))
		err = -errno;
	close(fd);
	return err;
}

/* Binds the id to the address that leads to its destination, where it has only a port yet. */
static int choose_source(struct rcm_id *id)
{
	struct rdma_addr *addr = &id->pub.route.addr;
	uint16_t port = sockaddr_port(&addr->src_addr), to_port = sockaddr_port(&addr->dst_addr);
	struct sockaddr_storage src;
	int err;

	if (rcm_is_any(&addr->src_addr)) {
		err = rcm_is_on_fabric(id) ? rcm_fabric_source(id, &addr->dst_addr, &src)
					   : source_for(&addr->dst_addr, &src);
		if (err)
			return err;
		memcpy(&addr->src_storage, &src, sockaddr_len((struct sockaddr *)&src));
		sockaddr_set_port(&addr->src_addr, port);
	}
	if (rcm_is_any(&addr->dst_addr)) { /* this host */
		memcpy(&addr->dst_storage, &addr->src_storage, sizeof(addr->dst_storage));
		sockaddr_set_port(&addr->dst_addr, to_port);
	}
	return addr->src_addr.sa_family == addr->dst_addr.sa_family ? 0 : -EINVAL;
}

static int resolve(struct rcm_id *id)
{
	struct rdma_addr *addr = &id->pub.route.addr;
	uint8_t gid[16];
	int err;

	if (!rcm_gid_of(id, &addr->src_addr, gid))
		return -ENODEV;
	err = rcm_bind_device(id, gid, sockaddr_scope(&addr->src_addr));
	if (err)
		return err;
	if (!rcm_gid_of(id, &addr->dst_addr, id->path.remote) && !gid_is_mcast(id->path.remote))
		return -EHOSTUNREACH;
	id->path.tclass = id->tos;
	id->path.ack_timeout = id->has_ack_timeout ? id->ack_timeout : RCM_PACKET_LIFE_TIME + 1;
	return 0;
}

/* host lock held */
static void resolved(struct rcm_id *id, int err)
{
	assert_locked(&id->cm->host.lock);
	id->state = err ? RCM_BOUND : RCM_ADDR;
	rcm_tell_locked(id, err ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED, err);
}

/* On a quiet network the answer is there before the first look. */
enum { FIRST_LOOK_NS = 100 * 1000, LATER_LOOKS_NS = 50 * 1000 * 1000 };

static void look_again(struct cm_host_timer *t, uint64_t now)
{
	struct rcm_id *id = container_of(t, struct rcm_id, resolving.timer);
	struct rcm_resolving *r = &id->resolving;

	if (cm_neigh_known(&r->hop)) {
		resolved(id, 0);
	} else if (now >= r->until) {
		resolved(id, -ETIMEDOUT);
	} else {
		if (r->wait == LATER_LOOKS_NS)
			cm_neigh_ask(&r->hop); /* the kernel gives up after three times */
		r->wait = r->wait * 2 < LATER_LOOKS_NS ? r->wait * 2 : LATER_LOOKS_NS;
		cm_host_timer_set(&id->cm->host, t, now + r->wait < r->until ? now + r->wait : r->until);
	}
}

/* Who connects a thousand times to one host need not ask the kernel a thousand times. */
enum { REMEMBERED_NS = 1000 * 1000 * 1000 };

static bool remembered(struct rcm_id *id)
{
	const struct rcm *cm = id->cm;

	return cm_host_now(&cm->host) < cm->last_hop.until && id->path.ifindex == cm->last_hop.ifindex &&
	       !memcmp(id->path.remote, cm->last_hop.remote, 16);
}

/* host lock held */
static bool knows_hop(struct rcm_id *id)
{
	const struct rdma_addr *addr = &id->pub.route.addr;
	struct cm_neigh *hop = &id->resolving.hop;
	struct rcm *cm = id->cm;

	assert_locked(&cm->host.lock);
	if (rcm_is_on_fabric(id) || remembered(id))
		return true;
	cm_neigh_find(hop, &addr->src_addr, &addr->dst_addr, id->path.ifindex);
	if (!cm_neigh_known(hop))
		return false;
	memcpy(cm->last_hop.remote, id->path.remote, 16);
	cm->last_hop.ifindex = id->path.ifindex;
	cm->last_hop.until = cm_host_now(&cm->host) + REMEMBERED_NS;
	return true;
}

static void wait_for_hop(struct rcm_id *id, int timeout_ms)
{
	struct rcm_resolving *r = &id->resolving;
	uint64_t now = cm_host_now(&id->cm->host);

	r->timer.due = look_again;
	r->wait = FIRST_LOOK_NS;
	r->until = now + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000 * 1000 : 0);
	cm_neigh_ask(&r->hop);
	cm_host_timer_set(&id->cm->host, &r->timer, now + r->wait < r->until ? now + r->wait : r->until);
}

int rcm_resolve_addr(
	struct rcm_id *id, const struct sockaddr *src_addr, const struct sockaddr *dst_addr, int timeout_ms)
{
	struct rdma_addr *addr = &id->pub.route.addr;
	int err;

	if (!dst_addr)
		return -EINVAL;
	if (!rcm_address_is_known(id, dst_addr))
		return -EAFNOSUPPORT;
	if (id->state == RCM_IDLE)
		err = src_addr ? rcm_bind(id, src_addr) : rcm_bind_any(id, dst_addr->sa_family);
	else
		err = id->state == RCM_BOUND ? 0 : -EINVAL;
	if (err)
		return err;
	memcpy(&addr->dst_storage, dst_addr, sockaddr_len(dst_addr));
	err = choose_source(id);
	if (err)
		return err;
	err = resolve(id);
	id->state = RCM_RESOLVING;
	cm_host_lock(&id->cm->host);
	if (err || knows_hop(id))
		resolved(id, err);
	else
		wait_for_hop(id, timeout_ms);
	cm_host_unlock(&id->cm->host);
	return 0;
}
