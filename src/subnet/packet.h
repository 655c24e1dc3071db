/* SPDX-License-Identifier: MIT */
/*
 * A packet inside the subnet: LRH and GRH taken apart, since every hop looks at them and may change them, and
 * the bytes from the BTH to the pad where they lie. ICRC and VCRC are computed when somebody sees them: in a
 * capture, and on every cable of a subnet that checks them (crc.c).
 *
 * Most packets here are management datagrams: BTH, DETH and 256 bytes, always.
 */
#ifndef SUBNET_PACKET_H
#define SUBNET_PACKET_H

#include "wire/lrh.h"
#include "wire/mad.h"
#include "wire/vcrc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PACKET_MAD_LEN = BTH_LEN + DETH_LEN + MAD_LEN,
	PACKET_HEADERS_MAX = LRH_LEN + GRH_LEN,
	PACKET_BODY_MAX = 4096 + LINK_HEADERS_MAX, /* from the BTH to the pad */
	PACKET_CRCS = ICRC_LEN + VCRC_LEN,
	PACKET_WIRE_MAX = PACKET_HEADERS_MAX + PACKET_BODY_MAX + PACKET_CRCS,
};

struct packet {
	struct lrh lrh; /* the VL is that of the link it is on; words is right at any time */
	bool has_grh;
	struct grh grh;
	uint8_t *bth; /* the sender's memory, for as long as the call lasts; a directed route is written there
		       */
	uint32_t len; /* from the BTH to the pad; at least a BTH */
	uint16_t hops;
	bool has_crcs; /* crcs: ICRC and VCRC, as on the cable that it is on */
	uint8_t crcs[PACKET_CRCS];
};

/* Where a management datagram comes from and goes to. */
struct packet_addr {
	uint16_t slid, dlid;
	uint8_t sl, vl; /* make: the VL is that of management for QP0, and whatever a port maps the SL to for
			   others */
	uint16_t pkey;
	uint32_t sqpn, dqpn, qkey;
	bool has_grh;
	struct grh grh; /* make: its length and next header are filled in */
};

/*
 * Makes a packet of a datagram. `room` is where its bytes then lie; it lives as long as the packet is used.
 * The datagram is copied.
 */
void packet_mad_make(struct packet *p, uint8_t room[PACKET_MAD_LEN], const struct packet_addr *a,
	const uint8_t mad[MAD_LEN]);
/* Whether it is a datagram for QP0 or QP1, and then where it came from and where it lies in the packet. */
bool packet_mad_parse(const struct packet *p, struct packet_addr *a, const uint8_t **mad);

/* The datagram of a packet that packet_mad_parse() took. */
static inline uint8_t *packet_mad(const struct packet *p)
{
	return p->bth + BTH_LEN + DETH_LEN;
}

/* The fields of LRH and GRH that say how long it is and what follows; all else is there. */
void packet_set_lengths(struct packet *p);

/* Turns a datagram round, for its answer: LIDs, queue pairs and GIDs change places. */
void packet_mad_turn(struct packet *p);

/* Bytes from the LRH to the pad. */
static inline size_t packet_size(const struct packet *p)
{
	return LRH_LEN + (p->has_grh ? GRH_LEN : 0) + p->len;
}

/* Writes LRH, GRH and the rest as they are on the wire, up to the pad: how many bytes, 0 when they do not
 * fit. */
size_t packet_put(const struct packet *p, uint8_t *out, size_t room);
/* The same with the CRCs: the ICRC that it has, or the right one, and the VCRC that is right behind it. */
size_t packet_put_crcs(const struct packet *p, uint8_t *out, size_t room);
/*
 * Takes the same bytes apart; the packet then points into them. False: not a packet of IBA transport, or its
 * PktLen is not that of len bytes and an ICRC.
 */
bool packet_get(struct packet *p, uint8_t *bytes, size_t len);

#endif
