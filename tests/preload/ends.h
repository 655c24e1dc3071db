/* SPDX-License-Identifier: MIT */
/* Programs with ordinary sockets, which know nothing of RDMA, under the preload library (LD_PRELOAD). Both
 * ends are in one process, in a network namespace of its own where that is allowed. What must hold: sockets
 * behave as the kernel's do, and no TCP connection is made but where one is meant. */
#ifndef TESTS_PRELOAD_ENDS_H
#define TESTS_PRELOAD_ENDS_H

#include "../skip.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/epoll.h>

#include <cmocka.h>

enum { BIG = 3 << 20 };

struct ends {
	int listener, client, server;
	struct sockaddr_in at;
};

void listen_somewhere(struct ends *e);
void join(struct ends *e);
/* A thread's function: connects e->client to e->at; NULL when it has. */
void *connect_thread(void *arg);
void part(struct ends *e);

/* A connection for the test, in *state. */
int set_up(void **state);
int tear_down(void **state);
#define WITH_ENDS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* BIG bytes, each known by its place; the first is a thread's function, the second reads to the end. */
uint8_t byte_at(size_t i);
void *send_big(void *fd);
void receive_big(int fd);
void assert_reads(int fd, const char *text);
int wait_one(int epfd, struct epoll_event *event, int timeout);

/* Whether nobody else is on the network now, and the TCP connections that were opened on it so far. */
bool enter_own_network(void);
long tcp_opens(void);

/* Runs the tests, then looks whether TCP was used as often as is meant. For main to return. */
#define RUN(tests, tcp_meant) ends_run(tests, sizeof(tests) / sizeof((tests)[0]), tcp_meant)
int ends_run(const struct CMUnitTest *tests, size_t n, long tcp_meant);

#endif
