/* SPDX-License-Identifier: MIT */
/*
 * Event channels. The connection manager queues; the program's thread that takes an event does to the QP what
 * goes with it, as the stock library does.
 */
#include "cm/event.h"

#include "base/cancel.h"
#include "cm/addr.h"
#include "cm/fabric.h"
#include "cm/mcast.h"
#include "cm/qp.h"
#include "cm/route.h"
#include "hca/adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- channels ---- */
int rcm_channel_new(struct rcm_channel **out)
{
	struct rcm_channel *ch = calloc(1, sizeof(*ch));
	int err = ch ? hca_evq_init(&ch->q) : -ENOMEM;

	if (err) {
		free(ch);
		return err;
	}
	ch->pub.fd = ch->q.fd;
	atomic_init(&ch->refs, 1);
	*out = ch;
	return 0;
}

static void channel_put(void *arg)
{
	struct rcm_channel *ch = arg;

	if (atomic_fetch_sub(&ch->refs, 1) > 1)
		return;
	hca_evq_fini(&ch->q);
	free(ch);
}

/* Of each thread: the channel that it waits on, or had an event of and may come back to for the next. */
static pthread_key_t held;
static bool can_hold; /* a process has only so many keys */

__attribute__((constructor)) static void make_key(void)
{
	can_hold = !pthread_key_create(&held, channel_put);
}

/* NULL: none any more. */
static void hold(struct rcm_channel *ch)
{
	struct rcm_channel *before = can_hold ? pthread_getspecific(held) : NULL;

	if (ch == before || !can_hold)
		return;
	if (ch)
		atomic_fetch_add(&ch->refs, 1);
	if (pthread_setspecific(held, ch))
		before = ch; /* no memory: it does without */
	if (before)
		channel_put(before);
}

/*
 * Programs do this while a thread of theirs waits for events, just before they exit: with the stock library
 * that thread sleeps on in the kernel. Or while it is on its way back to wait, with the event that made the
 * program end (rping). So it stays for that thread, until that ends or waits on another channel.
 */
void rcm_channel_free(struct rcm_channel *ch)
{
	if (can_hold && pthread_getspecific(held) == ch)
		hold(NULL);
	channel_put(ch);
}

/* ---- queueing ---- */
struct rcm_event *rcm_event_new(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rcm_event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->pub.id = &id->pub;
	e->pub.event = type;
	e->pub.status = status;
	return e;
}

void rcm_event_put_conn(struct rcm_event *e, const struct rcm_path *p)
{
	struct rdma_conn_param *c = &e->pub.param.conn;

	c->responder_resources = p->responder_resources;
	c->initiator_depth = p->initiator_depth;
	c->flow_control = p->flow_control;
	c->retry_count = p->retry_count;
	c->rnr_retry_count = p->rnr_retry;
	c->srq = p->srq;
	c->qp_num = p->remote_qpn;
}

void rcm_event_queue(struct rcm_event *e, struct rcm_id *counted)
{
	struct rcm_channel *ch = rcm_channel(e->pub.id->channel);

	assert_locked(&counted->cm->host.lock);
	e->counted = counted;
	list_add_tail(&ch->q.events, &e->node);
	hca_evq_signal(&ch->q);
}

int rcm_tell_locked(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rcm_event *e = rcm_event_new(id, type, status);

	if (!e)
		return -ENOMEM;
	rcm_event_queue(e, id);
	return 0;
}

int rcm_tell(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	int err;

	cm_host_lock(&id->cm->host);
	err = rcm_tell_locked(id, type, status);
	cm_host_unlock(&id->cm->host);
	return err;
}

