/* SPDX-License-Identifier: MIT */
/*
 * Work for the two ends of an iWARP connection, and the model of what must come of it. It executes each
 * request on a copy of the memory it touches when it is posted: TCP keeps the order, and a side's target is
 * touched by its peer alone. (A READ is answered from memory as it is when the answer leaves: those who
 * change what an earlier READ reads set the fence.) Where a connection broke, memory must be what some prefix
 * of the bytes would have made of it.
 */
#ifndef TESTS_SIM_IWARP_WORK_H
#define TESTS_SIM_IWARP_WORK_H

#include "choices.h"
#include "sim_world.h"

/* A player's memory: the peer's target, receives, sources that never change, sinks of READs. */
enum {
	WORK_MEM = 1 << 20,
	TARGET = 65536,
	SLOTS = 16,
	SLOT = 8192,
	RECEIVES = 65536,
	SOURCE = 262144,
	SOURCE_LEN = 131072,
	SINKS = 524288,
	OPS = 40,
};

struct op {
	enum ibv_wr_opcode opcode;
	uint32_t len, from, to; /* offsets in memory: here, there */
	bool signaled, wrong;
	uint8_t *expect; /* of a READ */
	uint64_t compare_add, swap, original;
	__be32 imm;
};

/* One end. The caller has filled in what it stands on, and `todo`. */
struct player {
	struct hca_qp *qp; /* NULL: destroyed */
	struct hca_cq *cq;
	struct hca_mr *mr;
	uint8_t *mem;  /* WORK_MEM */
	uint64_t iova; /* what requests call it: an address of this run would be in the bytes */
	bool extended; /* atomics and immediate data */
	unsigned todo;

	struct player *peer;
	struct op op[OPS];
	unsigned posted, done;
	uint8_t base[TARGET], model[TARGET]; /* of its target */
	bool fence;                          /* a READ of the peer's target may not be answered yet */
	uint32_t sink;
	unsigned received; /* the peer's op that is expected next */
	uint64_t recv_posted, recv_done;
};

struct iwarp_work {
	struct choices *c;
	struct player player[2];
	bool broken;   /* something was done on purpose, and errors are excused */
	bool lenient;  /* more than one such thing: nobody knows which of them was first */
	bool wrong;    /* one request shall be wrong: */
	uint64_t when; /* the first that can be from this one on (of OPS), and its bit 0 says whose */
};

struct iwarp_work_total {
	unsigned long long requests;
};
extern struct iwarp_work_total iwarp_work_total;

/* Says what went wrong, and the command that replays it; ends the program. */
_Noreturn void iwarp_work_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Both players have their memory. */
void iwarp_work_init(struct iwarp_work *w);
void iwarp_work_fini(struct iwarp_work *w);
void iwarp_work_post(struct iwarp_work *w, struct player *pl);
void iwarp_work_post_recv(struct iwarp_work *w, struct player *pl);
/* Takes all completions there are. */
void iwarp_work_poll(struct iwarp_work *w, struct player *pl);
/* All is posted and known to have come, but for the last WRITEs: those are done when they have left. */
bool iwarp_work_done(struct iwarp_work *w);
/* Nothing moves any more: completions and memory are what they must be. */
void iwarp_work_check_end(struct iwarp_work *w);

#endif
