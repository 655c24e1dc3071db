/* SPDX-License-Identifier: MIT */
/*
 * The first hop on the way to an address, and whether anybody is there: what Linux's rdma_cm learns from the
 * kernel's neighbour table when it resolves an address. We ask over netlink, which needs no privilege. Where
 * the kernel says nothing the hop counts as known, and a host that is not there does not answer the REQ.
 */
#ifndef CM_NEIGH_H
#define CM_NEIGH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct cm_neigh {
	struct sockaddr_storage to; /* where the way ends */
	uint8_t addr[16];           /* of the hop, in the first 4 bytes for IPv4 */
	uint32_t ifindex;           /* 0: nobody has to be asked (this host, a tunnel) */
};

/* The way from src to dst, both of one family, through the interface. */
void cm_neigh_find(
	struct cm_neigh *hop, const struct sockaddr *src, const struct sockaddr *dst, uint32_t ifindex);
/* Our address on the way to dst, with no port: 0 or -errno. */
int cm_neigh_source(const struct sockaddr *dst, struct sockaddr_storage *src);
/* Whether the kernel knows its link address. */
bool cm_neigh_known(const struct cm_neigh *hop);
/* Makes the kernel ask for that, if it is not doing so. */
void cm_neigh_ask(const struct cm_neigh *hop);

#endif
