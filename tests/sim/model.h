/* SPDX-License-Identifier: MIT */
/*
 * What must come out of the work that the random test makes up. Each end of a connection is a `side`; what it
 * posts is recorded here when it is posted, together with what it must lead to, and checked off as
 * completions come.
 *
 *   model.c        memory, execution, completions of sends and their excuses
 *   model_recv.c   completions of receives
 *   model_end.c    what memory must look like when a connection or a seed is over; flows
 *
 * An RC queue executes in order, and a side's target memory is touched by its peer alone, so the model needs
 * no clock: it executes each request on its own copy of that memory at once. (A READ may be done again after
 * a later WRITE: those who write where an earlier READ read must set the fence.) When a connection breaks,
 * what its ends did to each other's memory must be what some prefix of the packets would have done.
 *
 * Connections have several lives: a queue pair that broke or was destroyed is followed by a new one, and so
 * is an adapter. An error must have an excuse, something the test did on purpose: a request that was made
 * wrong, a peer that is gone, memory that was taken away.
 */
#ifndef TESTS_SIM_MODEL_H
#define TESTS_SIM_MODEL_H

#include "sim_world.h"

enum {
	MAX_SIDES = 16,
	MAX_WRS = 160,   /* one side posts, over all its lives */
	MAX_SLOTS = 16,  /* receives posted at once */
	MAX_WINDOWS = 3, /* a side's memory windows */
	MAX_QPS = 128,   /* of all lives */
	GROUPS = 2,      /* multicast */
	TARGET = 65536,  /* bytes a peer may write */
	SOURCE = 262144, /* bytes everybody reads from */
	GUARD = 16,
};

/*
 * Requests made wrong on purpose: what they must end with, what a receive that the peer had in hand for them
 * ends with, and whether the peer's queue pair breaks too.
 */
#define SIM_BADS(X)                                                                                          \
	X(GOOD, "", SUCCESS, SUCCESS, false)                                                                 \
	X(BAD_RKEY, "unknown rkey", REM_ACCESS_ERR, LOC_ACCESS_ERR, true)                                    \
	X(BAD_RANGE, "beyond the region", REM_ACCESS_ERR, LOC_ACCESS_ERR, true)                              \
	X(BAD_RIGHT, "read-only region", REM_ACCESS_ERR, LOC_ACCESS_ERR, true)                               \
	X(BAD_GONE, "region deregistered", REM_ACCESS_ERR, LOC_ACCESS_ERR, true)                             \
	X(BAD_WINDOW, "window invalidated", REM_ACCESS_ERR, LOC_ACCESS_ERR, true)                            \
	X(BAD_INVALIDATE, "invalidates an unknown key", REM_ACCESS_ERR, LOC_ACCESS_ERR, true)                \
	X(BAD_ALIGN, "misaligned atomic", REM_INV_REQ_ERR, SUCCESS, true)                                    \
	X(BAD_TOO_LONG, "longer than any receive", REM_INV_REQ_ERR, LOC_LEN_ERR, true)                       \
	X(BAD_LKEY, "unknown lkey", LOC_PROT_ERR, SUCCESS, false)                                            \
	X(BAD_ATOMIC_LEN, "atomic of 4 bytes", LOC_LEN_ERR, SUCCESS, false)                                  \
	X(BAD_BIND, "binds beyond the region", MW_BIND_ERR, SUCCESS, false)                                  \
	X(BAD_LOCAL_INV, "invalidates an unknown key itself", MW_BIND_ERR, SUCCESS, false)

enum sim_bad {
#define X(name, text, status, recv, kills) name,
	SIM_BADS(X)
#undef X
		BAD_COUNT,
};

struct sim_bad_kind {
	const char *name;
	enum ibv_wc_status status, recv;
	bool kills_peer;
};

extern const struct sim_bad_kind sim_bads[BAD_COUNT];

struct side;

