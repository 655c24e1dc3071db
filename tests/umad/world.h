/* SPDX-License-Identifier: MIT */
/*
 * Two hosts back to back, node1 with LID 1 and node2 with LID 2, in a process of their own: a real subnet and
 * the socket that libibumad talks to. The tests use the public API alone.
 */
#ifndef TESTS_UMAD_WORLD_H
#define TESTS_UMAD_WORLD_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <infiniband/umad.h>

enum {
	MAD = 256,
	SMP_DIRECTED = 0x81,
	SA = 3,
	PING = 0x32,
	GET = 1,
	GET_TABLE = 0x12,
	RESPONSE = 0x80,
};

/* A buffer for a message of up to len bytes. */
struct message {
	struct ib_user_mad umad;
	uint8_t mad[];
};

int world_up(void **state);   /* a run directory of its own, and the fabric */
int world_down(void **state); /* all of it */
void world_start(void);       /* the fabric's process alone; it answers when this returns */
void world_kill(void);        /* kill -9 */
void world_stop(void);
void world_continue(void);
/* The fabric's clock stands from now on, until it is started again, and goes on when it is told. */
void world_clock_stop(void);
void world_clock_go(uint64_t ms);

/* A socket as another fabric has it, of that name, where nobody answers: its descriptor. */
int world_another(const char *name);
/* Where it is: the run directory moves there, and whoever looks for it finds it there. */
void world_move(const char *to);

/* This program is on that host from now on. */
void world_be(const char *host);
/* A port of a host. */
int world_open(const char *host);
/* An agent that takes these methods of a class; a negative errno when it is refused. */
int world_agent(int port, int mgmt_class, uint64_t methods);

struct message *message_new(size_t len);
/* A MAD of this class to a LID, the directed route to ourselves for SMPs. */
struct message *message_to(unsigned lid, uint8_t mgmt_class, uint8_t method, uint32_t tid, size_t len);
/* Receives into a new buffer for len bytes: the agent. Fails the test if nothing comes in time. */
int receive(int port, struct message **m, int *len);
uint32_t tid_of(const struct message *m); /* what the program chose of it */

uint64_t milliseconds(void);

#endif
