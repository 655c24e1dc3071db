/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the engine call of each other. Under the drive lock where nothing else is said.
 *
 *   drive.c     receiving, and what follows from it
 *   send.c      who is runnable sends; who waits for a window
 *   post.c      requests from the thread that posts them
 *   coalesce.c  what waits for company: requests of a burst, delayed acknowledges
 *   timers.c    deadlines of queue pairs and QP1
 *   helper.c    the thread that drives when nobody else does
 *   sleep.c     callers that wait on the sockets themselves
 *   provider.c  the providers of an engine, asked together
 */
#ifndef ENGINE_PARTS_H
#define ENGINE_PARTS_H

#include "hca/engine.h"
#include "hca/provider.h"

#include <poll.h>

#define for_each_provider(p, e)                                                                              \
	for (unsigned p##_i = 0; p##_i < HCA_CARRIERS; p##_i++)                                              \
		for (struct hca_provider *p = (e)->provider[p##_i]; p; p = NULL)

/* ---- provider.c ---- */
enum { ENGINE_FDS = HCA_CARRIERS * HCA_PROVIDER_FDS };
/*
 * The providers' descriptors as poll() takes them; returns how many. bit: whose each is (hca_provider.bit).
 * Any thread.
 */
nfds_t engine_fds(struct hca_engine *e, struct pollfd p[ENGINE_FDS], uint8_t bit[ENGINE_FDS]);
/* Before sleeping on the descriptors, and after it: false: something is there that they do not tell of. */
bool engine_sleep(struct hca_engine *e);
void engine_woke(struct hca_engine *e);
/* Nothing has come, as far as one can see for free. Any thread. */
bool engine_is_quiet(struct hca_engine *e);

/* ---- send.c ---- */
/* Lets QPs go on that wait for any window. */
void engine_resume_all_waiters(struct hca_engine *e, uint64_t now);

/* ---- coalesce.c ---- */
enum { ENGINE_HELD_NS = 50 * 1000 }; /* how long requests of a burst are held back at most */
/* What is held back must leave by then: the helper looks by itself, or its alarm is set. Any thread. */
void engine_promise(struct hca_engine *e, uint64_t until);
/* The QP has requests that somebody who drives must see to by then; qp->lock held. */
void engine_defer(struct hca_engine *e, struct hca_qp *qp, uint64_t until);
/* Those whose acknowledge has waited long enough, or has left, become runnable. */
void engine_flush_delayed_acks(struct hca_engine *e, uint64_t now);
/* Those whose requests waited for more become runnable. */
void engine_wake_coalesced(struct hca_engine *e);

/* ---- timers.c ---- */
void engine_run_timers(struct hca_engine *e, uint64_t now);
/* The QP has no deadline any more. */
void engine_disarm(struct hca_engine *e, struct hca_qp *qp);
/* The helper's alarm has to ring by then: it only ever has to come earlier. timer_lock held. */
void engine_alarm_by(struct hca_engine *e, uint64_t at);
/* The alarm rang: takes it off the descriptor and sets it again for what is still to come. Any thread. */
void engine_drain_timer(struct hca_engine *e);

#endif
