/* SPDX-License-Identifier: MIT */
/*
 * The engine says who moves packets when. It knows no protocol and no socket: it loops over the adapter's
 * providers (hca/provider.h). Declared here for the adapter's objects and for providers; engine/ is its code.
 *
 * The caller drives: ibv_post_send sends from its own thread, ibv_poll_cq on an empty queue receives, and a
 * thread blocked in ibv_get_cq_event waits on the sockets itself. A helper thread does the same when nobody
 * else does, and sleeps in the kernel otherwise.
 *
 * The drive lock is held by whoever receives, runs timers and lets responders work. It is only ever tried by
 * those who want to drive (someone else driving is as good), and taken by those who take an object away:
 * after hca_engine_quiesce() no frame is being worked on that saw it.
 */
#ifndef HCA_ENGINE_H
#define HCA_ENGINE_H

#include "base/export.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/streak.h"
#include "base/timers.h"
#include "hca/kind.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cm_listen;
struct frame_batch;
struct frame_in;
struct hca_adapter;
struct hca_clock;
struct hca_flow;
struct hca_provider;
struct hca_qp;

struct pollfd;

/* How many times QP1 can be called at: which is whose is QP1's business (hca/qp1.h). And a provider each. */
enum { HCA_QP1_ALARMS = 9, HCA_ALARMS = HCA_QP1_ALARMS + HCA_CARRIERS };

struct hca_engine {
	struct hca_adapter *adapter;
	struct hca_provider *provider[HCA_CARRIERS];  /* NULL: that kind cannot be had */
	bool open;                                    /* there are any; false in a child after fork */
	struct hca_provider *abandoned[HCA_CARRIERS]; /* there, the parent's, which nobody uses or frees */
	uint64_t (*clock)(void *arg);                 /* nanoseconds; a simulation brings its own */
	void *clock_arg;

	struct lock drive;
	struct list runnable;      /* QPs that met a frame or a timer and may have to send; drive lock */
	struct list delayed_acks;  /* QPs whose acknowledge is delayed, to be piggybacked; drive lock */
	bool served_reads;         /* the last drive answered READs or atomics: more may follow; drive lock */
	_Atomic bool window_freed; /* a QP gave back its share of windows: waiters must be looked at */
	_Atomic bool more_to_send; /* runnable is not empty: whoever stops driving must see that somebody goes
				      on */

	struct lock coalesce_lock;
	struct list coalescing;      /* QPs with requests that wait for more to go with; coalesce_lock */
	_Atomic bool any_coalescing; /* coalescing is not empty */

	struct lock count_lock; /* the adapter's counters of what left */
	unsigned unlooked;      /* drives in a row that did without the clock; drive lock */

	struct lock timer_lock;
	struct timers qp_timers;     /* hca_qp.timer; timer_lock */
	struct timers alarms;        /* alarm[]; timer_lock */
	_Atomic uint64_t next_timer; /* the earliest of both; UINT64_MAX: none */
	uint64_t timerfd_at;         /* timer_lock */

	/* helper; see engine/helper.c */
	pthread_t helper;
	bool running;
	_Atomic bool stop;
	int timer_fd, wake_fd, netlink_fd;
	_Atomic uint32_t drives;         /* counts drives by callers: somebody else is at it */
	_Atomic uint32_t stream_writes;  /* counts WRITEs that streams brought */
	_Atomic int helper_writes;       /* times in a row that the helper brought one while nobody drove */
	_Atomic uint32_t posts_since_rx; /* what posters gave to streams since somebody received from them */
	_Atomic uint32_t blocked;        /* callers waiting on the sockets themselves */
	_Atomic uint32_t waits;          /* how often callers did */
	_Atomic bool helper_dozes;       /* it waits to be called when one leaves */
	struct streak short_waits;       /* of callers; see engine/sleep.c */
	_Atomic unsigned woken; /* hca_provider.bit: which have something for who slept on the descriptors */
	_Atomic unsigned look;  /* enum hca_look: what the helper was asked to look at */
	_Atomic bool helper_ticks;     /* it comes to look before long: answers may be held back */
	_Atomic bool any_delayed_acks; /* delayed_acks is not empty */

