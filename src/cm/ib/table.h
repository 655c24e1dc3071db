/* SPDX-License-Identifier: MIT */
/*
 * Finding a connection: by the id we gave it, by the id its peer gave it, by the peer's QP number, and a
 * listener by its service id. Chains through the connections themselves; the buckets are the caller's. Keys
 * come from the network, so the hash has a secret seed: nobody can fill one chain.
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
/* Out of one index, if it is in it; out of all. */
void cm_table_drop(struct cm_table *t, enum cm_index index, struct cm_conn *c);
void cm_table_remove(struct cm_table *t, struct cm_conn *c);

#define CM_ID_SIDR (1ull << 32) /* SIDR request ids of a peer are apart from its communication ids */

#endif
