/* SPDX-License-Identifier: MIT */
/*
 * Two iWARP queue pairs on two adapters, and a TCP connection between them that is two byte pipes in memory.
 * Choices say how the bytes are cut and merged: every "system call" moves as many as are drawn. The
 * connection is opened by MPA over the same pipes.
 */
#ifndef TESTS_SIM_IWARP_PAIR_H
#define TESTS_SIM_IWARP_PAIR_H

#include "choices.h"
#include "sim_world.h"

#include "hca/provider.h"
#include "iwarp/iwarp.h"

enum { PIPE_SIZE = 1 << 17, IW_MEM = 1 << 20 };

/* A direction of the connection. */
struct pipe {
	uint8_t *bytes;      /* PIPE_SIZE */
	uint64_t head, tail; /* free running */
	bool fin, lost;      /* the sender closed; nothing arrives any more */
};

struct iwarp_side {
	struct sim_node *node;
	struct hca_provider provider;
	struct hca_cq *cq;
	struct hca_mr *mr;
	struct hca_qp *qp;
	struct sim_qp_opts opts;
	struct iwarp_options mpa;
	struct iwarp_connect connect;
	uint8_t *rx_stage, *tx_stage; /* IWARP_STAGE, IWARP_STAGE_OUT */
	uint8_t *mem;                 /* IW_MEM */
	uint64_t iova; /* what requests call it: an address of this run would be in the bytes */
	uint32_t mulpdu;
	bool opened, closed;
	bool by_frames; /* what it says when both offered it; then there is no stream */
	struct pipe out;
	uint64_t sent, received; /* bytes, in calls of sendmsg and readv */
	uint64_t sends, receives, direct;
};

struct iwarp_pair {
	struct sim_world w;
	struct iwarp_side side[2]; /* 0 connects */
	struct choices *cut;       /* NULL: as much as there is */
	uint64_t now;
	/* a test's own hand in what is sent: called for bytes that were put into the pipe */
	void (*spy)(struct iwarp_pair *p, unsigned from, uint8_t *bytes, size_t len);
};

/*
 * Adapters, memory and queue pairs, not connected; opts and mpa may be changed before iwarp_pair_qps(). One
 * pair at a time: the large pieces are used again by the next.
 */
struct iwarp_pair *iwarp_pair_new(void);
void iwarp_pair_qps(struct iwarp_pair *p);
/* Opens the connection to the end; false: it was refused or broke. */
bool iwarp_pair_connect(struct iwarp_pair *p);
void iwarp_pair_free(struct iwarp_pair *p);

/* One step of setting up; false: nothing moved. */
bool iwarp_pair_shake(struct iwarp_pair *p);
/* Both sides have agreed: the queue pairs get their stream. */
void iwarp_pair_open(struct iwarp_pair *p);
/* The moment is over that an initiator gives a stranger. */
void iwarp_pair_begin(struct iwarp_pair *p);
/* One send and one receive of a side, or of each; false: nothing moved. */
bool iwarp_side_step(struct iwarp_pair *p, unsigned i);
bool iwarp_pair_step(struct iwarp_pair *p);
/* Until nothing moves. */
void iwarp_pair_run(struct iwarp_pair *p);
/* Time passes: timers that are due. */
void iwarp_pair_wait(struct iwarp_pair *p, uint64_t ns);
/* The network dies: bytes under way are lost, and both ends hear of it. */
void iwarp_pair_kill(struct iwarp_pair *p);

#endif
