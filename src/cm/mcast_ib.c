/* SPDX-License-Identifier: MIT */
/*
 * A join is a question to the SA. A program that leaves meanwhile does not wait for it: when the answer
 * comes, the port leaves, if it has joined. The id may be gone by then.
 *
 *              answer: joined                      leave: Delete
 *     ASKING ----------------> JOINED ---------------------------------> (gone)
 *        |                                                                 ^
 *        |  leave        answer: joined: Delete; failed, or none: nothing  |
 *        '---> LEFT -------------------------------------------------------'
 *
 * A fabric that was started again knows of no members: each that is JOINED asks once more, and stays so.
 */
#include "cm/mcast_ib.h"

#include "cm/event.h"
#include "cm/id.h"
#include "cm/qp.h"
#include "cm/sa.h"
#include "hca/adapter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	JOIN_MS = 10000,
	NO_MANAGER_MS = 1000,
	ANSWER_MS = 2500, /* longer than the fabric asks (fabricd/sa_client.c) */
	MCAST_QPN = 0xffffff,
	SCOPE_LINK_LOCAL = 2,
	TRANSIENT = 0x10,
	FULL_PKEY = 0x8000
};

/* Host lock. */
struct rcm_join {
	struct list node; /* in rcm.joins */
	struct rcm_question q;
	struct rcm_sa_port port;
	struct sa_member asked;
	struct rcm_id *id; /* NULL: it has left */
	uint32_t number;
	void *context;
	const void *fabric; /* that was asked: its table */
	uint16_t mlid;      /* once joined */
	bool joined;
};

/* ---- addresses: those of RFC 4391, section 4, with a signature of its own for datagrams of rdma_cm ---- */
enum { SIGNATURE_IPV4 = 0x401b, SIGNATURE_IPV6 = 0x601b, SIGNATURE_RDMA = 0x01, SIGNATURE_SA = 0xa01b };

static void map(uint16_t signature, uint16_t pkey, uint8_t mgid[16])
{
	memset(mgid, 0, 16);
	mgid[0] = 0xff;
	mgid[1] = TRANSIENT | SCOPE_LINK_LOCAL;
	put_be16(mgid + 2, signature);
	put_be16(mgid + 4, pkey | FULL_PKEY);
}

void rcm_mgid_of(const struct rcm_id *id, const struct sockaddr *addr, uint8_t mgid[16])
{
	uint8_t gid[16];

	gid_of_sockaddr(addr, gid);
	if (sockaddr_is_ib(addr) || (gid[0] == 0xff && get_be16(gid + 2) == SIGNATURE_SA)) {
		memcpy(mgid, gid, 16);
		return;
	}
	map(gid_is_v4(gid) ? SIGNATURE_IPV4 : SIGNATURE_IPV6, id->path.pkey, mgid);
	if (gid_is_v4(gid)) {
		memcpy(mgid + 12, gid + 12, 4);
		mgid[12] &= 0x0f;
	} else {
		memcpy(mgid + 6, gid + 6, 10);
	}
	if (id->pub.ps == RDMA_PS_UDP)
		mgid[3] = SIGNATURE_RDMA;
}

/* ---- records ---- */
static void put_member(const struct rcm_join *j, uint8_t mad[MAD_LEN], uint8_t method, uint64_t mask)
{
	rcm_sa_begin(mad, method, SA_MC_MEMBER, MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE | mask);
	sa_member_put(mad + SA_DATA, &j->asked);
}

static void leave_port(const struct rcm_join *j)
{
	uint8_t mad[MAD_LEN];

	put_member(j, mad, SA_DELETE, 0);
	rcm_sa_tell(&j->port, mad);
}

/* ---- answers ---- */
static void put_ah(const struct rcm_id *id, const struct sa_member *m, struct ibv_ah_attr *ah)
{
	rcm_fill_ah(id, m->mgid, ah);
	ah->is_global = 1;
	ah->dlid = m->mlid;
	ah->sl = m->sl;
	ah->src_path_bits = 0;
	ah->grh.flow_label = m->flow_label;
	ah->grh.traffic_class = m->tclass;
	ah->grh.hop_limit = m->hop_limit;
}

static void tell(const struct rcm_join *j, const struct sa_member *m, int err)
{
	struct rcm_event *e =
		rcm_event_new(j->id, err ? RDMA_CM_EVENT_MULTICAST_ERROR : RDMA_CM_EVENT_MULTICAST_JOIN, err);

	if (!e)
		return;
	e->join = j->number;
	e->pub.param.ud.private_data = j->context;
	if (!err) {
		e->pub.param.ud.qp_num = MCAST_QPN;
		e->pub.param.ud.qkey = m->qkey;
		put_ah(j->id, m, &e->pub.param.ud.ah_attr);
	}
	rcm_event_queue(e, j->id);
}

