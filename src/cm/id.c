/* SPDX-License-Identifier: MIT */
/* Ids: made, ended, moved between channels, and their options. */
#include "cm/id.h"

#include "base/cancel.h"
#include "base/random.h"
#include "cm/event.h"
#include "cm/listen.h"
#include "cm/mcast.h"
#include "cm/probe.h"
#include "cm/route.h"
#include "hca/adapter.h"
#include "hca/stream.h"
#include "host/ports.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int rcm_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

/* ---- life ---- */
/* Host lock held, but for ids nobody knows yet. */
struct rcm_id *rcm_id_new(struct rcm *cm, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct rcm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->cm = cm;
	id->pub.ps = ps;
	id->pub.qp_type = type;
	id->path.hop_limit = 64;
	id->path.qkey = RDMA_UDP_QKEY;
	id->path.rq_psn = random_u32() & PSN_MASK;
	lock_init(&id->groups_lock);
	list_init(&id->groups);
	list_init(&id->listen_node);
	list_add_tail(&cm->ids, &id->node);
	return id;
}

static void leave_stream(struct rcm_id *id)
{
	struct hca_stream *s = id->stream;

	id->stream = NULL;
	if (!s)
		return;
	s->user = NULL;
	hca_stream_close(s);
}

void rcm_id_cut(struct rcm_id *id)
{
	uint64_t now = cm_host_now(&id->cm->host);
	struct cm_conn *c = id->conn;

	rcm_listen_stop(id, now);
	cm_host_timer_clear(&id->cm->host, &id->resolving.timer);
	rcm_probe_leave(id);
	leave_stream(id);
	id->conn = NULL;
	if (!c)
		return;
	c->user = NULL;
	cm_abandon(&id->cm->host.core, c, now);
}

void rcm_id_free(struct rcm_id *id)
{
	rcm_id_cut(id);
	rcm_events_drop(id);
	if (id->port)
		host_ports_release(id->cm->host.adapter->ports, id->port);
	list_del(&id->node);
	free(id->pub.route.path_rec);
	free(id->ep_attr);
	free(id->connect);
	free(id);
}

