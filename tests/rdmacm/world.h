/* SPDX-License-Identifier: MIT */
/*
 * What the tests of librdmacm share: ids of one process on the loopback device, on one event channel, so that
 * every event is seen, in its order. A listener, a client that connects to it, and the server that the
 * request makes.
 */
#ifndef RDMACM_WORLD_H
#define RDMACM_WORLD_H

#include "../skip.h"

#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* A sanitizer keeps what is freed, counts what a child was not left to free, and knows no forks among
 * threads. */
#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, FORKS_WELL = 1 };
#elif defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1, FORKS_WELL = 0 };
#else
enum { SANITIZED = 0, FORKS_WELL = 1 };
#endif

/* What the private data field of each message holds for the program. */
enum { REQ_PRIV = 56, REP_PRIV = 196, REJ_PRIV = 148 };

struct world {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_cm_event last; /* as taken; its private data copied */
	uint8_t priv[256];
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};
extern struct world w;

/* A listener with a backlog of 8, a PD, a CQ; and nothing left of all that. */
int setup(void **state);
int teardown(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

struct sockaddr_in loopback(__be16 port);
/* Takes the next event, which must be this one. TIMEWAIT ends when it ends, between any two others. */
void expect(enum rdma_cm_event_type type, struct rdma_cm_id *id);
/* With its QP; harmless for NULL. */
void destroy(struct rdma_cm_id **id);
void make_qp(struct rdma_cm_id *id);

/* w.client up to ROUTE_RESOLVED; to the port of the listener unless another is said. */
void resolve(void);
void resolve_to(__be16 port);
/* Up to the request at the server. */
void ask(const char *priv);
/* Up to ESTABLISHED at the client. */
void connect_both(void);
void disconnect_both(void);
/* All of it, with a client and server that are gone afterwards. */
void cycle(void);

/* How many descriptors this process has. */
int open_files(void);

#endif
