/* SPDX-License-Identifier: MIT */
/*
 * Clear paths: two programs of one machine may reach each other through shared memory as long as the fabric
 * would carry their packets both ways, and nobody on the way wants to see or to spoil them. Whether that is
 * so is in the fabric's table, and stands until the table's epoch moves. Pure: nothing is written, no lock.
 *
 * What a packet would need is asked here as it would be asked on its way: by the fabric's process when it
 * takes it from the program (fabricd/trunk.c), by the switches (walk.h), and at the port where it arrives.
 */
#ifndef FABRIC_CLEAR_H
#define FABRIC_CLEAR_H

#include "fabric/shared.h"

/* A path as the one end knows it. */
struct fabric_path_of {
	uint32_t port; /* where it begins: its index in the table */
	uint16_t slid, dlid, pkey;
	uint8_t sl;
	uint8_t mtu;         /* the longest packet it is for, enum ibv_mtu */
	uint32_t slot;       /* of the program at the other end */
	const uint8_t *sgid; /* in its packets' GRH; NULL: they have none */
};

/* *epoch: for which the answer holds; FABRIC_NO_EPOCH: for this once, the table is being changed. */
bool fabric_is_clear(const struct fabric_table *t, const struct fabric_path_of *p, uint64_t *epoch);

/* The host that the program with this slot is on, if it is this process; 0: the fabric knows no such. */
uint32_t fabric_host_of(const struct fabric_table *t, uint32_t slot, int pid);

/* Whether another process has this slot; false: nobody has it. */
bool fabric_is_anothers(const struct fabric_table *t, uint32_t slot, int pid);

/* Addresses of packets that a program claims to send: the LIDs, and the sender's GID (NULL: no GRH). */
struct fabric_claim {
	uint16_t slid, dlid;
	const uint8_t *sgid;
};
/* Whether packets from a program on the one host to the one with this slot may have them. */
bool fabric_may_claim(const struct fabric_table *t, uint32_t host, uint32_t to, const struct fabric_claim *c);

#endif
