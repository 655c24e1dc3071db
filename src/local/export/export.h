/* SPDX-License-Identifier: MIT */
/*
 * What a process exports to others of this host that may act for it: which of its queue pairs are ready for
 * requests, and which memory its keys stand for (hca/export.h says which). It lies in memory that they can
 * read and only we write (local/channel.h). With it a peer does a WRITE or READ itself, by the same checks
 * that our responder would make (src/local).
 *
 * What is not here goes the usual way, so nothing has to be: entries that find no place, and memory windows.
 *
 * An entry changes under a sequence number. Who acts on one has said so before it looked; after taking an
 * entry away, hca_engine_quiesce() waits until all who may have seen it are done.
 */
#ifndef LOCAL_EXPORT_EXPORT_H
#define LOCAL_EXPORT_EXPORT_H

#include "base/lock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shared_file;
struct window;

/*
 * Each table has levels, each four times as large as the one before. An entry has one of a few places in each
 * level, and takes the first that is free: few entries touch little memory, many find room.
 */
enum {
	EXPORT_WAYS = 8, /* places an entry may have in a level */
	EXPORT_KEYS = 4096,
	EXPORT_KEY_LEVELS = 4,
	EXPORT_QPS = 1024,
	EXPORT_QP_LEVELS = 3,
	EXPORT_FILES = 256,
};
#define EXPORT_ENTRIES(first, levels) ((first) * (((1u << 2 * (levels)) - 1) / 3))

struct local_export_key {
	_Atomic uint32_t seq; /* odd: it is being written */
	_Atomic uint32_t key; /* 0: free */
	uint32_t pd;
	uint16_t access, file; /* file: which of ours it lies in, counted from 1; 0: in none */
	uint64_t iova, length, host;
	uint64_t map_host, map_off, map_len; /* what of it is where in that file */
};

struct local_export_qp {
	_Atomic uint32_t seq;
	_Atomic uint32_t qpn;        /* 0: free */
	uint32_t peer_qpn, peer_psn; /* whose requests it takes, and the first PSN it expects of them */
	uint8_t peer_gid[16], gid[16];
	uint32_t pd, access;
	uint32_t life; /* counts its resets */
	uint16_t pkey, reserved;
};

/* A file that regions lie in (local/pages/shareable.h). */
struct local_export_file {
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
struct local_export {
	pthread_mutex_t life;
	_Atomic uint32_t changes; /* of entries: what was seen before may not be true any more */
	_Atomic uint32_t key_levels, qp_levels; /* in use: who looks leaves the others alone */
	_Alignas(64) struct local_export_file file[EXPORT_FILES];
	_Alignas(64) struct local_export_qp qp[EXPORT_ENTRIES(EXPORT_QPS, EXPORT_QP_LEVELS)];
	_Alignas(64) struct local_export_key key[EXPORT_ENTRIES(EXPORT_KEYS, EXPORT_KEY_LEVELS)];
};
_Static_assert(offsetof(struct local_export, file) == 64, "on one line");
_Static_assert(sizeof(struct local_export_key) == 64 && sizeof(struct local_export_qp) == 64 &&
		       sizeof(struct local_export_file) == 64,
	"a line each");

/* What a QP remembers of the export of its peer's process, see src/local. */
struct local_seen {
	uint64_t number;  /* of the connection to that process; 0: nothing */
	uint32_t changes; /* of the export, then */
	uint32_t rkey;
	uint32_t pd, access; /* of the peer */
	struct local_export_key key;
	struct window *window; /* onto the key's memory; NULL: none */
	uint32_t closed;       /* windows that were, then: see local/pages/window.h */
	bool back;             /* the next long copy begins at its end: see local/walk.h */
};

/* Ours: the table that others read, and who writes to it. */
struct local_exporter {
	struct local_export *table; /* NULL: others cannot act for us, nor we for them */
	struct lock lock;           /* the innermost */
};

/* ---- ours; any thread, any lock but its own; nothing is done where there is no table ---- */
/* Until local_export_end(), by the same thread, others may act on it. Without it they do not. */
void local_export_begin(struct local_exporter *x);
void local_export_end(struct local_exporter *x);
/* Exports these as they are now; NULL: no more. `seq` and the number in the entry are not looked at. */
void local_export_set_key(struct local_exporter *x, uint32_t key, const struct local_export_key *k);
void local_export_set_qp(struct local_exporter *x, uint32_t qpn, const struct local_export_qp *qp);
/* place: from 0 on. */
void local_export_set_file(struct local_exporter *x, unsigned place, const struct shared_file *f);

/* ---- another's: copies; false: it is not there ---- */
bool local_export_find_key(const struct local_export *b, uint32_t key, struct local_export_key *out);
bool local_export_find_qp(const struct local_export *b, uint32_t qpn, struct local_export_qp *out);
/* The number as in local_export_key.file. */
bool local_export_find_file(const struct local_export *b, uint16_t number, struct shared_file *out);
static inline bool local_export_lives(const struct local_export *b)
{
	unsigned word = (unsigned)__atomic_load_n(&b->life.__data.__lock, __ATOMIC_ACQUIRE);

	return (word & FUTEX_TID_MASK) && !(word & FUTEX_OWNER_DIED);
}

static inline uint32_t local_export_changes(const struct local_export *b)
{
	return atomic_load_explicit(&b->changes, memory_order_acquire);
}

#endif
