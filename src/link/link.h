/* SPDX-License-Identifier: MIT */
/*
 * A link moves frames and knows no QP. It puts the envelope and the ICRC around what it sends, and hands up
 * only what carries a right ICRC.
 */
#ifndef LINK_LINK_H
#define LINK_LINK_H

#include "base/frame.h"

#include <stdbool.h>
#include <stdint.h>

struct link;
struct windows;

struct link_stats {
	uint64_t tx_packets, tx_bytes, tx_errors, rx_packets, rx_bytes, bad_icrc, bad_length, handed_over;
};

/* Another process of this host, for who acts on what it exports. */
struct link_there {
	const void *export;
	struct windows *windows; /* onto its memory */
	const _Atomic uint32_t
		*revoked; /* not 0: it has waited for us in vain, and we may not act any more */
	uint64_t number;  /* of this connection, never 0, and no other has it */
	int pid;
	bool self; /* it is us */
};

typedef void link_deliver_fn(void *arg, const struct frame_in *in);
/* The frames of this note (frame_out.note) were executed, or (done false) were not, up to this PSN. */
typedef void link_executed_fn(void *arg, uint32_t note, uint32_t psn, bool done);

struct link_ops {
	/* Sends a batch; any thread. 0 or -errno; what could not be sent is as good as lost on the way. */
	int (*send)(struct link *l, const struct frame_batch *b);
	/*
	 * Hands up what has arrived, at most about `max` frames; one thread at a time. Returns how many.
	 * max 0: the caller slept on fds[] and was woken, so there is something, however rare its kind.
	 */
	int (*receive)(struct link *l, unsigned max, link_deliver_fn *deliver, void *arg);
	/*
	 * One frame to the process of a slot, by another way than the network, which loses nothing and
	 * changes no order. -errno: it did not go. NULL: there is no such way.
	 */
	int (*put)(struct link *l, uint32_t slot, const struct frame_dest *dest, const struct frame_out *f,
		const struct iovec *iov);
	/*
	 * What became of a frame with in->from, by who delivers it, before anyone can answer it: the sender
	 * will be told.
	 */
	void (*took)(struct link *l, const struct frame_in *in, bool executed);
	/* ring_ahead() of the way that this frame came; by who delivers it. NULL: nobody can look ahead. */
	bool (*ahead)(struct link *l, const struct frame_in *in, uint32_t i, struct frame_ahead *out);
	/* Descriptors to sleep on: fills fds[], returns how many (at most 4). */
	int (*fds)(struct link *l, int fds[4]);
	/*
	 * Whether frames to the process of this slot go another way than by the network: those whose
	 * frame_dest says `local`. What becomes of those is told (link.executed). Asks for it when it is not
	 * there yet; `wait`: for a moment, for the answer. NULL: there is no other way.
	 */
	bool (*reach)(struct link *l, uint32_t slot, bool wait);
	/* Whether it still is, a look that costs nothing. */
	bool (*carries)(struct link *l, uint32_t slot);
	/* Whether frames of that process come the other way, too, and are known to be its (frame_in.slot). */
	bool (*paired)(struct link *l, uint32_t slot);
	/*
	 * The same for who was told otherwise whom it will find there, and never waits: 1: it is reached, and
	 * *who is its link.who; 0: it was asked, look again soon; -errno: it cannot be. `ask`: even if it was
	 * asked in vain a moment ago. NULL: as above.
	 */
	int (*meet)(struct link *l, uint32_t slot, bool ask, uint64_t *who);
	/*
	 * Around sleeping on fds[]: false from sleep: something is there already. woke() in any case; then
	 * receive with max 0. NULL: the descriptors tell everything.
	 */
	bool (*sleep)(struct link *l);
	void (*woke)(struct link *l);
	/*
	 * Whether something is held back that others should be told before long, which the next receive does
	 * when its time has come; any thread. let_go: now; by who may receive. NULL: nothing ever is.
	 */
	bool (*holds)(struct link *l);
	void (*let_go)(struct link *l);
	/* The process exits: others are told what they have to know. Takes no lock. NULL: there is nothing.
	 */
	void (*part)(struct link *l);
	/*
	 * A look that costs nothing, by any thread: true: nothing has come by the way that most comes by.
	 * receive() all the same now and then. NULL: there is no such look.
	 */
	bool (*quiet)(struct link *l);
	/*
	 * To act on what the process of a slot shows; NULL when it cannot be reached. Until leave(), which
	 * the same thread calls soon; one thread at a time. settle: waits until all other processes have left
	 * that had entered ours before.
	 */
	const struct link_there *(*enter)(struct link *l, uint32_t slot);
	void (*leave)(struct link *l, uint32_t slot);
	void (*settle)(struct link *l);
	/*
	 * Gives a frame to the process of another slot: 0, -EAGAIN when it has no room, another -errno when
	 * nobody is there. `wait`: for a moment, when there is no room. NULL: there are no other processes.
	 */
	int (*hand_over)(struct link *l, uint32_t slot, const struct frame_in *in, bool wait);
	/* Joins or leaves a multicast group on an interface: 0 or -errno. */
	int (*mcast)(struct link *l, const uint8_t mgid[16], uint32_t ifindex, bool join);
	/* Addresses may have come or gone; any thread. NULL: that does not matter. */
	void (*interfaces_changed)(struct link *l);
	void (*close)(struct link *l);
	/* After fork, in the child: close the descriptors, change nothing that is shared with the parent. */
	void (*abandon)(struct link *l);
};

struct link {
	const struct link_ops *ops;
	uint32_t rcvbuf; /* bytes that may wait to be received, overheads included */
	uint64_t who;    /* where there is another way: a number that no other process has */
	struct link_stats stats;
	link_executed_fn *executed; /* called by receive with its arg */
	/* Calls receive within ns although all sleep; called by receive when it holds something back. */
	void (*promise)(void *arg, uint64_t ns);
	void *promise_arg;
	/*
	 * Called by receive: another process asks whether the files that all share are still there and hold
	 * what we wrote. NULL: nobody wants to know.
	 */
	void (*look)(void *arg);
	void *look_arg;
};

#endif
