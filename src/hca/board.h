/* SPDX-License-Identifier: MIT */
/*
 * What a process shows to others of this host that may act for it: which of its queue pairs are ready for
 * requests, and which memory its keys stand for. It lies in memory that they can read and only we write
 * (link/shm.h). With it a peer does a WRITE or READ itself, by the same checks that our responder would make
 * (src/local).
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

enum {
	BOARD_WAYS = 8, /* places an entry may have */
	BOARD_KEYS = 4096,
	BOARD_QPS = 1024,
};

struct hca_board_key {
	_Atomic uint32_t seq; /* odd: it is being written */
	_Atomic uint32_t key; /* 0: free */
	uint32_t pd, access;
	uint64_t iova, length, host;
	uint64_t map_host, map_off, map_len; /* what of it is where in our file (memory/file.h) */
};

struct hca_board_qp {
	_Atomic uint32_t seq;
	_Atomic uint32_t qpn;        /* 0: free */
	uint32_t peer_qpn, peer_psn; /* whose requests it takes, and the first PSN it expects of them */
	uint8_t peer_gid[16], gid[16];
	uint32_t pd, access;
	uint64_t reserved;
};

/*
 * `life` is held by a thread of the owner, and robust: when that dies, or executes another program, the
 * kernel itself writes so into its word, before anybody can know of the death otherwise.
 */
struct hca_board {
	pthread_mutex_t life;
	_Atomic uint32_t changes; /* of entries: what was seen before may not be true any more */
	_Alignas(64) struct hca_board_key key[BOARD_KEYS];
	_Alignas(64) struct hca_board_qp qp[BOARD_QPS];
};
_Static_assert(offsetof(struct hca_board, key) == 64, "both on one line");
_Static_assert(sizeof(struct hca_board_key) == 64 && sizeof(struct hca_board_qp) == 64, "a line each");

/* What a QP remembers of the board of its peer's process, see src/local. */
struct hca_seen {
	uint64_t number;  /* of the connection to that process; 0: nothing */
	uint32_t changes; /* of the board, then */
	uint32_t rkey;
	uint32_t pd, access; /* of the peer */
	struct hca_board_key key;
};

/* ---- ours; any thread, any lock but the board's own; nothing is done where there is no board ---- */
/* Until hca_board_end(), by the same thread, others may act on the board. Without it they do not. */
void hca_board_begin(struct hca_adapter *a);
void hca_board_end(struct hca_adapter *a);
/* Shows a region as it is now. */
void hca_board_show_key(struct hca_adapter *a, const struct hca_key *k);
void hca_board_hide_key(struct hca_adapter *a, uint32_t key);
/* Shows a QP as it is now: hides it when it takes no requests of others. qp->lock held. */
void hca_board_show_qp(struct hca_adapter *a, struct hca_qp *qp);

/* ---- another's: copies; false: it is not there ---- */
bool hca_board_find_key(const struct hca_board *b, uint32_t key, struct hca_board_key *out);
bool hca_board_find_qp(const struct hca_board *b, uint32_t qpn, struct hca_board_qp *out);
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
