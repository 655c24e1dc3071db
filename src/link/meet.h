/* SPDX-License-Identifier: MIT */
/*
 * How two processes of this host come by shared memory. Each listens on the abstract Unix name
 * anyrdma/<port>/<slot>/memory, which is keyed by network namespace like the port itself. Who wants to send
 * connects, and passes the memory it will write to; who listens answers with its board. Both look at the
 * other's user: only processes of one user share memory. The socket stays open: it is the doorbell, and its
 * end is the other's death.
 */
#ifndef LINK_MEET_H
#define LINK_MEET_H

#include <stddef.h>
#include <stdint.h>

enum { MEET_MAGIC = 0x7465656d, MEET_VERSION = 2 };

struct meet_hello {
	uint32_t magic, version;
	uint32_t slot;
	uint32_t reserved;
};

/* A listening socket, not blocking: a descriptor or -errno. */
int meet_listen(uint16_t port, uint32_t slot);
/* Connects without waiting: a descriptor or -errno (-ECONNREFUSED: nobody listens; -EPERM: another user). */
int meet_connect(uint16_t port, uint32_t slot);
/* The process we are connected to; 0: not one of ours, as seen from here. */
int meet_pid(int fd);
/* The next who connected: a descriptor, -EAGAIN when there is none, -EPERM when it was another user. */
int meet_accept(int listen_fd);

enum { MEET_PASSED = 2 };

/* Says who we are, and passes a descriptor, or two (negative: none). 0 or -errno. */
int meet_say(int fd, uint32_t slot, int pass, int also);
/*
 * What the other one says: 1 with what was passed (the caller's to close; -1: not the second one), 0 for a
 * ring of the doorbell, -EAGAIN when there is nothing, another -errno when the other one is gone or talks
 * nonsense.
 */
int meet_hear(int fd, uint32_t *slot, int passed[MEET_PASSED]);
void meet_close(const int passed[MEET_PASSED]);
/* The doorbell. */
void meet_ring(int fd);

/* Memory to share, zeroed, which nobody can make shorter: a descriptor or -errno. */
int meet_memory(const char *name, size_t size);
/* Once it is mapped: from now on others can only read it. 0 or -errno. */
int meet_read_only(int fd);
/* Maps what was passed, at a place or (NULL) anywhere: NULL when it is not such memory of this size. */
void *meet_map(int fd, size_t size, int prot, void *at);
/* Lets go of it, but leaves zeroes to read in its place, for those who look without a lock. */
void meet_vacate(void *at, size_t size);

#endif
