/* SPDX-License-Identifier: MIT */
/*
 * QP1, the general services interface, as the adapter knows it: a table of functions to call. Who runs it
 * (src/mad) fills it in where the adapter is made; nothing here knows what a management datagram says.
 */
#ifndef HCA_QP1_H
#define HCA_QP1_H

#include <stdatomic.h>
#include <stdint.h>

struct frame_in;
struct hca_adapter;
struct mad_gsi;

/* All are called under the drive lock, so one at a time, by whatever thread drives; none may block. */
struct hca_qp1_ops {
	/* A frame for QP1. */
	void (*receive)(struct hca_adapter *a, const struct frame_in *in, uint64_t now);
	/* Alarms went off (hca_engine_alarm): bit n is the one of that number. */
	void (*timer)(struct hca_adapter *a, uint32_t alarms, uint64_t now);
	/* Devices may have come, gone or changed. */
	void (*changed)(struct hca_adapter *a);
	/* The engine is about to close: no frame can be sent or handed over any more. */
	void (*down)(struct hca_adapter *a);
};

struct hca_qp1 {
	const struct hca_qp1_ops *ops; /* never NULL, and the same from before the adapter comes up */
	struct mad_gsi *gsi;           /* of who fills in ops */
	unsigned users;                /* while there are any, the adapter stays up; bring-up lock */
	_Atomic unsigned kept; /* frames to be handed over as soon as there is room; any thread may look */
};

/* Of an adapter whose QP1 nobody runs: frames are dropped, and counted as such. */
extern const struct hca_qp1_ops hca_qp1_none;

/* Tells QP1 that devices may have changed. Takes the drive lock. */
void hca_qp1_changed(struct hca_adapter *a);

#endif