/* Nobody wants it any more. Host lock held. */
static void drop(struct rcm_join *j)
{
	assert_locked(&j->port.cm->host.lock);
	if (j->joined)
		leave_port(j);
	list_del(&j->node);
	free(j);
}

/* What the SA says, if it says yes. */
static bool take_answer(struct rcm_join *j, const uint8_t *mad, struct sa_member *m)
{
	*m = (struct sa_member){0};
	if (mad)
		*m = sa_member_get(mad + SA_DATA);
	j->joined = mad && !mad_hdr_get(mad).status && !memcmp(m->mgid, j->asked.mgid, 16);
	return j->joined;
}

static void answered(struct rcm_question *q, const uint8_t *mad)
{
	struct rcm_join *j = container_of(q, struct rcm_join, q);
	struct sa_member m;
	int err = take_answer(j, mad, &m) ? 0 : mad ? -EINVAL : -ETIMEDOUT;

	j->mlid = m.mlid;
	if (j->id)
		tell(j, &m, err);
	else
		drop(j);
}

/* Host lock held. */
static int ask(struct rcm_join *j, int timeout_ms)
{
	uint8_t mad[MAD_LEN];

	put_member(j, mad, MAD_METHOD_SET,
		MEMBER_QKEY | MEMBER_PKEY | MEMBER_SL | MEMBER_FLOW_LABEL | MEMBER_TCLASS);
	j->fabric = atomic_load(&j->port.cm->host.adapter->table);
	return rcm_sa_ask(&j->port, &j->q, mad, timeout_ms);
}

/* ---- a new fabric ---- */
/*
 * Not while the question before is on its way: both would be answered, and the program would be in the group
 * twice; it then leaves once, and its port does not. Nothing is on its way where there is no subnet manager
 * yet.
 */
static void ask_again(struct rcm_join *j)
{
	ask(j, rcm_sa_is_there(&j->port) ? ANSWER_MS : NO_MANAGER_MS);
}

/*
 * The program learns of nothing, unless the group is not what it sends to any more: then it gets the event
 * that Linux has for groups of a port that are gone. Without an answer the SA is asked again: the ports may
 * not be up yet.
 */
static void answered_again(struct rcm_question *q, const uint8_t *mad)
{
	struct rcm_join *j = container_of(q, struct rcm_join, q);
	struct sa_member m;

	if (j->id && !mad)
		ask_again(j);
	else if ((!take_answer(j, mad, &m) || m.mlid != j->mlid) && j->id)
		tell(j, &m, -ENETRESET);
	if (!j->id)
		drop(j);
}

void rcm_joins_follow(struct rcm *cm)
{
	assert_locked(&cm->host.lock);
	list_for_each(n, &cm->joins)
	{
		struct rcm_join *j = container_of(n, struct rcm_join, node);

		if (!j->joined || j->fabric == atomic_load(&cm->host.adapter->table))
			continue;
		rcm_question_forget(cm, &j->q);
		j->q.answered = answered_again;
		ask_again(j);
	}
}

/* ---- joining and leaving ---- */
static struct rcm_join *new_join(struct rcm_id *id, const uint8_t mgid[16])
{
	struct rcm_join *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	list_init(&j->node);
	list_init(&j->q.node);
	j->q.answered = answered;
	j->port = rcm_sa_port_of(id);
	j->id = id;
	j->asked = (struct sa_member){
		.qkey = id->path.qkey, .pkey = id->path.pkey | FULL_PKEY, .join = JOIN_FULL};
	memcpy(j->asked.mgid, mgid, 16);
	memcpy(j->asked.port_gid, id->path.local, 16);
	return j;
}

int rcm_join_ask(
	struct rcm_id *id, const uint8_t mgid[16], uint32_t number, void *context, struct rcm_join **out)
{
	struct rcm_join *j = new_join(id, mgid);
	int err;

	if (!j)
		return -ENOMEM;
	j->number = number;
	j->context = context;
	cm_host_lock(&id->cm->host);
	err = ask(j, JOIN_MS);
	if (!err)
		list_add_tail(&id->cm->joins, &j->node);
	cm_host_unlock(&id->cm->host);
	if (err)
		free(j);
	else
		*out = j;
	return err;
}

void rcm_join_leave(struct rcm_join *j)
{
	struct cm_host *h = &j->port.cm->host;

	cm_host_lock(h);
	j->id = NULL;
	if (list_empty(&j->q.node)) /* no question is on its way */
		drop(j);
	cm_host_unlock(h);
}
