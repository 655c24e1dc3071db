/* SPDX-License-Identifier: MIT */
/*
 * What InfiniBand has in front of the BTH: the local route header, which every hop reads, and the global one,
 * which is optional inside a subnet. IBA volume 1, 7.7 and 8.3.
 *
 *   LRH (8)   VL(4) LVer(4) | SL(4) rsvd(2) LNH(2) | DLID(16) | rsvd(5) PktLen(11) | SLID(16)
 *   GRH (40)  IPVer(4) TClass(8) FlowLabel(20) | PayLen(16) | NxtHdr(8) | HopLmt(8) | SGID(128) | DGID(128)
 *
 * PktLen counts words of four bytes, from the LRH to the ICRC; the VCRC is not in it. PayLen counts bytes,
 * from behind the GRH to the ICRC.
 */
#ifndef WIRE_LRH_H
#define WIRE_LRH_H

#include "base/bytes.h"
#include "wire/ibt.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	LRH_LEN = 8,
	LRH_WORDS_MAX = 0x7ff,
	VL_MANAGEMENT = 15,
	LID_NONE = 0,
	LID_MCAST = 0xc000,      /* the first of a group */
	LID_PERMISSIVE = 0xffff, /* whoever is at the other end of the cable */
	GRH_NXT_IBA = 0x1b,
	GRH_IP_VERSION = 6,
	LINK_HEADERS_MAX = 124, /* a packet may be this much longer than the MTU (IBA 7.7) */
};

enum lnh { LNH_RAW, LNH_IPV6, LNH_LOCAL, LNH_GLOBAL }; /* what follows: a BTH, or GRH and BTH */

struct lrh {
	uint8_t vl, lver, sl;
	enum lnh lnh;
	uint16_t dlid, words, slid;
};

struct grh {
	uint8_t tclass, next, hop_limit;
	uint16_t len;
	uint32_t flow_label;
	uint8_t sgid[16], dgid[16];
};

static inline bool lid_is_unicast(uint16_t lid)
{
	return lid && lid < LID_MCAST;
}

static inline bool lid_is_mcast(uint16_t lid)
{
	return lid >= LID_MCAST && lid != LID_PERMISSIVE;
}

/* Bytes of an MTU as enum ibv_mtu has it; 0 for a code that there is not. */
static inline unsigned mtu_bytes(unsigned code)
{
	return code >= 1 && code <= 5 ? 128u << code : 0;
}

static inline struct lrh lrh_get(const uint8_t *p)
{
	return (struct lrh){p[0] >> 4, p[0] & 0x0f, p[1] >> 4, (enum lnh)(p[1] & 3), get_be16(p + 2),
		get_be16(p + 4) & LRH_WORDS_MAX, get_be16(p + 6)};
}

static inline void lrh_put(uint8_t *p, const struct lrh *h)
{
	p[0] = (uint8_t)(h->vl << 4 | (h->lver & 0x0f));
	p[1] = (uint8_t)(h->sl << 4 | h->lnh);
	put_be16(p + 2, h->dlid);
	put_be16(p + 4, h->words & LRH_WORDS_MAX);
	put_be16(p + 6, h->slid);
}

static inline struct grh grh_get(const uint8_t *p)
{
	uint32_t first = get_be32(p);
	struct grh h = {(uint8_t)(first >> 20), p[6], p[7], get_be16(p + 4), first & 0xfffff};

	memcpy(h.sgid, p + 8, 16);
	memcpy(h.dgid, p + 24, 16);
	return h;
}

static inline void grh_put(uint8_t *p, const struct grh *h)
{
	put_be32(p, (uint32_t)GRH_IP_VERSION << 28 | (uint32_t)h->tclass << 20 | (h->flow_label & 0xfffff));
	put_be16(p + 4, h->len);
	p[6] = h->next;
	p[7] = h->hop_limit;
	memcpy(p + 8, h->sgid, 16);
	memcpy(p + 24, h->dgid, 16);
}

#endif
