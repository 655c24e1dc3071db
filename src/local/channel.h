/* SPDX-License-Identifier: MIT */
/*
 * Frames between processes of this host: a link that stands before another one, the wire. What is sent by it
 * goes through rings in shared memory (local/ring.h): the same frames, without envelope and ICRC. What it
 * cannot take goes over UDP all the same. What is received by it comes from both.
 *
 * As a link it sends and receives like any other (link/link.h). What only this one can do is below. Processes
 * are named by their slot.
 */
#ifndef LOCAL_CHANNEL_H
#define LOCAL_CHANNEL_H

#include "link/link.h"

struct local_channel;
struct windows;

/* Is this an address of this host? What comes through shared memory must come from one. */
typedef bool local_channel_ours_fn(void *arg, const uint8_t gid[16]);

/* What it calls. */
struct local_channel_events {
	/*
	 * The frames of this cookie (frame_out.cookie) were executed, or (done false) were not, up to this
	 * PSN. Called by receive with its arg.
	 */
	void (*executed)(void *arg, uint32_t cookie, uint32_t psn, bool done);
	/* Calls receive within ns although all sleep; called by receive when it defers something. */
	void (*promise)(void *promise_arg, uint64_t ns);
	void *promise_arg;
};

/* Where processes have more than their user in common: whom it believes, for how long. */
struct local_channel_trust {
	/* Where the process is that has this slot; 0: this one has not, and there is no channel to it. */
	uint32_t (*home)(void *arg, uint32_t slot, int pid);
	/* Whether frames from there may have these addresses, the sender's first. */
	bool (*may_come)(void *arg, uint32_t home, const struct frame_dest *path);
	/* Whether another process has this slot by now; not when this one has ended: what it left is taken.
	 */
	bool (*is_anothers)(void *arg, uint32_t slot, int pid);
	/* What they said stands as long as this number is the same. */
	uint64_t (*epoch)(void *arg);
	void *arg;
};

/* Another process of this host, on whose exports we act. */
struct local_process {
	const void *export;
	struct windows *windows; /* onto its memory */
	const _Atomic uint32_t
		*revoked; /* not 0: it has waited for us in vain, and we may not act any more */
	uint64_t number;  /* of this connection, never 0, and no other has it */
	int pid;
	bool self; /* it is us */
};

/*
 * Takes over the wire. 0 or -errno: then the wire is the caller's still, and as good as before.
 *
 * size: of our export, what others need to act in our memory by themselves; 0: there is none, and we act in
 * nobody's. *export: that memory, all zero. Only those can read it, and only while they are connected, whom
 * the kernel lets into this process anyway. It lives as long as the channel.
 */
int local_channel_open(struct local_channel **out, struct link *wire, uint16_t port, uint32_t slot,
	local_channel_ours_fn *ours, void *arg, size_t size, void **export);
/* Receives by it, and closes it; sends by it to the process that a batch names. */
struct link *local_channel_link(struct local_channel *c);
/* What it stands before. */
struct link *local_channel_wire(struct local_channel *c);
/* Before the first receive. */
void local_channel_set_events(struct local_channel *c, const struct local_channel_events *events);
/* The same; instead of what was said to open(). */
void local_channel_set_trust(struct local_channel *c, const struct local_channel_trust *trust);
/* A number that no other process has. */
uint64_t local_channel_identity(const struct local_channel *c);

/* ---- whom it reaches; any thread ---- */
/*
 * Whether frames to this process go through shared memory. What becomes of those is told
 * (local_channel_events). Asks for it when it is not there yet, and waits a moment for the answer: with no
 * lock held.
 */
bool local_channel_connect(struct local_channel *c, uint32_t slot);
/* The same without I/O or waiting: the next receive connects. And whether one has to. */
void local_channel_want(struct local_channel *c, uint32_t slot);
bool local_channel_has_wanted(const struct local_channel *c);
/*
 * The same for a caller that knows the process by its identity, and cannot wait: 1: it is reached, and
 * *identity is its own; 0: it was asked, look again soon; -errno: it cannot be. `ask`: even if it was asked
 * in vain a moment ago.
 */
int local_channel_try_connect(struct local_channel *c, uint32_t slot, bool ask, uint64_t *identity);
/* Whether it still is, a look that costs nothing. */
bool local_channel_is_up(struct local_channel *c, uint32_t slot);
/*
 * A mark behind all that lies in the ring to this process, or 0: nothing does, or nobody is there to take it.
 * And whether something before the mark lies there still: then it is not lost, and its reader, which is
 * alive, has not got round to it.
 */
uint64_t local_channel_mark(struct local_channel *c, uint32_t slot);
bool local_channel_holds(struct local_channel *c, uint32_t slot, uint64_t mark);
/* Whether its frames come through shared memory, too, and are known to be its (frame_in.slot). */
bool local_channel_is_paired(struct local_channel *c, uint32_t slot);

/* ---- frames ---- */
/*
 * Before frames for this process leave over UDP: they piggyback no acknowledge of what comes through
 * shared memory, and may be the answer to that. Written first, so that the other one has the acknowledge
 * before it has the answer. Any thread.
 */
void local_channel_ack_aside(struct local_channel *c, uint32_t slot);
/* Sends one that must not go over UDP; any thread. -errno: it did not go. */
int local_channel_put(struct local_channel *c, uint32_t slot, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov);
/*
 * Says what became of a frame, while it is delivered and before anyone can answer it: its sender will know.
 * Nothing for one that came over UDP.
 */
void local_channel_took(const struct frame_in *in, bool executed);
/* ring_ahead() of the ring that this frame came by; while it is delivered. */
bool local_channel_ahead(const struct frame_in *in, uint32_t i, struct frame_ahead *out);

/* ---- waiting; any thread ---- */
/* A look that costs nothing: true: no ring has anything. Receive all the same now and then. */
bool local_channel_is_quiet(struct local_channel *c);
/*
 * Around sleeping on the link's descriptors: false from sleep: something is there already. woke() in any
 * case; then receive with max 0.
 */
bool local_channel_sleep(struct local_channel *c);
void local_channel_woke(struct local_channel *c);
/* Whether acknowledges are deferred, which the next receive sends when their time has come. */
bool local_channel_has_deferred(struct local_channel *c);
/* Sends them now; by who may receive. */
void local_channel_flush_deferred(struct local_channel *c);
/* The process exits: sends them without taking a lock. */
void local_channel_at_exit(struct local_channel *c);

/* ---- acting on what others export ---- */
/*
 * To act on what the process exports; NULL when it cannot be reached. Until leave(), which the same thread
 * calls soon; one thread at a time.
 */
const struct local_process *local_channel_enter(struct local_channel *c, uint32_t slot);
void local_channel_leave(struct local_channel *c, uint32_t slot);
/* Waits until all other processes have left that had entered ours before (settle.c). No lock held. */
void local_channel_settle(struct local_channel *c);

#endif