/* One work request of a side's send queue. */
struct sim_wr {
	enum ibv_wr_opcode opcode;
	enum sim_bad bad;
	bool signaled, fence;
	bool done;      /* it is known to have succeeded */
	bool in_target; /* its remote memory is the peer's target, else the peer's source or counter */
	bool shared;    /* a FETCH_ADD on the node's common counter: original is not known */
	uint32_t len;
	uint64_t offset;                      /* of a WRITE, READ or atomic, in the target or source */
	uint8_t *bytes;                       /* WRITE, SEND: what goes out; READ: what must come in */
	uint8_t *dest;                        /* READ, atomics: where, between guards */
	uint64_t compare_add, swap, original; /* atomics; original is what must come back */
	int window; /* -1; of the peer that it goes through or invalidates; own, that it binds or invalidates
		     */
	__be32 imm;
	uint32_t inv_key;
	uint32_t dqpn;             /* UD: whom it is for */
	uint8_t copies[MAX_SIDES]; /* unreliable: how often it arrived, by receiver */
};

enum window_state { WINDOW_FREE, WINDOW_BINDING, WINDOW_BOUND, WINDOW_ENDING };

/* A memory window over a part of a side's target. */
struct sim_window {
	struct hca_mw *mw;
	bool invalidable; /* type 2 */
	enum window_state state;
	uint32_t rkey;
	uint64_t offset, base; /* in the target; the address that requests give for its first byte */
	uint32_t len;
	unsigned uses; /* the peer's requests through it that are not done */
};

/* A receive queue: a side's own, or one that all sides of a node share. */
struct sim_rq {
	struct hca_srq *srq;
	uint32_t lkey, slot_size;
	unsigned slots, sge, users;
	uint8_t *mem[MAX_SLOTS];
	bool busy[MAX_SLOTS], bad[MAX_SLOTS]; /* bad: posted with an unknown key */
	bool any_bad;
	uint64_t posted, done; /* counts; a receive's wr_id is its count << 8 | slot */
};

struct side {
	unsigned index, node_index;
	struct sim_node *node;
	struct hca_qp *qp; /* NULL: destroyed */
	uint32_t qpn;
	struct sim_qp_opts opts;
	struct side *peer;
	struct sim_rq *rq, own_rq;
	bool builder;   /* posts through ibv_wr_* */
	bool one_sided; /* its peer takes no part in what it posts */

	/* why its queue pair may end */
	bool dead;     /* a request has failed: all that follows is flushed (UC, UD: until resumed) */
	bool failed;   /* ... by its own fault, not because its responder met an error */
	bool skipped;  /* requests were flushed ahead of the one that is to fail */
	bool told;     /* the program moved it to the error state */
	bool killable; /* its responder may meet an error */
	bool cut;      /* its node or its peer's was cut off for good */
	bool recv_failed, last_wqe;
	bool harmed; /* one of these was ever true of it or its peer */
	/* the send queue drain */
	bool stopped, notify, drained;
	uint64_t resume_at;

	uint8_t *target, *model, *base; /* the peer's to write; what must be in it; as it was at birth */
	struct hca_mr *target_mr;       /* NULL: deregistered; the target must not change any more */
	uint32_t target_rkey;
	uint64_t target_iova;
	uint32_t unreliable_used; /* of the peer's target: every WRITE of UC has a place of its own */
	struct sim_window window[MAX_WINDOWS];
	uint32_t stale_rkey; /* of a window that is no more; 0: none yet */

	struct sim_wr wr[MAX_WRS];
	unsigned todo, posted, completed;
	unsigned first;          /* request of this life */
	unsigned succeeded;      /* index behind the last request that is known to have succeeded */
	unsigned received;       /* of the peer's messages: index of the next */
	unsigned got[MAX_SIDES]; /* UD: the same, by sender */
	uint64_t datagrams;      /* UD: how many it took */
	unsigned fenced;         /* READs before this index are done before what is posted next starts */
	unsigned bad_at;         /* this request shall be a wrong one */
	bool bad_recv;           /* and so shall one receive */
	uint32_t max_msg;
	uint64_t budget; /* bytes it may still post */
	uint64_t next_post, next_recv;
};

/* A pair of sides, 2i and 2i + 1, and its lives. */
struct conn {
	unsigned lives;     /* left */
	bool over, patient; /* over: at least one end is gone; patient: all errors are awaited */
	uint64_t rebirth_at;
};

