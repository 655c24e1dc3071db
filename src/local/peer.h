/* SPDX-License-Identifier: MIT */
/*
 * Another process of this host whose memory we act in: what it exports (local/export/export.h), and the two
 * ways to its bytes: our own instructions where we have them mapped (local/pages/window.h), the kernel
 * (process_vm_*) everywhere else. It may take away our right to act at any time: see local/settle.c.
 */
#ifndef LOCAL_PEER_H
#define LOCAL_PEER_H

#include "local/export/export.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

struct windows;

enum local_act {
	LOCAL_DONE,
	LOCAL_DECLINED, /* to the usual way: not shown, not allowed, not there */
	LOCAL_CLOSED,   /* the same, and the kernel does not let us into this process */
};

struct local_peer {
	const struct local_export *export;
	uint64_t number;                 /* of the connection to it: another one has another export */
	struct windows *windows;         /* onto its memory */
	const _Atomic uint32_t *revoked; /* not 0: nothing may be done any more */
	pid_t pid;                       /* 0: the kernel does not let us in */
	bool self;                       /* it is us */
};

/* Whether what was seen of a key stands: nothing has changed on the export since. */
static inline bool local_has_seen(const struct local_seen *s, const struct local_peer *p, uint32_t key)
{
	return s->number == p->number && s->changes == local_export_changes(p->export) && s->rkey == key;
}

/* Looks the key up, and remembers; false: it is not there. */
bool local_look(struct local_seen *s, const struct local_peer *p, uint32_t key);

/* Where [addr, addr + len) of the key is in the peer; 0: nowhere. */
static inline uint64_t local_range(const struct local_export_key *k, uint64_t addr, uint32_t len)
{
	uint64_t off = addr - k->iova; /* wraps to something huge when below */

	return off > k->length || len > k->length - off ? 0 : k->host + off;
}

/*
 * The first part of [host, host + *len) that we have mapped as a whole, or not at all: cuts *len to it, and
 * says where we have it; NULL: not mapped, or not touched yet by the kernel.
 */
char *local_mapped(struct local_seen *s, const struct local_peer *p, uint64_t host, uint32_t *len);
/* Moves bytes through the kernel: all of them, or it says why not. What it touched may be mapped next time.
 */
enum local_act local_by_kernel(struct local_seen *s, const struct local_peer *p, const struct iovec *own,
	unsigned n, uint64_t host, uint32_t len, bool write);

static inline bool local_is_revoked(const struct local_peer *p)
{
	return atomic_load_explicit(p->revoked, memory_order_acquire);
}

#endif
