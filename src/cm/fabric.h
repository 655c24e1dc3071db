/* SPDX-License-Identifier: MIT */
/*
 * What is different on a fabric: IP addresses are names of its ports, which have GIDs and LIDs, or there are
 * none at all (AF_IB). No lock held.
 */
#ifndef CM_FABRIC_H
#define CM_FABRIC_H

#include <infiniband/ib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct rcm_id;

/* Whether its devices are those of a fabric. */
bool rcm_is_on_fabric(const struct rcm_id *id);
/* Of IP, or by GID on a fabric. */
bool rcm_address_is_known(const struct rcm_id *id, const struct sockaddr *addr);
/* The GID of the port with this address: its own, or what the fabric's names say. false: none has it. */
bool rcm_gid_of(const struct rcm_id *id, const struct sockaddr *addr, uint8_t gid[16]);
/*
 * What an id that is bound there listens for, as Linux has it: what the mask leaves open is the id's port
 * space, and any port, 0. -EPROTONOSUPPORT: it is of another port space. A service id to connect to is taken
 * as it is.
 */
int rcm_choose_service(const struct rcm_id *id, struct sockaddr_ib *sib);
/* Our address on the fabric, towards dst: 0 or -errno. */
int rcm_fabric_source(const struct rcm_id *id, const struct sockaddr *dst, struct sockaddr_storage *src);
/* Ties the id of a request to the port that it came to: 0, or -errno: it says what is not so. */
int rcm_fabric_bind_request(struct rcm_id *id);

#endif
