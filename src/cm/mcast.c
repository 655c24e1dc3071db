/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups of ids. On RoCE nobody has to be asked: the group's address is its GID, and the interface
 * joins when the QP is attached, which happens when the program takes the event. On a fabric the port joins
 * by the subnet's administration first (mcast_ib.c).
 */
#include "cm/mcast.h"

#include "base/gid.h"
#include "cm/event.h"
#include "cm/fabric.h"
#include "cm/id.h"
#include "cm/mcast_ib.h"
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
	struct rcm_join *join; /* of a fabric */
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
	if (g->join)
		rcm_join_leave(g->join);
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

/* A new one in the id's list; NULL: no memory. */
static struct rcm_group *add(struct rcm_id *id, const uint8_t mgid[16], bool send_only)
{
	struct rcm_group *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->id = id;
	g->send_only = send_only;
	memcpy(g->mgid, mgid, 16);
	g->number = ++id->joins;
	list_add_tail(&id->groups, &g->node);
	return g;
}

static int tell_joined(const struct rcm_group *g, void *context)
{
	struct rcm_id *id = g->id;
	struct rcm_event *e = rcm_event_new(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);

	if (!e)
		return -ENOMEM;
	e->join = g->number;
	e->pub.param.ud.private_data = context;
	e->pub.param.ud.qp_num = MCAST_QPN;
	e->pub.param.ud.qkey = id->path.qkey;
	rcm_fill_ah(id, g->mgid, &e->pub.param.ud.ah_attr);
	cm_host_lock(&id->cm->host);
	rcm_event_queue(e, id);
	cm_host_unlock(&id->cm->host);
	return 0;
}

static int join(struct rcm_id *id, const uint8_t mgid[16], bool send_only, void *context)
{
	struct rcm_group *g;
	int err = -ENOMEM;

	lock_take(&id->groups_lock);
	g = add(id, mgid, send_only);
	if (g)
		err = rcm_is_on_fabric(id) ? rcm_join_ask(id, mgid, g->number, context, &g->join)
					   : tell_joined(g, context);
	if (g && err)
		leave(g);
	lock_drop(&id->groups_lock);
	return err;
}

/* The group's GID. */
static void mgid_of(const struct rcm_id *id, const struct sockaddr *addr, uint8_t mgid[16])
{
	if (rcm_is_on_fabric(id))
		rcm_mgid_of(id, addr, mgid);
	else
		gid_of_sockaddr(addr, mgid);
}

static int check(struct rcm_id *id, const struct sockaddr *addr)
{
	uint8_t mgid[16];

	if (!addr || !rcm_address_is_known(id, addr))
		return -EINVAL;
	gid_of_sockaddr(addr, mgid);
	if (!id->dev || !gid_is_mcast(mgid))
		return -EINVAL;
	/* A QP gets what is for its group from addresses of its own family. */
	return rcm_is_on_fabric(id) || gid_is_v4(mgid) == gid_is_v4(id->path.local) ? 0 : -EINVAL;
}

int rcm_group_join(struct rcm_id *id, const struct sockaddr *addr, bool send_only, void *context)
{
	int err = check(id, addr);
	uint8_t mgid[16];

	if (err)
		return err;
	mgid_of(id, addr, mgid);
	return join(id, mgid, send_only, context);
}

int rcm_group_leave(struct rcm_id *id, const struct sockaddr *addr)
{
	struct rcm_group *g;
	uint8_t mgid[16];

	mgid_of(id, addr, mgid);
	lock_take(&id->groups_lock);
	g = find(id, mgid);
	if (g)
		leave(g);
	lock_drop(&id->groups_lock);
	return g ? 0 : -EADDRNOTAVAIL;
}
