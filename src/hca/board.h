/* SPDX-License-Identifier: MIT */
/*
 * What a process shows to others of this host that may act for it: which of its queue pairs are ready for
 * requests, and which memory its keys stand for. It lies in memory that they can read and only we write
 * (local/channel.h). With it a peer does a WRITE or READ itself, by the same checks that our responder would
 * make (src/local).
 *
 * What is not here goes the usual way, so nothing has to be: entries that find no place, and memory windows.
 *
 * An entry changes under a sequence number. Who acts on one has said so before it looked; after taking an
 * entry away, hca_engine_quiesce() waits until all who may have seen it are done.
 */
#ifndef HCA_BOARD_H
#define HCA_BOARD_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hca_adapter;
struct hca_key;
struct hca_qp;
struct shared_file;
struct window;

/*
 * Each table has levels, each four times as large as the one before. An entry has one of a few places in each
 * level, and takes the first that is free: few entries touch little memory, many find room.
 */
enum {
	BOARD_WAYS = 8, /* places an entry may have in a level */
	BOARD_KEYS = 4096,
	BOARD_KEY_LEVELS = 4,
	BOARD_QPS = 1024,
	BOARD_QP_LEVELS = 3,
	BOARD_FILES = 256,
};
#define BOARD_ENTRIES(first, levels) ((first) * (((1u << 2 * (levels)) - 1) / 3))

struct hca_board_key {
	_Atomic uint32_t seq; /* odd: it is being written */
	_Atomic uint32_t key; /* 0: free */
	uint32_t pd;
	uint16_t access, file; /* file: which of ours it lies in, counted from 1; 0: in none */
	uint64_t iova, length, host;
	uint64_t map_host, map_off, map_len; /* what of it is where in that file */
};

struct hca_board_qp {
	_Atomic uint32_t seq;
	_Atomic uint32_t qpn;        /* 0: free */
	uint32_t peer_qpn, peer_psn; /* whose requests it takes, and the first PSN it expects of them */
	uint8_t peer_gid[16], gid[16];
	uint32_t pd, access;
	uint32_t life; /* counts its resets */
	uint32_t reserved;
};

/* A file that regions lie in (local/pages/shareable.h). */
struct hca_board_file {
	_Atomic uint32_t seq;
	_Atomic uint32_t id; /* its number, from 1 on; 0: free */
	int32_t fd;          /* see local/pages/shareable.h */
	uint32_t reserved;
	uint64_t dev, inode;
	uint64_t more[4];
};

/*
 * `life` is held by a thread of the owner, and robust: when that dies, or executes another program, the
 * kernel itself writes so into its word, before anybody can know of the death otherwise.
 */
struct hca_board {
	pthread_mutex_t life;
	_Atomic uint32_t changes; /* of entries: what was seen before may not be true any more */
	_Atomic uint32_t key_levels, qp_levels; /* in use: who looks leaves the others alone */
	_Alignas(64) struct hca_board_file file[BOARD_FILES];
	_Alignas(64) struct hca_board_qp qp[BOARD_ENTRIES(BOARD_QPS, BOARD_QP_LEVELS)];
	_Alignas(64) struct hca_board_key key[BOARD_ENTRIES(BOARD_KEYS, BOARD_KEY_LEVELS)];
};
_Static_assert(offsetof(struct hca_board, file) == 64, "on one line");
_Static_assert(sizeof(struct hca_board_key) == 64 && sizeof(struct hca_board_qp) == 64 &&
		       sizeof(struct hca_board_file) == 64,
	"a line each");

/* What a QP remembers of the board of its peer's process, see src/local. */
struct hca_seen {
	uint64_t number;  /* of the connection to that process; 0: nothing */
	uint32_t changes; /* of the board, then */
	uint32_t rkey;
	uint32_t pd, access; /* of the peer */
	struct hca_board_key key;
	struct window *window; /* onto the key's memory; NULL: none */
	uint32_t closed;       /* windows that were, then: see local/pages/window.h */
	bool back;             /* the next long copy begins at its end: see local/walk.h */
};

/* ---- ours; any thread, any lock but the board's own; nothing is done where there is no board ---- */
/* Until hca_board_end(), by the same thread, others may act on the board. Without it they do not. */
void hca_board_begin(struct hca_adapter *a);
void hca_board_end(struct hca_adapter *a);
/* Shows a region as it is now. */
void hca_board_show_key(struct hca_adapter *a, const struct hca_key *k);
void hca_board_hide_key(struct hca_adapter *a, uint32_t key);
/* Shows a file in its place, from 0 on; NULL: takes it away. */
void hca_board_show_file(struct hca_adapter *a, unsigned place, const struct shared_file *f);
/* Shows a QP as it is now: hides it when it takes no requests of others. qp->lock held. */
void hca_board_show_qp(struct hca_adapter *a, struct hca_qp *qp);

/* ---- another's: copies; false: it is not there ---- */
bool hca_board_find_key(const struct hca_board *b, uint32_t key, struct hca_board_key *out);
bool hca_board_find_qp(const struct hca_board *b, uint32_t qpn, struct hca_board_qp *out);
/* The number as in hca_board_key.file. */
bool hca_board_find_file(const struct hca_board *b, uint16_t number, struct shared_file *out);
static inline bool hca_board_lives(const struct hca_board *b)
{
	unsigned word = (unsigned)__atomic_load_n(&b->life.__data.__lock, __ATOMIC_ACQUIRE);

	return (word & FUTEX_TID_MASK) && !(word & FUTEX_OWNER_DIED);
}

static inline uint32_t hca_board_changes(const struct hca_board *b)
{
	return atomic_load_explicit(&b->changes, memory_order_acquire);
}

#endif
