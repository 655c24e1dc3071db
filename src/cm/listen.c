/* SPDX-License-Identifier: MIT */
/* Listening, by both transports where the id is bound to no device; and the ids of requests that come in. */
#include "cm/listen.h"

#include "base/gid.h"
#include "base/log.h"
#include "cm/addr.h"
#include "cm/fabric.h"
#include "cm/iwarp.h"
#include "cm/verbs.h"
#include "hca/adapter.h"
#include "host/ports.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BACKLOG = 1024 };

/* ---- listening ---- */
uint64_t rcm_service_of(const struct rcm_id *id, __be16 port)
{
	const struct sockaddr_ib *sib = (const struct sockaddr_ib *)&id->pub.route.addr.src_storage;
	uint64_t space = rcm_is_by_gid(id) ? cm_service_space(be64toh(sib->sib_sid)) : id->pub.ps;

	return cm_service_id((enum cm_port_space)space, be16toh(port));
}

/* Where a fabric routes requests to us it has to know for which the id listens. */
static int tell(struct rcm_id *id, bool on)
{
	int err =
		id->listen.service_id ? hca_engine_listen(&id->cm->host.adapter->engine, &id->listen, on) : 0;

	if (err || !on)
		id->listen.service_id = 0;
	return err;
}

static int tell_of(struct rcm_id *id)
{
	const struct sockaddr *sa = &id->pub.route.addr.src_addr;
	bool v4 = sa->sa_family == AF_INET, by_gid = sockaddr_is_ib(sa);

	id->listen = (struct cm_listen){.service_id = rcm_service_of(id, rcm_src_port(id)),
		.v4 = v4 || (!id->afonly && !by_gid),
		.v6 = !v4 && !by_gid,
		.gid = by_gid};
	if (!rcm_is_any(sa))
		gid_of_sockaddr(sa, id->listen.addr);
	return tell(id, true);
}

/* host lock held */
static int join_listener(struct rcm_id *id, uint64_t service)
{
	struct rcm *cm = id->cm;
	struct rcm_listener *l;
	int err;

	assert_locked(&cm->host.lock);
	list_for_each(n, &cm->listeners)
	{
		l = container_of(n, struct rcm_listener, node);
		if (l->conn->service_id == service)
			goto join;
	}
	l = calloc(1, sizeof(*l));
	if (l)
		l->conn = calloc(1, sizeof(*l->conn));
	if (!l || !l->conn) {
		free(l);
		return -ENOMEM;
	}
	list_init(&l->ids);
	l->conn->user = l;
	err = cm_listen(&cm->host.core, l->conn, service);
	if (err) {
		free(l->conn);
		free(l);
		return err;
	}
	list_add_tail(&cm->listeners, &l->node);
join:
	id->listener = l;
	list_add_tail(&l->ids, &id->listen_node);
	return 0;
}

void rcm_listen_stop(struct rcm_id *id, uint64_t now)
{
	struct rcm_listener *l = id->listener;

	assert_locked(&id->cm->host.lock);
	tell(id, false);
	id->listener = NULL;
	list_del(&id->listen_node);
	if (!l || !list_empty(&l->ids))
		return;
	l->conn->user = NULL;
	cm_abandon(&id->cm->host.core, l->conn, now);
	list_del(&l->node);
	free(l);
}

static void leave_listener(struct rcm_id *id)
{
	cm_host_lock(&id->cm->host);
	rcm_id_cut(id);
	cm_host_unlock(&id->cm->host);
}

static int listen_ib(struct rcm_id *id)
{
	struct hca_adapter *a = id->cm->host.adapter;
	int err;

	if (a->no_udp && !id->dev && verbs_device_any(a, IBV_TRANSPORT_IWARP))
		return 0; /* bound to no address: iWARP alone will do */
	err = hca_adapter_has(a, a->on_fabric ? HCA_INFINIBAND : HCA_ROCE);
	if (err)
		return err;
	cm_host_lock(&id->cm->host);
	err = join_listener(id, rcm_service_of(id, rcm_src_port(id)));
	cm_host_unlock(&id->cm->host);
	return err;
}

