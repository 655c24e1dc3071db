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

struct cm_listen;
struct link;

struct link_stats {
	uint64_t tx_packets, tx_bytes, tx_errors, rx_packets, rx_bytes, bad_icrc, bad_length, handed_over;
};

typedef void link_deliver_fn(void *arg, const struct frame_in *in);

struct link_ops {
	/* Sends a batch; any thread. 0 or -errno; what could not be sent is as good as lost on the way. */
	int (*send)(struct link *l, const struct frame_batch *b);
	/*
	 * Hands up what has arrived, at most about `max` frames; one thread at a time. Returns how many.
	 * max 0: the caller slept on fds[] and was woken, so there is something, however rare its kind.
	 */
	int (*receive)(struct link *l, unsigned max, link_deliver_fn *deliver, void *arg);
	/* Descriptors to sleep on: fills fds[], returns how many (at most 4). */
	int (*fds)(struct link *l, int fds[4]);
	/*
	 * Gives a frame to the process of another slot: 0, -EAGAIN when it has no room, another -errno when
	 * nobody is there. `wait`: for a moment, when there is no room. NULL: there are no other processes.
	 */
	int (*hand_over)(struct link *l, uint32_t slot, const struct frame_in *in, bool wait);
	/* Joins or leaves a multicast group on an interface: 0 or -errno. */
	int (*mcast)(struct link *l, const uint8_t mgid[16], uint32_t ifindex, bool join);
	/*
	 * Whose frames for QP1 are is decided beyond the link: this process takes, or takes no more, those
	 * that ask for this. 0 or -errno; any thread. NULL: nobody has to be told.
	 */
	int (*listen)(struct link *l, const struct cm_listen *what, bool on);
	/*
	 * Before sleeping on fds[]: false: something is there that they do not tell of. Any thread. NULL:
	 * they tell of all.
	 */
	bool (*sleep)(struct link *l);
	/* A look that costs nothing: something is there for receive. Any thread. NULL: only receive tells. */
	bool (*waits)(struct link *l);
	/* After sleep, whatever it said. Any thread. NULL: that does not matter. */
	void (*woke)(struct link *l);
	/* Addresses may have come or gone; any thread. NULL: that does not matter. */
	void (*interfaces_changed)(struct link *l);
	void (*close)(struct link *l);
	/* After fork, in the child: close the descriptors, change nothing that is shared with the parent. */
	void (*abandon)(struct link *l);
};

struct link {
	const struct link_ops *ops;
	uint32_t rcvbuf; /* bytes that may wait to be received, overheads included */
	struct link_stats stats;
	/*
	 * Called by receive: another process asks whether the files that all share are still there and hold
	 * what we wrote; or a fabric is there that knows nothing of us. NULL: nobody wants to know.
	 */
	void (*look)(void *arg);
	void *look_arg;
};

#endif
