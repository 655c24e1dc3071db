/* SPDX-License-Identifier: MIT */
/* Connecting, accepting, disconnecting: what the program asks for, as messages of the core. */
#include "cm/connect.h"

#include "cm/event.h"
#include "cm/fabric.h"
#include "cm/id.h"
#include "cm/iwarp.h"
#include "cm/listen.h"
#include "cm/qp.h"
#include "cm/route.h"
#include "hca/adapter.h"
#include "hca/qp.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = HCA_MAX_RD_ATOMIC };

/* ---- parameters ---- */
static uint8_t depth(uint8_t asked, uint8_t otherwise)
{
	return asked == RDMA_MAX_INIT_DEPTH ? otherwise : asked;
}

int rcm_choose_depths(
	struct rcm_id *id, const struct rdma_conn_param *p, uint8_t most_resources, uint8_t most_depth)
{
	if (p && ((p->responder_resources != RDMA_MAX_RESP_RES && p->responder_resources > MAX_DEPTH) ||
			 (p->initiator_depth != RDMA_MAX_INIT_DEPTH && p->initiator_depth > MAX_DEPTH)))
		return -EINVAL;
	id->path.responder_resources = depth(p ? p->responder_resources : RDMA_MAX_RESP_RES, most_resources);
	id->path.initiator_depth = depth(p ? p->initiator_depth : RDMA_MAX_INIT_DEPTH, most_depth);
	return 0;
}

static uint8_t at_most(uint8_t n)
{
	return n < MAX_DEPTH ? n : MAX_DEPTH;
}

static uint32_t qpn_of(const struct rcm_id *id, const struct rdma_conn_param *p)
{
	return id->pub.qp ? id->pub.qp->qp_num : p ? p->qp_num : 0;
}

static bool has_srq(const struct rcm_id *id, const struct rdma_conn_param *p)
{
	return id->pub.qp ? id->pub.qp->srq != NULL : p && p->srq;
}

/* What rdma_create_ep was given, and the program's own behind it. */
static int put_priv(const struct rcm_id *id, struct cm_msg *m, unsigned at, const void *data, size_t len)
{
	if (!data)
		len = 0;
	if (at + id->connect_len + len > cm_priv_len(m->attr))
		return -EINVAL;
	if (id->connect_len)
		memcpy(m->priv + at, id->connect, id->connect_len);
	if (len)
		memcpy(m->priv + at + id->connect_len, data, len);
	return 0;
}

static void put_ip(const struct rcm_id *id, struct cm_msg *m)
{
	const struct rdma_addr *addr = &id->pub.route.addr;
	struct cm_ip ip = {
		.version = addr->src_addr.sa_family == AF_INET6 ? 6 : 4,
		.port = sockaddr_port(&addr->src_addr),
	};

	gid_of_sockaddr(&addr->src_addr, ip.src);
	gid_of_sockaddr(&addr->dst_addr, ip.dst);
	cm_ip_pack(&ip, m->priv);
}

static int put_request_priv(const struct rcm_id *id, struct cm_msg *m, const struct rdma_conn_param *p)
{
	unsigned at = rcm_is_by_gid(id) ? 0 : CM_IP_LEN;

	if (at)
		put_ip(id, m);
	return put_priv(id, m, at, p ? p->private_data : NULL, p ? p->private_data_len : 0);
}

/* ---- active ---- */
/* A GID's address has its service id with it. */
static uint64_t service_to(const struct rcm_id *id)
{
	if (rcm_is_by_gid(id))
		return be64toh(((const struct sockaddr_ib *)&id->pub.route.addr.dst_storage)->sib_sid);
	return rcm_service_of(id, rcm_dst_port(id));
}

