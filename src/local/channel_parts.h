/* SPDX-License-Identifier: MIT */
/*
 * The inside of the channel, for its parts:
 *
 *   channel.c    a link that moves frames through rings, and the rest over the link below
 *   peers.c      the processes that we send to and that send to us
 *   handshake.c  what they say to each other by a Unix socket
 *   ring.c       frames in shared memory
 *   credit.c     how far a ring's reader is
 *   settle.c     waiting until nobody acts any more on what we took away
 */
#ifndef LOCAL_CHANNEL_PARTS_H
#define LOCAL_CHANNEL_PARTS_H

#include "base/lock.h"
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
	uint64_t who; /* link.who */
	/* Threads that want to be woken by the doorbell. */
	_Alignas(64) _Atomic uint32_t asleep;
	/* How often one woke: since then the bell may be rung again. */
	_Atomic uint32_t wakes;
	/* Who goes to sleep runs a heavy fence before it looks for the last time. */
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
	uint64_t token;          /* that we said in HELLO */
	struct link_there there; /* for who acts; its export: NULL: none was given to us */
	_Atomic bool proving;    /* an export may come any moment */
	struct windows windows;
	uint64_t asked_at; /* ms */
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
	_Atomic bool verified;          /* and who listens there has told it the token of our HELLO */
	uint64_t token;                 /* of its HELLO */
	uint8_t nonce[HANDSHAKE_NONCE]; /* which it may read out of here */
	bool asked;            /* for a proof: it was told where the nonce is, and has not answered */
	_Atomic bool exported; /* it has our export */
	struct local_writer *_Atomic reverse;
	unsigned looks;               /* for the other way */
	uint32_t heard;               /* of what it told us by frames */
	bool ended;                   /* a row of frames, after which one of ours may carry how far we are */
	uint64_t hold_until;          /* told by then; 0: nobody has looked yet */
	int piggyback_streak;         /* how often in a row one did: see channel.c */
	_Atomic uint32_t piggybacked; /* what the last one said */
	struct ring_rx rx;
};

struct local_channel {
	struct link link;
	struct link *wire;
	uint16_t port;
	uint32_t slot;
	local_channel_ours_fn *ours;
	void *ours_arg;

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
	struct local_reader *_Atomic reader[CHANNEL_READERS];
	_Atomic unsigned nreaders; /* places above were never used */
	unsigned polls, quiet;     /* see receive */
	bool unsummed;             /* more was counted than link.stats says */
	uint64_t rx_packets, rx_bytes, bad;
	_Atomic uint64_t tx_lost;
};

/* Opens and closes what meeting needs. */
int local_channel_peers_open(struct local_channel *l);
void local_channel_peers_close(struct local_channel *l);
/*
 * Deals with whoever has something to say; any thread. The doorbell is heard only by who `receives` what is
 * there right after.
 */
void local_channel_attend(struct local_channel *l, bool receives);
/* The reader may have said by its socket whose other way it is: looks, before its frames are taken. */
void local_channel_find_twin(struct local_channel *l, struct local_reader *r);
/* Telling and being told, see credit.c. Those with a reader are for who receives; arg: of link.executed. */
bool local_channel_is_reverse(struct local_reader *r);
void local_channel_told(struct local_channel *l, struct local_reader *r);
void local_channel_tell(struct local_channel *l, struct local_reader *r);
void local_channel_hear(struct local_channel *l, struct local_reader *r, void *arg);
/* Whether it waits for an answer to each of its frames, as far as one can tell. */
bool local_channel_is_asked(const struct local_reader *r);
int local_channel_collect(struct local_channel *l, void *arg);
/* By any thread: whether there is something to collect, or to tell. */
bool local_channel_is_told(struct local_writer *w);
bool local_channel_holds(const struct local_reader *r);
void local_channel_let_go(struct local_channel *l, struct local_reader *r); /* for who receives */
/* Rings the bell if somebody sleeps there; w->lock held, it is up. */
void local_channel_wake(const struct local_channel *l, struct local_writer *w);
/* link_ops.settle */
void local_channel_settle(struct link *link);
/* The writer to a slot is up; asks for it when it is not, and waits for a moment if told to. */
bool local_channel_reach(struct link *link, uint32_t slot, bool wait);
/* link_ops.meet */
int local_channel_meet(struct link *link, uint32_t slot, bool ask, uint64_t *who);
/* The other one is gone or insane; w->lock held, or l->handshake. */
void local_channel_drop_writer(struct local_channel *l, struct local_writer *w);
void local_channel_drop_reader(struct local_channel *l, struct local_reader *r);

#endif
