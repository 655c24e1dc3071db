/* SPDX-License-Identifier: MIT */
/* What the parts of the engine call of each other. Under the drive lock where nothing else is said. */
#ifndef HCA_ENGINE_PARTS_H
#define HCA_ENGINE_PARTS_H

#include "hca/engine.h"

struct hca_board;
struct link_there;
struct local_peer;

/* ---- engine_out.c ---- */
/* The QP met a frame or a timer and may have to send: it gets its turn at the end of this drive. */
void hca_engine_make_runnable(struct hca_engine *e, struct hca_qp *qp);
/* Sends what can go by the fast path; qp->lock held, any thread. Whether that is all there was. */
bool hca_engine_fastpath(struct hca_engine *e, struct hca_qp *qp);
/* Answers, then requests, of all QPs that were touched. */
void hca_engine_run_runnable(struct hca_engine *e, uint64_t now);
/* Lets QPs go on that wait for this window (NULL: none), or for any. */
void hca_engine_resume_waiters(struct hca_engine *e, struct hca_flow *f, uint64_t now);
void hca_engine_resume_all_waiters(struct hca_engine *e, uint64_t now);

/* The adapter's counters; any thread. */
void hca_engine_count_sent(struct hca_engine *e, unsigned n, uint64_t bytes);

/* ---- engine.c ---- */
/* Takes all that has come by the link so far. */
void hca_engine_drain(struct hca_engine *e);

/* ---- engine_in.c ---- */
/* A frame that came by memory, if it is of the kind that the fast path takes. */
bool hca_engine_deliver_fast(struct hca_engine *e, const struct frame_in *in);
/* What link_executed_fn says; false: it needs the time, which was not given (0). */
bool hca_engine_executed(struct hca_engine *e, uint32_t note, uint32_t psn, bool done, uint64_t now);

/* ---- engine_path.c ---- */
/* Whether the QP takes frames that come this way, see there; qp->lock held. */
bool hca_engine_hears(struct hca_engine *e, struct hca_qp *qp, const struct frame_in *in);
/* Sends by packets from now on, if the ring is gone; qp->lock held, it is local. */
void hca_engine_leave_ring(struct hca_engine *e, struct hca_qp *qp);
/* A frame that says HERE. */
void hca_engine_hear_here(struct hca_engine *e, const struct frame_in *in);

/* ---- engine_by_ref.c ---- */
/* A frame by reference (base/frame.h). */
void hca_engine_deliver_by_ref(struct hca_engine *e, const struct frame_in *in, uint64_t now);

/* ---- engine_direct.c ---- */
/* The process as those see it who act in its memory; it was entered. */
void hca_engine_peer(struct local_peer *p, const struct hca_flow *f, const struct link_there *there);
/* Whether the QP's peer is on the board of its process, and is connected to this QP. */
bool hca_engine_peer_is_shown(const struct hca_qp *qp, const struct hca_board *board);
/* The kernel does not let us in. */
void hca_engine_shut_out(struct hca_flow *f);
/* Does what can be done without the transport; qp->lock held, any thread. */
void hca_engine_direct(struct hca_engine *e, struct hca_qp *qp, uint64_t now);

/* ---- engine_streams.c, engine_stream.c ---- */
/* Without them there is no iWARP: 0 all the same, or -ENOMEM. */
int hca_streams_open(struct hca_engine *e);
void hca_streams_close(struct hca_engine *e);
void hca_streams_abandon(struct hca_engine *e);
/* To sleep on; -1: none. */
int hca_streams_fd(struct hca_engine *e);
/* Whether some carry bytes. */
bool hca_streams_carry(struct hca_engine *e);
/* Whether it is time to look at them: not each time while none carries bytes. */
bool hca_streams_due(struct hca_engine *e, unsigned woken);
/* Receives: how much came. woken: somebody slept on the descriptor, and it has something. */
int hca_streams_drive(struct hca_engine *e, bool woken, uint64_t now);
/* Whether somebody wants them to be looked at. */
bool hca_streams_nudged(struct hca_engine *e);
/* Ends what is over, and goes on with those who have a receive again. */
void hca_streams_tidy(struct hca_engine *e, uint64_t now);
/* Sends for a QP with a stream; qp->lock held. driving: the drive lock too. Whether there is more. */
bool hca_stream_out(struct hca_engine *e, struct hca_qp *qp, bool driving, uint64_t now);

/* ---- engine_open.c ---- */
/* The helper, without a lock: what hca_engine_look() asked for. */
void hca_engine_look_now(struct hca_engine *e);
/* The helper: addresses may have come or gone. */
void hca_engine_interfaces_changed(struct hca_engine *e);

/* ---- engine_post.c ---- */
/* Whether the QP's acknowledge waits a moment longer. */
bool hca_engine_delay_ack(struct hca_engine *e, struct hca_qp *qp, uint64_t now);
/* Touches those whose acknowledge has waited long enough, or has left. */
void hca_engine_flush_delayed_acks(struct hca_engine *e, uint64_t now);
/* All that is held back leaves now. */
void hca_engine_send_held(struct hca_engine *e);
/* The QP has requests that somebody who drives must see to by then; qp->lock held. */
void hca_engine_defer(struct hca_engine *e, struct hca_qp *qp, uint64_t until);
/* Touches those whose requests waited for more. */
void hca_engine_wake_coalesced(struct hca_engine *e);

/* Somebody must look in `ns` at the latest; arg: the engine. */
void hca_engine_promise(void *arg, uint64_t ns);

/* ---- engine_timers.c ---- */
void hca_engine_run_timers(struct hca_engine *e, uint64_t now);
/* The QP leaves the heap. */
void hca_engine_disarm(struct hca_engine *e, struct hca_qp *qp);
/* The helper's alarm has to ring by then: it only ever has to come earlier. timer_lock held. */
void hca_engine_alarm_by(struct hca_engine *e, uint64_t at);

#endif
