/* SPDX-License-Identifier: MIT */
/*
 * A peer that is right about addresses and wrong about everything else. It has the address its victims'
 * queue pairs are connected to, sees into them (QP numbers, PSNs, what is outstanding), knows keys, and sends
 * what it likes with a right ICRC. What it does is chosen by a seed (hostile_test.c) or by a fuzzer
 * (fuzz/talk_fuzz.c).
 */
#ifndef TESTS_SIM_ATTACKER_H
#define TESTS_SIM_ATTACKER_H

#include "choices.h"
#include "sim_world.h"

enum {
	ATTACKER_QPS = 16,
	ATTACKER_KEYS = 8,
	ATTACKER_NEVER = 0xa5, /* a byte that is in nothing it sends as payload */
};

/* A region it knows of, with or without rights there. */
struct attacker_key {
	uint32_t key;
	uint64_t va;
	uint32_t len;
};

struct attacker {
	struct choices *choices;
	struct sim_node *node;       /* whose address it has */
	const struct sim_node *prey; /* whom it sends to */
	struct hca_qp *qp[ATTACKER_QPS];
	unsigned qps;
	struct attacker_key key[ATTACKER_KEYS];
	unsigned keys;
	/* what it has sent so far */
	uint64_t frames, responses;
};

/* One move: a frame, a message of several, or the same frame many times. */
void attacker_move(struct attacker *a);

#endif
