/* SPDX-License-Identifier: MIT */
/*
 * Process slots. All processes of a host that share a UDP port number have a slot each, which is part of
 * every QP number and communication id they draw (wire/qpn.h). A slot is claimed by binding the abstract Unix
 * name anyrdma/<port>/<slot>: that is atomic, keyed by network namespace like the port itself, released by a
 * crash, and in no directory that somebody could remove. The socket takes datagrams from the other processes.
 *
 * Anybody on the host can bind such a name: who sent a datagram is told by the kernel, who receives one is
 * not known.
 */
#ifndef HOST_SLOT_H
#define HOST_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The first and the last are nobody's: QP0 and QP1, and the QP number of multicast. */
enum { SLOTS = 512, SLOT_WORDS = SLOTS / 64, SLOT_SEND_MS = 4 /* for room in another's socket */ };

/* A set of slots. */
struct slots {
	uint64_t bits[SLOT_WORDS];
};

static inline bool slots_has(const struct slots *s, uint32_t slot)
{
	return slot < SLOTS && s->bits[slot / 64] >> slot % 64 & 1;
}

static inline void slots_add(struct slots *s, uint32_t slot)
{
	s->bits[slot / 64] |= 1ull << slot % 64;
}

static inline void slots_del(struct slots *s, uint32_t slot)
{
	s->bits[slot / 64] &= ~(1ull << slot % 64);
}

unsigned slots_count(const struct slots *s);

/* Claims a slot: its socket, which keeps it until it is closed, or -errno. */
int slot_claim(uint16_t port, uint32_t *slot);
/* The address of a slot; returns its length. */
socklen_t slot_address(struct sockaddr_un *sa, uint16_t port, uint32_t slot);
bool slot_is_alive(uint16_t port, uint32_t slot);
/* The slots whose names are bound, by whomever. About 0.2 ms. */
struct slots slots_alive(uint16_t port);

/*
 * LOOK: asks those processes to look whether the files that all share (host/runfile.h) are still the ones
 * they have open and hold what they wrote, and to put it right. Never waits; who has no room is not asked.
 */
void slots_ask_to_look(uint16_t port, const struct slots *whom);
bool slot_is_look(const void *datagram, size_t len);

/*
 * The next datagram in a slot's socket: its length, 0 when it is cut off or not from our own user or root,
 * -errno. Never waits.
 */
ssize_t slot_receive(int fd, void *buf, size_t len);

#endif