void rcm_events_drop(struct rcm_id *id)
{
	struct rcm_channel *ch = rcm_channel(id->pub.channel);
	struct list mine;

	assert_locked(&id->cm->host.lock);
	list_init(&mine);
	list_for_each_safe(n, &ch->q.events)
	{
		if (container_of(n, struct rcm_event, node)->counted == id) {
			list_del(n);
			list_add_tail(&mine, n);
			hca_evq_unsignal(&ch->q);
		}
	}
	for (struct list *n; (n = list_pop(&mine));) {
		struct rcm_event *e = container_of(n, struct rcm_event, node);

		if (e->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			rcm_id_free(rcm_id(e->pub.id));
		free(e);
	}
}

/* ---- taking ---- */
struct taking {
	struct rcm *cm;
	struct rcm_channel *ch;
	bool blocks;
	int cancel; /* as the program has it */
};

/* The program's thread has nothing else to do: it may as well drive. */
static int wait_on_channel(const struct taking *t)
{
	int err = 0;

	if (t->blocks)
		err = hca_engine_wait_fd(&t->cm->host.adapter->engine, t->ch->pub.fd);
	return err ? err : hca_evq_wait(&t->ch->q);
}

/* The only place where a thread that wants an event may be cancelled. */
static int wait_for_event(struct taking *t)
{
	int err;

	cancel_restore(t->cancel);
	err = wait_on_channel(t);
	cancel_off();
	return err;
}

/* host lock held */
static struct rcm_event *next_event(struct rcm_channel *ch)
{
	struct list *n = list_pop(&ch->q.events);
	struct rcm_event *e = n ? container_of(n, struct rcm_event, node) : NULL;

	if (!e)
		return NULL;
	assert_locked(&e->counted->cm->host.lock);
	e->counted->reported++;
	if (e->pub.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		e->counted->backlog++;
		rcm_id(e->pub.id)->listened_by = NULL;
	}
	return e;
}

static int take(struct taking *t, struct rcm_event **out)
{
	struct rcm_channel *ch = t->ch;
	struct rcm *cm = t->cm;
	int err;

	t->blocks = !(fcntl(ch->pub.fd, F_GETFL) & O_NONBLOCK);
	hold(ch);
	do {
		err = wait_for_event(t);
		cm_host_lock(&cm->host);
		*out = err ? NULL : next_event(ch);
		cm_host_unlock(&cm->host);
	} while (!err && !*out); /* it was dropped under us */
	if (!t->blocks)
		hold(NULL);
	return err;
}

void rcm_event_ack(struct rcm_event *e)
{
	struct rcm *cm = e->counted->cm;

	cm_host_lock(&cm->host);
	e->counted->acked++;
	pthread_cond_broadcast(&cm->acked);
	cm_host_unlock(&cm->host);
	free(e);
}

static int bind_request(struct rcm_id *id)
{
	if (rcm_is_on_fabric(id))
		return rcm_fabric_bind_request(id);
	return rcm_bind_device(id, id->path.local, id->path.ifindex);
}

/* A request whose device is gone by now is nobody's. */
static bool take_request(struct rcm_event *e)
{
	struct rcm_id *id = rcm_id(e->pub.id);
	struct rcm *cm = id->cm;

	if (!bind_request(id) && !rcm_fill_route(id))
		return true;
	cm_host_lock(&cm->host);
	rcm_id_free(id);
	cm_host_unlock(&cm->host);
	rcm_event_ack(e);
	return false;
}

/* The peer has accepted: the QP is connected before it learns that we know. */
static void take_response(struct rcm_event *e)
{
	struct rcm_id *id = rcm_id(e->pub.id);
	struct rcm *cm = id->cm;
	int err;

	if (!id->pub.qp)
		return;
	err = rcm_qp_to_rtr(id);
	if (!err)
		err = rcm_qp_to_rts(id);
	cm_host_lock(&cm->host);
	if (!err)
		err = cm_establish(&cm->host.core, id->conn, NULL, 0);
	if (err)
		cm_reject(
			&cm->host.core, id->conn, CM_REJ_CONSUMER, NULL, 0, NULL, 0, cm_host_now(&cm->host));
	cm_host_unlock(&cm->host);
	if (err)
		rcm_qp_to_err(id);
	e->pub.event = err ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
	e->pub.status = err;
}

/* false: nothing the program should see */
static bool apply_event(struct rcm_event *e)
{
	int err;

	switch (e->pub.event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return take_request(e);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		take_response(e);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rcm_qp_to_err(rcm_id(e->pub.id));
		break;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		err = rcm_group_joined(rcm_id(e->pub.id), e->join);
		if (err) {
			e->pub.event = RDMA_CM_EVENT_MULTICAST_ERROR;
			e->pub.status = err;
		}
		break;
	default:
		break;
	}
	return true;
}

int rcm_event_take(struct rcm_channel *ch, struct rdma_cm_event **event)
{
	CANCEL_SAFE;
	struct taking t = {.ch = ch, .cancel = cancel_before};
	struct rcm_event *e;
	int err = rcm_get(&t.cm);

	if (err)
		return err;
	do {
		err = take(&t, &e);
		if (err)
			return err;
	} while (!apply_event(e));
	*event = &e->pub;
	return 0;
}

/* ---- synchronous ids ---- */
void rcm_own_event_ack(struct rcm_id *id)
{
	if (id->pub.event)
		rcm_event_ack(rcm_event(id->pub.event));
	id->pub.event = NULL;
}

int rcm_complete(struct rcm_id *id)
{
	struct rdma_cm_event *e;
	int err;

	if (!id->sync)
		return 0;
	rcm_own_event_ack(id);
	err = rcm_event_take(rcm_channel(id->pub.channel), &id->pub.event);
	if (err)
		return err;
	hold(NULL); /* whoever calls next takes its own */
	e = id->pub.event;
	if (!e->status)
		return 0;
	return e->event == RDMA_CM_EVENT_REJECTED ? -ECONNREFUSED : -abs(e->status);
}
