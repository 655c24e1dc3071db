/* SPDX-License-Identifier: MIT */
/*
 * The general services interface: QP1 of the adapter, which takes and sends management datagrams (MADs, 256
 * bytes). Every adapter has it, with nobody's doing.
 *
 * All processes of a host share the UDP port, and any of them may receive a MAD: the packet itself only names
 * QP1. So who receives it looks into it for whom it concerns, and hands it over (gsi_route.c). What was
 * handed over is never handed on. What concerns nobody stays here. Where no CM is registered, requests are
 * refused as a host does on which nobody listens.
 */
#ifndef HCA_GSI_H
#define HCA_GSI_H

#include "base/export.h"
#include "base/frame.h"
#include "base/list.h"
#include "wire/mad.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct hca_adapter;

/* Where a MAD came from, and which of our addresses it was for. */
struct hca_gsi_from {
	uint8_t sgid[16], dgid[16]; /* the sender's address, ours */
	uint32_t ifindex; /* the interface it came in by: loopback for what this host sent; 0: not known */
	uint32_t src_qpn;
	uint16_t pkey;
	uint8_t tclass, hop_limit;
};

/*
 * Who manages connections. All are called under the drive lock, so one at a time, by whatever thread drives;
 * they may call hca_gsi_send and hca_gsi_arm, but nothing that takes the drive lock (modifying or destroying
 * QPs, closing).
 */
struct hca_gsi_ops {
	void (*receive)(void *arg, const uint8_t mad[MAD_LEN], const struct hca_gsi_from *from, uint64_t now);
	void (*timer)(void *arg, uint64_t now);
	void (*changed)(void *arg); /* devices, perhaps; may be NULL */
};

/* Who got a request, for the REJ of a peer that gives up and knows no id of ours. */
struct hca_gsi_request {
	uint8_t sgid[16];
	uint32_t comm_id, slot; /* the peer's; of ours, 0: none */
};

enum { HCA_GSI_REQUESTS = 256 };

struct hca_gsi {
	const struct hca_gsi_ops *ops; /* changed under bring-up and drive lock; NULL: nobody's */
	void *arg;
	_Atomic uint32_t psn;
	/* Drive lock: */
	struct hca_gsi_request request[HCA_GSI_REQUESTS]; /* the last ones, by hash */
	uint64_t asked_all_until;                         /* see may_ask_all(), gsi_route.c */
	struct list late;                                 /* see gsi_late.c */
	_Atomic unsigned nlate;                           /* how many; any thread may look */
};

/* Brings the adapter up, if it is not, and takes its MADs from now on: 0 or -errno; -EBUSY: somebody does. */
EXPORTED int hca_gsi_open(struct hca_adapter *a, const struct hca_gsi_ops *ops, void *arg);
/* When it has returned nobody is called any more. The adapter may go down. */
EXPORTED void hca_gsi_close(struct hca_adapter *a);
/* Sends a MAD to QP1 there; any thread, while the gsi is open. 0 or -errno; no promise that it arrives. */
EXPORTED int hca_gsi_send(struct hca_adapter *a, const struct frame_dest *to, const uint8_t mad[MAD_LEN]);
/* Where an answer goes. */
struct frame_dest hca_gsi_reply_to(const struct hca_gsi_from *from);
/* Asks for ops->timer at this time instead of any asked for before; UINT64_MAX: not at all. Any thread. */
EXPORTED void hca_gsi_arm(struct hca_adapter *a, uint64_t at);

/* ---- for the engine, under the drive lock ---- */
/* A frame for QP1. */
void hca_gsi_receive(struct hca_adapter *a, const struct frame_in *in, uint64_t now);
/* Alarms went off: a bit for each, see enum hca_alarm. */
void hca_gsi_timer(struct hca_adapter *a, uint32_t alarms, uint64_t now);

static inline void hca_gsi_count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- for the helper: interfaces have changed ---- */
void hca_gsi_changed(struct hca_adapter *a);

/* ---- gsi_route.c ---- */
enum hca_gsi_whom {
	GSI_SLOT,      /* the process of one slot */
	GSI_LISTENERS, /* whoever listens: only they can know */
	GSI_NOBODY,
	GSI_LOST, /* the port file has to be made whole first: its sender will try again */
};
/* Whom a MAD concerns that came from there to this address of ours. Drive lock. */
enum hca_gsi_whom hca_gsi_route(struct hca_adapter *a, const uint8_t mad[MAD_LEN], const uint8_t sgid[16],
	const uint8_t dgid[16], uint64_t now, uint32_t *slot);
/* ---- gsi_late.c; drive lock ---- */
/* Keeps a MAD for the process of that slot, which has no room; false: there are too many. */
bool hca_gsi_keep(struct hca_adapter *a, uint32_t slot, const struct frame_in *in, uint64_t now);
/* Whether some are kept for it: what follows must not overtake them. */
bool hca_gsi_is_late(const struct hca_adapter *a, uint32_t slot);
void hca_gsi_try_late(struct hca_adapter *a, uint64_t now);
void hca_gsi_forget_late(struct hca_adapter *a);

/* Turns a request nobody listens for into its refusal; false: it wants none. */
bool hca_gsi_refuse(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN]);

#endif
