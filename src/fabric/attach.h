/* SPDX-License-Identifier: MIT */
/*
 * What programs and the process that is the subnet say to each other about devices and packets, over the
 * SEQPACKET socket `attach` in the fabric's directory. Both are of one machine and one user (SO_PEERCRED).
 *
 *   HELLO    the program: which host it is on, and its slot (host/slot.h); 0: it only looks
 *   WELCOME  the fabric: the host's adapters; with it come descriptors of the table (fabric/shared.h) and of
 *            the names (fabric/names.h), which can only be read, and for a program with a slot that of its
 *            trunk (fabric/trunk.h)
 *
 * From then on either side sends single bytes: RING, something lies in the trunk and you slept, or there is
 * room in the socket again; CHANGED, look at the table again. And a program with a slot says for which
 * requests of connections it listens (LISTEN, UNLISTEN): QP1 is the fabric's. Nobody answers to that: what a
 * fabric refuses is counted, and a program counts its own. The socket's end is the other's death, and nothing
 * that it had is left.
 */
#ifndef FABRIC_ATTACH_H
#define FABRIC_ATTACH_H

#include "fabric/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric_names;
struct fabric_table;
struct trunk;

enum { ATTACH_MAGIC = 0x61747461, ATTACH_VERSION = 3, ATTACH_LISTENERS = 1024 /* of one program */ };
enum attach_byte {
	ATTACH_RING = 'r',
	ATTACH_CHANGED = 'c',
	ATTACH_LISTEN = 'l',
	ATTACH_UNLISTEN = 'u'
}; /* the first of a message */

/* Which requests: of this service, for this address. */
enum attach_families { ATTACH_V4 = 1, ATTACH_V6 = 2, ATTACH_GID = 4 };
struct attach_listen {
	uint8_t type;     /* ATTACH_LISTEN, ATTACH_UNLISTEN */
	uint8_t families; /* what the address is; of which families the wildcard is, all zero */
	uint8_t unused[6];
	uint64_t service_id;
	uint8_t addr[16]; /* an IP address or a GID of the host */
};

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
	uint64_t table_size, names_size;
	uint32_t host_tag, unused; /* not 0: tells ports of hosts apart (host/ports.h) */
	char tree[FABRIC_PATH];    /* the host's device files: class/ and dev/ */
	struct attach_hca hca[FABRIC_CAS];
};

/* A program's end of it. */
struct fabric_attachment {
	int fd; /* the socket; not blocking */
	const struct fabric_table *table;
	const struct fabric_names *names;
	struct trunk *trunk; /* NULL: it only looks */
	struct attach_welcome welcome;
};

/* Whether the environment puts this program on a host of a fabric. */
bool fabric_is_ours(void);

/*
 * 0 or -errno: -ENOENT: there is no fabric; or what it said. Waits so long for its answer: FABRIC_PATIENCE_MS
 * (client.h) the first time; FABRIC_RETRY_MS where it was there before: the thread that tries again holds up
 * others.
 */
enum { FABRIC_RETRY_MS = 100 };
int fabric_attach(struct fabric_attachment *a, uint32_t slot, unsigned patience_ms);
void fabric_detach(struct fabric_attachment *a);

/*
 * Reads what lies in the socket: whether the table changed. The fabric may have ended: then the descriptor
 * becomes a timer under the same number, and *gone says so.
 */
bool fabric_read_news(int fd, bool *gone);
/* Whether the descriptor is that timer; and whether it rang since: it is time to try again. */
bool fabric_is_timer(int fd);
bool fabric_timer_rang(int fd);
void fabric_ring(int fd);

/* A descriptor that is readable when the table changed or the fabric came or went; -errno. */
int fabric_watch(void);
/* Takes what it says, before the table is read again. */
void fabric_watch_drain(int fd);

#endif