/*
 * Who is bound to no address listens on all devices. A port that another program has as a TCP port is then
 * left to it, where there are other devices than iWARP's.
 */
static int listen_iwarp(struct rcm_id *id)
{
	struct hca_adapter *a = id->cm->host.adapter;
	int err;

	if (id->pub.ps != RDMA_PS_TCP || (id->dev && !rcm_is_iwarp(id)) ||
		!verbs_device_any(a, IBV_TRANSPORT_IWARP))
		return 0;
	err = rcm_iwarp_listen(id, id->backlog);
	if (err && !id->dev && verbs_device_any(a, IBV_TRANSPORT_IB)) {
		log_info("TCP port %u: %s; no iWARP connections there", be16toh(rcm_src_port(id)),
			strerror(-err));
		return 0;
	}
	if (err)
		leave_listener(id);
	return err;
}

int rcm_listen(struct rcm_id *id, int backlog)
{
	int err = rcm_bind_any(id, AF_INET);

	if (!err && id->state != RCM_BOUND)
		err = -EINVAL;
	if (!err)
		err = rcm_bind_address(id);
	if (err)
		return err;
	id->backlog = backlog > 0 && backlog < MAX_BACKLOG ? backlog : MAX_BACKLOG;
	if (!rcm_is_iwarp(id))
		err = listen_ib(id);
	if (!err)
		err = listen_iwarp(id);
	if (err)
		return err;
	/* We are ready before others send us requests. */
	err = host_ports_listen(id->cm->host.adapter->ports, id->port);
	if (!err)
		err = tell_of(id);
	if (err)
		leave_listener(id);
	else
		id->state = RCM_LISTEN;
	return err;
}

/* ---- requests that come in ---- */
/* How well an id's address fits the one a request came to: 0 not at all, 2 exactly. */
static int fits(const struct rcm_id *id, const uint8_t local[16])
{
	static const uint8_t any[16], any4[16] = {[10] = 0xff, [11] = 0xff};
	const struct sockaddr *sa = &id->pub.route.addr.src_addr;
	bool v4 = gid_is_v4(local);
	uint8_t gid[16];

	gid_of_sockaddr(sa, gid);
	if (!memcmp(gid, local, 16))
		return 2;
	if (sa->sa_family == AF_INET)
		return v4 && !memcmp(gid, any4, 16);
	return !memcmp(gid, any, 16) && !(v4 && id->afonly);
}

/* By GID: the fabric knows that it is for one of the port's. */
static struct rcm_id *listening_by_gid(const struct rcm_listener *l)
{
	list_for_each(n, &l->ids)
	{
		struct rcm_id *id = container_of(n, struct rcm_id, listen_node);

		if (rcm_is_by_gid(id))
			return id;
	}
	return NULL;
}

static struct rcm_id *listening_id(const struct rcm_listener *l, const uint8_t local[16])
{
	struct rcm_id *best = NULL;

	list_for_each(n, &l->ids)
	{
		struct rcm_id *id = container_of(n, struct rcm_id, listen_node);

		if (!rcm_is_by_gid(id) && fits(id, local) > (best ? fits(best, local) : 0))
			best = id;
	}
	return best;
}

