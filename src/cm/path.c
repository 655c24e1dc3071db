/* SPDX-License-Identifier: MIT */
/*
 * Paths of a fabric. The question leaves by QP1 for the subnet manager's LID; the fabric repeats it and gives
 * the answer back under our transaction id (fabricd/sa_client.c), so here nothing is sent twice: who gets no
 * answer in the program's time tells it so.
 */
#include "cm/path.h"

#include "cm/event.h"
#include "cm/id.h"
#include "cm/route.h"
#include "hca/adapter.h"
#include "mad/gsi.h"
#include "wire/sa.h"

#include <errno.h>
#include <string.h>

/* ---- the answer ---- */
/* Ends the question, one way or the other; host lock held. */
static void told(struct rcm_id *id, int err)
{
	rcm_question_forget(id);
	if (!err)
		err = rcm_fill_route(id);
	id->state = err ? RCM_ADDR : RCM_ROUTE;
	rcm_tell_locked(id, err ? RDMA_CM_EVENT_ROUTE_ERROR : RDMA_CM_EVENT_ROUTE_RESOLVED, err);
}

/*
 * How long to wait for an acknowledge (IBA 12.7.34): twice a packet's lifetime, and what the peer takes to
 * answer. Both are exponents, and so is their sum; a path to oneself has no lifetime to speak of.
 */
static uint8_t ack_timeout(uint8_t life)
{
	unsigned both_ways = life + 1u, most = both_ways > RCM_ACK_DELAY ? both_ways : RCM_ACK_DELAY;
	unsigned least = both_ways + RCM_ACK_DELAY - most;

	most += most - least <= 1;
	return (uint8_t)(most < 31 ? most : 31);
}

static void take_path(struct rcm_path *p, const struct sa_path *r, bool keep_timeout)
{
	p->slid = r->slid;
	p->dlid = r->dlid;
	p->sl = r->sl;
	p->pkey = r->pkey;
	p->rate = r->rate & 0x3f;
	p->life = r->life & 0x1f;
	p->tclass = r->tclass;
	p->flow_label = r->flow_label;
	p->hop_limit = r->hop_limit;
	p->has_grh = r->hop_limit > 1;
	if ((r->mtu & 0x3f) >= IBV_MTU_256 && (r->mtu & 0x3f) < p->mtu)
		p->mtu = r->mtu & 0x3f;
	if (!keep_timeout)
		p->ack_timeout = ack_timeout(p->life);
}

static void take_answer(struct rcm_id *id, const uint8_t *mad)
{
	const struct sa_path r = sa_path_get(mad + SA_DATA);
	bool ours = !memcmp(r.dgid, id->path.remote, 16) && r.dlid && r.slid;

	if (mad_hdr_get(mad).status || !ours) {
		told(id, -EINVAL); /* as Linux says it */
		return;
	}
	take_path(&id->path, &r, id->has_ack_timeout);
	told(id, 0);
}

void rcm_sa_answer(struct cm_host *h, const uint8_t *mad)
{
	struct rcm *cm = container_of(h, struct rcm, host);
	const struct mad_hdr hdr = mad_hdr_get(mad);

	list_for_each(n, &cm->questions)
	{
		struct rcm_id *id = container_of(n, struct rcm_id, question.node);

		if (id->question.tid != hdr.tid || hdr.attr != SA_PATH)
			continue;
		take_answer(id, mad);
		return;
	}
}

/* ---- the question ---- */
static void put_question(const struct rcm_id *id, uint8_t mad[MAD_LEN])
{
	const struct mad_hdr h = {.base_version = MAD_BASE_VERSION,
		.mgmt_class = MAD_CLASS_SA,
		.class_version = SA_CLASS_VERSION,
		.method = MAD_METHOD_GET,
		.tid = id->question.tid,
		.attr = SA_PATH};
	struct sa_path r = {.reversible = true, .numb = 1, .pkey = id->path.pkey, .tclass = id->tos};

	memcpy(r.sgid, id->path.local, 16);
	memcpy(r.dgid, id->path.remote, 16);
	memset(mad, 0, MAD_LEN);
	mad_hdr_put(mad, &h);
	put_be64(mad + SA_MASK, PATH_DGID | PATH_SGID | PATH_REVERSIBLE | PATH_NUMB | PATH_PKEY);
	sa_path_put(mad + SA_DATA, &r);
}

/* From a port of this LID to the subnet manager's. */
static int send_question(const struct rcm_id *id, const struct ibv_port_attr *port)
{
	struct frame_dest to = {.ifindex = id->path.ifindex,
		.slid = port->lid,
		.dlid = port->sm_lid,
		.sl = port->sm_sl,
		.hop_limit = 64};
	uint8_t mad[MAD_LEN];

	gid_of_lid(to.slid, to.sgid);
	gid_of_lid(to.dlid, to.dgid);
	put_question(id, mad);
	return mad_send(id->cm->host.adapter, &to, mad);
}

static void out_of_time(struct cm_host_timer *t, uint64_t now)
{
	told(container_of(t, struct rcm_id, resolving.timer), -ETIMEDOUT);
}

static void wait_for_answer(struct rcm_id *id, int timeout_ms)
{
	struct cm_host *h = &id->cm->host;
	uint64_t patience = timeout_ms > 0 ? (uint64_t)timeout_ms * 1000 * 1000 : 0;

	id->resolving.timer.due = out_of_time;
	cm_host_timer_set(h, &id->resolving.timer, cm_host_now(h) + patience);
}

int rcm_path_ask(struct rcm_id *id, int timeout_ms)
{
	struct ibv_port_attr port;
	int err;

	if (ibv_query_port(id->pub.verbs, id->path.port, &port))
		return -ENODEV;
	cm_host_lock(&id->cm->host);
	id->state = RCM_RESOLVING;
	id->question.tid = ++id->cm->asked;
	list_add_tail(&id->cm->questions, &id->question.node);
	err = send_question(id, &port);
	if (err)
		told(id, err);
	else
		wait_for_answer(id, timeout_ms);
	cm_host_unlock(&id->cm->host);
	return 0;
}

void rcm_question_forget(struct rcm_id *id)
{
	list_del(&id->question.node);
	cm_host_timer_clear(&id->cm->host, &id->resolving.timer);
}
