/* SPDX-License-Identifier: MIT */
/*
 * The claims of this process, as its private memory knows them: what is entered again when the file of all
 * claims (ports.h) is lost. Their names are what the rest of the process calls them by.
 */
#ifndef HOST_PORTS_OWN_H
#define HOST_PORTS_OWN_H

#include "base/lock.h"
#include "host/ports_table.h"

struct ports_own_claim {
	struct host_port_claim claim;
	host_port_id at; /* in the table; 0: free */
	uint32_t generation;
};

struct ports_own {
	struct lock lock; /* guards all below; never held while waiting */
	struct ports_own_claim *claims;
	uint32_t count, room, free_hint;
};

void ports_own_init(struct ports_own *o);
void ports_own_fini(struct ports_own *o);
/* A name for a claim that lies in the table; 0: out of memory. */
host_port_id ports_own_add(struct ports_own *o, const struct host_port_claim *c, host_port_id at);
/* The claim of this name; NULL: it is gone, or never was. Lock held. */
struct ports_own_claim *ports_own_find(struct ports_own *o, host_port_id id);
/* Forgets it: where it lay in the table, or 0. */
host_port_id ports_own_remove(struct ports_own *o, host_port_id id);

#endif
