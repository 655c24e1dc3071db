/* SPDX-License-Identifier: MIT */
/*
 * The table of a fabric: what there is to know about the paths of a subnet. The process that is the subnet
 * writes it, a Set of the subnet manager being a store into it; programs map it and walk through it (walk.h).
 * It lies in memory that the caller gives, zero and as sparse as it may be: a switch has 48 KiB of forwarding
 * table, of which a small fabric touches a page.
 *
 *   header · programs · ports · switches · LID to port · SL to VL · forwarding tables, a byte per LID and
 * switch
 *
 * The epoch is odd while the table is being changed, and moves only when something really was. A reader that
 * saw it odd, or sees another number afterwards, reads again.
 */
#ifndef FABRIC_SHARED_H
#define FABRIC_SHARED_H

#include "wire/lrh.h"
#include "wire/qpn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FABRIC_VERSION = 3,
	FABRIC_PKEYS = 32, /* of a port: one block, since each further one costs a subnet manager an SMP */
	FABRIC_GUIDS = 8,
	FABRIC_LIDS = LID_MCAST, /* unicast */
	FABRIC_NO_PORT = 255,    /* in a forwarding table: there is no route */
};
#define FABRIC_MAGIC 0x61726661u
#define FABRIC_NONE  UINT32_MAX /* where the index of a port or a switch is expected */
/* An epoch that the table never has: the reader has to look. */
#define FABRIC_NO_EPOCH UINT64_MAX

enum port_state { PORT_DOWN = 1, PORT_INIT, PORT_ARMED, PORT_ACTIVE }; /* PortInfo.PortState */
enum port_phys {                                                       /* PortInfo.PortPhysicalState */
	PHYS_SLEEP = 1,
	PHYS_POLLING,
	PHYS_DISABLED,
	PHYS_TRAINING,
	PHYS_LINK_UP,
};

enum fabric_flags {
	FABRIC_PLAIN = 1,    /* nothing on this cable wants to see packets: no capture, no fault */
	FABRIC_PKEY_IN = 2,  /* a switch checks the P_Keys of what comes in here */
	FABRIC_PKEY_OUT = 4, /* and of what goes out */
};

struct fabric_port {
	uint32_t node;
	uint32_t sw;    /* the switch it belongs to; FABRIC_NONE: it is a channel adapter's */
	uint32_t peer;  /* the port at the other end of the cable, or FABRIC_NONE */
	uint32_t sl2vl; /* the first of its rows: a switch's port has one for each port that packets come from
			 */
	uint32_t host;  /* whose adapter it is of, counted from 1 on; 0: of none */
	uint32_t cap_mask;
	uint16_t lid, sm_lid;
	uint8_t num, state, phys, lmc;
	uint8_t mtu, mtu_cap; /* NeighborMTU; what it could do */
	uint8_t vls, sm_sl;   /* OperationalVLs, as PortInfo encodes it */
	uint8_t width, speed, speed_ext, timeout;
	uint32_t flags;
	uint32_t reregisters; /* how often a subnet manager asked clients to register again */
	uint64_t prefix, guid[FABRIC_GUIDS];
	uint16_t pkey[FABRIC_PKEYS];
};

struct fabric_switch {
	uint32_t first; /* its port 0; the others follow */
	uint16_t nports;
	uint16_t top; /* LinearFDBTop: the last LID that the forwarding table is asked for */
};

struct fabric_row { /* SL to VL: a nibble for each SL, as SLtoVLMappingTable has it */
	uint8_t vl[8];
};

/* Who has a slot (host/slot.h) of this machine: see fabric_program(). */
struct fabric_program {
	uint32_t host; /* as in a port; 0: nobody is there */
	int32_t pid;   /* as the fabric sees it; what other programs of its namespace see is the same */
};

struct fabric_counts {
	uint32_t ports, switches, rows;
};

struct fabric_table {
	uint32_t magic, version;
	struct fabric_counts n;
	uint32_t programs;
	uint64_t size, epoch;
	uint64_t programs_at, ports_at, switches_at, lids_at, rows_at, lft_at;
};

/* How much memory a table needs, most of it never touched. */
size_t fabric_table_size(const struct fabric_counts *n);
/* Lays a table out in zeroed memory of that size. All ports have no peer. */
struct fabric_table *fabric_table_init(void *zeroed, const struct fabric_counts *n);
/* That of a program on no fabric: there is nothing in it, and it never changes. */
extern const struct fabric_table fabric_none;

