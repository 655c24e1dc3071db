/* SPDX-License-Identifier: MIT */
/*
 * Finding a connection: by the id we gave it, by the id its peer gave it, by the peer's QP number, and a
 * listener by its service id. Chains through the connections themselves; the buckets are the caller's. Keys
 * come from the network, so the hash has a secret seed: nobody can fill one chain.
 *
 * A communication id of ours is <process slot : 9> <random : 23>. All processes of a host share QP1; a
 * message that lands in the wrong one is handed over by the slot, as packets of QPs are (wire/qpn.h).
 */
#ifndef CM_TABLE_H
#define CM_TABLE_H

#include <stdint.h>

struct cm_conn;

enum cm_index {
	CM_BY_LOCAL,   /* our communication id, or SIDR request id */
	CM_BY_REMOTE,  /* the peer's, and the peer's GID */
	CM_BY_QPN,     /* the peer's QP number, and its GID */
	CM_BY_SERVICE, /* listeners */
	CM_INDEXES,
};

struct cm_link {
	struct cm_link *next, **pprev; /* pprev is NULL: on no chain */
};

struct cm_table {
	struct cm_link **bucket;
	uint32_t mask;
	uint64_t seed;
	uint32_t count[CM_INDEXES];
};

/* buckets: CM_INDEXES * n pointers, all NULL, which stay the caller's; n is a power of two. */
void cm_table_init(struct cm_table *t, struct cm_link **buckets, uint32_t n, uint64_t seed);
/* By what the connection has as its key now; it must not change while it is in. */
void cm_table_add(struct cm_table *t, enum cm_index index, struct cm_conn *c);
/* gid is NULL where the index has none. NULL: nobody. */
struct cm_conn *cm_table_find(
	const struct cm_table *t, enum cm_index index, uint64_t number, const uint8_t *gid);
/* Out of every index it is in. */
void cm_table_remove(struct cm_table *t, struct cm_conn *c);

enum { CM_ID_SLOT_SHIFT = 23 };
#define CM_ID_SIDR (1ull << 32) /* SIDR request ids of a peer are apart from its communication ids */

static inline uint32_t cm_id_slot(uint32_t id)
{
	return id >> CM_ID_SLOT_SHIFT;
}
static inline uint32_t cm_id_make(uint32_t slot, uint32_t random)
{
	return slot << CM_ID_SLOT_SHIFT | (random & ((1u << CM_ID_SLOT_SHIFT) - 1));
}

#endif
