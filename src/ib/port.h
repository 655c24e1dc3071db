/* SPDX-License-Identifier: MIT */
/*
 * The provider of frames: the IBA transport (ibt.h) over a link. RoCE has it over UDP; between processes of
 * one host frames go through shared memory instead.
 *
 *   port.c      its life, receiving, waiting
 *   port_in.c   whom a frame is for
 *   port_out.c  requests of a queue pair, answers of all of them together
 *   path.c      which link a path goes by, and whether a queue pair accepts packets or frames of a ring
 *   onesided.c  requests that the initiator does itself in the memory of a peer on this host
 *   fetch.c     messages by reference: the receiver takes them out of the sender's memory
 */
#ifndef IB_PORT_H
#define IB_PORT_H

#include "base/list.h"
#include "hca/adapter.h"
#include "hca/provider.h"
#include "ib/ibt.h"
#include "observe/probe.h"

struct local_export;
struct link;
struct local_channel;
struct local_peer;
struct local_process;

enum { IBT_FETCHED = 8 };

/* Frames by reference that were fetched together (fetch.c), from the one with this place on. */
struct ibt_fetched {
	uint64_t connection; /* local_process.number; 0: none */
	uint32_t place;
	unsigned n;
	struct frame_ref ref[IBT_FETCHED];
	struct iovec to[IBT_FETCHED];
};

/* Under the drive lock, but for `wire` and `channel`, which any thread sends by. */
struct ibt_port {
	struct hca_provider provider;
	struct hca_adapter *adapter;
	struct link *link; /* what it receives by: the wire, or the channel that stands before it */
	struct link *wire; /* paths go by this one */
	struct local_channel *channel; /* or by this one, to processes of this host; NULL: there is none */
	bool gated;                    /* what paths are is for a fabric to say: path.c */
	_Alignas(64) struct frame_batch batch; /* not on the line that who posts reads */
	struct frame_batch answers;            /* of all QPs in `answering`, not sent yet */
	struct hca_qp *answering[FRAME_BATCH_MAX];
	unsigned nanswering;
	struct ibt_fetched fetched;
	unsigned link_quiet, link_skipped; /* looks at the link in vain, and times it was left out */
};

/* Takes over the link: 0; or -ENOMEM, and it is still the caller's. channel: whose link it is; NULL: of none.
 */
int ibt_port_open(struct hca_adapter *a, struct link *link, struct local_channel *channel);

/* The adapter's; NULL: it has none. */
struct ibt_port *ibt_port_in(struct hca_adapter *a);

/* Of a queue pair that frames carry. */
static inline struct ibt_port *ibt_port_of(const struct hca_qp *qp)
{
	return container_of(qp->provider, struct ibt_port, provider);
}

/* ---- port.c ---- */
/* Takes all that has come so far; drive lock. */
void ibt_port_drain(struct ibt_port *p);

/* ---- port_in.c; drive lock ---- */
/* A probe: this one came. */
void ibt_port_tell_rx(const struct frame_in *in) __attribute__((cold));
/* A frame that the link, another process or a test brought. */
void ibt_port_deliver(struct ibt_port *p, const struct frame_in *in, uint64_t now);
/* One that came through shared memory, if it is of the kind that the fast path takes. */
bool ibt_port_deliver_fast(struct ibt_port *p, const struct frame_in *in);
/* See local_channel_events.executed; false: it needs the time, which was not given (0). */
bool ibt_port_executed(struct ibt_port *p, uint32_t cookie, uint32_t psn, bool done, uint64_t now);

/* ---- port_out.c: see hca/provider.h ---- */
/* Sends frames as their path says, see hca_path_address(); any thread. */
void ibt_port_send_batch(struct ibt_port *p, const struct frame_batch *b);
enum hca_post ibt_port_post(struct hca_qp *qp);
bool ibt_port_send(struct hca_qp *qp, bool driving, uint64_t now);
bool ibt_port_answer(struct hca_provider *v, struct hca_qp *qp, uint64_t now);
void ibt_port_flush_answers(struct hca_provider *v);

/* ---- path.c; qp->lock held ---- */
/* How the flow's process is reached now: decides which link its path goes by. A look, without I/O. */
void ibt_path_choose(struct ibt_port *p, struct hca_qp *qp);
/* Whether the QP takes frames that come this way, see there. */
bool ibt_path_accepts(struct ibt_port *p, struct hca_qp *qp, const struct frame_in *in);
/*
 * On a fabric: walks again, if that may lead elsewhere by now; leaves the channel, or returns to it. Before
 * anything is sent, answered or copied.
 */
void ibt_path_follow(struct ibt_port *p, struct hca_qp *qp);
/* The same where only leaving matters: one load, of what is almost never written. */
static inline void ibt_path_check(struct ibt_port *p, struct hca_qp *qp)
{
	if (p->gated && qp->path.epoch != hca_adapter_epoch(p->adapter))
		ibt_path_follow(p, qp);
}
/* Sends by packets from now on, if the ring is gone; it is local. */
void ibt_path_leave_ring(struct ibt_port *p, struct hca_qp *qp);
/* The QP's path is fixed anew: tells its peer, if it is reached through shared memory. */
void ibt_path_say_here(struct hca_qp *qp);
/* A frame that says HERE; drive lock, not qp->lock. */
void ibt_path_receive_here(struct ibt_port *p, const struct frame_in *in);

/* ---- fetch.c; drive lock ---- */
/* A frame by reference (base/frame.h). */
void ibt_port_deliver_by_ref(struct ibt_port *p, const struct frame_in *in, uint64_t now);

/* ---- onesided.c ---- */
/* The process as those see it who act in its memory; it was entered. */
void ibt_local_peer(struct local_peer *p, const struct hca_flow *f, const struct local_process *there);
/* The kernel does not let us in. */
void ibt_shut_out(struct hca_flow *f);
/* Does what can be done without the transport; qp->lock held, any thread. */
void ibt_onesided(struct ibt_port *p, struct hca_qp *qp, uint64_t now);

#endif