	struct timer alarm[HCA_ALARMS]; /* of hca_engine_alarm; timer_lock */
};

/* NULL clock: CLOCK_MONOTONIC. Providers come by hca_provider_init(). */
void hca_engine_init(struct hca_engine *e, struct hca_adapter *a, uint64_t (*clock)(void *), void *arg);
/* All its providers are there: others may drive. */
void hca_engine_open(struct hca_engine *e);
/* Closes the providers, too. */
void hca_engine_fini(struct hca_engine *e);
int hca_engine_start_helper(struct hca_engine *e);
void hca_engine_stop_helper(struct hca_engine *e);
void hca_engine_wake_helper(struct hca_engine *e);
/*
 * The helper looks whether the files that we share with other processes are there and hold what is ours, and
 * puts that right. `asked`: by another process; else we ask them to do the same. Any thread, never waits.
 */
void hca_engine_look(struct hca_engine *e, bool asked);
bool hca_engine_unread(struct hca_engine *e); /* something came that nobody has looked at yet */
void hca_engine_close_helper_fds(struct hca_engine *e);

static inline uint64_t hca_engine_now(struct hca_engine *e)
{
	return e->clock(e->clock_arg);
}

/* After fork, in the child: closes its copies of descriptors and changes nothing that is the parent's. */
void hca_engine_abandon(struct hca_engine *e);

/*
 * Receives what is there, runs timers, sends what became possible. How many frames came; -1: somebody else is
 * driving.
 */
int hca_engine_drive(struct hca_engine *e);
/* As above; *served_reads: it answered READs or atomics, for which somebody out there is waiting. */
int hca_engine_drive_serving(struct hca_engine *e, bool *served_reads);
/* A drive left QPs that have more to send, and the program may not come back. */
void hca_engine_pass_on_pending_tx(struct hca_engine *e);
/*
 * The same for a program that polls: the helper takes note. Where a look costs next to nothing it mostly only
 * looks, and counts that in *looks, which is the caller's. Whether it drove.
 */
bool hca_engine_poll(struct hca_engine *e, _Atomic unsigned *looks);

/* Sends what was held back: the caller is about to sleep. */
void hca_engine_flush_pending_tx(struct hca_engine *e);
/* The same when the process exits. */
void hca_engine_at_exit(struct hca_engine *e);
/* Whether something is held back that somebody has to send before long. */
static inline bool hca_engine_has_pending_tx(struct hca_engine *e)
{
	return atomic_load(&e->any_delayed_acks) || atomic_load(&e->any_coalescing) ||
	       atomic_load(&e->more_to_send);
}
/* The same of what providers defer. */
bool hca_engine_has_deferred(struct hca_engine *e);
/* Requests were posted: sends them from the caller's thread, or leaves them a moment; qp->lock held. */
void hca_engine_post(struct hca_engine *e, struct hca_qp *qp);
/* Sends the QP's requests from the caller's thread; qp->lock held. */
void hca_engine_kick(struct hca_engine *e, struct hca_qp *qp, uint64_t now);
/*
 * By who has posted, with no lock of the engine's held: what a stream sends is done as soon as it has left,
 * so a program may post and find completions for ever without a drive. Every HCA_POSTS_PER_RX times it
 * drives.
 */
enum { HCA_POSTS_PER_RX = 16 };
/*
 * By who has found completions of a stream's: a program that watches its memory for the peer's WRITE, and
 * polls only for its own, leaves the receiving to the helper, which has to be woken. When it was so a few
 * times, we look for that WRITE for a moment before we go.
 */
