/* SPDX-License-Identifier: MIT */
/*
 * What rdma_cm needs of the libibverbs it stands on, beyond public verbs and the adapter's own functions. It
 * is told here and done there (front/verbs_device.c, verbs_fabric.c), under libibverbs' private version node.
 */
#ifndef CM_VERBS_H
#define CM_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct frame_dest;
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

/*
 * ---- who is who on the fabric that the program is on ----
 * By the fabric's names (fabric/names.h): IP addresses and the GIDs of the ports that have them, all as in a
 * GID table. They take the fabric's lock. false: there is none, or no fabric.
 */
/* The first GID of the port that has this address; of the loopback's, our own first port. */
bool verbs_fabric_gid_of_ip(struct hca_adapter *a, const uint8_t ip[16], uint8_t gid[16]);
/* The first GID of the port that has this LID. */
bool verbs_fabric_gid_of_lid(struct hca_adapter *a, uint16_t lid, uint8_t gid[16]);
/* Whether the port that has this address has this LID. */
bool verbs_fabric_ip_has_lid(struct hca_adapter *a, const uint8_t ip[16], uint16_t lid);
/* The first address of this family of the port that has this GID; of the host of this name. */
bool verbs_fabric_ip_of_gid(struct hca_adapter *a, const uint8_t gid[16], bool v6, uint8_t ip[16]);
bool verbs_fabric_ip_of_name(struct hca_adapter *a, const char *host, bool v6, uint8_t ip[16]);
/* Our own: that of the first port that is up, or of the first that has one. */
bool verbs_fabric_own_ip(struct hca_adapter *a, bool v6, uint8_t ip[16]);
/* From this interface, a port, to its subnet manager: LIDs and SL; 0 while the fabric is away. No lock, no
 * waiting. */
void verbs_fabric_way_to_sm(struct hca_adapter *a, struct frame_dest *to);
/* Of our host, for claims of ports (host/ports.h), also while it is away; 0: the program is on no fabric. */
uint32_t verbs_fabric_host_tag(struct hca_adapter *a);

#endif
