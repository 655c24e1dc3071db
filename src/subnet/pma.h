/* SPDX-License-Identifier: MIT */
/*
 * The counters of a port and the agent that shows them (IBA volume 1, 16.1). Each event is counted once, in
 * 64 bits that are never reset. An attribute's field shows the difference to a base of its own, at most what
 * its bits hold: so PortCounters stay at their limit, are reset and set, and nobody else's view changes with
 * them.
 */
#ifndef SUBNET_PMA_H
#define SUBNET_PMA_H

#include "subnet/model.h"

#include <stdbool.h>
#include <stdint.h>

enum port_counter {
	CNT_SYMBOL_ERRORS,
	CNT_LINK_RECOVERY,
	CNT_LINK_DOWNED,
	CNT_RCV_ERRORS,
	CNT_RCV_REMOTE_PHYSICAL,
	CNT_RCV_SWITCH_RELAY,
	CNT_XMIT_DISCARDS,
	CNT_XMIT_CONSTRAINT,
	CNT_RCV_CONSTRAINT,
	CNT_LINK_INTEGRITY,
	CNT_BUFFER_OVERRUN,
	CNT_VL15_DROPPED,
	CNT_XMIT_DATA, /* in words, from the LRH to the ICRC */
	CNT_RCV_DATA,
	CNT_XMIT_PKTS,
	CNT_RCV_PKTS,
	CNT_XMIT_WAIT,
	CNT_QP1_DROPPED,
	CNT_UNICAST_XMIT,
	CNT_UNICAST_RCV,
	CNT_MCAST_XMIT,
	CNT_MCAST_RCV,
	/* PortRcvErrorDetails */
	CNT_LOCAL_PHYSICAL,
	CNT_MALFORMED,
	CNT_OVERRUN,
	CNT_DLID_MAPPING,
	CNT_VL_MAPPING,
	CNT_LOOPING,
	/* PortXmitDiscardDetails */
	CNT_INACTIVE,
	CNT_NEIGHBOR_MTU,
	CNT_LIFETIME,
	CNT_HOQ_LIFE,
	/* data by SL */
	CNT_XMIT_DATA_SL,
	CNT_RCV_DATA_SL = CNT_XMIT_DATA_SL + 16,
	CNT_COUNT = CNT_RCV_DATA_SL + 16,
};

enum { PMA_FIELDS = 68 }; /* of all attributes together */

struct pma_counters {
	uint64_t total[CNT_COUNT];
	uint64_t base[PMA_FIELDS];
};

/* A datagram of its class that came to a port of this node: true when it has been made an answer. */
bool pma_handle(struct subnet_node *n, uint8_t *mad);

#endif
