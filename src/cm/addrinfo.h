/* SPDX-License-Identifier: MIT */
/* Addresses for endpoints, by name. */
#ifndef CM_ADDRINFO_H
#define CM_ADDRINFO_H

#include <rdma/rdma_cma.h>

/*
 * What getaddrinfo() says of node and service, and what is in the hints: 0, or an EAI_ code. May ask name
 * servers, and be cancelled meanwhile.
 */
int rcm_addrinfo_get(
	const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **out);
/* With all that follow; NULL is none. */
void rcm_addrinfo_free(struct rdma_addrinfo *ai);

#endif
