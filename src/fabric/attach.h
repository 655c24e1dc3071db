/* SPDX-License-Identifier: MIT */
/*
 * What programs and the process that is the subnet say to each other about devices and packets, over the
 * SEQPACKET socket `attach` in the fabric's directory. Both are of one machine and one user (SO_PEERCRED).
 *
 *   HELLO    the program: which host it is on, and its slot (host/slot.h); 0: it only looks
 *   WELCOME  the fabric: the host's adapters; with it come descriptors of the table (fabric/shared.h), which
 *            can only be read, and for a program with a slot those of its trunk (fabric/trunk.h)
 *
 * From then on either side sends single bytes: RING, something lies in the trunk and you slept; CHANGED, look
 * at the table again. The socket's end is the other's death.
 */
#ifndef FABRIC_ATTACH_H
#define FABRIC_ATTACH_H

#include "fabric/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric_table;
struct trunk;

enum { ATTACH_MAGIC = 0x61747461, ATTACH_VERSION = 1 };
enum attach_byte { ATTACH_RING = 'r', ATTACH_CHANGED = 'c' };

struct attach_hello {
	uint32_t magic, version;
	uint32_t slot, unused;
	char host[FABRIC_NAME]; /* "": the first one */
};

struct attach_hca {
	char name[FABRIC_CA_NAME]; /* ib0, ib1, … */
	uint32_t nports;
	uint64_t node_guid, sys_guid;
	uint32_t port[FABRIC_CA_PORTS]; /* in the table */
	uint32_t unused;
};

struct attach_welcome {
	uint32_t magic, version;
	int32_t error; /* an errno: ENODEV no such host, EADDRINUSE the slot is another's, EPROTO version */
	uint32_t nhcas;
	uint64_t table_size;
	char tree[FABRIC_PATH]; /* the host's device files: class/ and dev/ */
	struct attach_hca hca[FABRIC_CAS];
};

/* A program's end of it. */
struct fabric_attachment {
	int fd; /* the socket; not blocking */
	const struct fabric_table *table;
	struct trunk *trunk; /* NULL: it only looks */
	struct attach_welcome welcome;
};

/* Whether the environment puts this program on a host of a fabric. */
bool fabric_is_ours(void);

/*
 * 0 or -errno: -ENOENT: there is no fabric; or what it said. Waits so long for its answer: FABRIC_PATIENCE_MS
 * (client.h) the first time; FABRIC_RETRY_MS where it was there before and others wait for who tries again.
 */
enum { FABRIC_RETRY_MS = 100 };
int fabric_attach(struct fabric_attachment *a, uint32_t slot, unsigned patience_ms);
void fabric_detach(struct fabric_attachment *a);

/*
 * Reads what lies in the socket: whether the table changed. The fabric may have ended: then the descriptor
 * becomes a timer under the same number, and *gone says so.
 */
bool fabric_hear(int fd, bool *gone);
/* Whether the descriptor is that timer; and whether it rang since: it is time to try again. */
bool fabric_is_timer(int fd);
bool fabric_timer_rang(int fd);
void fabric_ring(int fd);

/* A descriptor that is readable when the table changed or the fabric came or went; -errno. */
int fabric_watch(void);
/* Takes what it says, before the table is read again. */
void fabric_watch_drain(int fd);

#endif
