/* SPDX-License-Identifier: MIT */
/* Devices as librdmacm hands them out: opened once, shared by all ids, never closed. */
#include "cm/device.h"

#include "base/cancel.h"
#include "cm/id.h"
#include "cm/service.h"
#include "cm/verbs.h"
#include "hca/adapter.h"
#include "hca/device.h"

#include <errno.h>
#include <stdlib.h>

/* device_lock held */
static struct rcm_device *open_device(struct rcm *cm, struct ibv_device *ibv)
{
	struct rcm_device *d;

	list_for_each(n, &cm->devices)
	{
		d = container_of(n, struct rcm_device, node);
		if (d->verbs->device == ibv)
			return d;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->ifindex = hca_device(ibv)->ifindex;
	d->verbs = ibv_open_device(ibv);
	d->pd = d->verbs ? ibv_alloc_pd(d->verbs) : NULL;
	if (!d->pd) {
		if (d->verbs)
			ibv_close_device(d->verbs);
		free(d);
		return NULL;
	}
	list_add_tail(&cm->devices, &d->node);
	return d;
}

static struct rcm_device *opened(struct rcm *cm, struct ibv_device *ibv)
{
	struct rcm_device *d;

	lock_take(&cm->device_lock);
	d = open_device(cm, ibv);
	lock_drop(&cm->device_lock);
	return d;
}

struct rcm_device *rcm_device_of(struct rcm *cm, const uint8_t gid[16], uint32_t ifindex,
	enum ibv_transport_type transport, unsigned *sgid_index)
{
	struct ibv_device *ibv = verbs_device_of(cm->host.adapter, gid, ifindex, transport, sgid_index);

	if (!ibv) { /* an address that is younger than our list */
		ibv_free_device_list(ibv_get_device_list(NULL));
		ibv = verbs_device_of(cm->host.adapter, gid, ifindex, transport, sgid_index);
	}
	if (ibv)
		return opened(cm, ibv);
	errno = ENODEV;
	return NULL;
}

bool rcm_device_gone(const struct rcm_device *d)
{
	const struct hca_device *dev = hca_device(d->verbs->device);
	bool gone;

	lock_take(&dev->adapter->lock);
	gone = dev->gone;
	lock_drop(&dev->adapter->lock);
	return gone;
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	CANCEL_SAFE;
	struct rcm *cm = rcm_get();
	int n = 0, found = 0;
	struct ibv_device **list = cm ? ibv_get_device_list(&n) : NULL;
	struct ibv_context **out = list ? calloc((size_t)n + 1, sizeof(struct ibv_context *)) : NULL;

	for (int i = 0; i < n && out; i++) {
		struct rcm_device *d = opened(cm, list[i]);

		if (d)
			out[found++] = d->verbs;
	}
	if (list)
		ibv_free_device_list(list);
	if (num_devices)
		*num_devices = found;
	return out;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
