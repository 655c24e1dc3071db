/* SPDX-License-Identifier: MIT */
/* Work on an iwarp_pair for the tests of single cases, and bytes made by hand. */
#ifndef TESTS_SIM_IWARP_STAGE_H
#define TESTS_SIM_IWARP_STAGE_H

#include "iwarp_pair.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

/* A connected pair; change: what the test wants different before the queue pairs are made, or NULL. */
struct iwarp_pair *stage_pair(void (*change)(struct iwarp_pair *p));

/* One entry at `off` of the side's memory; the same place of the other side's. */
struct ibv_send_wr stage_request(struct iwarp_pair *p, unsigned side, enum ibv_wr_opcode op,
	struct ibv_sge *sge, uint32_t off, uint32_t len);
void stage_post_wr(struct iwarp_pair *p, unsigned side, struct ibv_send_wr *wr);
void stage_post(struct iwarp_pair *p, unsigned side, enum ibv_wr_opcode op, uint64_t id, uint32_t off,
	uint32_t len, unsigned flags);
void stage_post_recv(struct iwarp_pair *p, unsigned side, uint64_t id, uint32_t off, uint32_t len);

struct ibv_wc stage_wc(struct iwarp_pair *p, unsigned side, uint64_t id, enum ibv_wc_status status);
void stage_no_wc(struct iwarp_pair *p, unsigned side);
/* The same bytes at both places, and others behind them. */
void stage_check_same(struct iwarp_pair *p, uint32_t at0, uint32_t at1, uint32_t len);
/* Takes all async events of a side: how many are of this type. */
unsigned stage_events(struct iwarp_pair *p, unsigned side, enum ibv_event_type type);
void stage_to_error(struct iwarp_pair *p, unsigned side);

/* ---- by hand ---- */
/* From now on side 0's words are made by the test; side 1's stay in its pipe. */
void stage_forge(struct iwarp_pair *p);
/* A segment in side 0's name, and what side 1 makes of it. */
void stage_say(struct iwarp_pair *p, const struct ddp_seg *seg, const void *payload, uint32_t len);
void stage_say_bytes(struct iwarp_pair *p, const void *bytes, size_t len);
/* The next FPDU side 1 has said; false: none. */
bool stage_hear(struct iwarp_pair *p, struct ddp_seg *seg, uint8_t *payload, uint32_t *len);
/* Skips to its TERMINATE; false: there is none. */
bool stage_hear_terminate(struct iwarp_pair *p, struct rdmap_term *t);

#endif
