/* SPDX-License-Identifier: MIT */
/*
 * What the processes that share a port write down about who has which index in the kernel's group
 * (steer.h), and the program made from it. It lies in a file that every process of the user may have written
 * anything into, cut off or emptied; here is a copy of it in private memory, of which no number is believed
 * without a bound. No I/O here.
 */
#ifndef LINK_STEER_GROUP_H
#define LINK_STEER_GROUP_H

#include "host/slot.h"
#include "wire/ibt.h"
#include "wire/qpn.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	STEER_SLOTS = QPN_SLOTS,
	STEER_CODE = 7 + 2 * STEER_SLOTS,
	STEER_UNKNOWN = STEER_SLOTS - 1, /* the index of somebody who is not in the file */
};

enum steer_order {
	STEER_ATTACHED, /* the order of members is right, and the program was made from it */
	STEER_KNOWN,    /* right, but no program was attached for it yet */
	STEER_MIXED,    /* members came back into the file in any order: they have to be asked */
};

/* Changed under the file's lock, except `answer`, which is its member's. */
struct steer_group {
	uint32_t magic;
	uint32_t members; /* indexes */
	uint32_t order;
	uint32_t formed;              /* who had a slot when this file was new was asked to enter it */
	uint64_t nonce;               /* of the INDEX round under way */
	struct slots arriving;        /* have a slot, and will enter by themselves */
	uint32_t member[STEER_SLOTS]; /* slots, by index */
	uint64_t answer[STEER_SLOTS]; /* of each: nonce xor index + 1 of the INDEX packet that came */
};

/* INDEX packet: BTH with the index in the P_Key's field and the nonce behind it. */
enum { INDEX_OFF = 2, NONCE_OFF = BTH_LEN, INDEX_LEN = BTH_LEN + 8 };

/* A new, torn or foreign file becomes an empty group: false. */
bool steer_group_check(struct steer_group *g);
/* How many indexes there are: never more than fit. */
uint32_t steer_group_count(const struct steer_group *g);
bool steer_group_has(const struct steer_group *g, uint32_t slot);
/* The index of the member with this slot; -1: it has none. */
int steer_group_find(const struct steer_group *g, uint32_t slot);
/* Adds a member at the last index, as the kernel does; false when there is no room. */
bool steer_group_add(struct steer_group *g, uint32_t slot);
/* The kernel's rule: the last takes the index of the one that left. */
void steer_group_remove(struct steer_group *g, uint32_t i);

/* An INDEX packet reached member i: its answer, which is what it was or names a lower index. */
uint64_t steer_group_answer(const struct steer_group *g, uint32_t i, const uint8_t *pkt, uint32_t len);
/* How many members there are, and how many of them have told their index since the nonce was set. */
uint32_t steer_group_known(const struct steer_group *g);
uint32_t steer_group_told(const struct steer_group *g);
/* Brings the members to the indexes they told. */
void steer_group_sort(struct steer_group *g);

/* The program that names the index of a packet's slot; returns its length. */
unsigned steer_group_program(const struct steer_group *g, struct sock_filter code[STEER_CODE]);

#endif
