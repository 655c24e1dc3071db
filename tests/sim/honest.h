/* SPDX-License-Identifier: MIT */
/*
 * Checked traffic between two nodes, as much as its queues allow: SENDs, WRITEs and READs in either
 * direction, every byte compared. A breach prints what and calls abort().
 */
#ifndef TESTS_SIM_HONEST_H
#define TESTS_SIM_HONEST_H

#include "sim_world.h"

enum { HONEST_PAIRS = 4, HONEST_DEPTH = 4 };

/* One way: the requester's end, then the responder's. */
struct honest_pair {
	struct hca_qp *qp[2];
	struct hca_cq *cq[2];
	struct hca_mr *mr[2];
	struct hca_pd *pd[2];
	uint8_t *mem[2];
	bool reads;
	uint64_t posted, done, received;
};

struct honest {
	struct honest_pair pair[HONEST_PAIRS];
	bool stopping;
};

/* The regions lie in protection domains of their own. */
void honest_open(struct honest *h, struct sim_node *a, struct sim_node *b);
/* Polls, compares, posts again. */
void honest_turn(struct honest *h);
/* Whether all that was posted is done; nothing new is posted once `stopping`. */
bool honest_idle(const struct honest *h);
/* What has been moved so far, by READs or otherwise. */
uint64_t honest_bytes(const struct honest *h, bool reads);
void honest_close(struct honest *h);

#endif
