/* SPDX-License-Identifier: MIT */
/*
 * What may be in flight towards one receiver. All QPs of a remote process receive through one socket, so
 * what all our QPs send to that process together is bounded by what its buffer holds, and acknowledges clock
 * the rest: a receiver that is descheduled for a moment costs no packet.
 *
 * How large that buffer is, nobody says. Every process gets what net.core.rmem_max allows, by default 212,992
 * bytes doubled, and the window begins with what fits there. Most machines are like their neighbours, so it
 * then grows towards what our own socket holds.
 *
 * Other senders may share the buffer, so loss makes the window smaller and acknowledges open it again. But
 * most losses on a bad path have nothing to do with the buffer. So a loss takes an eighth, once per window's
 * worth of acknowledges, which give a packet back: overrun, which comes every round, shrinks the window until
 * it fits; one packet in a hundred leaves most of it open. Where the loss was the window does not go again
 * for some thousand windows.
 *
 * A window that was found closed stays so until a quarter of it is open: QPs that wait go on with batches,
 * not with single packets.
 *
 * Costs are in bytes of socket buffer, not of payload: the kernel charges each packet's overhead too.
 * A cost is linear in packets and bytes, so that a range of packets is released by its sums.
 */
#ifndef HCA_FLOW_H
#define HCA_FLOW_H

#include "base/list.h"
#include "base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	FLOW_RCVBUF = 2 * 212992,          /* what SO_RCVBUF gives under default limits */
	FLOW_WINDOW = FLOW_RCVBUF * 3 / 4, /* what we let be in flight: acknowledges need room too */
	FLOW_WINDOW_MIN = 32 * 1024,
	FLOW_WINDOW_MAX = 4 * FLOW_WINDOW, /* more gains nothing and leaves the caches */
	FLOW_GROWTH = 8 * 1024,            /* by which a window's worth of acknowledges opens it */
	FLOW_PACKET = 1024,                /* overhead of a packet: headers and sk_buff */
};

struct hca_flow {
	uint8_t dgid[16];
	uint32_t slot; /* the process at that address: the upper bits of its QP numbers */
	bool on_this_host;
	_Atomic bool no_vm_access; /* the kernel does not let us into its memory */
	struct lock lock;          /* guards all below; taken inside a QP's lock */
	uint32_t window, in_flight;
	uint32_t floor;          /* the window never gets smaller */
	uint32_t cap_now, cap;   /* nor larger, for now; ever */
	bool latched;            /* it was found closed, and less than a quarter is open since */
	uint64_t released;       /* all there ever was */
	uint64_t acked;          /* cost released since it last did */
	struct list waiters;     /* hca_qp.flow_node of QPs that found the window closed */
	_Atomic bool waited_for; /* there may be some */

	/*
	 * Unreliable traffic has no acknowledges, so it asks for an echo now and then: a small packet that
	 * the other adapter sends back, which tells that everything before it has left that socket.
	 */
	uint64_t sent, echoed; /* cumulative cost; the difference is in flight */
	uint64_t echo_asked;   /* `sent` when the outstanding echo was asked for; 0: none outstanding */
	uint64_t echo_at;      /* when */
	unsigned echo_misses;
	bool echo_heard;        /* the peer has answered before: it is worth waiting for */
	uint64_t no_echo_until; /* the peer (no anyrdma adapter) does not answer: do not wait until then */

	/* the table's (hca/flow_table.h): who has a reference, one of its lists, the next of the bucket */
	unsigned users;
	struct list node;
	struct hca_flow *next;
};

static inline uint32_t flow_cost(uint32_t packets, uint64_t bytes)
{
	/* payload sits in pages that are not always full */
	return (uint32_t)(packets * FLOW_PACKET + bytes + bytes / 2);
}

void hca_flow_init(struct hca_flow *f, const uint8_t dgid[16], uint32_t slot);

static inline bool hca_flow_is_to(const struct hca_flow *f, const uint8_t dgid[16], uint32_t slot)
{
	return f->slot == slot && !memcmp(f->dgid, dgid, 16);
}

/* The largest window for a socket buffer of so many bytes. */
uint32_t hca_flow_limit(uint32_t rcvbuf);

/*
 * Takes cost from the window. A closed window returns false and puts `waiter` on the list; an idle flow
 * always lets one packet out, whatever it costs. A QP that is `stuck`, with nothing of its own in flight and
 * nothing released for a while, may also use the quarter of the buffer that is kept back: others that hold
 * the window may be talking to the dead.
 */
bool hca_flow_take(struct hca_flow *f, uint32_t cost, struct list *waiter, bool stuck);
/* As many of n more such packets as fit behind one that was let out, without waiting for any. */
uint32_t hca_flow_take_more(struct hca_flow *f, uint32_t cost, uint32_t n);
/* Cost released so far: whether the flow moves. */
uint64_t hca_flow_released(struct hca_flow *f);
/* What was taken has arrived; or, cancel, nobody waits for it any more. */
void hca_flow_release(struct hca_flow *f, uint32_t cost);
void hca_flow_cancel(struct hca_flow *f, uint32_t cost);
/* Takes cost without asking: for what turns out to be in flight still. */
void hca_flow_charge(struct hca_flow *f, uint32_t cost);
/* Packets were lost: makes the window smaller, once per window's worth of releases. */
void hca_flow_loss(struct hca_flow *f);

/* Unreliable traffic: as hca_flow_take; *ask: the echo to ask for behind this packet, 0 for none. */
bool hca_flow_take_unreliable(
	struct hca_flow *f, uint32_t cost, struct list *waiter, uint64_t now, uint64_t *ask);
/* An echo came back: everything up to `sent` has arrived. */
void hca_flow_echoed(struct hca_flow *f, uint64_t sent);
/* When to give the outstanding echo up; 0: none outstanding. */
uint64_t hca_flow_echo_deadline(struct hca_flow *f);
/* Gives it up if it is due (true): the next packets ask again, or the peer counts as one without echoes. */
bool hca_flow_echo_timeout(struct hca_flow *f, uint64_t now);

/* Somebody may be on the list. */
static inline bool hca_flow_is_waited_for(struct hca_flow *f)
{
	return atomic_load_explicit(&f->waited_for, memory_order_relaxed);
}
/* Takes a waiter off the list when the window is open, else NULL. */
struct list *hca_flow_pop(struct hca_flow *f);

#endif
