/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups of ids. On RoCE nobody has to be asked: the group's address is its GID, and the interface
 * joins when the QP is attached, which happens when the program takes the event.
 */
#ifndef CM_MCAST_H
#define CM_MCAST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct rcm_id;

/* MULTICAST_JOIN follows, or MULTICAST_ERROR. No lock held. */
int rcm_group_join(struct rcm_id *id, const struct sockaddr *addr, bool send_only, void *context);
/* Leaves what was joined last of this address. */
int rcm_group_leave(struct rcm_id *id, const struct sockaddr *addr);

/* The program takes the event of a join: its QP joins. */
int rcm_group_joined(struct rcm_id *id, uint32_t number);
/* All of the id. */
void rcm_groups_leave(struct rcm_id *id);

#endif