struct rcm_id *rcm_id_for_request(struct rcm_id *listener, enum ibv_qp_type type, const uint8_t local[16],
	const uint8_t remote[16], uint32_t ifindex, uint16_t port)
{
	struct rcm_id *id = rcm_id_new(listener->cm, listener->pub.ps, type);
	struct rdma_addr *addr;

	assert_locked(&listener->cm->host.lock);
	if (!id)
		return NULL;
	addr = &id->pub.route.addr;
	id->pub.context = listener->pub.context;
	id->pub.channel = listener->pub.channel;
	id->passive = true;
	id->state = RCM_CONNECT;
	id->tos = listener->tos;
	id->has_tos = listener->has_tos;
	id->listened_by = listener;
	id->path.ifindex = ifindex;
	memcpy(id->path.local, local, 16);
	memcpy(id->path.remote, remote, 16);
	gid_to_sockaddr(local, be16toh(rcm_src_port(listener)), id->path.ifindex, &addr->src_storage);
	gid_to_sockaddr(remote, port, id->path.ifindex, &addr->dst_storage);
	return id;
}

/* Its GIDs are those of the ports with its LIDs, which are looked up when the program takes it. */
static struct rcm_id *id_by_gid(struct rcm_id *listener, enum ibv_qp_type type, uint32_t ifindex)
{
	static const uint8_t unknown[16];
	struct rcm_id *id = rcm_id_for_request(listener, type, unknown, unknown, ifindex, 0);
	struct sockaddr_ib sib = {.sib_family = AF_IB, .sib_pkey = htobe16(UINT16_MAX)};

	if (!id)
		return NULL;
	memcpy(&id->pub.route.addr.dst_storage, &sib, sizeof(sib));
	sib.sib_sid = htobe64(rcm_service_of(listener, rcm_src_port(listener)));
	sib.sib_sid_mask = UINT64_MAX;
	memcpy(&id->pub.route.addr.src_storage, &sib, sizeof(sib));
	return id;
}

/* On a fabric packets have LIDs, and a request says its IP addresses itself: they are compared when the
 * program takes it (rcm_fabric_bind_request()). */
static struct rcm_id *id_on_fabric(
	struct rcm_id *listener, enum ibv_qp_type type, const struct cm_path *path, const struct cm_ip *ip)
{
	struct cm_via via = cm_via_of(path);
	struct rcm_id *id = rcm_is_by_gid(listener) ? id_by_gid(listener, type, via.ifindex)
						    : rcm_id_for_request(listener, type, ip->dst, ip->src,
							      via.ifindex, ip->port);

	if (!id)
		return NULL;
	id->path.slid = gid_lid(path->local);
	id->path.dlid = id->path.from_lid = gid_lid(path->remote);
	id->path.sl = via.sl;
	return id;
}

static struct rcm_id *id_for_message(
	struct rcm_id *listener, const struct cm_path *path, const struct cm_msg *m, const struct cm_ip *ip)
{
	enum ibv_qp_type type = m->attr == CM_SIDR_REQ                ? IBV_QPT_UD
				: m->req.transport == CM_TRANSPORT_UC ? IBV_QPT_UC
								      : IBV_QPT_RC;

	if (rcm_is_on_fabric(listener))
		return id_on_fabric(listener, type, path, ip);
	return rcm_id_for_request(
		listener, type, path->local, path->remote, cm_via_of(path).ifindex, ip->port);
}

struct cm_conn *rcm_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	bool sidr = m->attr == CM_SIDR_REQ;
	struct rcm *cm = container_of(arg, struct rcm, host);
	struct rcm_id *by = listening_by_gid(listener->user), *id;
	struct cm_conn *c;
	struct cm_ip ip;

	assert_locked(&cm->host.lock);
	if (!by && cm_ip_parse(m->priv, &ip))
		by = listening_id(listener->user, cm->host.adapter->on_fabric ? ip.dst : path->local);
	if (!by) {
		*refuse = sidr ? CM_SIDR_UNSUPPORTED : CM_REJ_INVALID_SERVICE_ID;
		return NULL;
	}
	if (!by->backlog)
		return NULL;
	c = calloc(1, sizeof(*c));
	id = c ? id_for_message(by, path, m, &ip) : NULL;
	if (!id) {
		free(c);
		return NULL;
	}
	by->backlog--;
	id->conn = c;
	c->user = id;
	return c;
}
