/* SPDX-License-Identifier: MIT */
/*
 * A path: how a queue pair reaches its peer. That of a connected queue pair is decided at RTR and then
 * constant, but for two changes (ib/path.c): when the channel to a process of this host is gone, packets go
 * on; and on a fabric the channel is left and returned to as the switches between the two are set. An
 * address handle has the part that an address vector decides; the queue pair of a datagram adds the rest when
 * it knows for which process the datagram is, and has the path of the datagram it sent last.
 *
 * An address is a GID: an IP address on RoCE; on InfiniBand one made from the LID, with what LRH and GRH say
 * beside it (base/frame.h).
 */
#ifndef HCA_PATH_H
#define HCA_PATH_H

#include "base/frame.h"
#include "fabric/shared.h"
#include "hca/flow.h"

#include <infiniband/verbs.h>

struct hca_device;
struct hca_port;
struct link;

struct hca_path {
	struct link *link;     /* which its frames leave by: see `shared`; NULL: not decided yet */
	struct hca_flow *flow; /* the window: what may be in flight to the peer's process; NULL: as link */
	struct hca_port *port; /* where it begins */
	struct frame_dest dest;
	uint16_t pkey; /* what its packets have, and are matched by */
	uint8_t sl;
	uint8_t mtu; /* enum ibv_mtu */
	/*
	 * The link is the channel to a process of this host: nothing is lost or overtaken, it tells what was
	 * executed, and either end may act in the other's memory. Else what goes over UDP.
	 */
	bool shared;
	bool peer_shared; /* and the peer sends that way, too: see ib/path.c */
	/* Of InfiniBand; elsewhere nothing of this ever changes: */
	bool clear;     /* shared memory may stand for the fabric's switches, hca_path_walk() */
	bool returns;   /* to the channel, as soon as nothing is in flight */
	uint64_t epoch; /* of the fabric's table, which `clear` was found in */
};

/*
 * What an address vector decides, by the port that it names: port, address, service level, and the largest
 * MTU. 0 or EINVAL. Any thread, no lock.
 */
int hca_path_resolve(struct hca_device *d, const struct ibv_ah_attr *ah, struct hca_path *out);

/*
 * On InfiniBand: walks to the program in this slot and back, through the fabric's table as it is now. Any
 * thread; the path is the caller's.
 */
void hca_path_walk(struct hca_path *p, uint32_t slot);
/* It is another path: not clear until it has been walked. */
static inline void hca_path_invalidate(struct hca_path *p)
{
	p->clear = false;
	p->epoch = FABRIC_NO_EPOCH;
}
/* Whether it may ever lead to a process of this host, that with this slot. Any thread; takes locks. */
bool hca_path_may_be_shared(const struct hca_path *p, uint32_t slot);

/* The one door for where frames leave. */
static inline void hca_path_go_by(struct hca_path *p, struct link *link, bool shared)
{
	p->link = link;
	p->shared = shared;
}

/* The process of this host that they are for; 0: it may be another host's. */
static inline uint32_t hca_path_slot(const struct hca_path *p)
{
	return p->flow && (p->shared || p->dest.slid || p->flow->on_this_host) ? p->flow->slot : 0;
}

/* Whether frames of this path leave together with those of a batch: which is for one process of this host, or
 * for one address. */
static inline bool hca_path_goes_with(const struct hca_path *p, const struct frame_batch *b)
{
	return p->link == b->link && frame_dest_same(&p->dest, &b->dest) && hca_path_slot(p) == b->slot;
}

/* What a batch of such frames begins with. */
static inline void hca_path_address(const struct hca_path *p, struct frame_batch *b)
{
	b->link = p->link;
	b->dest = p->dest;
	b->slot = hca_path_slot(p);
}

#endif