/* ---- the writer's side: any number of stores between these two; one thread ---- */
void fabric_change_begin(struct fabric_table *t); /* harmless when it has begun */
void fabric_change_end(struct fabric_table *t);   /* harmless when nothing has begun */

static inline uint64_t fabric_epoch(const struct fabric_table *t)
{
	return __atomic_load_n(&t->epoch, __ATOMIC_ACQUIRE);
}

/* ---- its parts; NULL or none beyond the end ---- */
static inline struct fabric_program *fabric_program(const struct fabric_table *t, uint32_t slot)
{
	return slot < t->programs ? (struct fabric_program *)((char *)t + t->programs_at) + slot : NULL;
}

static inline struct fabric_port *fabric_port(const struct fabric_table *t, uint32_t i)
{
	return i < t->n.ports ? (struct fabric_port *)((char *)t + t->ports_at) + i : NULL;
}

static inline struct fabric_switch *fabric_switch(const struct fabric_table *t, uint32_t i)
{
	return i < t->n.switches ? (struct fabric_switch *)((char *)t + t->switches_at) + i : NULL;
}

static inline struct fabric_row *fabric_row(const struct fabric_table *t, uint32_t i)
{
	return i < t->n.rows ? (struct fabric_row *)((char *)t + t->rows_at) + i : NULL;
}

static inline unsigned fabric_row_vl(const struct fabric_row *r, unsigned sl)
{
	return sl & 1 ? r->vl[sl / 2 & 7] & 15 : r->vl[sl / 2 & 7] >> 4;
}

/* The port that has a LID; FABRIC_NONE: nobody. Written as index + 1, so that zeroed memory says nobody. */
static inline uint32_t fabric_lid_port(const struct fabric_table *t, uint16_t lid)
{
	return lid < FABRIC_LIDS ? ((const uint32_t *)((const char *)t + t->lids_at))[lid] - 1 : FABRIC_NONE;
}

static inline void fabric_lid_set(struct fabric_table *t, uint16_t lid, uint32_t port)
{
	if (lid < FABRIC_LIDS)
		((uint32_t *)((char *)t + t->lids_at))[lid] = port + 1;
}

/* Forwarding tables are written with all bits turned, so that zeroed memory says FABRIC_NO_PORT. */
static inline uint8_t fabric_lft(const struct fabric_table *t, uint32_t sw, uint16_t lid)
{
	if (sw >= t->n.switches || lid >= FABRIC_LIDS)
		return FABRIC_NO_PORT;
	return (uint8_t) ~((const uint8_t *)t + t->lft_at)[(size_t)sw * FABRIC_LIDS + lid];
}

static inline void fabric_lft_set(struct fabric_table *t, uint32_t sw, uint16_t lid, uint8_t port)
{
	if (sw < t->n.switches && lid < FABRIC_LIDS)
		((uint8_t *)t + t->lft_at)[(size_t)sw * FABRIC_LIDS + lid] = (uint8_t)~port;
}

/* Whether a LID is one of a port's, all LMC bits of it. A port that has none yet has no LID. */
static inline bool fabric_port_has_lid(const struct fabric_port *p, uint16_t lid)
{
	return lid_is_unicast(p->lid) && lid >> p->lmc == p->lid >> p->lmc;
}

static inline bool fabric_port_has_pkey(const struct fabric_port *p, uint16_t pkey)
{
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		if (pkey && p->pkey[i] == pkey)
			return true;
	return false;
}

/* Whether one that comes is of a partition of this port's. */
static inline bool fabric_port_takes_pkey(const struct fabric_port *p, uint16_t pkey)
{
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		if (pkey_matches(p->pkey[i], pkey))
			return true;
	return false;
}

static inline bool fabric_port_has_gid(const struct fabric_port *p, const uint8_t gid[16])
{
	if (get_be64(gid) != p->prefix)
		return false;
	for (unsigned i = 0; i < FABRIC_GUIDS; i++)
		if (p->guid[i] && p->guid[i] == get_be64(gid + 8))
			return true;
	return false;
}

/* How many data VLs OperationalVLs or VLCap stand for (IBA 14.2.5.6). */
static inline unsigned fabric_vl_count(unsigned code)
{
	return code >= 1 && code <= 4 ? 1u << (code - 1) : code == 5 ? 15 : 0;
}

#endif
