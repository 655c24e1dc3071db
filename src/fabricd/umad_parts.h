/* SPDX-License-Identifier: MIT */
/* What the files of the umad socket know of each other: umad.c, umad_conn.c, umad_ask.c, umad_qp.c. */
#ifndef FABRICD_UMAD_PARTS_H
#define FABRICD_UMAD_PARTS_H

#include "fabric/proto.h"
#include "fabricd/fabricd.h"
#include "mad/ib/port.h"

enum {
	UMAD_CONNS = 1024,         /* at a time */
	UMAD_IN_FIRST = 16 << 10,  /* bytes read at once; more for a message that is longer */
	UMAD_OUT_MAX = 64 << 20,   /* bytes that wait for a program; what comes then is lost, as with Linux */
	UMAD_HELD_MAX = 256 << 20, /* of both, of all connections; but each may read UMAD_IN_FIRST */
	UMAD_PATIENCE_S = 10,      /* a connection that asks nothing, and has no port, is closed */
	UMAD_OUT_QUEUE = 1 << 16,  /* MADs that wait to be sent, of all ports */
	UMAD_ANSWER = sizeof(struct fabric_ca) + FABRIC_CA_PORTS * sizeof(struct fabric_ca_port),
};
_Static_assert(UMAD_ANSWER >= sizeof(struct fabric_path) && UMAD_ANSWER >= sizeof(struct fabric_listed),
	"room for each answer");

struct umad_conn;

/* QP0 and QP1 of a port: there from the first program that opens it until the last one closes it. */
struct umad_qp {
	struct list node;
	struct umad *umad;
	struct subnet_port *at;
	struct ibmad_port mad;
	unsigned users;
};

struct umad_agent {
	struct umad_conn *conn;
	struct ibmad_agent *mad; /* NULL: there is none */
};

/* Bytes for a program that did not take them at once. */
struct umad_chunk {
	struct list node;
	size_t len, at;
	uint8_t data[];
};

struct umad_conn {
	struct list node;
	struct umad *umad;
	int fd;
	bool gone;
	struct umad_qp *qp;      /* NULL: it asks questions */
	struct loop_timer timer; /* while it does: not for ever */
	uint64_t secret;
	struct umad_agent agent[FABRIC_AGENTS];
	uint8_t *in;
	size_t in_size, in_have;
	struct list out;
	size_t out_bytes;
	uint64_t lost;
};

struct umad {
	struct fabricd *d;
	int listener;
	unsigned nconns;
	struct list conns, qps;
	size_t held; /* bytes that have come for, or wait to go to, programs: in_size and out_bytes of all */
	struct list out; /* MADs to be sent, of umad_qp.c */
	unsigned nout;
	struct loop_timer timer;
};

/* ---- umad_conn.c: connections and their messages ---- */
void umad_conn_accept(void *arg, uint32_t events);
void umad_conn_close(struct umad_conn *c);
/* Reads and does what is there now. */
void umad_conn_read(struct umad_conn *c);
/* A message for the program: what is not lost arrives in this order. */
void umad_conn_write(struct umad_conn *c, enum fabric_umad_type type, const void *head, size_t head_len,
	const void *body, size_t len);

/* ---- umad_ask.c: questions ---- */
/* The answer to a question: its length, at most UMAD_ANSWER. */
size_t umad_answer(
	struct umad_conn *c, enum fabric_umad_type type, const void *request, size_t len, void *answer);

/* ---- umad_qp.c: ports ---- */
struct umad_qp *umad_qp_get(struct umad *u, struct subnet_port *at); /* NULL: no memory */
void umad_qp_put(struct umad_qp *q);
int umad_qp_send(struct umad_agent *a, const struct fabric_mad *mad, const uint8_t *msg, size_t len);
/* A MAD from QP0 or QP1 of a port, whoever's; it waits as those of programs do. */
void umad_qp_put_mad(struct umad *u, struct subnet_port *at, unsigned qp, const struct ibmad_addr *to,
	const uint8_t mad[MAD_LEN]);
/* Sends what waits. */
void umad_qp_flush(struct umad *u);

#endif
