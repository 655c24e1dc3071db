/* SPDX-License-Identifier: MIT */
/*
 * TCP in memory, for whole adapters in one process: what link/tcp.h, epoll and timerfd do, with a clock that
 * only moves when it is told to and a seed from which everything is drawn: how many bytes a call moves, when
 * it says EAGAIN, how long bytes travel.
 *
 * It is put there by the linker (sim.stream, CMakeLists.txt): link/tcp.c is not linked, and its functions are
 * here; epoll, timerfd, read() and close() come here first, and go on to libc for real descriptors. The
 * product knows nothing of it.
 *
 * What goes wrong: a connection is reset, a host vanishes (then TCP gives up after a minute), a bit flips.
 * One thread only.
 */
#ifndef TESTS_SIM_TCP_H
#define TESTS_SIM_TCP_H

#include "choices.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* How the network and its sockets are, drawn for each seed. */
struct sim_tcp_rules {
	uint64_t delay;   /* ns, one way */
	uint32_t buffer;  /* bytes that are on their way or not read yet */
	uint32_t mss;     /* what link_tcp_mss() says */
	unsigned chopped; /* one call in so many moves fewer bytes than it could; 0: none */
	unsigned failing; /* one in so many says EAGAIN for no reason, accept EMFILE; 0: none */
};

/* Empties the network; *now is the clock. */
void sim_tcp_open(const struct sim_tcp_rules *r, struct choices *c, const uint64_t *now);
/* What is left: prints it, and false, when there is a descriptor that nobody closed. */
bool sim_tcp_close(void);

/* From now on who makes an epoll set gets one of the kernel's, for sockets that are; or one of ours again. */
void sim_tcp_kernel_sets(bool kernel);
/* What the network does by itself: connections arrive. After each move of the clock. */
void sim_tcp_run(void);
/* When something arrives next, a timer is due or TCP gives up; UINT64_MAX: never. */
uint64_t sim_tcp_next(void);
/* Whether the epoll set has something to tell. */
bool sim_tcp_ready(int epfd);

/* A box in between ends the connection from this port: both ends are told that it broke. false: there is
 * none. */
bool sim_tcp_break(uint16_t port);
/* Its bytes that are on their way, and all later ones, are lost, those of new connections from or to this
 * address too; the ends find out after a minute. */
void sim_tcp_vanish(const struct sockaddr *addr);
/* Flips a bit of what the initiator, or (accepted) the other end, sends, `after` bytes from now. */
void sim_tcp_flip(uint16_t port, bool accepted, uint64_t after);
/* Whether it did. */
bool sim_tcp_flipped(void);

#endif
