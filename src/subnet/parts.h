/* SPDX-License-Identifier: MIT */
/* What the parts of the subnet share with each other: nobody else looks in here. */
#ifndef SUBNET_PARTS_H
#define SUBNET_PARTS_H

#include "base/list.h"
#include "fabric/shared.h"
#include "subnet/model.h"
#include "subnet/packet.h"

enum { SUBNET_NAMES = 4096 };

struct subnet {
	struct subnet_ops ops;
	void *arg;
	uint64_t seed;
	struct subnet_node **node;
	unsigned nnodes, room;
	struct subnet_node *name[SUBNET_NAMES]; /* by the hash of their names */
	struct fabric_counts count;             /* of what was added */
	struct fabric_table *table;             /* NULL: not started */
};

static inline bool is_switch(const struct subnet_node *n)
{
	return n->type == SUBNET_SWITCH;
}

#endif
