/* SPDX-License-Identifier: MIT */
/*
 * Connections over iWARP (iwarp/conn.h) with an id each, their events as rdma_cm has them. MPA's private data
 * has a length, so a program gets exactly what the other one gave.
 */
#include "cm/iwarp.h"

#include "base/gid.h"
#include "cm/connect.h"
#include "cm/event.h"
#include "cm/id.h"
#include "cm/listen.h"
#include "hca/adapter.h"
#include "hca/qp.h"
#include "iwarp/conn.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* ---- events, under the drive lock ---- */
static void put_priv(struct rcm_event *e, const struct iwarp_conn_event *ev)
{
	uint32_t len = ev->private_len < RCM_PRIV_MAX ? ev->private_len : RCM_PRIV_MAX;

	if (!len)
		return;
	memcpy(e->priv, ev->private_data, len);
	e->pub.param.conn.private_data = e->priv;
	e->pub.param.conn.private_data_len = (uint8_t)len;
}

static void learn_depths(struct rcm_id *id, const struct iwarp_conn_event *ev)
{
	id->path.responder_resources = (uint8_t)ev->ird;
	id->path.initiator_depth = (uint8_t)ev->ord;
}

static struct rcm_id *new_id(struct rcm_id *by, const struct iwarp_conn_event *ev)
{
	uint8_t local[16], remote[16];

	gid_of_sockaddr(ev->local, local);
	gid_of_sockaddr(ev->remote, remote);
	return rcm_id_for_request(
		by, IBV_QPT_RC, local, remote, sockaddr_scope(ev->local), sockaddr_port(ev->remote));
}

/* false: the backlog is full, or there is no memory. */
static bool on_request(struct iwarp_conn *c, const struct iwarp_conn_event *ev)
{
	struct rcm_id *by = ev->listener->user, *id = by && by->backlog ? new_id(by, ev) : NULL;
	struct rcm_event *e = id ? rcm_event_new(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0) : NULL;

	if (!e) {
		if (id)
			rcm_id_free(id);
		return false;
	}
	by->backlog--;
	c->user = id;
	id->iwarp_conn = c;
	learn_depths(id, ev);
	e->pub.listen_id = &by->pub;
	put_priv(e, ev);
	rcm_event_put_conn(e, &id->path);
	rcm_event_queue(e, by);
	return true;
}

static void on_established(struct rcm_id *id, const struct iwarp_conn_event *ev)
{
	struct rcm_event *e = rcm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0);

	learn_depths(id, ev);
	if (!id->passive) /* the port that TCP chose */
		sockaddr_set_port(&id->pub.route.addr.src_addr, sockaddr_port(ev->local));
	if (!e)
		return;
	put_priv(e, ev);
	rcm_event_put_conn(e, &id->path);
	rcm_event_queue(e, id);
}

/* As Linux's iw_cm tells them. */
static enum rdma_cm_event_type failure(const struct rcm_id *id, int status)
{
	if (id->passive)
		return RDMA_CM_EVENT_CONNECT_ERROR;
	if (status == -ECONNREFUSED || status == -ECONNRESET)
		return RDMA_CM_EVENT_REJECTED;
	return status == -ETIMEDOUT || status == -EHOSTUNREACH || status == -ENETUNREACH
		       ? RDMA_CM_EVENT_UNREACHABLE
		       : RDMA_CM_EVENT_CONNECT_ERROR;
}

static void on_end(struct rcm_id *id, const struct iwarp_conn_event *ev)
{
	bool failed = ev->type == IWARP_CONN_FAILED;
	struct rcm_event *e = rcm_event_new(
		id, failed ? failure(id, ev->status) : RDMA_CM_EVENT_DISCONNECTED, failed ? ev->status : 0);

	if (!e)
		return;
	put_priv(e, ev);
	rcm_event_queue(e, id);
}

static bool on_event(struct iwarp_conn *c, const struct iwarp_conn_event *ev)
{
	struct rcm *cm = c->manager;
	bool taken = true;

	cm_host_lock(&cm->host);
	if (ev->type == IWARP_CONN_REQUEST)
		taken = on_request(c, ev);
	else if (c->user && ev->type == IWARP_CONN_ESTABLISHED)
		on_established(c->user, ev);
	else if (c->user)
		on_end(c->user, ev);
	cm_host_unlock(&cm->host);
	return taken;
}