void hca_engine_spin_for_write(struct hca_engine *e);
void hca_engine_drive_overdue(struct hca_engine *e);
static inline void hca_engine_drive_if_overdue(struct hca_engine *e)
{
	if (atomic_load_explicit(&e->posts_since_rx, memory_order_relaxed) >= HCA_POSTS_PER_RX)
		hca_engine_drive_overdue(e);
}
/* Providers end what is over; drive lock held, no other. */
void hca_engine_tidy(struct hca_engine *e);
/* A receive was posted, for which somebody may wait. Any thread. */
void hca_engine_recv_posted(struct hca_engine *e);
/* A QP gave back its share of windows outside of the drive; any thread, any lock but the flows'. */
void hca_engine_window_freed(struct hca_engine *e);
/*
 * Waits until no frame that was being worked on when it was called still is, and no other process acts on
 * what we exported before.
 */
void hca_engine_quiesce(struct hca_engine *e);
/* The QP leaves: no timer, no list knows it any more. */
void hca_engine_forget(struct hca_engine *e, struct hca_qp *qp);
/* Sets the QP's timer to qp->deadline; qp->lock held. See hca_engine_arm(), hca/qp.h. */
void hca_engine_arm_now(struct hca_engine *e, struct hca_qp *qp);
/*
 * Calls QP1's timer at this time instead of any set before under the same number, which is below
 * HCA_QP1_ALARMS; UINT64_MAX: not at all. Any thread. Of providers: hca_provider_arm().
 */
void hca_engine_alarm(struct hca_engine *e, unsigned which, uint64_t at);
/* The helper's alarm rang: it has to be set again for what is still to come. */
void hca_engine_alarm_rang(struct hca_engine *e);
/* Waits, driving, until fd is readable: 0 or -EINTR. */
EXPORTED int hca_engine_wait_fd(struct hca_engine *e, int fd);
/* Waits, driving, until one of them is ready or ms are over (-1: never): revents are set. 0 or -errno. */
EXPORTED int hca_engine_wait_fds(struct hca_engine *e, struct pollfd *fds, unsigned n, int ms);
/* Sends frames that belong to no QP; any thread. 0 or -errno. */
int hca_engine_send(struct hca_engine *e, const struct frame_batch *b);
/* Listens for requests of connections, or no more, see hca_provider_ops.listen; any thread. */
EXPORTED int hca_engine_listen(struct hca_engine *e, const struct cm_listen *what, bool on);
/* Gives a frame to the process of another slot, see hca_provider_ops.hand_over; any thread. */
int hca_engine_hand_over(struct hca_engine *e, uint32_t slot, const struct frame_in *in, bool wait);
uint64_t hca_clock_monotonic(void *arg);
/* The same, some milliseconds old, for a fifth of the price. */
uint64_t hca_clock_coarse(void);

/* ---- for providers ---- */
uint64_t hca_clock_now(struct hca_clock *c);
/* The QP met a frame or a timer and may have to send: it gets its turn at the end of this drive. Drive lock.
 */
void hca_engine_make_runnable(struct hca_engine *e, struct hca_qp *qp);
/* Answers, then requests, of all QPs that are runnable; drive lock. */
void hca_engine_run_runnable(struct hca_engine *e, uint64_t now);
/* Lets QPs go on that wait for this window (NULL: none); drive lock. */
void hca_engine_resume_waiters(struct hca_engine *e, struct hca_flow *f, uint64_t now);
/* Whether the QP's acknowledge is delayed a moment longer; drive lock. */
bool hca_engine_delay_ack(struct hca_engine *e, struct hca_qp *qp, uint64_t now);
/* All that is held back leaves now; drive lock. */
void hca_engine_send_held(struct hca_engine *e);
/* So much left: the adapter's counters; any thread. */
void hca_engine_count_sent(struct hca_engine *e, unsigned n, uint64_t bytes);
/* Somebody must drive in `ns` at the latest. Any thread. */
void hca_engine_drive_within(struct hca_engine *e, uint64_t ns);

#endif
