/* SPDX-License-Identifier: MIT */
/*
 * Which process of a host a MAD is for. All processes share the UDP port, and any of them may receive a MAD:
 * the packet itself only names QP1. What says more depends on the class, so each class whose MADs may be
 * another process's has a router. Every process has all routers, whoever its agents are: it receives for the
 * others too.
 */
#ifndef MAD_ROUTE_H
#define MAD_ROUTE_H

#include "mad/agent.h"

#include <stdbool.h>
#include <stddef.h>

struct host_ports;

enum mad_whom {
	MAD_FOR_SLOT,      /* the process of one slot */
	MAD_FOR_LISTENERS, /* whoever listens: only they can know */
	MAD_FOR_NOBODY,
	MAD_LOST, /* the file of claims has to be made whole first: its sender will try again */
};

struct mad_router {
	uint8_t mgmt_class;
	size_t state_size; /* bytes at `state`, zeroed at first: what it remembers for one adapter */
	/*
	 * Whom it concerns; the slot when it is one. ports: NULL in simulations, or when they cannot be had.
	 * Drive lock; never blocks.
	 */
	enum mad_whom (*route)(void *state, struct host_ports *ports, const uint8_t mad[MAD_LEN],
		const struct mad_from *from, uint64_t now, uint32_t *slot);
	/* The process that a MAD names by itself, by a number which it drew; 0: none. No state, any thread.
	 */
	uint32_t (*addressee)(const uint8_t mad[MAD_LEN]);
	/* Turns a MAD that has no agent here into its refusal; false: it wants none. */
	bool (*refuse)(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN]);
};

#endif
