/* SPDX-License-Identifier: MIT */
/*
 * How a QP number is divided: <process slot : 9> <random : 15>. All processes of a host share one UDP port;
 * the slot says whose a packet is (link/steer.h). Slot 0 holds QP0 and QP1, the last one the multicast QP
 * number.
 *
 * A communication id of the CM is divided likewise: <process slot : 9> <random : 23>.
 */
#ifndef WIRE_QPN_H
#define WIRE_QPN_H

#include <stdint.h>

enum { QPN_SLOT_SHIFT = 15, QPN_SLOTS = 512, QPN_PER_SLOT = 1 << QPN_SLOT_SHIFT };

static inline uint32_t qpn_slot(uint32_t qpn)
{
	return qpn >> QPN_SLOT_SHIFT;
}

enum { COMM_ID_SLOT_SHIFT = 23 };

static inline uint32_t comm_id_slot(uint32_t id)
{
	return id >> COMM_ID_SLOT_SHIFT;
}
static inline uint32_t comm_id_make(uint32_t slot, uint32_t random)
{
	return slot << COMM_ID_SLOT_SHIFT | (random & ((1u << COMM_ID_SLOT_SHIFT) - 1));
}

#endif