/* ---- what the program asks for ---- */
static int new_conn(struct rcm_id *id)
{
	struct rcm *cm = id->cm;
	struct iwarp_conn *c = iwarp_conn_new(cm->host.adapter, on_event, cm, id);

	if (!c)
		return -ENOMEM;
	cm_host_lock(&cm->host);
	id->iwarp_conn = c;
	cm_host_unlock(&cm->host);
	return 0;
}

void rcm_iwarp_close(struct rcm_id *id)
{
	struct iwarp_conn *c = id->iwarp_conn;

	assert_locked(&id->cm->host.lock);
	id->iwarp_conn = NULL;
	if (!c)
		return;
	c->user = NULL;
	iwarp_conn_close(c);
}

static void drop_conn(struct rcm_id *id)
{
	cm_host_lock(&id->cm->host);
	rcm_iwarp_close(id);
	cm_host_unlock(&id->cm->host);
}

int rcm_iwarp_listen(struct rcm_id *id, int backlog)
{
	int err = new_conn(id);

	if (err)
		return err;
	err = iwarp_conn_listen(
		id->cm->host.adapter, id->iwarp_conn, &id->pub.route.addr.src_addr, id->afonly, backlog);
	if (err)
		drop_conn(id);
	return err;
}

/* What rdma_create_ep was given, and the program's own behind it. */
static uint32_t join_priv(
	const struct rcm_id *id, const struct rdma_conn_param *p, uint8_t out[2 * UINT8_MAX])
{
	uint32_t len = p && p->private_data ? p->private_data_len : 0;

	if (id->connect_len)
		memcpy(out, id->connect, id->connect_len);
	if (len)
		memcpy(out + id->connect_len, p->private_data, len);
	return id->connect_len + len;
}

static void fill_request(const struct rcm_id *id, const struct rdma_conn_param *p,
	uint8_t priv[2 * UINT8_MAX], struct iwarp_conn_param *param)
{
	*param = (struct iwarp_conn_param){
		.tclass = id->path.tclass,
		.qpn = id->pub.qp ? id->pub.qp->qp_num : p->qp_num,
		.ird = id->path.responder_resources,
		.ord = id->path.initiator_depth,
		.private_data = priv,
		.private_len = join_priv(id, p, priv),
	};
}

int rcm_iwarp_connect(struct rcm_id *id, const struct rdma_conn_param *p)
{
	struct rdma_addr *addr = &id->pub.route.addr;
	struct sockaddr_storage from = addr->src_storage;
	uint8_t priv[2 * UINT8_MAX];
	struct iwarp_conn_param param;
	int err = id->pub.qp || p ? rcm_choose_depths(id, p, HCA_MAX_RD_ATOMIC, HCA_MAX_RD_ATOMIC) : -EINVAL;

	if (!err)
		err = new_conn(id);
	if (err)
		return err;
	fill_request(id, p, priv, &param);
	if (!id->chose_port)
		sockaddr_set_port((struct sockaddr *)&from, 0);
	param.from = (struct sockaddr *)&from;
	param.to = &addr->dst_addr;
	err = iwarp_conn_connect(id->cm->host.adapter, id->iwarp_conn, &param);
	if (err)
		drop_conn(id);
	return err;
}

int rcm_iwarp_accept(struct rcm_id *id, const struct rdma_conn_param *p)
{
	uint8_t priv[2 * UINT8_MAX];
	struct iwarp_conn_param param;
	int err = id->iwarp_conn && (id->pub.qp || p)
			  ? rcm_choose_depths(id, p, id->path.responder_resources, id->path.initiator_depth)
			  : -EINVAL;

	if (err)
		return err;
	fill_request(id, p, priv, &param);
	return iwarp_conn_accept(id->cm->host.adapter, id->iwarp_conn, &param);
}

int rcm_iwarp_reject(struct rcm_id *id, const void *data, uint8_t len)
{
	if (!id->iwarp_conn || !id->passive)
		return -EINVAL;
	return iwarp_conn_reject(id->cm->host.adapter, id->iwarp_conn, data, data ? len : 0);
}

/* Whoever is not connected any more has nothing to say: no error, as in Linux. */
int rcm_iwarp_disconnect(struct rcm_id *id)
{
	if (!id->iwarp_conn)
		return -EINVAL;
	iwarp_conn_disconnect(id->cm->host.adapter, id->iwarp_conn);
	return 0;
}
