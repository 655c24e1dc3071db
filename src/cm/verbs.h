/* SPDX-License-Identifier: MIT */
/*
 * What rdma_cm needs of the libibverbs it stands on, beyond public verbs and the adapter's own functions. It
 * is declared here and done there (front/verbs_device.c), under libibverbs' private version node.
 */
#ifndef CM_VERBS_H
#define CM_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct hca_adapter;
struct hca_port;

/* The process's adapter; a new one after fork. NULL: no memory. */
struct hca_adapter *verbs_adapter(void);

/*
 * The port that has this GID, and its index there; ifindex 0: of any interface. That of the first device that
 * the user wants, of this transport. NULL: none. Takes the adapter's lock.
 */
struct hca_port *verbs_port_of(struct hca_adapter *a, const uint8_t gid[16], uint32_t ifindex,
	enum ibv_transport_type transport, unsigned *index);

/* Whether the user has any device of this transport, as far as is known. Takes the adapter's lock. */
bool verbs_device_any(struct hca_adapter *a, enum ibv_transport_type transport);

#endif
