/* SPDX-License-Identifier: MIT */
/*
 * Directed routes: what a node does with a packet that carries its own route (IBA volume 1, 14.2.2, C14-9 on
 * the way out, C14-13 on the way back). Pure: the packet is bytes, the node a few facts.
 */
#ifndef SUBNET_SMP_ROUTE_H
#define SUBNET_SMP_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

enum smp_step {
	SMP_HERE,   /* for the SMA of this node, or its subnet manager */
	SMP_LEAVES, /* by the port of that number, its LIDs permissive */
	SMP_BY_LID, /* the directed part is over: on by LID, to `lid` */
	SMP_DROP,
};

struct smp_at {
	uint8_t in;     /* the port it came in by; the one to leave by at the node that begins */
	uint8_t nports; /* of the node */
	bool is_switch;
	bool may_begin; /* it was made here, or came by LID to begin here */
};

struct smp_next {
	uint8_t out;
	uint16_t lid;
};

/* Moves a packet one step on; its hop pointer and return path are written. */
enum smp_step smp_route(uint8_t *smp, const struct smp_at *at, struct smp_next *next);

#endif
