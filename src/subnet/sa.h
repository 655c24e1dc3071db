/* SPDX-License-Identifier: MIT */
/*
 * The subnet administration of the built-in manager: clients' questions about the subnet, their multicast
 * groups, services and subscriptions. Messages come in whole and go out whole: who sends them makes the
 * segments (mad/ib).
 */
#ifndef SUBNET_SA_H
#define SUBNET_SA_H

#include "subnet/sm.h"
#include "wire/sa.h"

/*
 * The answer to a message from a LID: its length, and where it lies until the next call. Longer than a MAD,
 * or Active in its RMPP header: it goes in segments. 0: there is none.
 */
size_t subnet_sa_answer(struct subnet_sm *m, uint16_t slid, const uint8_t *msg, size_t len, uint64_t now,
	const uint8_t **answer);

struct sa_report { /* a Report that somebody has subscribed to */
	uint16_t lid;
	uint32_t qpn;
	uint8_t mad[MAD_LEN];
};

/* The next one that has not been fetched; false: none. */
bool subnet_sa_next_report(struct subnet_sm *m, struct sa_report *out);

#endif
