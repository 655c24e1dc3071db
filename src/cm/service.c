/* SPDX-License-Identifier: MIT */
/*
 * The process's connection manager, and what it calls back with. Everything here but rcm_get runs under the
 * host's lock, perhaps in the helper thread and under the drive lock: it fills events and queues them.
 */
#include "cm/service.h"

#include "base/gid.h"
#include "base/log.h"
#include "cm/device.h"
#include "cm/event.h"
#include "cm/listen.h"
#include "cm/probe.h"
#include "cm/qp.h"
#include "cm/verbs.h"
#include "hca/adapter.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static struct rcm_id *listening_id(const struct rcm_listener *l, const uint8_t local[16])
{
	struct rcm_id *best = NULL;

	list_for_each(n, &l->ids)
	{
		struct rcm_id *id = container_of(n, struct rcm_id, listen_node);

		if (fits(id, local) > (best ? fits(best, local) : 0))
			best = id;
	}
	return best;
}

struct rcm_id *rcm_id_for_request(struct rcm_id *listener, enum ibv_qp_type type, const uint8_t local[16],
	const uint8_t remote[16], uint32_t ifindex, uint16_t port)
{
	struct rcm_id *id = rcm_id_new(listener->cm, listener->pub.ps, type);
	struct rdma_addr *addr;

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
	gid_to_sockaddr(
		local, be16toh(rdma_get_src_port(&listener->pub)), id->path.ifindex, &addr->src_storage);
	gid_to_sockaddr(remote, port, id->path.ifindex, &addr->dst_storage);
	return id;
}

static struct rcm_id *id_for_message(
	struct rcm_id *listener, const struct cm_path *path, const struct cm_msg *m, const struct cm_ip *ip)
{
	enum ibv_qp_type type = m->attr == CM_SIDR_REQ                ? IBV_QPT_UD
				: m->req.transport == CM_TRANSPORT_UC ? IBV_QPT_UC
								      : IBV_QPT_RC;

	return rcm_id_for_request(
		listener, type, path->local, path->remote, cm_via_of(path).ifindex, ip->port);
}

