/* SPDX-License-Identifier: MIT */
/* Groups of a fabric: the port joins by an MCMemberRecord, which the subnet's administration answers. */
#ifndef CM_MCAST_IB_H
#define CM_MCAST_IB_H

#include <stdint.h>
#include <sys/socket.h>

struct rcm;
struct rcm_id;
struct rcm_join;

/* The group's GID as Linux makes it of an address; a GID is one already. */
void rcm_mgid_of(const struct rcm_id *id, const struct sockaddr *addr, uint8_t mgid[16]);
/* MULTICAST_JOIN for the join of this number follows, or MULTICAST_ERROR. 0 or -errno; no host lock. */
int rcm_join_ask(
	struct rcm_id *id, const uint8_t mgid[16], uint32_t number, void *context, struct rcm_join **out);
/* Leaves, perhaps before there is an answer. The join is not the caller's any more. No host lock. */
void rcm_join_leave(struct rcm_join *j);

/* Asks a new fabric for what the one before it had confirmed. Host lock held. */
void rcm_joins_follow(struct rcm *cm);

#endif
