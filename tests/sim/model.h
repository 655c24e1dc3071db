/* SPDX-License-Identifier: MIT */
/*
 * What must come out of the work that sim_test.c makes up. Each end of a connection is a `side`; what it
 * posts is recorded here when it is posted, together with what it must lead to, and checked off as
 * completions come.
 *
 * An RC queue executes in order, and a side's target memory is touched by its peer alone, so the model needs
 * no clock: it executes each request on its own copy of that memory at once. (A READ may be done again after
 * a later WRITE: those who write where an earlier READ read must set the fence.)
 */
#ifndef TESTS_SIM_MODEL_H
#define TESTS_SIM_MODEL_H

#include "sim_world.h"

enum {
	MAX_SIDES = 16,
	MAX_WRS = 160,   /* one side posts in its life */
	MAX_SLOTS = 16,  /* receives posted at once */
	TARGET = 65536,  /* bytes a peer may write */
	SOURCE = 262144, /* bytes everybody reads from */
	GUARD = 16,
};

/* One work request of a side's send queue. */
struct sim_wr {
	enum ibv_wr_opcode opcode;
	bool signaled;
	uint32_t len;
	uint64_t offset; /* of a WRITE, READ or atomic, in the peer's target; SOURCE and so on: see in_target
			  */
	bool in_target;
	uint8_t *bytes;    /* WRITE, SEND: what goes out; READ: what must come in */
	uint8_t *dest;     /* READ, atomics: where, between guards */
	uint64_t original; /* atomics: what must come back */
	bool shared;       /* a FETCH_ADD on the node's common counter: original is not known */
	/* messages: */
	__be32 imm;
	unsigned copies; /* unreliable: how often it arrived */
};

/* A receive queue: a side's own, or one that all sides of a node share. */
struct sim_rq {
	struct hca_srq *srq;
	struct sim_node *node;
	uint32_t lkey, slot_size;
	unsigned slots, sge;
	uint8_t *mem[MAX_SLOTS];
	bool busy[MAX_SLOTS];
	uint64_t posted, done; /* counts; a receive's wr_id is its count << 8 | slot */
};

struct side {
	unsigned index;
	struct sim_node *node;
	struct hca_qp *qp;
	struct sim_qp_opts opts;
	struct side *peer;
	struct hca_ah *ah;
	struct sim_rq *rq, own_rq;
	bool strict; /* UC, UD: the network towards the peer neither doubles nor reorders */
	bool doomed; /* its node or its peer's was cut off: an error may come */
	bool dead;   /* it has come: all that follows is flushed */

	uint8_t *target, *model; /* the peer's to write; what must be in it */
	struct hca_mr *target_mr;
	uint64_t target_iova;
	uint32_t unreliable_used; /* of the peer's target: every WRITE of UC has a place of its own */

	struct sim_wr wr[MAX_WRS];
	unsigned todo, posted, completed;
	unsigned received; /* of the peer's messages: index of the next */
	unsigned fenced;   /* READs before this index are done before what is posted next starts */
	uint32_t max_msg;
	uint64_t budget; /* bytes it may still post */
	uint64_t next_post, next_recv;
};

struct model {
	uint64_t seed;
	struct sim_world world;
	unsigned pairs, nsides;
	struct side side[MAX_SIDES];
	struct sim_rq srq[SIM_NODES];
	struct hca_cq *send_cq[SIM_NODES], *recv_cq[SIM_NODES];
	struct hca_mr *arena_mr[SIM_NODES], *counter_mr[SIM_NODES], *source_mr[SIM_NODES];
	uint64_t counter[SIM_NODES], counted[SIM_NODES];
	uint8_t *counter_seen[SIM_NODES]; /* which originals came back */
	size_t arena_used;
	bool cut; /* a node was cut off */
};

/* Says what went wrong, the seed, and the command that replays it; ends the program. */
_Noreturn void model_fail(struct model *m, const struct side *s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

extern uint8_t model_source[SOURCE];
/* The source's bytes, the same for every seed. */
void model_init_source(void);
void model_start_arena(struct model *m);
/* len bytes that live until the seed is done, or NULL when the arena is used up. */
uint8_t *model_alloc(struct model *m, size_t len);
void *model_arena(size_t *len);

/* Executes the request on the model's memory; called as it is posted. false: no memory left for it. */
bool model_execute(struct model *m, struct side *s, struct sim_wr *w, uint64_t compare_add, uint64_t swap);

static inline bool model_is_message(const struct sim_wr *w)
{
	return w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_READ &&
	       w->opcode != IBV_WR_ATOMIC_CMP_AND_SWP && w->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Completions. */
void model_send_done(struct model *m, struct side *s, const struct ibv_wc *wc);
void model_recv_done(struct model *m, struct side *s, const struct ibv_wc *wc);
/* Whether everything that must come has come. */
bool model_side_done(const struct side *s);
/* Memory and counters at the end. */
void model_check_end(struct model *m);
/* What is charged to each flow is what is in flight. */
void model_check_flows(struct model *m);

#endif
