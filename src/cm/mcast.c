/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups of ids. On RoCE nobody has to be asked: the group's address is its GID, and the interface
 * joins when the QP is attached, which happens when the program takes the event.
 */
#include "cm/mcast.h"

#include "base/gid.h"
#include "cm/event.h"
#include "cm/id.h"
#include "cm/qp.h"
#include "hca/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rcm_group {
	struct list node; /* in id->groups */
	struct rcm_id *id;
	uint32_t number; /* of the join, which its event knows: the program may have left meanwhile */
	uint8_t mgid[16];
	bool send_only, attached;
};

enum { MCAST_QPN = 0xffffff };

static int attach(struct rcm_group *g)
{
	union ibv_gid mgid;
	int err;

	if (g->send_only || !g->id->pub.qp)
		return 0;
	memcpy(mgid.raw, g->mgid, 16);
	err = ibv_attach_mcast(g->id->pub.qp, &mgid, 0);
	g->attached = !err;
	return -err;
}

int rcm_group_joined(struct rcm_id *id, uint32_t number)
{
	int err = 0;

	lock_take(&id->groups_lock);
	list_for_each(n, &id->groups)
	{
		struct rcm_group *g = container_of(n, struct rcm_group, node);

		if (g->number == number)
			err = attach(g);
	}
	lock_drop(&id->groups_lock);
	return err;
}

/* Whether the QP is attached by another join of the same group. */
static bool attached_besides(const struct rcm_group *g)
{
	list_for_each(n, &g->id->groups)
	{
		const struct rcm_group *o = container_of(n, struct rcm_group, node);

		if (o != g && o->attached && !memcmp(o->mgid, g->mgid, 16))
			return true;
	}
	return false;
}

static void leave(struct rcm_group *g)
{
	union ibv_gid mgid;

	memcpy(mgid.raw, g->mgid, 16);
	if (g->attached && g->id->pub.qp && !attached_besides(g))
		ibv_detach_mcast(g->id->pub.qp, &mgid, 0);
	list_del(&g->node);
	free(g);
}

void rcm_groups_leave(struct rcm_id *id)
{
	lock_take(&id->groups_lock);
	list_for_each_safe(n, &id->groups) leave(container_of(n, struct rcm_group, node));
	lock_drop(&id->groups_lock);
}

/* The last join of the group: one who joins twice leaves twice, in the opposite order. */
static struct rcm_group *find(struct rcm_id *id, const uint8_t mgid[16])
{
	struct rcm_group *last = NULL;

	list_for_each(n, &id->groups)
	{
		struct rcm_group *g = container_of(n, struct rcm_group, node);

		if (!memcmp(g->mgid, mgid, 16))
			last = g;
	}
	return last;
}

static int join(struct rcm_id *id, const struct sockaddr *addr, bool send_only, void *context)
{
	struct rcm_group *g = calloc(1, sizeof(*g));
	struct rcm_event *e = rcm_event_new(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
	uint8_t mgid[16];

	if (!g || !e) {
		free(g);
		free(e);
		return -ENOMEM;
	}
	g->id = id;
	g->send_only = send_only;
	gid_of_sockaddr(addr, mgid);
	memcpy(g->mgid, mgid, 16);
	lock_take(&id->groups_lock);
	g->number = e->join = ++id->joins;
	list_add_tail(&id->groups, &g->node);
	lock_drop(&id->groups_lock);
	e->pub.param.ud.private_data = context;
	e->pub.param.ud.qp_num = MCAST_QPN;
	e->pub.param.ud.qkey = id->path.qkey;
	rcm_fill_ah(id, mgid, &e->pub.param.ud.ah_attr);
	cm_host_lock(&id->cm->host);
	rcm_event_queue(e, id);
	cm_host_unlock(&id->cm->host);
	return 0;
}

static int check(struct rcm_id *id, const struct sockaddr *addr)
{
	uint8_t mgid[16];

	if (!addr || !sockaddr_is_ip(addr))
		return -EINVAL;
	gid_of_sockaddr(addr, mgid);
	/* A QP gets what is for its group from addresses of its own family. */
	if (!id->dev || !gid_is_mcast(mgid) || gid_is_v4(mgid) != gid_is_v4(id->path.local))
		return -EINVAL;
	return 0;
}

int rcm_group_join(struct rcm_id *id, const struct sockaddr *addr, bool send_only, void *context)
{
	int err = check(id, addr);

	return err ? err : join(id, addr, send_only, context);
}

int rcm_group_leave(struct rcm_id *id, const struct sockaddr *addr)
{
	struct rcm_group *g;
	uint8_t mgid[16];

	gid_of_sockaddr(addr, mgid);
	lock_take(&id->groups_lock);
	g = find(id, mgid);
	if (g)
		leave(g);
	lock_drop(&id->groups_lock);
	return g ? 0 : -EADDRNOTAVAIL;
}
