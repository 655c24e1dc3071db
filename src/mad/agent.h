/* SPDX-License-Identifier: MIT */
/*
 * Agents: who takes management datagrams (MADs, 256 bytes) of which class and method. The connection manager
 * is one. The table has no lock, no clock and no I/O; mad/gsi.h has the one of an adapter's QP1.
 */
#ifndef MAD_AGENT_H
#define MAD_AGENT_H

#include "wire/mad_class.h"

#include <stdint.h>

/* Where a MAD came from, and which of our addresses it was for. */
struct mad_from {
	uint8_t sgid[16], dgid[16]; /* the sender's address, ours */
	uint32_t ifindex; /* the interface it came in by: loopback for what this host sent; 0: not known */
	uint32_t src_qpn;
	uint16_t pkey;
	uint8_t tclass, hop_limit;
	uint8_t sl; /* InfiniBand */
};

/*
 * All are called under the drive lock, so one at a time, by whatever thread drives; they may call mad_send
 * and mad_arm, but nothing that takes the drive lock (modifying or destroying QPs, unregistering).
 */
struct mad_agent_ops {
	void (*receive)(void *arg, const uint8_t mad[MAD_LEN], const struct mad_from *from, uint64_t now);
	bool answers;                           /* those of its class are its, too */
	void (*timer)(void *arg, uint64_t now); /* what mad_arm asked for; NULL when it is never called */
	void (*changed)(void *arg);             /* devices, perhaps; may be NULL */
};

struct mad_agent {
	struct mad_class takes;
	const struct mad_agent_ops *ops; /* NULL: there is none at this place */
	void *arg;
};

enum { MAD_AGENTS = 8 };

/* Zeroed: empty. Whoever has it sees to its lock. */
struct mad_agent_table {
	struct mad_agent agent[MAD_AGENTS];
};

/* The agent's place, 0 and up; -EBUSY: another takes one of these methods; -ENOSPC: the table is full. */
int mad_agent_add(
	struct mad_agent_table *t, const struct mad_class *takes, const struct mad_agent_ops *ops, void *arg);
void mad_agent_remove(struct mad_agent_table *t, unsigned place);
/* Who takes this MAD; NULL: nobody. */
const struct mad_agent *mad_agent_of(const struct mad_agent_table *t, const uint8_t mad[MAD_LEN]);

/* Those at the places whose bits are set; agents without such a function are left out. */
void mad_agent_timers(const struct mad_agent_table *t, uint32_t places, uint64_t now);
void mad_agent_changed(const struct mad_agent_table *t);

#endif