static void fill_req(struct rcm_id *id, struct cm_msg *m, const struct rdma_conn_param *p)
{
	enum ibv_qp_type type = id->pub.qp ? id->pub.qp->qp_type : id->pub.qp_type;
	struct rcm_path *path = &id->path;

	path->retry_count = p ? p->retry_count & 7 : 7;
	m->req = (struct cm_req){
		.vendor_id = id->local_ece.vendor_id,
		.service_id = service_to(id),
		.qpn = qpn_of(id, p),
		.responder_resources = path->responder_resources,
		.initiator_depth = path->initiator_depth,
		.remote_timeout = CM_RESPONSE_TIMEOUT,
		.local_timeout = CM_RESPONSE_TIMEOUT,
		.transport = type == IBV_QPT_UC ? CM_TRANSPORT_UC : CM_TRANSPORT_RC,
		.flow_control = p ? p->flow_control & 1 : 0,
		.psn = path->rq_psn,
		.retry_count = path->retry_count,
		.rnr_retry = p ? p->rnr_retry_count & 7 : 7,
		.max_cm_retries = CM_MAX_RETRIES,
		.pkey = path->pkey,
		.mtu = path->mtu,
		.srq = has_srq(id, p),
		.primary =
			{
				.local_lid = path->slid ? path->slid : 0xffff,
				.remote_lid = path->dlid ? path->dlid : 0xffff,
				.sl = path->sl,
				.flow_label = path->flow_label,
				.rate = path->rate ? path->rate : IBV_RATE_100_GBPS,
				.tclass = path->tclass,
				.hop_limit = path->hop_limit,
				.subnet_local = !path->has_grh,
				.ack_timeout = path->ack_timeout,
			},
	};
	m->attr_mod = id->local_ece.options;
	memcpy(m->req.primary.local_gid, path->local, 16);
	memcpy(m->req.primary.remote_gid, path->remote, 16);
}

/* As the core has it: on a fabric the addresses are those of LIDs. */
static struct cm_path path_of(const struct rcm_id *id)
{
	const struct rcm_path *p = &id->path;
	struct cm_path path = {
		.via = cm_via_pack((struct cm_via){.ifindex = p->ifindex, .tclass = p->tclass, .sl = p->sl})};

	memcpy(path.local, p->local, 16);
	memcpy(path.remote, p->remote, 16);
	if (p->slid) {
		gid_of_lid(p->slid, path.local);
		gid_of_lid(p->dlid, path.remote);
	}
	return path;
}

/* Hands a REQ or SIDR_REQ to the core. */
static int begin(struct rcm_id *id, struct cm_msg *m)
{
	struct cm_host *h = &id->cm->host;
	struct cm_path path = path_of(id);
	struct cm_conn *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->user = id;
	cm_host_lock(h);
	if (m->attr == CM_REQ)
		err = cm_connect(&h->core, c, &path, m, cm_host_now(h));
	else
		err = cm_sidr_request(&h->core, c, &path, m, cm_host_now(h));
	if (err)
		free(c);
	else
		id->conn = c;
	if (!err && !rcm_is_on_fabric(id)) /* where the fabric says that nobody listens */
		rcm_probe_watch(id);
	cm_host_unlock(h);
	return err;
}

static int connect_rc(struct rcm_id *id, const struct rdma_conn_param *p)
{
	struct cm_msg m = {.attr = CM_REQ};
	int err = id->pub.qp || p ? rcm_choose_depths(id, p, MAX_DEPTH, MAX_DEPTH) : -EINVAL;

	if (!err)
		err = put_request_priv(id, &m, p);
	if (err)
		return err;
	fill_req(id, &m, p);
	return begin(id, &m);
}

static int connect_ud(struct rcm_id *id, const struct rdma_conn_param *p)
{
	struct cm_msg m = {.attr = CM_SIDR_REQ};
	int err = put_request_priv(id, &m, p);

	if (err)
		return err;
	m.sidr_req = (struct cm_sidr_req){.pkey = id->path.pkey, .service_id = service_to(id)};
	return begin(id, &m);
}

int rcm_connect(struct rcm_id *id, const struct rdma_conn_param *p)
{
	int err;

	if (id->state != RCM_ROUTE)
		return -EINVAL;
	if (rcm_is_ud(id))
		err = connect_ud(id, p);
	else
		err = rcm_is_iwarp(id) ? rcm_iwarp_connect(id, p) : connect_rc(id, p);
	if (!err)
		id->state = RCM_CONNECT;
	return err;
}

int rcm_establish(struct rcm_id *id)
{
	struct cm_host *h = &id->cm->host;
	int err = -EINVAL;

	if (id->pub.qp)
		return err;
	cm_host_lock(h);
	if (id->conn)
		err = cm_establish(&h->core, id->conn, NULL, 0);
	cm_host_unlock(h);
	return err;
}

/* ---- passive ---- */
static void fill_rep(struct rcm_id *id, struct cm_msg *m, const struct rdma_conn_param *p)
{
	uint32_t vendor = id->local_ece.vendor_id;

	m->rep = (struct cm_rep){
		.qpn = qpn_of(id, p),
		.psn = id->path.rq_psn,
		.vendor_h = (uint8_t)(vendor >> 16),
		.vendor_m = (uint8_t)(vendor >> 8),
		.vendor_l = (uint8_t)vendor,
		.responder_resources = id->path.responder_resources,
		.initiator_depth = id->path.initiator_depth,
		.target_ack_delay = RCM_ACK_DELAY,
		.flow_control = p ? p->flow_control & 1 : 0,
		.rnr_retry = p ? p->rnr_retry_count & 7 : 7,
		.srq = has_srq(id, p),
	};
	m->attr_mod = id->local_ece.options;
}

