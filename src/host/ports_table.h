/* SPDX-License-Identifier: MIT */
/*
 * The table of claimed RDMA ports: who has which port, by which rules two claims get in each other's way,
 * whom a request is for. It lies in a file that all processes of a user share; here is a copy of it in
 * private memory, or of some entries. No lock, no system call: host/ports.c brings those, and writes back the
 * entries that are marked.
 *
 * A claim is one entry, which is written as a whole by the process whose it is. Nothing read here is believed
 * without bounds: any process of the user may have written it. Look-ups are linear: thousands of claims are
 * some microseconds, and there is nothing to repair.
 */
#ifndef HOST_PORTS_TABLE_H
#define HOST_PORTS_TABLE_H

#include "host/process.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	PORTS_MAX = 32768,
	PORTS_STEP = 1024, /* the file grows by so many */
};

struct ports_entry {
	uint64_t head; /* see ports_table.c; a free one keeps its generation */
	uint8_t addr[16];
	uint32_t pid;  /* for people */
	uint32_t host; /* which one of a fabric; 0: this machine */
};

struct ports_header {
	uint32_t magic;
	uint32_t used;   /* entries behind are free; any number may stand here */
	uint32_t formed; /* who had a slot when this file was new was asked to enter its claims */
	uint32_t reserved[5];
};

/* The file, as far as it is there. */
struct ports_table {
	struct host_processes processes; /* only in the file: each is its process's to write */
	struct ports_header h;           /* behind them: who cuts off records cuts it off, too */
	struct ports_entry entry[PORTS_MAX];
	/* Not in the file: entries to be written back. */
	uint64_t changed[PORTS_MAX / 64];
};

/* What a program asks for when it binds. */
struct host_port_claim {
	uint16_t ps;        /* enum rdma_port_space */
	uint16_t port;      /* 0: any that is free */
	bool v6;            /* family of the address */
	uint8_t addr[16];   /* as a GID: IPv4 as ::ffff:a.b.c.d. All zero: the wildcard of either family */
	bool afonly, reuse; /* RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR */
	bool listening;
	uint32_t host; /* ports of hosts of a fabric are apart from each other's, and from the machine's: 0 */
	uint16_t slot; /* of the process; the table's users need not set it */
};

/* A claim's name: where it lies and its generation. 0 is none. */
typedef uint64_t host_port_id;

/* A header of which `used` entries are there, in a file of so many: false: it is new, torn or foreign. */
bool ports_header_is_whole(const struct ports_header *h, uint32_t entries);
/* An empty table. */
void ports_table_clear(struct ports_table *t);
/* A claim as an entry says it; false: it is free. i: where it lies. */
bool ports_entry_get(const struct ports_entry *e, uint32_t i, struct host_port_claim *c, host_port_id *id);
/* How many entries there are to look at: never more than fit. */
uint32_t ports_table_count(const struct ports_table *t);
/* The same for entry i. */
bool ports_table_get(const struct ports_table *t, uint32_t i, struct host_port_claim *c, host_port_id *id);

/* The rule of Linux's rdma_cm: 0, -EADDRINUSE (same address) or -EADDRNOTAVAIL (one is the wildcard). */
int ports_conflict(const struct host_port_claim *a, const struct host_port_claim *b, bool reuse);
/*
 * Whether claim c (that is `self`, when it is there already) may have its port. Claims in its way whose
 * process is dead, says `alive`, are dropped.
 */
int ports_table_allows(struct ports_table *t, const struct host_port_claim *c, host_port_id self, bool reuse,
	bool (*alive)(void *arg, uint32_t slot), void *arg);
/* A port of [low, high] nobody has in this port space on any host, searched from `start` on; 0: none. */
uint16_t ports_table_pick(
	const struct ports_table *t, uint16_t ps, uint16_t low, uint16_t high, uint32_t start);
/* Enters a claim; 0 when there is no free entry below `room`. */
host_port_id ports_table_add(struct ports_table *t, const struct host_port_claim *c, uint32_t room);
/* Makes the claim a listening one, which cannot be shared. false: it is gone. */
bool ports_table_listen(struct ports_table *t, host_port_id id);
/* Frees the claim if it is still there and its process has this slot. */
void ports_table_drop(struct ports_table *t, host_port_id id, uint32_t slot);
/* Makes the entry a free one. */
void ports_entry_free(struct ports_entry *e);
/* Lowers `used` to what is used. */
void ports_table_trim(struct ports_table *t);
/* Whether the entry listens for a request to this address of the machine. */
bool ports_entry_listens(const struct ports_entry *e, uint16_t ps, const uint8_t dgid[16], uint16_t port);
/* The slot of who does; 0: nobody. */
uint32_t ports_table_owner(const struct ports_table *t, uint16_t ps, const uint8_t dgid[16], uint16_t port);

#endif