static enum ibv_qp_type type_of(enum rdma_port_space ps)
{
	return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

int rdma_create_id(
	struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	CANCEL_SAFE;
	struct rcm *cm = rcm_get();
	struct rcm_id *new;

	if (!cm)
		return -1;
	if (!id || (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IB && ps != RDMA_PS_IPOIB))
		return rcm_result(-EINVAL);
	cm_host_lock(&cm->host);
	new = rcm_id_new(cm, ps, type_of(ps));
	cm_host_unlock(&cm->host);
	if (!new)
		return rcm_result(-ENOMEM);
	new->sync = !channel;
	new->pub.context = context;
	new->pub.channel = channel ? channel : rcm_channel_new();
	if (!new->pub.channel) {
		cm_host_lock(&cm->host);
		list_del(&new->node);
		cm_host_unlock(&cm->host);
		free(new);
		return -1;
	}
	*id = &new->pub;
	return 0;
}

/* Waits until the program has acknowledged what it took; host lock held. */
static void wait_for_acks(struct rcm_id *id)
{
	while (id->acked < id->reported)
		cm_host_wait(&id->cm->host, &id->cm->acked);
}

static void drop_own_event(struct rcm_id *id)
{
	if (id->pub.event)
		rdma_ack_cm_event(id->pub.event);
	id->pub.event = NULL;
}

int rdma_destroy_id(struct rdma_cm_id *pub)
{
	CANCEL_SAFE;
	struct rcm_id *id = rcm_id(pub);
	struct rdma_event_channel *own = id->sync ? pub->channel : NULL;
	struct rcm *cm = id->cm;
	bool stream = id->stream;

	if (cm->dead)
		return 0;
	rcm_groups_leave(id);
	drop_own_event(id);
	cm_host_lock(&cm->host);
	rcm_id_cut(id);
	rcm_events_drop(id);
	cm_host_unlock(&cm->host);
	cm_host_lock(&cm->host);
	wait_for_acks(id);
	rcm_id_free(id);
	cm_host_unlock(&cm->host);
	if (stream)
		hca_stream_settle(cm->host.adapter);
	if (own)
		rdma_destroy_event_channel(own);
	return 0;
}

/* ---- channels ---- */
/* Whose event this is: the id's own, or of a request to it that the program has not taken. */
static bool is_of(const struct rcm_event *e, const struct rcm_id *id)
{
	return e->counted == id || rcm_id(e->pub.id)->listened_by == id;
}

static void move_events(struct rcm_id *id, struct rcm_channel *to)
{
	struct rcm_channel *from = (struct rcm_channel *)id->pub.channel;

	if (from == to)
		return;
	list_for_each_safe(n, &from->q.events)
	{
		struct rcm_event *e = container_of(n, struct rcm_event, node);

		if (!is_of(e, id))
			continue;
		list_del(n);
		hca_evq_unsignal(&from->q);
		e->pub.id->channel = &to->pub;
		list_add_tail(&to->q.events, n);
		hca_evq_signal(&to->q);
	}
}

int rdma_migrate_id(struct rdma_cm_id *pub, struct rdma_event_channel *channel)
{
	CANCEL_SAFE;
	struct rcm_id *id = rcm_id(pub);
	struct rdma_event_channel *own = id->sync ? pub->channel : NULL;
	struct rdma_event_channel *to = channel ? channel : rcm_channel_new();

	if (!to)
		return -1;
	if (own)
		drop_own_event(id);
	cm_host_lock(&id->cm->host);
	move_events(id, (struct rcm_channel *)to);
	pub->channel = to;
	id->sync = !channel;
	wait_for_acks(id);
	cm_host_unlock(&id->cm->host);
	if (own)
		rdma_destroy_event_channel(own);
	return 0;
}

/* ---- options ---- */
static int flag(bool *out, const void *value, size_t len)
{
	int v;

	if (len != sizeof(v))
		return -EINVAL;
	memcpy(&v, value, sizeof(v));
	*out = v;
	return 0;
}

static int byte(uint8_t *out, bool *has, const void *value, size_t len)
{
	if (len != 1)
		return -EINVAL;
	*out = *(const uint8_t *)value;
	*has = true;
	return 0;
}

static int set_id_option(struct rcm_id *id, int name, const void *value, size_t len)
{
	bool early = id->state == RCM_IDLE;

	switch (name) {
	case RDMA_OPTION_ID_TOS:
		return byte(&id->tos, &id->has_tos, value, len);
	case RDMA_OPTION_ID_REUSEADDR:
		return id->state == RCM_LISTEN ? -EINVAL : flag(&id->reuse, value, len);
	case RDMA_OPTION_ID_AFONLY:
		return early || id->state == RCM_BOUND ? flag(&id->afonly, value, len) : -EINVAL;
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (len != 1 || *(const uint8_t *)value > 31)
			return -EINVAL;
		return byte(&id->ack_timeout, &id->has_ack_timeout, value, len);
	default:
		return -ENOSYS;
	}
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	CANCEL_SAFE;

	if (!optval)
		return rcm_result(-EINVAL);
	if (level == RDMA_OPTION_ID)
		return rcm_result(set_id_option(rcm_id(id), optname, optval, optlen));
	if (level == RDMA_OPTION_IB && optname == RDMA_OPTION_IB_PATH)
		return rcm_result(rcm_set_path(rcm_id(id), optval, optlen));
	return rcm_result(-ENOSYS);
}

/* ---- enhanced connection establishment ---- */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return rcm_result(-EINVAL);
	rcm_id(id)->local_ece = *ece;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return rcm_result(-EINVAL);
	*ece = rcm_id(id)->remote_ece;
	ece->comp_mask = 0;
	return 0;
}
