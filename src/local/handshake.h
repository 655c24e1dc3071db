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
 *   PAIR     the token of a HELLO that came the other way: its sender is who listens in that slot
 *
 * The socket stays open: it is the doorbell, and its end is the other's death.
 */
#ifndef LOCAL_HANDSHAKE_H
#define LOCAL_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

enum { HANDSHAKE_MAGIC = 0x7465656d, HANDSHAKE_VERSION = 4, HANDSHAKE_NONCE = 32 };

enum handshake_kind {
	HANDSHAKE_HELLO = 1,
	HANDSHAKE_WELCOME,
	HANDSHAKE_PROOF,
	HANDSHAKE_EXPORT,
	HANDSHAKE_PAIR
};

struct handshake_msg {
	uint32_t magic, version;
	uint32_t kind;                  /* enum handshake_kind */
	uint32_t slot;                  /* HELLO, WELCOME: the sender's */
	uint64_t at;                    /* WELCOME: the address of the nonce; 0: nobody may see more */
	uint64_t token;                 /* HELLO: of this connection; PAIR: of one that the receiver made */
	uint8_t nonce[HANDSHAKE_NONCE]; /* PROOF */
};

/* A listening socket, not blocking: a descriptor or -errno. */
int handshake_listen(uint16_t port, uint32_t slot);
/* Connects without waiting: a descriptor or -errno (-ECONNREFUSED: nobody listens; -EPERM: another user). */
int handshake_connect(uint16_t port, uint32_t slot);
/* The process we are connected to; 0: not one of ours, as seen from here. */
int handshake_pid(int fd);
/*
 * A descriptor of that process, which becomes readable when it ends: its number may have become another's
 * since. -ENOPROTOOPT: the kernel knows none (before Linux 6.5); another -errno: it has ended, or is none.
 */
int handshake_process(int fd);
/* The next who connected: a descriptor, -EAGAIN when there is none, -EPERM when it was another user. */
int handshake_accept(int listen_fd);

/* Says it, and passes a descriptor (negative: none). 0 or -errno. */
int handshake_send(int fd, const struct handshake_msg *msg, int pass);
/*
 * What the other one says: 1 with a message and what was passed (the caller's to close; -1: nothing), 0 for a
 * ring of the doorbell, -EAGAIN when there is nothing, another -errno when the other one is gone or talks
 * nonsense.
 */
int handshake_receive(int fd, struct handshake_msg *msg, int *passed);
/* The doorbell. */
void handshake_ring(int fd);

#endif
