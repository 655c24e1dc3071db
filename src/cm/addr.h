/* SPDX-License-Identifier: MIT */
/* Addresses of ids, and the devices that have them. No lock held. */
#ifndef CM_ADDR_H
#define CM_ADDR_H

#include "cm/host.h"
#include "cm/neigh.h"

struct rcm_id;

/* Waiting for the first hop on the way to the destination; host lock. */
struct rcm_resolving {
	struct cm_host_timer timer;
	struct cm_neigh hop;
	uint64_t wait, until; /* between two looks; the program's patience */
};

/* Ties the id to the device with its local address: 0 or -errno. */
int rcm_bind_device(struct rcm_id *id, const uint8_t gid[16], uint32_t ifindex);
int rcm_bind_address(struct rcm_id *id); /* the device of the address it is bound to, if it is to one */
/* Binds to any address and port of the family when it is not bound. 0 or -errno. */
int rcm_bind_any(struct rcm_id *id, sa_family_t family);

#endif
