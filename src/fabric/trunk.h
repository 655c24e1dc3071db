/* SPDX-License-Identifier: MIT */
/*
 * The trunk: a pair of rings between a program and the process that is the subnet, one for each direction,
 * and beside them what the program tells of packets that do not come this way (tally.h).
 *
 * What lies there are packets: a header of one cache line, and the bytes from the BTH to the pad. One writer
 * and one reader each; the other side is not trusted, so each keeps its own place and looks at nothing twice.
 *
 * Packets do not wrap around: what does not fit before the end begins at the beginning, and a header whose
 * length says TRUNK_SKIP stands where it would have been. Places are counted over all rounds.
 *
 * Who finds nothing says that it sleeps, looks once more, and waits for a byte by the socket (attach.h).
 */
#ifndef FABRIC_TRUNK_H
#define FABRIC_TRUNK_H

#include "base/frame.h"
#include "fabric/tally.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	TRUNK_DATA = 2 << 20,
	TRUNK_LINE = 64,
	TRUNK_BYTES_MAX = 4096 + 124, /* of a packet, from the BTH to the pad */
};
#define TRUNK_SKIP UINT32_MAX

/* What stands before the bytes: what goes into, or was in, LRH and GRH. */
struct trunk_packet {
	uint32_t len;
	uint32_t port; /* of the adapter, where it begins or has arrived: its index in the table */
	uint16_t slid, dlid;
	uint8_t sl, has_grh, tclass, hop_limit;
	uint32_t flow_label;
	struct frame_grh grh; /* when it has one */
	uint8_t unused[12];
};
_Static_assert(sizeof(struct trunk_packet) == TRUNK_LINE, "a header is a cache line");

struct trunk_ring {
	_Alignas(TRUNK_LINE) _Atomic uint64_t head; /* the writer's */
	_Alignas(TRUNK_LINE) _Atomic uint64_t tail; /* the reader's */
	/* The reader's, until the writer has rung. */
	_Alignas(TRUNK_LINE) _Atomic uint32_t asleep;
	_Alignas(4096) uint8_t data[TRUNK_DATA];
};

/* The shared memory. */
struct trunk {
	struct trunk_ring to_fabric, to_program;
	_Alignas(4096) struct tallies tallies;
};

struct trunk_tx {
	struct trunk_ring *ring;
	uint64_t head, tail; /* tail: as it was seen last */
};

struct trunk_rx {
	struct trunk_ring *ring;
	_Atomic uint64_t tail; /* others may look, without a lock, whether something is there */
	uint32_t taken;        /* bytes of the ring that the packet in hand has */
};

/* Room for a packet of so many bytes: its header, which its bytes follow; NULL: there is none now. */
struct trunk_packet *trunk_reserve(struct trunk_tx *t, uint32_t len);
/* It is filled in, and is there from now on. */
void trunk_commit(struct trunk_tx *t, const struct trunk_packet *p, uint32_t len);
/* After one or several: whether the reader sleeps and has to be rung; only once. */
bool trunk_must_ring(struct trunk_tx *t);

/*
 * The next packet: 1 with a copy of its header, and its bytes where they lie until trunk_done(), which the
 * other side may change meanwhile; 0: there is none; -1: nonsense, the ring cannot be used any more.
 */
int trunk_take(struct trunk_rx *r, struct trunk_packet *p, uint8_t **bytes);
void trunk_done(struct trunk_rx *r);
static inline bool trunk_has_packet(const struct trunk_rx *r)
{
	return atomic_load_explicit(&r->ring->head, memory_order_acquire) !=
	       atomic_load_explicit(&r->tail, memory_order_relaxed);
}
/* Says that the reader sleeps, until it was rung: false: something is there already. */
bool trunk_sleep(struct trunk_rx *r);

#endif
