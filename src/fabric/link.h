/* SPDX-License-Identifier: MIT */
/* The link of programs on a fabric: packets go through the trunk to the process that is the subnet. */
#ifndef FABRIC_LINK_H
#define FABRIC_LINK_H

#include "link/link.h"

struct fabric_table;
struct tally_pool;

/*
 * Claims a slot among the processes that share this UDP port number, and attaches with it. 0 or -errno. When
 * the fabric ends, what is sent is lost, and the link attaches again as soon as the fabric is back.
 *
 * *table: where the fabric's table is at any moment, for any thread, without a lock; fabric_none while there
 * is no fabric. A thread that has looked there before may go on reading until the link is closed: a table
 * whose fabric has ended reads as zeroes.
 *
 * tallies: told where they are; they count for no fabric any more when the link is closed.
 */
int fabric_link_open(struct link **out, uint16_t port, uint32_t *slot,
	const struct fabric_table *_Atomic *table, struct tally_pool *tallies);

#endif
