/* SPDX-License-Identifier: MIT */
/*
 * The handshake by which two processes of this host come by shared memory. Each listens on the abstract Unix
 * name anyrdma/<port>/<slot>/memory, which is keyed by network namespace like the port itself. Both look at
 * the other's user: only processes of one user share memory. docs/wire/local.md has the picture:
 *
 *   HELLO    who connects: its slot, and the ring it will write to
 *   WELCOME  who listens: its bell, on which its sleepers count themselves, and where a nonce lies
 *   PROOF    the nonce, read out of the other's memory: the kernel lets its sender in there
 *   EXPORT   the table of what may be done there without asking: keys and queue pairs
 *   TWIN     the token of a HELLO that came the other way: its sender is who listens in that slot
 *
 * The socket stays open: it is the doorbell, and its end is the other's death.
 */
#ifndef LINK_MEET_H
#define LINK_MEET_H

#include <stddef.h>
#include <stdint.h>

enum { MEET_MAGIC = 0x7465656d, MEET_VERSION = 3, MEET_NONCE = 32 };

enum meet_kind { MEET_HELLO = 1, MEET_WELCOME, MEET_PROOF, MEET_EXPORT, MEET_TWIN };

struct meet_word {
	uint32_t magic, version;
	uint32_t kind;             /* enum meet_kind */
	uint32_t slot;             /* HELLO, WELCOME: the sender's */
	uint64_t at;               /* WELCOME: the address of the nonce; 0: nobody may see more */
	uint64_t token;            /* HELLO: of this connection; TWIN: of one that the receiver made */
	uint8_t nonce[MEET_NONCE]; /* PROOF */
};

/* A listening socket, not blocking: a descriptor or -errno. */
int meet_listen(uint16_t port, uint32_t slot);
/* Connects without waiting: a descriptor or -errno (-ECONNREFUSED: nobody listens; -EPERM: another user). */
int meet_connect(uint16_t port, uint32_t slot);
/* The process we are connected to; 0: not one of ours, as seen from here. */
int meet_pid(int fd);
/*
 * A descriptor of that process, which becomes readable when it ends: its number may have become another's
 * since. -ENOPROTOOPT: the kernel knows none (before Linux 6.5); another -errno: it has ended, or is none.
 */
int meet_process(int fd);
/* The next who connected: a descriptor, -EAGAIN when there is none, -EPERM when it was another user. */
int meet_accept(int listen_fd);

/* Says it, and passes a descriptor (negative: none). 0 or -errno. */
int meet_say(int fd, const struct meet_word *word, int pass);
/*
 * What the other one says: 1 with a word and what was passed (the caller's to close; -1: nothing), 0 for a
 * ring of the doorbell, -EAGAIN when there is nothing, another -errno when the other one is gone or talks
 * nonsense.
 */
int meet_hear(int fd, struct meet_word *word, int *passed);
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
