/* SPDX-License-Identifier: MIT */
/* Multicast: which QPs are attached to which group. The link joins a group for its first member. */
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/provider.h"
#include "hca/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct member {
	struct list node; /* in adapter->mcast */
	uint8_t mgid[16];
	struct hca_qp *qp;
};

static struct member *find(struct hca_adapter *a, const uint8_t mgid[16], const struct hca_qp *qp)
{
	list_for_each(n, &a->mcast)
	{
		struct member *m = container_of(n, struct member, node);

		if (m->qp == qp && !memcmp(m->mgid, mgid, 16))
			return m;
	}
	return NULL;
}

static bool joined(struct hca_adapter *a, const uint8_t mgid[16], uint32_t ifindex)
{
	list_for_each(n, &a->mcast)
	{
		struct member *m = container_of(n, struct member, node);

		if (m->qp->path.port->dev->ifindex == ifindex && !memcmp(m->mgid, mgid, 16))
			return true;
	}
	return false;
}

int hca_mcast_attach(struct hca_qp *qp, const uint8_t mgid[16])
{
	struct hca_adapter *a = qp->adapter;
	struct member *m;
	int err = 0;

	if (qp->service.connected || !gid_is_mcast(mgid))
		return EINVAL;
	if (!a->engine.open)
		return ENODEV; /* a child after fork: the parent's */
	m = calloc(1, sizeof(*m));
	if (!m)
		return ENOMEM;
	memcpy(m->mgid, mgid, 16);
	m->qp = qp;
	lock_take(&a->engine.drive);
	if (find(a, mgid, qp)) {
		free(m); /* attaching twice is attaching once */
	} else {
		if (!joined(a, mgid, qp->path.port->dev->ifindex))
			err = -qp->dev_provider->ops.mcast(
				qp->dev_provider, mgid, qp->path.port->dev->ifindex, true);
		if (err)
			free(m);
		else
			list_add_tail(&a->mcast, &m->node);
	}
	lock_drop(&a->engine.drive);
	return err;
}

static void drop(struct hca_adapter *a, struct member *m)
{
	struct hca_provider *provider = m->qp->dev_provider;
	uint32_t ifindex = m->qp->path.port->dev->ifindex;

	list_del(&m->node);
	if (!joined(a, m->mgid, ifindex))
		provider->ops.mcast(provider, m->mgid, ifindex, false);
	free(m);
}

int hca_mcast_detach(struct hca_qp *qp, const uint8_t mgid[16])
{
	struct hca_adapter *a = qp->adapter;
	struct member *m;

	if (!a->engine.open)
		return ENODEV;
	lock_take(&a->engine.drive);
	m = find(a, mgid, qp);
	if (m)
		drop(a, m);
	lock_drop(&a->engine.drive);
	return m ? 0 : EINVAL;
}

bool hca_mcast_attached(struct hca_qp *qp)
{
	struct hca_adapter *a = qp->adapter;
	bool is = false;

	lock_take(&a->engine.drive);
	list_for_each(n, &a->mcast) is |= container_of(n, struct member, node)->qp == qp;
	lock_drop(&a->engine.drive);
	return is;
}

void hca_mcast_each(
	struct hca_adapter *a, const uint8_t mgid[16], void (*fn)(struct hca_qp *, void *), void *arg)
{
	assert_locked(&a->engine.drive);
	list_for_each(n, &a->mcast)
	{
		struct member *m = container_of(n, struct member, node);

		if (!memcmp(m->mgid, mgid, 16))
			fn(m->qp, arg);
	}
}
