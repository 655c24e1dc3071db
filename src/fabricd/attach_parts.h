/* SPDX-License-Identifier: MIT */
/* Programs that are attached: attach.c has their sockets, trunk.c their packets. */
#ifndef FABRICD_ATTACH_PARTS_H
#define FABRICD_ATTACH_PARTS_H

#include "fabric/attach.h"
#include "fabric/trunk.h"
#include "fabricd/fabricd.h"
#include "host/slot.h"

enum { ATTACH_CONNS = 4096, ATTACH_PATIENCE_S = 10 };

struct attach_conn {
	struct list node;
	struct attach *all;
	int fd;
	bool broken;             /* its ring says what cannot be: the loop closes it */
	struct loop_timer timer; /* who says nothing is not waited for */
	struct topo_host *host;  /* NULL: it has not said HELLO */
	uint32_t slot;           /* 0: it only looks */
	struct trunk *trunk;     /* NULL: it only looks */
	struct trunk_rx rx;
	struct trunk_tx tx;
	bool unrung; /* packets were put since it was rung last */
};

struct attach_counts {
	uint64_t sent, received; /* packets from programs, and to them */
	uint64_t refused;        /* that a program may not send */
	uint64_t unknown;        /* for a slot that nobody has */
	uint64_t overruns;       /* there was no room for */
};

struct attach {
	struct fabricd *d;
	int listener;
	unsigned nconns;
	struct list conns;
	struct attach_conn *slot[SLOTS];
	struct subnet_port **port; /* by their index in the table */
	uint32_t nports;
	uint64_t busy; /* when the last packet came */
	struct attach_counts count;
};

/* ---- attach.c ---- */
/* Takes in who waits. */
void attach_accept(struct attach *all);
/* The table says, or says no more, who has the program's slot. */
void attach_tell(const struct attach_conn *c, bool there);
/* Reads and does what is there now; the connection may be gone afterwards. */
void attach_read(struct attach_conn *c);

/* ---- trunk.c ---- */
int trunk_open(struct attach_conn *c); /* its memory: a descriptor to pass, or -errno */
void trunk_close(struct attach_conn *c);
/* The program is gone: sends what it left. */
void trunk_finish(struct attach_conn *c);
/* Before the loop sleeps: takes what programs send, looks for a moment, says that it sleeps. */
void trunk_before_sleep(void *arg, uint64_t now);

#endif
