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

struct hca_transport {
	const char *name;
	size_t state_size; /* bytes at hca_qp.transport_state */

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
	/* A frame for this QP; under the drive lock. request() and respond() are called soon after. */
	void (*receive)(struct hca_qp *qp, const struct frame_in *in, uint64_t now);
	/*
	 * For who can do a request without the transport: whether nothing of the send queue has begun, so
	 * that the oldest request may be done elsewhere; and that it was, and is completed.
	 */
	bool (*idle)(struct hca_qp *qp);
	void (*passed)(struct hca_qp *qp);
	/* qp->deadline has passed; under the drive lock, request() and respond() follow. */
	void (*timer)(struct hca_qp *qp, uint64_t now);
};

#endif
