/* SPDX-License-Identifier: MIT */
/* The inside of the memory link, for its parts: shm.c moves frames, shm_meet.c finds the others. */
#ifndef LINK_SHM_PARTS_H
#define LINK_SHM_PARTS_H

#include "base/lock.h"
#include "link/meet.h"
#include "link/ring.h"
#include "link/shm.h"
#include "memory/window.h"
#include "wire/qpn.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BELL_MAGIC = 0x6c6c6562, BELL_VERSION = 4, SHM_READERS = QPN_SLOTS };

/* What a process shows to all of its user who send to it: they can read it, only it writes. */
struct shm_bell {
	uint32_t magic, version;
	uint64_t who; /* link.who */
	/* Threads that want to be woken by the doorbell. */
	_Alignas(64) _Atomic uint32_t asleep;
	/* How often one woke: since then the bell may be rung again. */
	_Atomic uint32_t wakes;
	/* Who goes to sleep runs a heavy fence before it looks for the last time. */
	uint32_t heavy;
};

enum shm_kind { SHM_LISTENER, SHM_WRITER, SHM_READER, SHM_PROCESS };

/* A socket in the epoll set. */
struct shm_end {
	enum shm_kind kind;
	int fd; /* -1: closed */
};

enum shm_state {
	SHM_DOWN,
	SHM_ASKED, /* we have said who we are */
	SHM_UP,
};

/*
 *               ask()                 the other's bell came
 *   DOWN ---------------> ASKED -----------------------------> UP
 *    ^                      |                                   |
 *    '----------------------'-----------------------------------'
 *       the socket has ended, or nonsense came by it or by the ring
 *
 * When it is UP frames go; its export comes later, or never: see link/meet.h.
 *
 * Made once per slot, never freed before the link; nor are the addresses of its ring given back. `lock`
 * guards all but the kind and what is atomic. `act` is held by who acts on the other's export; memory comes
 * and goes under both, taken in this order.
 */
struct shm_writer {
	struct shm_end end;
	struct shm_end process; /* see meet_process(): readable when it has ended */
	struct lock lock, act;
	_Atomic enum shm_state state;
	uint32_t slot;
	uint64_t token;          /* that we said in HELLO */
	struct link_there there; /* for who acts; its export: NULL: none was given to us */
	_Atomic bool proving;    /* an export may come any moment */
	struct windows windows;
	uint64_t asked_at; /* ms */
	const struct shm_bell *bell;
	uint32_t rung;                      /* bell->wakes when we last rang */
	struct shm_reader *_Atomic reverse; /* the ring the other way */
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
enum shm_reader_state { READER_FREE, READER_MET, READER_UP, READER_GONE };

/*
 * One who writes to us. Its place and the addresses of its ring are used again, but never given back before
 * the link is closed: anybody may look without a lock whether something is there.
 */
struct shm_reader {
	struct shm_end end;
	_Atomic enum shm_reader_state state;
	bool begun;                /* the ring is its own, not one of who had this place before */
	uint64_t came;             /* counts those who come */
	uint32_t slot;             /* as it says */
	_Atomic bool verified;     /* and who listens there has told it the token of our HELLO */
	uint64_t token;            /* of its HELLO */
	uint8_t nonce[MEET_NONCE]; /* which it may read out of here */
	bool asked;                /* for a proof: it was told where the nonce is, and has not answered */
	_Atomic bool exported;     /* it has our export */
	struct shm_writer *_Atomic reverse;
	unsigned looks;               /* for the other way */
	uint32_t heard;               /* of what it told us by frames */
	bool ended;                   /* a row of frames, after which one of ours may carry how far we are */
	uint64_t hold_until;          /* told by then; 0: nobody has looked yet */
	int piggyback_streak;         /* how often in a row one did: see shm.c */
	_Atomic uint32_t piggybacked; /* what the last one said */
	struct ring_rx rx;
};

struct shm_link {
	struct link link;
	struct link *wire;
	uint16_t port;
	uint32_t slot;
	link_shm_ours_fn *ours;
	void *ours_arg;

	struct lock meet; /* whoever deals with sockets: the three below, and readers that come */
	struct shm_end listener;
	uint64_t came;
	int ep_fd;
	int bell_fd;
	int spare_fd; /* given up for a moment to send somebody away; negative: none */

	struct shm_bell *bell;
	int export_fd; /* negative: there is none, and we ask for nobody's */
	void *export;
	size_t export_size;
	_Atomic uint64_t met;                         /* connections to others, ever */
	struct shm_writer *_Atomic writer[QPN_SLOTS]; /* by slot */
	struct shm_writer *_Atomic made[QPN_SLOTS];   /* the same, without gaps */
	_Atomic unsigned nmade;
	struct shm_reader *_Atomic reader[SHM_READERS];
	_Atomic unsigned nreaders; /* places above were never used */
	unsigned polls, quiet;     /* see receive */
	bool unsummed;             /* more was counted than link.stats says */
	uint64_t rx_packets, rx_bytes, bad;
	_Atomic uint64_t tx_lost;
};

/* Opens and closes what meeting needs. */
int link_shm_meet_open(struct shm_link *l);
void link_shm_meet_close(struct shm_link *l);
/*
 * Deals with whoever has something to say; any thread. The doorbell is heard only by who `receives` what is
 * there right after.
 */
void link_shm_attend(struct shm_link *l, bool receives);
/* The reader may have said by its socket whose other way it is: looks, before its frames are taken. */
void link_shm_find_twin(struct shm_link *l, struct shm_reader *r);
/* Telling and being told, see shm_tell.c. Those with a reader are for who receives; arg: of link.executed. */
bool link_shm_is_reverse(struct shm_reader *r);
void link_shm_told(struct shm_link *l, struct shm_reader *r);
void link_shm_tell(struct shm_link *l, struct shm_reader *r);
void link_shm_hear(struct shm_link *l, struct shm_reader *r, void *arg);
/* Whether it waits for an answer to each of its frames, as far as one can tell. */
bool link_shm_is_asked(const struct shm_reader *r);
int link_shm_collect(struct shm_link *l, void *arg);
/* By any thread: whether there is something to collect, or to tell. */
bool link_shm_is_told(struct shm_writer *w);
bool link_shm_holds(const struct shm_reader *r);
void link_shm_let_go(struct shm_link *l, struct shm_reader *r); /* for who receives */
/* Rings the bell if somebody sleeps there; w->lock held, it is up. */
void link_shm_wake(const struct shm_link *l, struct shm_writer *w);
/* link_ops.settle */
void link_shm_settle(struct link *link);
/* The writer to a slot is up; asks for it when it is not, and waits for a moment if told to. */
bool link_shm_reach(struct link *link, uint32_t slot, bool wait);
/* link_ops.meet */
int link_shm_meet(struct link *link, uint32_t slot, bool ask, uint64_t *who);
/* The other one is gone or insane; w->lock held, or l->meet. */
void link_shm_drop_writer(struct shm_link *l, struct shm_writer *w);
void link_shm_drop_reader(struct shm_link *l, struct shm_reader *r);

#endif
