/* SPDX-License-Identifier: MIT */
/*
 * What the IB connection manager tells of a connection, as rdma_cm's events. It runs under the host's lock,
 * perhaps in the helper thread and under the drive lock: it fills events and queues them.
 */
#include "cm/ib_event.h"

#include "cm/event.h"
#include "cm/id.h"
#include "cm/probe.h"
#include "cm/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a message says of the path ---- */
/* Of a fabric: the primary path, from the sender's side. */
static void learn_lids(struct rcm_path *p, const struct cm_req *r)
{
	p->slid = r->primary.remote_lid;
	p->dlid = r->primary.local_lid;
	p->pkey = r->pkey;
	p->has_grh = !r->primary.subnet_local;
}

static void learn_req(struct rcm_id *id, const struct cm_msg *m)
{
	const struct cm_req *r = &m->req;
	struct rcm_path *p = &id->path;

	p->mtu = r->mtu;
	p->sl = r->primary.sl;
	p->rate = r->primary.rate;
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
	id->conn->path.via =
		cm_via_pack((struct cm_via){.ifindex = p->ifindex, .tclass = p->tclass, .sl = p->sl});
	if (p->slid)
		learn_lids(p, r);
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
	put_priv(e, m, rcm_is_by_gid(id) ? 0 : CM_IP_LEN, m->attr == CM_SIDR_REQ);
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

void rcm_ib_event(void *arg, struct cm_conn *c, const struct cm_event *ev)
{
	struct cm_host *h = arg;
	struct rcm_id *id = c->user;

	assert_locked(&h->lock);
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
		rcm_tell_locked(id, RDMA_CM_EVENT_ESTABLISHED, 0);
		break;
	case CM_EV_REJ:
		on_rej(id, ev->msg);
		break;
	case CM_EV_UNREACHABLE:
		rcm_tell_locked(id, RDMA_CM_EVENT_UNREACHABLE, rcm_probe_verdict(id));
		break;
	case CM_EV_DREQ:
	case CM_EV_DREP:
		rcm_tell_locked(id, RDMA_CM_EVENT_DISCONNECTED, 0);
		break;
	case CM_EV_DREQ_TIMEOUT:
		rcm_tell_locked(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
		break;
	case CM_EV_TIMEWAIT_EXIT:
		rcm_tell_locked(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
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
