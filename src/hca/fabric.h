/* SPDX-License-Identifier: MIT */
/*
 * What the fabric that the program is on says of its ports, by its names (fabric/names.h): IP addresses and
 * the GIDs of the ports that have them, all as in a GID table. These take the fabric's lock. false: there is
 * none, or no fabric.
 */
#ifndef HCA_FABRIC_H
#define HCA_FABRIC_H

#include "base/export.h"

#include <stdbool.h>
#include <stdint.h>

struct frame_dest;
struct hca_adapter;

/* The first GID of the port that has this address; of the loopback's, our own first port. */
EXPORTED bool hca_fabric_gid_of_ip(struct hca_adapter *a, const uint8_t ip[16], uint8_t gid[16]);
/* The first GID of the port that has this LID. */
EXPORTED bool hca_fabric_gid_of_lid(struct hca_adapter *a, uint16_t lid, uint8_t gid[16]);
/* Whether the port that has this address has this LID. */
EXPORTED bool hca_fabric_ip_has_lid(struct hca_adapter *a, const uint8_t ip[16], uint16_t lid);
/* The first address of this family of the port that has this GID; of the host of this name. */
EXPORTED bool hca_fabric_ip_of_gid(struct hca_adapter *a, const uint8_t gid[16], bool v6, uint8_t ip[16]);
EXPORTED bool hca_fabric_ip_of_name(struct hca_adapter *a, const char *host, bool v6, uint8_t ip[16]);
/* Our own: that of the first port that is up, or of the first that has one. */
EXPORTED bool hca_fabric_own_ip(struct hca_adapter *a, bool v6, uint8_t ip[16]);
/* From this interface, a port, to its subnet manager: LIDs and SL; 0 while the fabric is away. No lock, no
 * waiting. */
EXPORTED void hca_fabric_path_to_sm(struct hca_adapter *a, struct frame_dest *to);
/* Of our host, for claims of ports (host/ports.h), also while it is away; 0: the program is on no fabric. */
EXPORTED uint32_t hca_fabric_host_tag(struct hca_adapter *a);

#endif
