/* SPDX-License-Identifier: MIT */
/* Ids: made, ended, moved between channels, and their options. */
#include "cm/id.h"

#include "base/random.h"
#include "cm/event.h"
#include "cm/iwarp.h"
#include "cm/listen.h"
#include "cm/mcast.h"
#include "cm/probe.h"
#include "cm/route.h"
#include "hca/adapter.h"
#include "host/ports.h"
#include "iwarp/conn.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	list_init(&id->question.node);
	list_add_tail(&cm->ids, &id->node);
	return id;
}

void rcm_id_cut(struct rcm_id *id)
{
	uint64_t now = cm_host_now(&id->cm->host);
	struct cm_conn *c = id->conn;

	assert_locked(&id->cm->host.lock);
	rcm_listen_stop(id, now);
	rcm_question_forget(id->cm, &id->question);
	cm_host_timer_clear(&id->cm->host, &id->resolving.timer);
	rcm_probe_leave(id);
	rcm_iwarp_close(id);
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

int rcm_id_create(
	struct rcm *cm, struct rcm_channel *ch, void *context, enum rdma_port_space ps, struct rcm_id **out)
{
	const bool sync = !ch;
	struct rcm_id *id;
	int err;

	if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IB && ps != RDMA_PS_IPOIB)
		return -EINVAL;
	err = sync ? rcm_channel_new(&ch) : 0;
	if (err)
		return err;
	cm_host_lock(&cm->host);
	id = rcm_id_new(cm, ps, type_of(ps));
	cm_host_unlock(&cm->host);
	if (!id) {
		if (sync)
			rcm_channel_free(ch);
		return -ENOMEM;
	}
	id->sync = sync;
	id->pub.context = context;
	id->pub.channel = &ch->pub;
	*out = id;
	return 0;
}

/* Waits until the program has acknowledged what it took; host lock held. */
static void wait_for_acks(struct rcm_id *id)
{
	assert_locked(&id->cm->host.lock);
	while (id->acked < id->reported)
		cm_host_wait(&id->cm->host, &id->cm->acked);
}

void rcm_id_destroy(struct rcm_id *id)
{
	struct rcm_channel *own = id->sync ? rcm_channel(id->pub.channel) : NULL;
	struct rcm *cm = id->cm;
	bool iwarp = id->iwarp_conn;

	if (cm->dead)
		return;
	rcm_groups_leave(id);
	rcm_own_event_ack(id);
	cm_host_lock(&cm->host);
	rcm_id_cut(id);
	rcm_events_drop(id);
	cm_host_unlock(&cm->host);
	cm_host_lock(&cm->host);
	wait_for_acks(id);
	rcm_id_free(id);
	cm_host_unlock(&cm->host);
	if (iwarp)
		iwarp_conn_settle(cm->host.adapter);
	if (own)
		rcm_channel_free(own);
}

/* ---- channels ---- */
/* Whose event this is: the id's own, or of a request to it that the program has not taken. */
static bool is_of(const struct rcm_event *e, const struct rcm_id *id)
{
	return e->counted == id || rcm_id(e->pub.id)->listened_by == id;
}

static void move_events(struct rcm_id *id, struct rcm_channel *to)
{
	struct rcm_channel *from = rcm_channel(id->pub.channel);

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

int rcm_id_migrate(struct rcm_id *id, struct rcm_channel *to)
{
	struct rcm_channel *own = id->sync ? rcm_channel(id->pub.channel) : NULL;
	const bool sync = !to;
	int err = sync ? rcm_channel_new(&to) : 0;

	if (err)
		return err;
	if (own)
		rcm_own_event_ack(id);
	cm_host_lock(&id->cm->host);
	move_events(id, to);
	id->pub.channel = &to->pub;
	id->sync = sync;
	wait_for_acks(id);
	cm_host_unlock(&id->cm->host);
	if (own)
		rcm_channel_free(own);
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

int rcm_set_option(struct rcm_id *id, int level, int name, const void *value, size_t len)
{
	if (level == RDMA_OPTION_ID)
		return set_id_option(id, name, value, len);
	if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH)
		return rcm_set_path(id, value, len);
	return -ENOSYS;
}
