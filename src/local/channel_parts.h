/* SPDX-License-Identifier: MIT */
/*
 * The inside of the channel, for its parts:
 *
 *   channel.c    a link that moves frames through rings, and the rest over the link below
 *   peers.c      the processes that we are connected with:
 *   writers.c    those that we send to,
 *   readers.c    and those that send to us
 *   handshake.c  what they say to each other by a Unix socket
 *   ring.c       frames in shared memory
 *   credit.c     how far a ring's reader is
 *   settle.c     waiting until nobody acts any more on what we took away
 */
#ifndef LOCAL_CHANNEL_PARTS_H
#define LOCAL_CHANNEL_PARTS_H

#include "base/lock.h"
#include "base/streak.h"
#include "local/channel.h"
#include "local/handshake.h"
#include "local/pages/window.h"
#include "local/ring.h"
#include "wire/qpn.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BELL_MAGIC = 0x6c6c6562, BELL_VERSION = 4, CHANNEL_READERS = QPN_SLOTS };

/* What a process shows to all of its user who send to it: they can read it, only it writes. */
struct local_bell {
	uint32_t magic, version;
	uint64_t identity; /* a number that no other process has */
	/* Threads that want to be woken by the doorbell. */
	_Alignas(64) _Atomic uint32_t asleep;
	/* How often one woke: since then the bell may be rung again. */
	_Atomic uint32_t wakes;
	/* A thread that goes to sleep runs a heavy fence before it looks for the last time. */
	uint32_t heavy;
};

enum local_end_kind { END_LISTENER, END_WRITER, END_READER, END_PROCESS };

/* A socket in the epoll set. */
struct local_end {
	enum local_end_kind kind;
	int fd; /* -1: closed */
};

enum local_writer_state {
	WRITER_DOWN,
	WRITER_ASKED, /* we have said who we are */
	WRITER_UP,
};

/*
 *               ask()                 the other's bell came
 *   DOWN ---------------> ASKED -----------------------------> UP
 *    ^                      |                                   |
 *    '----------------------'-----------------------------------'
 *       the socket has ended, or nonsense came by it or by the ring
 *
 * When it is UP frames go; its export comes later, or never: see local/handshake.h.
 *
 * Made once per slot, never freed before the link; nor are the addresses of its ring given back. `lock`
 * guards all but the kind and what is atomic. `act` is held by who acts on the other's export; memory comes
 * and goes under both, taken in this order.
 */
struct local_writer {
	struct local_end end;
	struct local_end process; /* see handshake_process(): readable when it has ended */
	struct lock lock, act;
	_Atomic enum local_writer_state state;
	uint32_t slot;
	uint64_t token;             /* that we said in HELLO */
	bool paired;                /* it was told the token of its own: our frames are known to be ours */
	struct local_process there; /* for who acts; its export: NULL: none was given to us */
	_Atomic bool proving;       /* an export may come any moment */
	struct windows windows;
	uint64_t asked_at; /* ms */
	uint32_t times;    /* it was asked: its ring is another one each time */
	int pid;           /* of the process that listened, where a fabric knows which it must be */
	const struct local_bell *bell;
	uint32_t rung;                        /* bell->wakes when we last rang */
	struct local_reader *_Atomic reverse; /* the ring the other way */
	_Atomic bool ended; /* the other one: what it still said is collected, then it goes down */
	struct ring_tx tx;
};

/*
 *          connected           said who it is               its socket has ended
 *   FREE -----------> MET --------------------> UP ----------------------------------> GONE
 *    ^                 '------------------------------------------------------------->  |
 *    '----------------------------------------------------------------------------------'
 *                 who receives has taken all that it left
 */
enum local_reader_state { READER_FREE, READER_MET, READER_UP, READER_GONE };

/*
 * One who writes to us. Its place and the addresses of its ring are used again, but never given back before
 * the link is closed: anybody may look without a lock whether something is there.
 */
