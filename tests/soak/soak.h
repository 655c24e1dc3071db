/* SPDX-License-Identifier: MIT */
/*
 * The soak: processes that talk to each other by every verb there is, while some of them are killed, stopped
 * and started anew. Three ideas, a file each:
 *
 *   soak.c      the parent: starts, kills, stops, passes messages on, watches, counts what is left
 *   worker.c    a process with an adapter: invites others, is invited, sleeps and spins
 *   session.c   a connection of two workers: builds its queue pair, moves the bytes of a script, checks them
 *   script.c    what is moved: both ends know it from the session's seed
 *
 * What must hold is checked where it happens and ends the run by fail(): a wrong byte, a completion out of
 * order, one that never comes, a status that only a bug can cause, memory or descriptors that grow.
 */
#ifndef TESTS_SOAK_H
#define TESTS_SOAK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WORKERS = 8, STEADY = 3 }; /* the first few are never killed: they show whether something grows */

/* ---- messages between workers, passed on by the parent; and to the parent ---- */
enum msg_kind {
	MSG_INVITE,
	MSG_ACCEPT,
	MSG_BYE,
	MSG_BEAT,   /* to the parent: alive, and what was done since the last one */
	MSG_IDLE,   /* to the parent: paused, nothing open, with what the process holds */
	MSG_FAILED, /* to the parent: why */
	MSG_PAUSE,  /* from the parent: close all sessions, then MSG_IDLE */
	MSG_RESUME,
	MSG_QUIT, /* from the parent: give everything back and exit */
};

/* One end of a session, as the other must know it. */
struct end {
	union ibv_gid gid;
	uint32_t qpn, psn;
	uint64_t target, readable, word;
	uint32_t target_key, readable_key, word_key;
};

enum op_kind { OP_SEND, OP_SEND_IMM, OP_WRITE, OP_WRITE_IMM, OP_READ, OP_ADD, OP_SWAP, OP_KINDS };

struct tally {
	uint64_t bytes, checked[OP_KINDS], sessions, ended, errors, slowest_probe_ms;
	uint32_t met; /* a bit for each worker whose bytes came */
};

struct holdings {
	uint64_t rss_kb;
	uint32_t fds, threads;
};

struct msg {
	int32_t kind, from, to;
	uint64_t session;
	union {
		struct {
			uint64_t seed;
			int32_t type; /* enum ibv_qp_type */
			uint32_t max_len, ops;
			struct end end;
		} meet;
		struct tally tally;
		struct holdings holds;
		char why[160];
	};
};

/* ---- worker.c ---- */
struct srq_pool;

struct worker {
	int index, fd; /* fd: to the parent */
	uint64_t random;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq; /* shared by the sessions that want it */
	struct ibv_mr *srq_mr;
	uint8_t *srq_buf;
	int gid_index;
	union ibv_gid gid;
	uint32_t mtu;
	struct session *sessions;
	struct tally tally;
};

enum { SRQ_LEN = 32768 + 40, SRQ_WRS = 48 };

int worker_main(int index, int fd, uint64_t seed);
void worker_post_srq(struct worker *w, uint32_t buffer);
bool worker_tell(struct worker *w, struct msg *m);
/* Says why, to the parent and on stderr, and ends the process. */
void fail(struct worker *w, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* The time in which this process ran, so that no limit is over because of a machine that is busy. Main
 * thread. */
uint64_t now_ms(void);

/* ---- script.c ---- */
struct op {
	enum op_kind kind;
	uint32_t len, offset; /* offset: into the other's readable memory */
	bool takes_receive, is_inline, signaled;
	uint64_t seed;
};

struct script {
	uint64_t seed;
	enum ibv_qp_type type;
	uint32_t max_len, ops, inline_max;
};

/* A sanitizer has threads and memory of its own. */
#ifdef SOAK_SANITIZED
enum { COUNT_MEMORY_AND_THREADS = 0 };
#else
enum { COUNT_MEMORY_AND_THREADS = 1 };
#endif

uint64_t mix(uint64_t x);
uint64_t random_next(uint64_t *state);
/* What is moved as number i in direction dir. */
struct op script_op(const struct script *s, unsigned dir, uint32_t i);
void content_fill(uint8_t *p, uint32_t len, uint64_t seed, uint32_t offset);
/* The first wrong byte, or len. */
uint32_t content_check(const uint8_t *p, uint32_t len, uint64_t seed, uint32_t offset);

/* ---- session.c ---- */
struct session;

/* Opens this end and invites the other; or answers an invitation. */
void session_invite(struct worker *w, int peer);
void session_invited(struct worker *w, const struct msg *m);
void session_told(struct session *s, const struct msg *m);
struct session *session_find(struct worker *w, uint64_t id);
/* Moves on; true while it lives. `woken`: its completion channel said so, or it has none. */
bool session_step(struct session *s, bool woken);
void session_close(struct session *s);
/* Takes asynchronous events. */
void session_events(struct worker *w);
bool session_wants_event(const struct session *s);
bool session_is_invited(const struct session *s);
struct session *session_next(struct session *s);

#endif
