/* SPDX-License-Identifier: MIT */
/*
 * The table of claimed RDMA ports as it lies in a file that all processes of a user map: who has which port,
 * by which rules two claims get in each other's way, whom a request is for. No lock, no system call:
 * hca/ports.c brings those.
 *
 * A claim is one atomic word and an address. The address is written first, so that a claim is there or not
 * there at whatever instruction its maker is killed. Nothing read here is believed without bounds: any
 * process of the user may have written it. Look-ups are linear: thousands of claims are a few microseconds,
 * and there is nothing to repair.
 */
#ifndef HCA_PORTS_TABLE_H
#define HCA_PORTS_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	PORTS_MAX = 32768,
	PORTS_STEP = 1024, /* the file grows by so many */
};

struct ports_entry {
	_Atomic uint64_t head; /* see ports_table.c; a free one keeps its generation */
	_Atomic uint64_t addr[2];
	_Atomic uint64_t pid; /* for people */
};

struct ports_table {
	_Atomic uint32_t magic;
	_Atomic uint32_t used; /* entries behind are free; any number may stand here */
	uint32_t reserved[6];
	struct ports_entry entry[PORTS_MAX];
};

/* What a program asks for when it binds. */
struct hca_port_claim {
	uint16_t ps;        /* enum rdma_port_space */
	uint16_t port;      /* 0: any that is free */
	bool v6;            /* family of the address */
	uint8_t addr[16];   /* as a GID: IPv4 as ::ffff:a.b.c.d. All zero: the wildcard of either family */
	bool afonly, reuse; /* RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR */
	bool listening;
	uint16_t slot; /* of the process; the table's users need not set it */
};

/* A claim's name: where it lies and its generation. 0 is none. */
typedef uint64_t hca_port_id;

/* A new, torn or foreign file becomes an empty table. */
void ports_table_check(struct ports_table *t);
/* How many entries there are to look at: never more than fit. */
uint32_t ports_table_count(const struct ports_table *t);
/* Reads entry i as one; false: it is free, or was changed meanwhile. */
bool ports_table_get(const struct ports_table *t, uint32_t i, struct hca_port_claim *c, hca_port_id *id);

/* The rule of Linux's rdma_cm: 0, -EADDRINUSE (same address) or -EADDRNOTAVAIL (one is the wildcard). */
int ports_conflict(const struct hca_port_claim *a, const struct hca_port_claim *b, bool reuse);
/*
 * Whether claim c (that is `self`, when it is there already) may have its port. Claims in its way whose
 * process is dead, says `alive`, are dropped.
 */
int ports_table_allows(struct ports_table *t, const struct hca_port_claim *c, hca_port_id self, bool reuse,
	bool (*alive)(void *arg, uint32_t slot), void *arg);
/* A port of [low, high] nobody has in this port space, searched from `start` on; 0: none. */
uint16_t ports_table_pick(
	const struct ports_table *t, uint16_t ps, uint16_t low, uint16_t high, uint32_t start);
/* Enters a claim; 0 when there is no free entry below `room`. */
hca_port_id ports_table_add(struct ports_table *t, const struct hca_port_claim *c, uint32_t room);
/* Makes the claim a listening one, which cannot be shared. false: it is gone. */
bool ports_table_listen(struct ports_table *t, hca_port_id id);
/* Frees the claim if it is still there and its process has this slot. */
void ports_table_drop(struct ports_table *t, hca_port_id id, uint32_t slot);
/* Lowers `used` to what is used. */
void ports_table_trim(struct ports_table *t);
/* The slot of who listens for a request to this address; 0: nobody. */
uint32_t ports_table_owner(const struct ports_table *t, uint16_t ps, const uint8_t dgid[16], uint16_t port);

#endif