struct local_reader {
	struct local_end end;
	_Atomic enum local_reader_state state;
	bool begun;                     /* the ring is its own, not one of who had this place before */
	uint64_t came;                  /* counts those who come */
	uint32_t slot;                  /* as it says */
	struct local_channel *channel;  /* whose it is */
	int pid;                        /* who connected */
	uint32_t home;                  /* see local_channel_trust; not 0: the slot is its own, too */
	uint64_t epoch;                 /* for which its paths were looked at */
	_Atomic bool verified;          /* and who listens there has told it the token of our HELLO */
	uint64_t token;                 /* of its HELLO */
	uint8_t nonce[HANDSHAKE_NONCE]; /* which it may read out of here */
	bool asked;            /* for a proof: it was told where the nonce is, and has not answered */
	_Atomic bool exported; /* it has our export */
	struct local_writer *_Atomic reverse;
	unsigned looks;               /* for the other way */
	uint32_t acked;               /* by frames of its own, of ours */
	bool batch_over;              /* a burst of frames, after which one of ours may acknowledge it */
	uint64_t ack_at;              /* then it is acknowledged in any case; 0: nobody has looked yet */
	struct streak piggyback;      /* one does: see credit.c */
	_Atomic uint32_t piggybacked; /* what the last one said */
	struct ring_rx rx;
};

struct local_channel {
	struct link link;
	struct link *wire;
	struct local_channel_events events;
	uint16_t port;
	uint32_t slot;
	local_channel_ours_fn *ours;
	void *ours_arg;
	struct local_channel_trust trust;  /* its functions NULL: `ours` is all there is to ask */
	uint64_t epoch;                    /* for which writers were looked at */
	bool (*wire_waits)(struct link *); /* its link_ops.waits */

	struct lock handshake; /* whoever deals with sockets: the three below, and readers that come */
	struct local_end listener;
	uint64_t came;
	int ep_fd;
	int bell_fd;
	int spare_fd; /* given up for a moment to send somebody away; negative: none */

	struct local_bell *bell;
	int export_fd; /* negative: there is none, and we ask for nobody's */
	void *export;
	size_t export_size;
	_Atomic uint64_t connections;                   /* connections to others, ever */
	struct local_writer *_Atomic writer[QPN_SLOTS]; /* by slot */
	struct local_writer *_Atomic made[QPN_SLOTS];   /* the same, without gaps */
	_Atomic unsigned nmade;
	_Atomic uint64_t wanted[QPN_SLOTS / 64]; /* slots that somebody wants to reach, a bit each */
	_Atomic bool any_wanted;
	struct local_reader *_Atomic reader[CHANNEL_READERS];
	_Atomic unsigned nreaders; /* places above were never used */
	unsigned polls, quiet;     /* see receive */
	bool unsummed;             /* more was counted than link.stats says */
	uint64_t rx_packets, rx_bytes, bad;
	_Atomic uint64_t tx_lost;
#ifdef __SANITIZE_THREAD__
	_Atomic unsigned left; /* see tsan_left() */
#endif
};

/*
 * What we do in our own memory by way of a ring to ourselves is over when `acting` says so, of which both
 * ends have a mapping of their own. The thread sanitizer goes by addresses, and does not see that order.
 */
static inline void tsan_left(struct local_channel *c)
{
#ifdef __SANITIZE_THREAD__
	atomic_fetch_add_explicit(&c->left, 1, memory_order_release);
#endif
}

static inline void tsan_settled(struct local_channel *c)
{
#ifdef __SANITIZE_THREAD__
	(void)atomic_load_explicit(&c->left, memory_order_acquire);
#endif
}

/* ---- peers.c ---- */
int local_peers_open(struct local_channel *c);
void local_peers_close(struct local_channel *c);
/*
 * Deals with whoever has something to say; any thread. The doorbell is heard only by who `receives` what is
 * there right after.
 */
void local_peers_attend(struct local_channel *c, bool receives);
/* Asks those that are wanted; any thread. */
void local_peers_ask_wanted(struct local_channel *c);

/* ---- peers.c: sockets; c->handshake held, or w->lock ---- */
enum { LOCAL_AT_ONCE = 1024 }; /* messages of one: more than a socket holds, but not without end */
/* Puts it into the epoll set: 0 or -errno. */
int local_end_watch(struct local_channel *c, struct local_end *end);
/* Closing takes it out of the epoll set, since nobody else has the socket. */
void local_end_close(struct local_channel *c, struct local_end *end);
/*
 * Bells were taken off a socket, where they would have woken whoever sleeps. false: by who does not receive.
 */
