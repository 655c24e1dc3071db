/* SPDX-License-Identifier: MIT */
/*
 * Notices: what a port tells the subnet manager in a trap (IBA volume 1, 13.4.8 and 14.2.5.1). The details
 * differ by trap.
 *
 *   0  generic(1) type(7) | producer(24)
 *   4  trap number(16) | issuer's LID(16)
 *   8  toggle(1) count(15)
 *  10  details (54)
 *        64-67     rsvd(48) GID(128)
 *        128       LID of the switch(16)
 *        129       rsvd(16) LID(16) port(8)
 *        144       rsvd(16) LID(16) rsvd(8) other changes(8) CapabilityMask(32) change flags(16)
 *        256       rsvd(16) LID(16) DrSLID(16) method(8) rsvd(8) attribute(16) modifier(32) M_Key(64)
 *                  rsvd(8) directed(1) truncated(1) hops(6) ReturnPath[30]
 *        257, 258  rsvd(16) LID1(16) LID2(16) key(32) SL(4) rsvd(4) QP1(24) rsvd(8) QP2(24) GID1(128)
 * GID2(128) 259       valid(16) LID1(16) LID2(16) P_Key(16) SL(4) rsvd(4) QP1(24) rsvd(8) QP2(24) GID1(128)
 *                  GID2(128) LID of the switch(16) port(8)
 */
#ifndef WIRE_NOTICE_H
#define WIRE_NOTICE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum { NOTICE_LEN = 64, NOTICE_DETAILS = 10, NOTICE_DETAILS_LEN = 54, NOTICE_PATH_MAX = 30 };

enum trap_number {
	TRAP_GID_IN = 64, /* these four are a subnet manager's own */
	TRAP_GID_OUT = 65,
	TRAP_GROUP_IN = 66,
	TRAP_GROUP_OUT = 67,
	TRAP_LINK_STATE = 128,
	TRAP_LINK_INTEGRITY = 129,
	TRAP_LOCAL_CHANGES = 144,
	TRAP_BAD_MKEY = 256,
	TRAP_BAD_PKEY = 257,
	TRAP_BAD_QKEY = 258,
	TRAP_SWITCH_BAD_PKEY = 259,
};

enum notice_type { NOTICE_FATAL, NOTICE_URGENT, NOTICE_SECURITY, NOTICE_SM, NOTICE_INFO };

/* Trap 144: what else has changed, in the flags */
enum { NOTICE_NODE_DESC = 1, NOTICE_WIDTH_ENABLED = 2, NOTICE_SPEED_ENABLED = 4 };

static inline void notice_put(
	uint8_t p[NOTICE_LEN], enum notice_type type, uint8_t producer, uint16_t trap, uint16_t lid)
{
	memset(p, 0, NOTICE_LEN);
	p[0] = (uint8_t)(0x80 | type);
	p[3] = producer; /* NodeType */
	put_be16(p + 4, trap);
	put_be16(p + 6, lid);
}

static inline uint16_t notice_trap(const uint8_t p[NOTICE_LEN])
{
	return get_be16(p + 4);
}

#endif
