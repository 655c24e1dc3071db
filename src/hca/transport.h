/* SPDX-License-Identifier: MIT */
/*
 * What a transport does for a QP. A transport has no I/O, no clock and no allocation: it is told the time,
 * it is handed frames, and it fills frames to send. Everything is called with the QP's lock held.
 *
 * It asks for its timer by setting qp->deadline; it ends requests through hca_qp_complete_send and friends.
 */
#ifndef HCA_TRANSPORT_H
#define HCA_TRANSPORT_H

#include "base/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hca_qp;

/* What request_fast() says. */
enum hca_fast {
	FAST_FRAME,   /* a frame is to be sent */
	FAST_IDLE,    /* there is nothing more, or nothing before something of ours is executed */
	FAST_DECLINE, /* this needs request() */
};

/*
 * Copies bytes [off, off + len) of the payload of a frame by reference out of the sender's memory, the last
 * ones last; false: that cannot be done, or not of all.
 */
typedef bool hca_fetch_fn(void *arg, uint32_t off, const struct iovec *to, unsigned n, uint32_t len);

struct hca_transport {
	const char *name;
	size_t state_size; /* bytes at hca_qp.transport_state; of a stream's at hca_qp.stream_state */
	bool stream;       /* RC alone, connected by a stream (hca/stream.h) and not by modify */

	/* Whether this peer takes requests of this kind; NULL: all. */
	bool (*offers)(struct hca_qp *qp, unsigned opcode);
	/* RESET: forget everything. */
	void (*reset)(struct hca_qp *qp);
	/* The QP goes to ERR, its descriptors are about to be flushed: give back what is in flight. */
	void (*abort)(struct hca_qp *qp);
	/* After attributes and state changed through modify. */
	void (*modified)(struct hca_qp *qp, int mask, uint64_t now);

	/*
	 * Requests of our send queue. Fills `out` (which is empty) with frames to one destination; true: call
	 * again after sending them. May run in the thread that posts, beside the responder of other QPs.
	 */
	bool (*request)(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
	/* Answers to the peer's requests; only under the drive lock, since it reads the peer's targets. */
	bool (*respond)(struct hca_qp *qp, uint64_t now, struct frame_batch *out);
	/* What respond() filled has been sent. */
	void (*answered)(struct hca_qp *qp);
	/*
	 * A frame for this QP; under the drive lock. request() and respond() are called soon after. Whether
	 * it was executed, now or before, as far as its sender can be told so.
	 */
	bool (*receive)(struct hca_qp *qp, const struct frame_in *in, uint64_t now);
	/*
	 * The usual case of a way that loses nothing, changes no order, and tells what was executed
	 * (link_ops.put): one frame, nothing unusual before it, no clock. What they leave is for the others.
	 * coarse: a time that may be some milliseconds old.
	 */
	enum hca_fast (*request_fast)(
		struct hca_qp *qp, uint64_t (*coarse)(void), struct frame_out *f, struct iovec *iov);
	/* Executed, and neither request() nor respond() have anything to do. */
	bool (*receive_fast)(struct hca_qp *qp, const struct frame_in *in);
	/* receive() for a frame by reference: a whole message. What cannot be fetched is asked for again. */
	bool (*receive_by_ref)(
		struct hca_qp *qp, const struct frame_in *in, hca_fetch_fn *fetch, void *arg, uint64_t now);
	/* The way does not take frames by reference: the last one is sent again, and there are no more. */
	void (*by_ref_failed)(struct hca_qp *qp);
	/*
	 * The peer has executed what we sent under this note, up to this PSN; or (done false) has not. now 0:
	 * nobody has looked at the clock; false: somebody has to, and call again.
	 */
	bool (*executed)(struct hca_qp *qp, uint32_t note, uint32_t psn, bool done, uint64_t now);
	/*
	 * For who can do a request without the transport: whether nothing of the send queue has begun, so
	 * that the oldest request may be done elsewhere; and that it was, and is completed.
	 */
	bool (*nothing_started)(struct hca_qp *qp);
	void (*skip_oldest)(struct hca_qp *qp);
	/* qp->deadline has passed; under the drive lock, request() and respond() follow. */
	void (*timer)(struct hca_qp *qp, uint64_t now);
};

#endif
