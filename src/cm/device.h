/* SPDX-License-Identifier: MIT */
/* Devices as rdma_cm hands them out: opened once, shared by all ids, never closed. */
#ifndef CM_DEVICE_H
#define CM_DEVICE_H

#include "base/list.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

struct hca_port;
struct rcm;

struct rcm_device {
	struct list node;
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* for ids whose program has none */
	uint32_t ifindex;
};

/*
 * The device with this address, opened, and which port has it where; ifindex 0: any interface; of this
 * transport, or of the one that the user wants first. -ENODEV: there is none.
 */
int rcm_device_of(struct rcm *cm, const uint8_t gid[16], uint32_t ifindex, enum ibv_transport_type transport,
	struct rcm_device **out, const struct hca_port **port, unsigned *sgid_index);
/* All that can be opened: an array with a NULL at its end, which is the caller's to free. */
int rcm_devices_open(struct rcm *cm, struct ibv_context ***out, int *found);
/* Its interface is no more. Any lock may be held. */
bool rcm_device_gone(const struct rcm_device *d);

#endif
