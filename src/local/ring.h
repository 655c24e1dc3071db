/* SPDX-License-Identifier: MIT */
/*
 * Frames through memory that two processes share: one writes, one reads. docs/wire/local.md has the picture.
 *
 * A slot is one cache line: a stamp, and a frame's headers, with its payload when both fit. A longer payload
 * lies in the data area, where the slot says; so may the list of places of a frame by reference. The stamp is
 * written last; slots hold nothing but slots, so what the reader finds there is the number of this round, or
 * of an earlier one. A writer that is killed leaves a slot without its stamp, which nobody looks at; a reader
 * that is killed leaves a ring that fills up.
 *
 * How far the reader is tells the writer two things at once: the room is free again, and the frames have
 * reached their queue pairs, which executed them but for those marked as refused. That is all the
 * acknowledging there is for requests that need no other answer. It is said by `taken`, and by frames the
 * other way, which piggyback it (`ack`).
 *
 * Each side believes nothing that the other one writes: the reader takes a copy of a slot and checks it, and
 * finds every payload within the data area; the writer takes a `taken` that cannot be for the end of the
 * connection. No I/O here, no lock: the callers see to it that one writes and one reads.
 */
#ifndef LOCAL_RING_H
#define LOCAL_RING_H

#include "base/frame.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	RING_MAGIC = 0x676e6972,
	RING_VERSION = 6,
	RING_SLOTS = 4096,   /* more than a window of the smallest packets and the answers to one */
	RING_DATA = 2 << 20, /* likewise, of the largest */
	RING_PATHS = 64,
	RING_BYTES = 48, /* of a frame that fit into a slot */
	RING_PAYLOAD_MAX = 8192,
	RING_ACK = 0x80,        /* in a slot's path: it says how far its writer is with the other ring */
	RING_BY_REF_SHIFT = 24, /* in its place: frame_out.by_ref */
};

struct ring_slot {
	_Atomic uint32_t stamp; /* which slot it is, counted from 1 on over all rounds: it is there */
	uint32_t ack;           /* frames of the ring the other way that its reader is done with */
	uint32_t place; /* of the payload in the data area; above that, whether it goes by reference */
	uint16_t len;   /* of payload and pad */
	uint8_t hdr_len;
	uint8_t path;
	uint8_t bytes[RING_BYTES]; /* headers; and the payload when both fit */
};
_Static_assert(sizeof(struct ring_slot) == 64, "a slot is a cache line");
_Static_assert(RING_DATA <= 1 << RING_BY_REF_SHIFT, "a place in the data area fits below");

/* What frames of one kind have in common; the reader takes a copy when it first meets one. */
struct ring_path {
	uint8_t sgid[16], dgid[16];
	uint32_t ifindex;
	uint8_t tclass, hop_limit, sl, has_grh;
	uint16_t slid, dlid;
	uint32_t flow_label;
	struct frame_grh grh;
};

_Static_assert(offsetof(struct ring_path, grh) == FRAME_ADDRESS, "copied as one");

/* The shared memory. */
struct ring {
	uint32_t magic, version;
	/* The writer's: odd while it acts on what the reader exports. */
	_Alignas(64) _Atomic uint32_t acting;
	/* The reader's: not 0: the writer may not act any more. */
	_Alignas(64) _Atomic uint32_t revoked;
	/* The reader's: slots it is done with, counted over all rounds. */
	_Alignas(64) _Atomic uint32_t taken;
	/* The reader's: slots, before `taken`, whose frame was not executed; a bit each. */
	_Alignas(64) _Atomic uint64_t refused[RING_SLOTS / 64];
	_Alignas(64) struct ring_path path[RING_PATHS];
	_Alignas(4096) struct ring_slot slot[RING_SLOTS];
	_Alignas(4096) uint8_t data[RING_DATA];
};

/* Of whom a frame is that needs no other answer than that it was executed; 0: of nobody. */
struct ring_note {
	uint32_t cookie, psn;
	bool refused;
};

/* The writer's own. Places in the data area are counted over all rounds too. */
struct ring_tx {
	struct ring *ring;
	uint32_t head;
	_Atomic uint32_t taken; /* what the reader is done with and ring_collect() has seen */
	uint64_t data_head, data_tail;
	struct {
		struct ring_note note;
		uint64_t data_end; /* where its data ended */
	} sent[RING_SLOTS];
	unsigned npaths;
	struct frame_dest path[RING_PATHS];
};

/* The reader's own. */
struct ring_rx {
	struct ring *_Atomic ring; /* others may look, without a lock, whether something is there */
	_Atomic uint32_t next;
	_Atomic uint32_t done;             /* frames whose fate is known: what `taken` may say */
	uint32_t published;                /* what it says */
	uint64_t refused[RING_SLOTS / 64]; /* as in the ring */
	uint32_t ack;
	uint64_t allowed; /* paths that were looked at and may be used, a bit each */
	struct ring_path path[RING_PATHS];
	struct ring_slot slot; /* a copy of the one in hand */
	struct frame_ref refs[FRAME_REFS];
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

/* The number of the path to this destination; -1: there are too many. */
int ring_path_to(struct ring_tx *t, const struct frame_dest *d);
/*
 * Puts a frame; ack: how far we are with the ring the other way, or NULL. Reads the program's memory, which
 * may be gone: the caller guards it.
 */
enum ring_put ring_put(
	struct ring_tx *t, int path, const struct frame_out *f, const struct iovec *iov, const uint32_t *ack);
/* Whether `taken` says what was not collected yet. */
static inline bool ring_has_ack(const struct ring_tx *t)
{
	return (int32_t)(atomic_load_explicit(&t->ring->taken, memory_order_acquire) -
			 atomic_load_explicit(&t->taken, memory_order_relaxed)) > 0;
}
/*
 * The reader is done with all frames before `taken`: takes back their room, and fills out[] with the last of
 * each burst of frames of one cookie that were executed or refused. How many; -1: that cannot be. When out[]
 * is full, the rest is for the next call.
 */
int ring_collect(struct ring_tx *t, uint32_t taken, struct ring_note *out, unsigned max);

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
 * copy, valid until the next call; the payload lies in the ring until ring_publish(). x->ack is what the
 * writer last said about the other ring.
 */
int ring_take(struct ring_rx *x, struct frame_in *in, ring_path_fn *allow, void *arg);
/* Paths are looked at again before the next frame of each. */
static inline void ring_recheck_paths(struct ring_rx *x)
{
	x->allowed = 0;
}

/*
 * The i-th frame behind the one that was taken last, when it goes by reference to the same destination whose
 * list has one entry. A look: ring_take() gives it all the same, and checks it anew.
 */
bool ring_ahead(const struct ring_rx *x, uint32_t i, struct frame_ahead *out);
/* What became of the frame that was taken last. */
void ring_took(struct ring_rx *x, bool executed);
static inline bool ring_ack_is_due(const struct ring_rx *x)
{
	return atomic_load_explicit(&x->done, memory_order_relaxed) != x->published;
}
/* Tells the writer by `taken`. */
void ring_publish(struct ring_rx *x);
/* The same by a thread that does not read. */
void ring_publish_aside(struct ring_rx *x);

#endif
