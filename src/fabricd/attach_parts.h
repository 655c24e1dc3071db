/* SPDX-License-Identifier: MIT */
/* Programs that are attached: attach.c has their sockets, trunk.c their packets. */
#ifndef FABRICD_ATTACH_PARTS_H
#define FABRICD_ATTACH_PARTS_H

#include "fabric/attach.h"
#include "fabric/trunk.h"
#include "fabricd/fabricd.h"
#include "host/slot.h"
#include "wire/mad.h"

enum {
	ATTACH_CONNS = 4096,
	ATTACH_PATIENCE_S = 10,
	ATTACH_ASKED = 256,      /* requests whose listener is remembered */
	ATTACH_QUESTIONS = 1024, /* of one program to the SA, on their way */
	ATTACH_GROUPS = 256      /* that one program is in */
};

/* What a program told when we looked last: tally.c. */
struct tally_sum_seen {
	uint64_t packets, words;
};

struct tally_seen {
	uint64_t way;
	struct tally_sum_seen sum[2];
};

struct attach_conn {
	struct list node;
	struct attach *all;
	int fd;
	bool broken;             /* its ring says what cannot be: the loop closes it */
	struct loop_timer timer; /* a program that says nothing is not waited for */
	struct topo_host *host;  /* NULL: it has not said HELLO */
	uint32_t slot;           /* 0: it only looks */
	struct trunk *trunk;     /* NULL: it only looks */
	struct trunk_rx rx;
	struct trunk_tx tx;
	bool unrung;                  /* packets were put since it was rung last */
	struct attach_listen *listen; /* what it listens for; ATTACH_LISTENERS at most */
	unsigned nlisten;
	unsigned nquestions, ngroups;
	struct tally_seen *tally;
	uint32_t ntallies;
};

struct attach_counts {
	uint64_t sent, received; /* packets from programs, and to them */
	uint64_t refused;        /* that a program may not send */
	uint64_t nonsense;       /* programs that were cut off for what they said */
	uint64_t listeners;      /* that were refused: too many, or another's */
	uint64_t unknown;        /* for a slot that nobody has */
	uint64_t overruns;       /* there was no room for */
};

/* Who got a request, for the REJ of a peer that gives up and knows no id of ours. */
struct attach_asked {
	uint32_t comm_id, slot; /* the peer's; slot 0: none */
	uint16_t lid;           /* the peer's */
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
	int names_fd;
	size_t names_size;
	struct attach_asked asked[ATTACH_ASKED]; /* the last ones, by hash */
	struct list sa_ports;                    /* struct sa_port */
	struct list members;                     /* of groups: struct membership */
	struct loop_timer sa_timer;
};

/* ---- attach.c ---- */
/* Accepts the programs that wait. */
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
/* What arrived at an adapter, for this program. */
void trunk_put(struct attach_conn *c, const struct subnet_port *at, const struct packet *p);
bool trunk_is_on(const struct attach_conn *c, const struct subnet_port *at);
/* Before the loop sleeps: takes what programs send, looks for a moment, says that it sleeps. */
void trunk_before_sleep(void *arg, uint64_t now);

/* ---- tally.c ---- */
/* Counts what the program has sent past the switches. */
void tally_fold(struct attach_conn *c);

/* ---- names.c ---- */
int attach_names(const struct topo *t, size_t *size); /* a descriptor to pass, or -errno */
uint32_t attach_host_tag(const struct fabricd *d, const struct topo_host *h);

/* ---- listeners.c: which requests of connections are whose ---- */
/* LISTEN and UNLISTEN; what it may not have is refused, and counted. */
void attach_listen(struct attach_conn *c, const struct attach_listen *l);
/* Who listens at this port for a request of this service, for this IP address; NULL: none has one. */
struct attach_conn *attach_listener(
	struct attach *all, const struct subnet_port *at, uint64_t service_id, const uint8_t *ip);

/* ---- gsi.c: QP1 of programs ---- */
/* A MAD that a program sends from QP1: false, it may not. */
bool gsi_send(struct attach_conn *c, struct subnet_port *from, struct packet *p, uint64_t now);

/* ---- sa_client.c: what programs ask the SA ---- */
void sa_client_open(struct attach *all);
void sa_client_close(struct attach *all);
/* A question of a program: false, it may not ask that, or not so much. */
bool sa_client_ask(struct attach_conn *c, struct subnet_port *from, const uint8_t mad[MAD_LEN]);
/* A question of a program, or (NULL) of ours: its answer is nobody's. */
void sa_client_send(
	struct attach *all, struct subnet_port *from, struct attach_conn *c, const uint8_t mad[MAD_LEN]);
/* A MAD at QP1 of a port: true, it was the answer to one. */
bool sa_client_arrived(struct attach *all, struct subnet_port *at, const struct packet *p);
/* Before the loop sleeps: when to look again. */
void sa_client_set_timer(struct attach *all);
/* Whether a program's join of this record's group is on its way by this port: the port then stays, unless it
 * fails. */
bool sa_client_keeps(struct attach *all, const struct subnet_port *at, const uint8_t mad[MAD_LEN]);
/* The program is gone: nobody waits for its answers. */
void sa_client_forget(struct attach_conn *c);

/* ---- members.c: who is in which multicast group ---- */
/* Whether it may ask for this Set or Delete of an MCMemberRecord. */
bool members_may(const struct attach_conn *c, const struct subnet_port *at, const uint8_t mad[MAD_LEN]);
/* Whether the SA has to be asked: false, the port stays, and the program's part in it is over. */
bool members_must_ask(const struct attach_conn *c, const struct subnet_port *at, const uint8_t mad[MAD_LEN]);
/* The SA has confirmed a join; the program may be gone (NULL). */
void members_joined(
	struct attach *all, struct attach_conn *c, struct subnet_port *at, const uint8_t mad[MAD_LEN]);
/* A join for which the port did not leave has failed. */
void members_not_joined(struct attach *all, struct subnet_port *at, const uint8_t mad[MAD_LEN]);
/* The program is gone. */
void members_forget(struct attach_conn *c);
/* A subnet manager wants to be told again. */
void members_renew(struct attach *all, struct subnet_port *at);

#endif
