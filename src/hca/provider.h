/* SPDX-License-Identifier: MIT */
/*
 * A provider carries the queue pairs of one kind of port: it has the protocol, and moves its bytes to the
 * wire and back. An adapter has one of each kind, which all its devices of that kind share, as they share
 * sockets. hca declares what a provider does, ib/ and iwarp/ implement it, bringup/ says which there are, and
 * the engine loops over them without knowing them.
 *
 * A queue pair belongs to the provider of its device (hca_qp.dev_provider), which mostly carries it, too
 * (hca_qp.provider). An iWARP connection whose ends are on one host is carried by the provider of frames
 * instead, through shared memory (iwarp/local_upgrade.c).
 *
 * A provider asks for its timer by setting qp->deadline; it ends requests through hca_qp_complete_send() and
 * friends.
 */
#ifndef HCA_PROVIDER_H
#define HCA_PROVIDER_H

#include "base/frame.h"
#include "hca/kind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cm_listen;
struct hca_engine;
struct hca_path;
struct hca_provider;
struct hca_qp;

/* The time of one drive, which is looked at when somebody needs it: a look costs as much as a small message.
 */
struct hca_clock {
	struct hca_engine *e;
	uint64_t now; /* 0: nobody needed it yet */
};

/* What is left to do after requests were posted. */
enum hca_post {
	POST_SENT,    /* nothing */
	POST_NOW,     /* send() */
	POST_MAY_WAIT /* send(), which is a system call: worth waiting a moment for more requests */
};

enum { HCA_PROVIDER_FDS = 4 };

/*
 * Missing functions do nothing, and say false, 0 or -EOPNOTSUPP (hca_provider_init()). qp->lock is held by
 * who calls those of a queue pair but where it says otherwise.
 */
struct hca_provider_ops {
	size_t state_size; /* of a queue pair: hca_qp.frame_state, hca_qp.stream_state */

	/* ---- a queue pair ---- */
	/* Whether its peer takes requests of this kind (enum ibv_wr_opcode); missing: all. */
	bool (*offers)(struct hca_qp *qp, unsigned opcode);
	/* RESET: forget everything. */
	void (*reset)(struct hca_qp *qp);
	/* It goes to ERR, its descriptors are about to be flushed: give back what is in flight. */
	void (*abort)(struct hca_qp *qp);
	/* It has come to ERR from another state; any thread. Its connection follows. */
	void (*failed)(struct hca_qp *qp);
	/* After attributes and state changed through modify. */
	void (*modified)(struct hca_qp *qp, int mask, uint64_t now);
	/* It leaves its connection, which is ended in the background; drive lock. */
	void (*detach)(struct hca_qp *qp);
	/* qp->deadline has passed; drive lock, answer() and send() follow. */
	void (*timer)(struct hca_qp *qp, uint64_t now);
	/* Requests were posted. */
	enum hca_post (*post)(struct hca_qp *qp);
	/*
	 * Sends requests from the caller's thread. Whether there are more. driving: the drive lock is held,
	 * and others want their turn.
	 */
	bool (*send)(struct hca_qp *qp, bool driving, uint64_t now);
	/*
	 * Puts answers to the peer's requests with those of other queue pairs; drive lock, and not qp->lock.
	 * Whether there are more. flush_answers: all of them leave.
	 */
	bool (*answer)(struct hca_provider *p, struct hca_qp *qp, uint64_t now);
	void (*flush_answers)(struct hca_provider *p);

	/* ---- paths ---- */
	/* With no lock held: looks how this peer is reached, which may take a moment. */
	void (*find_path)(struct hca_provider *p, const struct hca_path *path, uint32_t qpn);
	/* The path of a connected queue pair is decided: qp->path has its address. */
	void (*set_path)(struct hca_qp *qp);
	/* Joins or leaves a multicast group on an interface: 0 or -errno; drive lock. */
	int (*mcast)(struct hca_provider *p, const uint8_t mgid[16], uint32_t ifindex, bool join);

	/* ---- QP1 ---- */
	/* Sends frames that belong to no queue pair; any thread. 0 or -errno. */
	int (*send_frames)(struct hca_provider *p, const struct frame_batch *b);
	/*
	 * Gives a frame to the process of another slot: 0, -EAGAIN when it has no room, another -errno when
	 * nobody is there. `wait`: for a moment, when there is no room. Any thread.
	 */
	int (*hand_over)(struct hca_provider *p, uint32_t slot, const struct frame_in *in, bool wait);
	/* Says for which requests of connections this process listens, or no more: 0 or -errno; any thread.
	 */
	int (*listen)(struct hca_provider *p, const struct cm_listen *what, bool on);

	/* ---- driving; drive lock ---- */
	/* Whether to look for what has come. woken: bits of providers; busy: others have connections. */
	bool (*due)(struct hca_provider *p, unsigned woken, bool busy);
	/* Takes what has come: how much. woken: somebody slept on descriptors, and one has something. */
	int (*receive)(struct hca_provider *p, unsigned woken, struct hca_clock *clock);
	/* Whether it has connections that take their bytes by a look at them. */
	bool (*is_busy)(struct hca_provider *p);
	/* The time of hca_provider_arm() has come. */
	void (*expire)(struct hca_provider *p, uint64_t now);
	/* After a drive: ends what is over. */
	void (*tidy)(struct hca_provider *p, struct hca_clock *clock);

	/* ---- waiting; any thread ---- */
	/* Descriptors to sleep on: fills fds[], returns how many. */
	int (*fds)(struct hca_provider *p, int fds[HCA_PROVIDER_FDS]);
	/* A look that costs nothing: nothing has come by what most comes by. Missing: what comes is found by
	 * receive() alone, every few looks. */
	bool (*is_quiet)(struct hca_provider *p);
	/* Around sleeping on the descriptors; false from sleep: something is there. woke() in any case. */
	bool (*sleep)(struct hca_provider *p);
	void (*woke)(struct hca_provider *p);
	/* Whether something is deferred that should leave before long; that it leaves now: drive lock. */
	bool (*has_deferred)(struct hca_provider *p);
	void (*flush_deferred)(struct hca_provider *p);
	/* A receive was posted, for which a peer may wait. */
	void (*recv_posted)(struct hca_provider *p);

	/* ---- life ---- */
	/* Brings the adapter's counters up to date; drive lock. */
	void (*publish)(struct hca_provider *p);
	/* Addresses of interfaces may have come or gone; any thread. */
	void (*interfaces_changed)(struct hca_provider *p);
	/* Waits until no other process acts on what we exported before. No lock held. */
	void (*quiesce)(struct hca_provider *p);
	/* The process exits; takes no lock. */
	void (*at_exit)(struct hca_provider *p);
	void (*close)(struct hca_provider *p);
	/* After fork, in the child: closes descriptors, changes nothing that is shared with the parent. */
	void (*abandon)(struct hca_provider *p);
};

struct hca_provider {
	struct hca_provider_ops ops;
	struct hca_engine *e;
	enum hca_carrier carrier;
	unsigned bit; /* of hca_engine.woken */
};

/* Fills in what is missing, and enters it into the engine as the one of this carrier. */
void hca_provider_init(struct hca_provider *p, const struct hca_provider_ops *ops, struct hca_engine *e,
	enum hca_carrier carrier);
/* Calls ops.expire at this time instead of any set before; UINT64_MAX: not at all. Any thread. */
void hca_provider_arm(struct hca_provider *p, uint64_t at);

#endif
