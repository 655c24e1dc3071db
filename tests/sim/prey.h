/* SPDX-License-Identifier: MIT */
/*
 * What an attacker (attacker.h) works on, and what must hold whatever it does. Three adapters: the prey, the
 * attacker's, and an honest third. The prey has queue pairs of every kind connected to the attacker, requests
 * of every kind outstanding there, and, when wanted, checked traffic with the honest one.
 *
 *   memory       nothing changes but what may: receives and READs that are posted, and, when the attacker has
 *                its key, the one region with remote write; canaries lie around everything
 *   completions  each request ends once, sends in order; a queue pair that dies ends all of its own
 *   windows      what is charged to flows is what is in flight, packet by packet
 *   work         frames sent per frame received are bounded
 *   others       honest traffic arrives, in full and unchanged (honest.h)
 *
 * A breach prints what and calls abort().
 */
#ifndef TESTS_SIM_PREY_H
#define TESTS_SIM_PREY_H

#include "attacker.h"
#include "honest.h"

enum { PREY_QPS = 9, PREY_WRS = 96 };

/* One work request to the attacker; request i has slot i of the landing region to itself. */
struct prey_wr {
	bool live, is_recv;
	bool lands;        /* its slot may change while it is live */
	uint32_t life;     /* how often it was used: part of wr_id, so that an old completion is known */
	uint32_t len;      /* of a READ: what must have come when it succeeds */
	uint32_t turn;     /* sends of a queue pair end in this order */
	struct hca_qp *qp; /* NULL: in the shared receive queue */
};

struct prey_qp {
	struct hca_qp *qp;
	uint32_t posted, done; /* sends */
};

struct prey {
	struct sim_world w;
	struct choices *choices;
	struct attacker attacker;
	bool has_key; /* the attacker was told the key of the open region */
	bool greedy;  /* READs from the attacker take all of the window there is for READs */

	struct hca_cq *cq;
	struct hca_srq *srq;
	struct prey_qp qp[PREY_QPS];
	struct hca_qp *other_end[PREY_QPS]; /* numbers for the prey to connect to; never used */
	struct hca_mr *open, *readable, *source, *sealed, *landing, *bulk;
	struct hca_pd *sealed_pd;
	struct hca_mw *window;
	struct prey_wr wr[PREY_WRS];
	uint8_t *memory, *shadow;

	bool with_honest;
	struct honest honest;

	uint64_t moves, completed, died;
	uint64_t answers, read_packets, requests; /* frames from the prey to the attacker */
	uint64_t led_requests;                    /* of these requests, with an acknowledge just before */
	bool acked_last;
	uint64_t timed_packets, first_packets; /* what may make it send requests by itself */
};

/* With honest traffic, or without for speed. Decisions come from *c, which must outlive it. */
struct prey *prey_open(struct choices *c, uint64_t seed, bool with_honest);
/* One move of the attacker and the time that follows. */
void prey_suffer(struct prey *p);
/* Time in which the attacker is silent. */
void prey_rest(struct prey *p, uint64_t ns);
/* Ends all traffic, checks that nothing is left behind, and frees it. */
void prey_close(struct prey *p);

#endif
