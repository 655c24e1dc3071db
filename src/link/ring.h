/* SPDX-License-Identifier: MIT */
/*
 * Frames through memory that two processes share: one writes, one reads. docs/wire/local.md has the picture.
 *
 * A slot is one cache line: a stamp, and a frame's headers, with its payload when both fit. A longer payload
 * lies in the data area, where the slot says. The stamp is written last; slots hold nothing but slots, so
 * what the reader finds there is the number of this round, or of an earlier one. A writer that is killed
 * leaves a slot without its stamp, which nobody looks at; a reader that is killed leaves a ring that fills
 * up.
 *
 * Each side believes nothing that the other one writes: the reader takes a copy of a slot and checks it, and
 * finds every payload within the data area; the writer takes a `taken` that cannot be for the end of the
 * connection. No I/O here, no lock: the callers see to it that one writes and one reads.
 */
#ifndef LINK_RING_H
#define LINK_RING_H

#include "base/frame.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	RING_MAGIC = 0x676e6972,
	RING_VERSION = 1,
	RING_SLOTS = 4096,   /* more than a window of the smallest packets and the answers to one */
	RING_DATA = 2 << 20, /* likewise, of the largest */
	RING_PATHS = 64,
	RING_BYTES = 52, /* of a frame that fit into a slot */
	RING_PAYLOAD_MAX = 8192,
};

struct ring_slot {
	_Atomic uint32_t stamp; /* which slot it is, counted from 1 on over all rounds: it is there */
	uint32_t off;           /* of the payload in the data area */
	uint16_t len;           /* of payload and pad */
	uint8_t hdr_len;
	uint8_t path;
	uint8_t bytes[RING_BYTES]; /* headers; and the payload when both fit */
};
_Static_assert(sizeof(struct ring_slot) == 64, "a slot is a cache line");

/* What frames of one kind have in common; the reader takes a copy when it first meets one. */
struct ring_path {
	uint8_t sgid[16], dgid[16];
	uint32_t ifindex;
	uint8_t tclass, hop_limit, reserved[2];
};

/* The shared memory. */
struct ring {
	uint32_t magic, version;
	/* The writer's: odd while it acts on what the reader's board says. */
	_Alignas(64) _Atomic uint32_t acting;
	/* The reader's: slots it is done with, counted over all rounds. */
	_Alignas(64) _Atomic uint32_t taken;
	_Alignas(64) struct ring_path path[RING_PATHS];
	_Alignas(4096) struct ring_slot slot[RING_SLOTS];
	_Alignas(4096) uint8_t data[RING_DATA];
};

/* The writer's own. Places in the data area are counted over all rounds too. */
struct ring_tx {
	struct ring *ring;
	uint32_t head, taken; /* next slot; what the reader was last seen to be done with */
	uint64_t data_head, data_tail;
	uint64_t data_end[RING_SLOTS]; /* where the data of each slot ended */
	unsigned npaths;
	struct frame_dest path[RING_PATHS];
};

/* The reader's own. */
struct ring_rx {
	struct ring *_Atomic ring; /* others may look, without a lock, whether something is there */
	_Atomic uint32_t next;
	uint64_t allowed; /* paths that were looked at and may be used, a bit each */
	struct ring_path path[RING_PATHS];
	struct ring_slot slot; /* a copy of the one in hand */
};

enum ring_put {
	RING_PUT,
	RING_FULL,
	RING_UNFIT,  /* for this way: too long, or one path too many */
	RING_BROKEN, /* the reader says what cannot be */
};

void ring_tx_init(struct ring_tx *t, struct ring *r);
void ring_rx_init(struct ring_rx *x, struct ring *r);
/* Whether the memory was made by ring_tx_init: what there is to check before the first frame. */
bool ring_is_one(const struct ring *r);

/* Puts frame `i` of the batch. Reads the program's memory, which may be gone: the caller guards it. */
enum ring_put ring_put(struct ring_tx *t, const struct frame_batch *b, unsigned i);

/* Whether a frame is there. */
static inline bool ring_waiting(const struct ring_rx *x)
{
	uint32_t next = atomic_load_explicit(&x->next, memory_order_relaxed);

	return atomic_load_explicit(&x->ring->slot[next % RING_SLOTS].stamp, memory_order_acquire) ==
	       next + 1;
}

/* May frames of this path be taken from this writer? */
typedef bool ring_path_fn(void *arg, const struct ring_path *p);
/*
 * Takes the next frame: 1, 0 when there is none, -1 when it is none that may be: dropped. The headers are a
 * copy, valid until the next call; the payload lies in the ring until ring_done().
 */
int ring_take(struct ring_rx *x, struct frame_in *in, ring_path_fn *allow, void *arg);
/* The writer may have the room of what was taken. */
void ring_done(struct ring_rx *x);

#endif
