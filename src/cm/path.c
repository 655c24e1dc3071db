/* SPDX-License-Identifier: MIT */
#include "cm/path.h"

#include "cm/event.h"
#include "cm/id.h"
#include "cm/route.h"
#include "cm/sa.h"

#include <errno.h>
#include <string.h>

/* ---- the answer ---- */
/* One way or the other; host lock held. */
static void report(struct rcm_id *id, int err)
{
	assert_locked(&id->cm->host.lock);
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

static void answered(struct rcm_question *q, const uint8_t *mad)
{
	struct rcm_id *id = container_of(q, struct rcm_id, question);
	struct sa_path r;

	if (!mad) {
		report(id, -ETIMEDOUT);
		return;
	}
	r = sa_path_get(mad + SA_DATA);
	if (mad_hdr_get(mad).status || memcmp(r.dgid, id->path.remote, 16) || !r.dlid || !r.slid) {
		report(id, -EINVAL); /* as Linux says it */
		return;
	}
	take_path(&id->path, &r, id->has_ack_timeout);
	report(id, 0);
}

/* ---- the question ---- */
static void put_question(const struct rcm_id *id, uint8_t mad[MAD_LEN])
{
	struct sa_path r = {.reversible = true, .numb = 1, .pkey = id->path.pkey, .tclass = id->tos};

	memcpy(r.sgid, id->path.local, 16);
	memcpy(r.dgid, id->path.remote, 16);
	rcm_sa_begin(mad, MAD_METHOD_GET, SA_PATH,
		PATH_DGID | PATH_SGID | PATH_REVERSIBLE | PATH_NUMB | PATH_PKEY);
	sa_path_put(mad + SA_DATA, &r);
}

int rcm_path_ask(struct rcm_id *id, int timeout_ms)
{
	const struct rcm_sa_port port = rcm_sa_port_of(id);
	uint8_t mad[MAD_LEN];
	int err;

	put_question(id, mad);
	cm_host_lock(&id->cm->host);
	id->state = RCM_RESOLVING;
	id->question.answered = answered;
	err = rcm_sa_ask(&port, &id->question, mad, timeout_ms);
	if (err)
		report(id, err);
	cm_host_unlock(&id->cm->host);
	return 0;
}
