/* SPDX-License-Identifier: MIT */
/*
 * The file in which the processes that share a port write who sits at which place of the kernel's group
 * (steer.h), and the program made from it. Every process of the user maps it and may have written anything
 * into it, or be writing now: whoever reads it believes no number without a bound. No I/O here.
 */
#ifndef LINK_STEER_GROUP_H
#define LINK_STEER_GROUP_H

#include "wire/ibt.h"
#include "wire/qpn.h"

#include <linux/filter.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { STEER_SLOTS = QPN_SLOTS, STEER_CODE = 7 + 2 * STEER_SLOTS };

/* Written under the file lock, except `answer`, which is its member's. */
struct steer_group {
	uint32_t magic;
	_Atomic uint32_t members;
	uint32_t stale; /* the order below is right, but no program was attached for it yet */
	uint32_t reserved;
	_Atomic uint64_t nonce; /* of the PLACE round under way */
	struct {
		_Atomic uint32_t slot;
		_Atomic uint64_t answer; /* nonce xor place + 1 of the last PLACE packet that came */
	} member[STEER_SLOTS];           /* in the order of places */
};

/* PLACE packet: BTH with the place in the P_Key's field and the nonce behind it. */
enum { PLACE_OFF = 2, NONCE_OFF = BTH_LEN, PLACE_LEN = BTH_LEN + 8 };

/* A new, torn or foreign file becomes an empty group. */
void steer_group_check(struct steer_group *g);
/* How many members there are: never more than fit. */
uint32_t steer_group_count(const struct steer_group *g);
bool steer_group_has(const struct steer_group *g, uint32_t slot);
/* Adds a member at the last place, as the kernel does; false when there is no room. */
bool steer_group_add(struct steer_group *g, uint32_t slot);
/* The kernel's rule: the last takes the place of the one that left. */
void steer_group_remove(struct steer_group *g, uint32_t i);

/* The member with this slot got a PLACE packet: notes where it sits. */
void steer_group_placed(struct steer_group *g, uint32_t slot, const uint8_t *pkt, uint32_t len);
/* How many members have told their place since the nonce was set. */
uint32_t steer_group_told(const struct steer_group *g);
/* Brings the members into the order they told. */
void steer_group_sort(struct steer_group *g);

/* The program that names the place of a packet's slot; returns its length. */
unsigned steer_group_program(const struct steer_group *g, struct sock_filter code[STEER_CODE]);

#endif
