/* SPDX-License-Identifier: MIT */
/*
 * Where a packet would get to: from port to port by the forwarding tables, as the switches themselves do it.
 * A switch of the subnet uses the same functions for its one hop (subnet/forward.c), so that what a program
 * finds out here and what happens to its packets cannot differ. Pure: nothing is written, nothing is counted.
 */
#ifndef FABRIC_WALK_H
#define FABRIC_WALK_H

#include "fabric/shared.h"

enum { WALK_HOPS_MAX = 64 }; /* our own limit for tables that go round in circles: an LRH has none */

/* What becomes of a packet. The order is that of the checks. */
enum walk_end {
	WALK_ARRIVED,
	WALK_DEAF,     /* the port at the other end of the cable does not take such packets in its state */
	WALK_PKEY_IN,  /* a switch refused the P_Key as it came in */
	WALK_NO_ROUTE, /* no entry in the forwarding table, or one for a port that there is not */
	WALK_RETURNS,  /* out by the port that it came in by */
	WALK_BAD_VL,   /* the SL has no VL there */
	WALK_INACTIVE, /* the port to leave by is not in the state for it */
	WALK_TOO_LONG, /* for the MTU of the link */
	WALK_PKEY_OUT, /* a switch refused the P_Key as it went out */
	WALK_TOO_FAR,  /* WALK_HOPS_MAX */
	WALK_STRANGER, /* the port it came to has another LID */
	WALK_END_COUNT,
};

struct walk_for { /* what kind of packet */
	uint16_t pkey;
	uint16_t words; /* its PktLen */
	uint8_t sl;
	bool management; /* on VL 15: needs a link, not an active one, and no P_Key */
};

struct walk {
	uint32_t port; /* the last port it was at, by its index */
	uint8_t vl;    /* on the last link */
	uint16_t hops; /* switches passed */
	bool plain;    /* every cable on the way was */
};

/* All the way from a port to a LID. What is unicast only; the sender's own LID is no path. */
enum walk_end fabric_walk(const struct fabric_table *t, uint32_t from, uint16_t dlid,
	const struct walk_for *what, struct walk *out);

/* ---- the steps of it ---- */
/* What came over the cable is at this port: WALK_ARRIVED when it takes it. */
enum walk_end fabric_takes(const struct fabric_port *in, const struct walk_for *what);
/* A switch looks a unicast LID up: the number of the port to leave by, which may be 0. */
enum walk_end fabric_route(
	const struct fabric_table *t, const struct fabric_port *in, uint16_t dlid, uint8_t *num);
/* Whether a port sends a packet that came in by port in_num of its switch (0 in an adapter), and on which VL.
 */
enum walk_end fabric_sends(const struct fabric_table *t, const struct fabric_port *out, unsigned in_num,
	const struct walk_for *what, uint8_t *vl);

#endif