static struct cm_conn *incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	bool sidr = m->attr == CM_SIDR_REQ;
	struct rcm_id *by = listening_id(listener->user, path->local), *id;
	struct cm_conn *c;
	struct cm_ip ip;

	if (!by || !cm_ip_parse(m->priv, &ip)) {
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

/* ---- what a message says of the path ---- */
static void learn_req(struct rcm_id *id, const struct cm_msg *m)
{
	const struct cm_req *r = &m->req;
	struct rcm_path *p = &id->path;

	p->mtu = r->mtu;
	p->tclass = r->primary.tclass;
	p->hop_limit = r->primary.hop_limit;
	p->flow_label = r->primary.flow_label;
	p->ack_timeout = r->primary.ack_timeout;
	p->remote_qpn = r->qpn;
	p->sq_psn = r->psn;
	p->responder_resources = r->initiator_depth;
	p->initiator_depth = r->responder_resources;
	p->retry_count = r->retry_count;
	p->rnr_retry = r->rnr_retry;
	p->flow_control = r->flow_control;
	p->srq = r->srq;
	id->remote_ece = (struct ibv_ece){.vendor_id = r->vendor_id, .options = m->attr_mod};
	/* What we answer goes the way the request asks for, as all data will. */
	id->conn->path.via = cm_via_pack((struct cm_via){.ifindex = p->ifindex, .tclass = p->tclass});
}

static void learn_rep(struct rcm_id *id, const struct cm_msg *m)
{
	const struct cm_rep *r = &m->rep;
	struct rcm_path *p = &id->path;

	p->remote_qpn = r->qpn;
	p->sq_psn = r->psn;
	p->responder_resources = r->initiator_depth;
	p->initiator_depth = r->responder_resources;
	p->rnr_retry = r->rnr_retry;
	p->flow_control = r->flow_control;
	p->srq = r->srq;
	id->remote_ece = (struct ibv_ece){
		.vendor_id = (uint32_t)r->vendor_h << 16 | (uint32_t)r->vendor_m << 8 | r->vendor_l,
		.options = m->attr_mod};
}

/* ---- events ---- */
/* The whole field behind `skip` bytes of our own: nobody knows how much of it was meant. */
static void put_priv(struct rcm_event *e, const struct cm_msg *m, unsigned skip, bool ud)
{
	uint8_t len = (uint8_t)(cm_priv_len(m->attr) - skip);

	memcpy(e->priv, m->priv + skip, len);
	if (ud) {
		e->pub.param.ud.private_data = e->priv;
		e->pub.param.ud.private_data_len = len;
	} else {
		e->pub.param.conn.private_data = e->priv;
		e->pub.param.conn.private_data_len = len;
	}
}

static void on_request(struct cm_host *h, struct rcm_id *id, const struct cm_msg *m)
{
	struct rcm_event *e;

	if (m->attr == CM_REQ)
		learn_req(id, m);
	e = rcm_event_new(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	if (!e) {
		id->listened_by->backlog++;
		rcm_id_free(id);
		return;
	}
	e->pub.listen_id = &id->listened_by->pub;
	put_priv(e, m, CM_IP_LEN, m->attr == CM_SIDR_REQ);
	if (m->attr == CM_REQ) {
		rcm_event_put_conn(e, &id->path);
		cm_prepare_mra(&h->core, id->conn, CM_MRA_TIMEOUT);
	}
	rcm_event_queue(e, id->listened_by);
}

static void on_rep(struct cm_host *h, struct rcm_id *id, const struct cm_msg *m)
{
	struct rcm_event *e;

	learn_rep(id, m);
	e = rcm_event_new(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	if (!e)
		return;
	put_priv(e, m, 0, false);
	rcm_event_put_conn(e, &id->path);
	e->pub.param.conn.retry_count = 0; /* a REP has none */
	cm_prepare_mra(&h->core, id->conn, CM_MRA_TIMEOUT);
	rcm_event_queue(e, id);
}

static void on_rej(struct rcm_id *id, const struct cm_msg *m)
{
	struct rcm_event *e = rcm_event_new(id, RDMA_CM_EVENT_REJECTED, m->rej.reason);

	if (!e)
		return;
	put_priv(e, m, 0, false);
	rcm_event_queue(e, id);
}

static void on_sidr_rep(struct rcm_id *id, const struct cm_msg *m)
{
	bool ok = m->sidr_rep.status == CM_SIDR_OK;
	struct rcm_event *e = rcm_event_new(
		id, ok ? RDMA_CM_EVENT_ESTABLISHED : RDMA_CM_EVENT_UNREACHABLE, m->sidr_rep.status);

	if (!e)
		return;
	if (ok) {
		put_priv(e, m, 0, true);
		rcm_fill_ah(id, id->path.remote, &e->pub.param.ud.ah_attr);
		e->pub.param.ud.qp_num = m->sidr_rep.qpn;
		e->pub.param.ud.qkey = m->sidr_rep.qkey;
	}
	rcm_event_queue(e, id);
}

static void simply(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rcm_event *e = rcm_event_new(id, type, status);

	if (e)
		rcm_event_queue(e, id);
}

static void on_event(void *arg, struct cm_conn *c, const struct cm_event *ev)
{
	struct cm_host *h = arg;
	struct rcm_id *id = c->user;

	if (id)
		rcm_probe_leave(id); /* whatever it is, there is nothing to wait for */
	switch (ev->type) {
	case CM_EV_REQ:
	case CM_EV_SIDR_REQ:
		on_request(h, id, ev->msg);
		break;
	case CM_EV_REP:
		on_rep(h, id, ev->msg);
		break;
	case CM_EV_ESTABLISHED:
		simply(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		break;
	case CM_EV_REJ:
		on_rej(id, ev->msg);
		break;
	case CM_EV_UNREACHABLE:
		simply(id, RDMA_CM_EVENT_UNREACHABLE, rcm_probe_verdict(id));
		break;
	case CM_EV_DREQ:
	case CM_EV_DREP:
		simply(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	case CM_EV_DREQ_TIMEOUT:
		simply(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
		break;
	case CM_EV_TIMEWAIT_EXIT:
		simply(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		break;
	case CM_EV_SIDR_REP:
		on_sidr_rep(id, ev->msg);
		break;
	case CM_EV_GONE:
		if (id) { /* a request for which there was no id left */
			id->conn = NULL;
			id->listened_by->backlog++;
			rcm_id_free(id);
		}
		free(c);
		break;
	case CM_EV_MRA:
	case CM_EVENT_COUNT:
		break;
	}
}

/* ---- devices that go ---- */
/* Each of its ids is told, once; the program then destroys them. */
static void on_change(struct cm_host *h)
{
	struct rcm *cm = container_of(h, struct rcm, host);

	list_for_each(n, &cm->ids)
	{
		struct rcm_id *id = container_of(n, struct rcm_id, node);

		if (!id->dev || id->listened_by || id->told_removal || !rcm_device_gone(id->dev))
			continue;
		id->told_removal = true;
		simply(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	}
}

/* ---- life ---- */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rcm *the_rcm;
static pid_t owner;

/* Whatever the parent's threads were doing with it: the child begins anew. */
static void in_child(void)
{
	pthread_mutex_init(&mutex, NULL);
	if (the_rcm)
		the_rcm->dead = true;
	the_rcm = NULL;
}

static int open_host(struct rcm *cm)
{
	static const struct cm_host_user user = {
		.event = on_event, .incoming = incoming, .changed = on_change};
	struct hca_adapter *a = verbs_adapter();
	int n, err = a ? 0 : -ENOMEM;
	struct ibv_device **list = err ? NULL : ibv_get_device_list(&n);

	if (!list)
		return err ? err : -errno;
	err = n ? cm_host_open(&cm->host, a, &user, be64toh(ibv_get_device_guid(list[0]))) : -ENODEV;
	ibv_free_device_list(list);
	return err;
}

static struct rcm *open_rcm(void)
{
	struct rcm *cm = calloc(1, sizeof(*cm));
	int err;

	if (!cm)
		return NULL;
	list_init(&cm->ids);
	list_init(&cm->listeners);
	list_init(&cm->devices);
	lock_init(&cm->device_lock);
	pthread_cond_init(&cm->acked, NULL);
	err = open_host(cm);
	if (err) {
		free(cm);
		errno = -err;
		return NULL;
	}
	return cm;
}

struct rcm *rcm_get(void)
{
	static bool watching_fork;
	struct rcm *cm;

	pthread_mutex_lock(&mutex);
	if (!the_rcm) {
		log_init();
		the_rcm = open_rcm();
		owner = getpid();
	}
	if (!watching_fork)
		watching_fork = !pthread_atfork(NULL, NULL, in_child);
	cm = the_rcm;
	pthread_mutex_unlock(&mutex);
	return cm;
}

/* Peers of connections that the program leaves open are told, once. */
__attribute__((destructor)) static void at_exit(void)
{
	struct rcm *cm = the_rcm;

	if (!cm || owner != getpid())
		return;
	cm_host_lock(&cm->host);
	list_for_each(n, &cm->ids) rcm_id_cut(container_of(n, struct rcm_id, node));
	cm_host_unlock(&cm->host);
	cm_host_close(&cm->host);
}
