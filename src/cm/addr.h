/* SPDX-License-Identifier: MIT */
/* Addresses of ids, and the devices that have them. No lock held. */
#ifndef CM_ADDR_H
#define CM_ADDR_H

#include "cm/host.h"
#include "cm/neigh.h"

#include <linux/types.h>
#include <netinet/in.h>

struct rcm_id;

/* Waiting for the first hop on the way to the destination; host lock. */
struct rcm_resolving {
	struct cm_host_timer timer;
	struct cm_neigh hop;
	uint64_t wait, until; /* between two looks; the program's patience */
};

/* ---- as the program asks for it ---- */
/* Binds to this address, and claims its port or one of ours. */
int rcm_bind(struct rcm_id *id, const struct sockaddr *addr);
/*
 * Begins to find the way to dst_addr, from src_addr unless it is NULL or the id is bound: ADDR_RESOLVED or
 * ADDR_ERROR follows. Where no way leads is said at once; what is wrong with the way, by the
 * event.
 */
int rcm_resolve_addr(
	struct rcm_id *id, const struct sockaddr *src_addr, const struct sockaddr *dst_addr, int timeout_ms);

/* ---- within rdma_cm ---- */
bool rcm_is_any(const struct sockaddr *sa);
bool rcm_is_loopback(const struct sockaddr *sa);
/* Ties the id to the device with its local address. */
int rcm_bind_device(struct rcm_id *id, const uint8_t gid[16], uint32_t ifindex);
int rcm_bind_address(struct rcm_id *id); /* the device of the address it is bound to, if it is to one */
/* Binds to any address and port of the family when it is not bound. */
int rcm_bind_any(struct rcm_id *id, sa_family_t family);

#endif
