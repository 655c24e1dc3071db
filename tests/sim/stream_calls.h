/* SPDX-License-Identifier: MIT */
/*
 * The parts of stream_test.c: calls from one simulated adapter to another, each with its connection, work and
 * trouble.
 *
 *   stream_nodes.c    the adapters: their environment, and who drives when
 *   stream_manager.c  a connection manager at each end: what it is told, what it does
 *   stream_trouble.c  what goes wrong on purpose, and strangers that connect
 *   stream_test.c     what a seed draws, and a call from its beginning to its end
 */
#ifndef TESTS_STREAM_CALLS_H
#define TESTS_STREAM_CALLS_H

#include "iwarp/port.h"
#include "iwarp_work.h"
#include "seeds.h"
#include "sim_tcp.h"

enum { CALLS = 4, STRANGERS = 3, LISTEN_PORT = 7000, CALLER_PORT = 40000, DATA = 64 };

/* What goes wrong with a connection, on purpose. */
#define TROUBLES(X)                                                                                          \
	X(CALM, "none")                                                                                      \
	X(BROKEN, "a box in between resets it")                                                              \
	X(TO_ERROR, "a queue pair is moved to the error state")                                              \
	X(DESTROYED, "a queue pair is destroyed")                                                            \
	X(CLOSED, "a manager lets go of it")                                                                 \
	X(DISCONNECTED, "a program disconnects")                                                             \
	X(DEAF, "the listener is closed")                                                                    \
	X(FLIPPED, "a bit flips")                                                                            \
	X(WRONG, "a request is wrong")                                                                       \
	X(REJECTED, "the program refuses")                                                                   \
	X(SLOW, "the program thinks too long")                                                               \
	X(FULL, "the manager never has room")                                                                \
	X(UNHEARD, "nobody listens in time")                                                                 \
	X(VANISHED, "a host vanishes")                                                                       \
	X(DIED, "a process ends")

enum trouble {
#define X(name, text) name,
	TROUBLES(X)
#undef X
		TROUBLE_COUNT,
};

extern const char *const trouble_names[];

/* One end of a connection, as its manager sees it. */
struct end {
	unsigned node;
	struct iwarp_conn *conn; /* NULL: not yet, or not any more */
	struct hca_qp *qp;
	bool requested, established, ended; /* it was told so */
	bool closed;                        /* the manager has let go of it */
	uint64_t close_at, next_post, next_recv;
};

struct call {
	unsigned index;
	struct end end[2]; /* 0 calls */
	struct iwarp_conn *listener;
	struct iwarp_work work;
	uint8_t data[2][DATA];
	uint32_t len[2];
	enum trouble trouble;
	unsigned whose; /* trouble it is */
	bool happened;  /* and it has */
	bool begun, listened, answered, whole;
	uint64_t listen_at, connect_at, answer_at, trouble_at, settle_at, over_at;
};

/* Who connects and does not speak MPA, or not to the end. */
struct stranger {
	int fd; /* -1: not there */
	uint64_t come_at, speak_at, leave_at;
	unsigned to;
	bool spoke;
};

extern struct stream_sim {
	struct sim_world w;
	struct choices c;
	uint64_t now;
	struct sim_tcp_rules rules;
	unsigned calls, strangers;
	struct call call[CALLS];
	struct stranger stranger[STRANGERS];
	char words[SIM_NODES][96];                             /* ANYRDMA_IWARP */
	unsigned rtr[SIM_NODES];                               /* of these */
	unsigned is;                                           /* whose environment it is */
	uint64_t random;                                       /* what the kernel's random source gives */
	bool host;                                             /* nodes are processes of one host */
	uint64_t stopped_at[SIM_NODES], goes_on_at[SIM_NODES]; /* meanwhile nobody drives there */
	uint8_t *mem[CALLS][2];
} sim;

/* Over all seeds. */
extern struct stream_sim_total {
	unsigned long long established, refused, shared, declined, hosts, troubles[TROUBLE_COUNT];
} sim_total;

#define fail iwarp_work_fail

/* ---- nodes ---- */
/* A number below `below`, of the seed's. */
uint64_t sim_draw(uint64_t below);
/* *next is not later than this, if it is still to come. */
void sim_earlier(uint64_t *next, uint64_t at);
/* A line of the trace, if there is one; k may be NULL. */
void call_say(const struct call *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct hca_adapter *node_adapter(unsigned node);
struct sockaddr_storage node_address(unsigned node, unsigned port);
void nodes_open(uint64_t seed);
/* Everybody, in any order, until nobody has anything to do. */
void nodes_drive(void);
/* When one has something to do by itself: its timers, what it deferred, and the end of a stop. */
void nodes_plan(uint64_t *next);

/* ---- the manager ---- */
void call_make_end(struct call *k, unsigned i);
void call_unmake_end(struct call *k, unsigned i);
void call_destroy_qp(struct call *k, struct end *n);
void call_listen(struct call *k);
void call_close_listener(struct call *k);
void call_connect(struct call *k);
/* Accepts, or rejects, when that is its trouble. */
void call_answer(struct call *k);
/* The manager has no more to do with that end. */
void call_let_go(struct call *k, struct end *n);

/* ---- troubles ---- */
/* Its trouble comes now, if it is one that comes by itself. */
void call_happen(struct call *k);
void stranger_act(struct stranger *s);

#endif