void local_bells_taken(struct local_channel *c, bool receives);
/* Whether the other one is gone; it may have rung the bell before. */
bool local_end_has_ended(const struct local_end *end);

/* ---- writers.c ---- */
/* That of a slot, made if need be; NULL: no memory, or no slot of a process. */
struct local_writer *local_writer_of(struct local_channel *c, uint32_t slot);
/* Asks it, if it is down; unless `now`, not again before a second has passed. No lock held. */
void local_writer_begin(struct local_channel *c, struct local_writer *w, bool now);
/* Its slot may be another's by now: then it goes down. */
void local_writer_recheck(struct local_channel *c, struct local_writer *w);
/* Its socket, or that of its process, has something to say. */
void local_writer_attend(struct local_channel *c, struct local_writer *w, bool receives);
void local_writer_attend_process(struct local_channel *c, struct local_end *end);
/* It connected to us before, and says it is that slot's; who listens there can tell. Locks of both ends held.
 */
void local_writer_say_pair(struct local_writer *w, const struct local_reader *r);
/* The other one is gone or insane; w->lock held, or c->handshake. */
void local_writer_drop(struct local_channel *c, struct local_writer *w);

/* ---- readers.c; c->handshake held ---- */
/* Accepts all who have come. */
void local_readers_accept(struct local_channel *c);
/* A descriptor to give up when there are no more. */
int local_readers_spare(const struct local_channel *c);
/* Its socket has something to say. */
void local_reader_attend(struct local_channel *c, struct local_reader *r, bool receives);
/* The other one is gone or insane. */
void local_reader_drop(struct local_channel *c, struct local_reader *r);
/*
 * It may have said by its socket whose reverse it is, before it wrote its first frame: looks. Without the
 * lock. false: no frame that is there may be taken yet, since it may have come after the look.
 */
bool local_reader_find_reverse(struct local_channel *c, struct local_reader *r);

/* ---- credit.c: sending acknowledges; by who receives ---- */
/* A burst of frames was taken: acknowledges it now, or leaves that to a frame of ours. */
void local_credit_end_burst(struct local_channel *c, struct local_reader *r);
/* Whether a frame of ours has acknowledged the last burst; if not, and it is time: now. */
void local_credit_check(struct local_channel *c, struct local_reader *r);
/* Whether it waits for an answer to each of its frames, as far as one can tell. */
bool local_credit_expects_reply(const struct local_reader *r);
/* Acknowledges now what is deferred. */
void local_credit_flush(struct local_channel *c, struct local_reader *r);
/* Whether a frame of ours has acknowledged the last burst. */
static inline bool local_credit_was_piggybacked(const struct local_reader *r)
{
	return atomic_load_explicit(&r->piggybacked, memory_order_relaxed) ==
	       atomic_load_explicit(&r->rx.done, memory_order_relaxed);
}

/* Whether something is deferred; any thread. */
static inline bool local_credit_is_deferred(const struct local_reader *r)
{
	return !local_credit_was_piggybacked(r) &&
	       atomic_load_explicit(&r->rx.ring->taken, memory_order_relaxed) !=
		       atomic_load_explicit(&r->rx.done, memory_order_relaxed);
}

/* Rings the bell if somebody sleeps there; w->lock held, it is up. */
void local_credit_wake(const struct local_channel *c, struct local_writer *w);

/* ---- credit.c: taking them; by who receives, arg: of receive ---- */
/* A frame has piggybacked one. */
void local_credit_take(struct local_channel *c, struct local_reader *r, void *arg);
/* All that are in our rings: how many rings had one. */
int local_credit_collect(struct local_channel *c, void *arg);
/*
 * Whether this one has, and it was not collected: `taken` says more than we know. Any thread; no lock: the
 * addresses of its ring stay.
 */
static inline bool local_credit_is_acked(const struct local_writer *w)
{
	return atomic_load_explicit(&w->state, memory_order_acquire) == WRITER_UP && ring_has_ack(&w->tx);
}

#endif
