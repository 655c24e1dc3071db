/* SPDX-License-Identifier: MIT */
/* A listener and the two ends of a connection to it. */
#ifndef TESTS_RDMACM_RSOCKET_H
#define TESTS_RDMACM_RSOCKET_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <infiniband/ib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

struct rsocket_world {
	int listener, client, server;
	struct sockaddr_in address;
};
extern struct rsocket_world w; /* the program's */

static inline int rsocket_setup(void **state)
{
	socklen_t len = sizeof(w.address);
	int one = 1;

	w.client = w.server = -1;
	w.address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	w.listener = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_true(w.listener >= 0);
	assert_int_equal(rsetsockopt(w.listener, SOL_RDMA, RDMA_IOMAPSIZE, &one, sizeof(one)), 0);
	assert_int_equal(rbind(w.listener, (struct sockaddr *)&w.address, sizeof(w.address)), 0);
	assert_int_equal(rgetsockname(w.listener, (struct sockaddr *)&w.address, &len), 0);
	assert_int_equal(rlisten(w.listener, 5), 0);
	return 0;
}

static inline int rsocket_teardown(void **state)
{
	if (w.client >= 0)
		assert_int_equal(rclose(w.client), 0);
	if (w.server >= 0)
		assert_int_equal(rclose(w.server), 0);
	if (w.listener >= 0)
		assert_int_equal(rclose(w.listener), 0);
	return 0;
}

static inline int connect_to(const struct sockaddr_in *to)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0), one = 1;

	assert_true(s >= 0);
	assert_int_equal(rsetsockopt(s, SOL_RDMA, RDMA_IOMAPSIZE, &one, sizeof(one)), 0);
	assert_int_equal(rconnect(s, (const struct sockaddr *)to, sizeof(*to)), 0);
	return s;
}

static inline void connect_pair(void)
{
	w.client = connect_to(&w.address);
	w.server = raccept(w.listener, NULL, NULL);
	assert_true(w.server >= 0);
}

/* The events that rpoll tells of one rsocket. */
static inline int events_of(int fd, short events, int timeout)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n = rpoll(&p, 1, timeout);

	assert_true(n >= 0);
	assert_int_equal(n, p.revents != 0);
	return p.revents;
}

static inline void wait_readable(int fd)
{
	assert_true(events_of(fd, POLLIN, -1) & POLLIN);
}

static inline int error_of(int fd)
{
	int v = -1;
	socklen_t len = sizeof(v);

	assert_int_equal(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &v, &len), 0);
	return v;
}

/* ---- rsocket_options.c ---- */
void names_are_the_addresses(void **state);
void an_unbound_name_is_its_family_alone(void **state);
void options_are_remembered(void **state);
void the_path_of_a_connection_can_be_read(void **state);
void mistakes_are_told_as_sockets_tell_them(void **state);
void ipv6_too(void **state);

#endif