/* What is made anew when an adapter is. */
struct sim_site {
	struct hca_cq *send_cq, *recv_cq;
	struct hca_mr *arena_mr, *send_mr, *source_mr,
		*counter_mr; /* send_mr: the source, for requests of its own */
	uint32_t source_rkey, counter_rkey;
	struct hca_ah *ah[SIM_NODES], *group_ah[GROUPS];
	struct sim_rq srq;
	/* lasts */
	uint64_t counter, counted, counted_surely;
	uint8_t *counter_seen; /* which originals came back */
	bool with_srq, cut;
	uint64_t back_at; /* when it is down */
};

struct model {
	uint64_t seed;
	struct sim_world world;
	unsigned pairs, nsides;
	struct side side[MAX_SIDES];
	struct conn conn[MAX_SIDES / 2];
	struct sim_site site[SIM_NODES];
	uint8_t group[GROUPS][16];
	struct {
		uint32_t qpn;
		struct side *side;
	} qp[MAX_QPS]; /* all there ever were: late datagrams are from the dead */
	unsigned nqps;
	size_t arena_used;
	bool calm;     /* the network does nothing: every status must be the exact one */
	bool ordered;  /* it neither doubles nor reorders */
	bool two_ways; /* but for datagrams, which come to a process of a host straight or by another
			  (link/steer.h) */
	bool naughty;  /* some requests are wrong */
	bool torn;     /* a process was killed, maybe in the middle of a copy */
};

/*
 * Where nodes are processes of their own (two_test.c) all see the model, but use only what is theirs of what
 * it points at: objects and registered memory. It is changed between model_enter() and model_leave(), which
 * are not around what others are to race with.
 */
struct model_here {
	int node;                            /* that we are; -1: all */
	void (*enter)(void), (*leave)(void); /* NULL: nobody else is there */
	uint8_t *notes; /* what the model writes down for all to see; NULL: in the arena */
};
extern struct model_here model_here;

static inline bool model_is_ours(const struct side *s)
{
	return model_here.node < 0 || (int)s->node_index == model_here.node;
}

void model_enter(void);
void model_leave(void);

/* Says what went wrong, the seed, and the command that replays it; ends the program. */
_Noreturn void model_fail(struct model *m, const struct side *s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

extern uint8_t model_source[SOURCE];

/* How peers call memory: an address of this run would be in packets, and no seed gave the same run twice. */
#define MODEL_SOURCE_IOVA  0x100000000ull
#define MODEL_COUNTER_IOVA 0x200000000ull
#define MODEL_ARENA_IOVA   0x300000000ull
/* The source's bytes, the same for every seed. */
void model_init_source(void);
/* len bytes that live until the seed is done. */
uint8_t *model_alloc(struct model *m, size_t len);
/* The same, of what the model itself keeps. */
uint8_t *model_note(struct model *m, size_t len);
void *model_arena(size_t *len);

static inline bool model_is_atomic(const struct sim_wr *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool model_is_local(const struct sim_wr *w)
{
	return w->opcode == IBV_WR_BIND_MW || w->opcode == IBV_WR_LOCAL_INV;
}

static inline bool model_is_write(const struct sim_wr *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Takes a receive. */
static inline bool model_is_message(const struct sim_wr *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM ||
	       w->opcode == IBV_WR_SEND_WITH_INV || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Executes the request on the model's memory; called as it is posted. */
void model_execute(struct model *m, struct side *s, struct sim_wr *w);

/* Takes all completions and events there are. */
void model_poll(struct model *m);
/*
 * Its queue pair is about to be destroyed: what left its queue without a word has succeeded, and when it
 * broke all was flushed.
 */
void model_settle(struct model *m, struct side *s);
void model_recv_done(struct model *m, struct side *s, const struct ibv_wc *wc);
/* Whether its queue pair has broken; that must have an excuse. */
bool model_is_broken(struct model *m, struct side *s);
static inline struct conn *model_conn(struct model *m, const struct side *s)
{
	return &m->conn[s->index / 2];
}

/* Whether everything that must come has come. */
bool model_side_done(struct model *m, struct side *s);
/* The queue pairs of this life are gone: the target must be explained by what its peer posted. */
void model_check_remains(struct model *m, struct side *s);
/* Memory and counters at the end. */
void model_check_end(struct model *m);
/* What is charged to each flow is what is in flight. */
void model_check_flows(struct model *m);

#endif
