/* SPDX-License-Identifier: MIT */
/* Devices as librdmacm hands them out: opened once, shared by all ids, never closed. */
#include "cm/device.h"

#include "cm/id.h"
#include "cm/service.h"
#include "cm/verbs.h"
#include "hca/adapter.h"
#include "hca/device.h"

#include <errno.h>
#include <stdlib.h>

static struct rcm_device *find_opened(struct rcm *cm, const struct ibv_device *ibv)
{
	list_for_each(n, &cm->devices)
	{
		struct rcm_device *d = container_of(n, struct rcm_device, node);

		if (d->verbs->device == ibv)
			return d;
	}
	return NULL;
}

static int open_verbs(struct rcm_device *d, struct ibv_device *ibv)
{
	int err;

	d->ifindex = hca_device(ibv)->ifindex;
	d->verbs = ibv_open_device(ibv);
	if (!d->verbs)
		return errno ? -errno : -ENODEV;
	d->pd = ibv_alloc_pd(d->verbs);
	if (d->pd)
		return 0;
	err = errno ? -errno : -ENOMEM;
	ibv_close_device(d->verbs);
	return err;
}

/* device_lock held */
static int open_new(struct rcm *cm, struct ibv_device *ibv, struct rcm_device **out)
{
	struct rcm_device *d = calloc(1, sizeof(*d));
	int err;

	assert_locked(&cm->device_lock);
	err = d ? open_verbs(d, ibv) : -ENOMEM;
	if (err) {
		free(d);
		return err;
	}
	list_add_tail(&cm->devices, &d->node);
	*out = d;
	return 0;
}

static int open_device(struct rcm *cm, struct ibv_device *ibv, struct rcm_device **out)
{
	int err = 0;

	lock_take(&cm->device_lock);
	*out = find_opened(cm, ibv);
	if (!*out)
		err = open_new(cm, ibv, out);
	lock_drop(&cm->device_lock);
	return err;
}

int rcm_device_of(struct rcm *cm, const uint8_t gid[16], uint32_t ifindex, enum ibv_transport_type transport,
	struct rcm_device **out, const struct hca_port **port, unsigned *sgid_index)
{
	*port = verbs_port_of(cm->host.adapter, gid, ifindex, transport, sgid_index);
	if (!*port) { /* an address that is younger than our list */
		ibv_free_device_list(ibv_get_device_list(NULL));
		*port = verbs_port_of(cm->host.adapter, gid, ifindex, transport, sgid_index);
	}
	return *port ? open_device(cm, &(*port)->dev->vd.ibv, out) : -ENODEV;
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

int rcm_devices_open(struct rcm *cm, struct ibv_context ***out, int *found)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	*found = 0;
	if (!list)
		return -errno;
	*out = calloc((size_t)n + 1, sizeof(struct ibv_context *));
	for (int i = 0; i < n && *out; i++) {
		struct rcm_device *d;

		if (!open_device(cm, list[i], &d))
			(*out)[(*found)++] = d->verbs;
	}
	ibv_free_device_list(list);
	return *out ? 0 : -ENOMEM;
}