static int accept_rc(struct rcm_id *id, const struct rdma_conn_param *p)
{
	struct cm_host *h = &id->cm->host;
	struct cm_msg m = {.attr = CM_REP};
	uint8_t resources = at_most(id->path.responder_resources),
		initiator = at_most(id->path.initiator_depth);
	int err = id->pub.qp || p ? rcm_choose_depths(id, p, resources, initiator) : -EINVAL;

	if (!err)
		err = put_priv(id, &m, 0, p ? p->private_data : NULL, p ? p->private_data_len : 0);
	if (err)
		return err;
	if (id->pub.qp) {
		err = rcm_qp_to_rtr(id);
		if (!err)
			err = rcm_qp_to_rts(id);
	}
	if (err)
		return err;
	fill_rep(id, &m, p);
	cm_host_lock(h);
	err = id->conn ? cm_accept(&h->core, id->conn, &m, cm_host_now(h)) : -EINVAL;
	cm_host_unlock(h);
	if (err)
		rcm_qp_to_err(id);
	return err;
}

static int reply_ud(struct rcm_id *id, struct cm_msg *m)
{
	struct cm_host *h = &id->cm->host;
	int err;

	cm_host_lock(h);
	err = id->conn ? cm_sidr_reply(&h->core, id->conn, m, cm_host_now(h)) : -EINVAL;
	cm_host_unlock(h);
	return err;
}

static int accept_ud(struct rcm_id *id, const struct rdma_conn_param *p)
{
	struct cm_msg m = {.attr = CM_SIDR_REP};
	int err = put_priv(id, &m, 0, p ? p->private_data : NULL, p ? p->private_data_len : 0);

	if (err)
		return err;
	m.sidr_rep.status = CM_SIDR_OK;
	m.sidr_rep.qpn = qpn_of(id, p);
	m.sidr_rep.qkey = id->path.qkey;
	return reply_ud(id, &m);
}

int rcm_accept(struct rcm_id *id, const struct rdma_conn_param *p)
{
	int err;

	if (!id->passive || id->answered)
		return -EINVAL;
	if (rcm_is_ud(id))
		err = accept_ud(id, p);
	else
		err = rcm_is_iwarp(id) ? rcm_iwarp_accept(id, p) : accept_rc(id, p);
	if (!err)
		id->answered = true;
	return err;
}

int rcm_reject(struct rcm_id *id, uint16_t reason, const void *data, uint8_t len)
{
	struct cm_host *h = &id->cm->host;
	struct cm_msg m = {.attr = CM_SIDR_REP};
	int err;

	if (rcm_is_iwarp(id))
		return rcm_iwarp_reject(id, data, len);
	if (!id->conn)
		return -EINVAL;
	if (rcm_is_ud(id)) {
		m.sidr_rep.status = CM_SIDR_REJECT;
		err = put_priv(id, &m, 0, data, len);
		return err ? err : reply_ud(id, &m);
	}
	cm_host_lock(h);
	err = cm_reject(&h->core, id->conn, reason, NULL, 0, data, data ? len : 0, cm_host_now(h));
	cm_host_unlock(h);
	return err;
}

/* ---- the end ---- */
int rcm_disconnect(struct rcm_id *id)
{
	struct cm_host *h = &id->cm->host;
	int err;

	if (rcm_is_iwarp(id))
		return rcm_iwarp_disconnect(id);
	if (!id->conn || rcm_is_ud(id))
		return -EINVAL;
	err = rcm_qp_to_err(id);
	if (err)
		return err;
	cm_host_lock(h);
	cm_disconnect(&h->core, id->conn, NULL, 0, cm_host_now(h));
	cm_host_unlock(h);
	return 0;
}

int rcm_notify(struct rcm_id *id, enum ibv_event_type event)
{
	struct cm_host *h = &id->cm->host;

	if (id->iwarp_conn)
		return 0; /* it knows by itself */
	if (!id->conn)
		return -EINVAL;
	cm_host_lock(h);
	if (event == IBV_EVENT_COMM_EST)
		cm_data_came(&h->core, id->conn); /* or the RTU was faster */
	cm_host_unlock(h);
	return 0;
}
