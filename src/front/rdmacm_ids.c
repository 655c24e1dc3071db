/* SPDX-License-Identifier: MIT */
/* The calls about ids and devices. */
#include "front/rdmacm_front.h"

#include "base/cancel.h"
#include "cm/event.h"
#include "cm/id.h"
#include "cm/service.h"

#include <stdlib.h>

int rdma_create_id(
	struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	CANCEL_SAFE;
	struct rcm_id *new = NULL;
	struct rcm *cm;
	int err = rcm_get(&cm);

	if (!err)
		err = id ? rcm_id_create(cm, rcm_channel(channel), context, ps, &new) : -EINVAL;
	if (!err)
		*id = &new->pub;
	return rdmacm_result(err);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	CANCEL_SAFE;

	rcm_id_destroy(rcm_id(id));
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_id_migrate(rcm_id(id), rcm_channel(channel)));
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
	CANCEL_SAFE;

	return rdmacm_result(optval ? rcm_set_option(rcm_id(id), level, optname, optval, optlen) : -EINVAL);
}

/* ---- enhanced connection establishment ---- */
int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece || !ece->vendor_id || ece->comp_mask)
		return rdmacm_result(-EINVAL);
	rcm_id(id)->local_ece = *ece;
	return 0;
}

int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	if (!id || id->qp || !ece)
		return rdmacm_result(-EINVAL);
	*ece = rcm_id(id)->remote_ece;
	ece->comp_mask = 0;
	return 0;
}

/* ---- devices ---- */
struct ibv_context **rdma_get_devices(int *num_devices)
{
	CANCEL_SAFE;
	struct ibv_context **list = NULL;
	struct rcm *cm;
	int n = 0, err = rcm_get(&cm);

	if (!err)
		err = rcm_devices_open(cm, &list, &n);
	if (num_devices)
		*num_devices = n;
	rdmacm_result(err);
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
