/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups of ids. On RoCE nobody has to be asked: the group's address is its GID, and the interface
 * joins when the QP is attached, which happens when the program takes the event.
 */
#ifndef CM_MCAST_H
#define CM_MCAST_H

#include <stdint.h>

struct rcm_id;

/* The program takes the event of a join: its QP joins. */
int rcm_group_joined(struct rcm_id *id, uint32_t number);
void rcm_groups_leave(struct rcm_id *id);

#endif
