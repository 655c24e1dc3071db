/* SPDX-License-Identifier: MIT */
/*
 * Which fabric and which of its hosts this program is on, and how to reach the process that is the fabric.
 * The environment says: ANYRDMA_FABRIC the fabric (else the only one that is up, else that with the name
 * "default", as the tool has it), ANYRDMA_HOST the host (else the fabric's first). Nothing is remembered
 * here: a fabric may come and go.
 */
#ifndef FABRIC_CLIENT_H
#define FABRIC_CLIENT_H

#include "fabric/proto.h"

#include <stddef.h>

/*
 * A new connection to the socket `umad` of the fabric of this name, which becomes that of our fabric when it
 * is empty: blocking, above the standard streams, closed by exec; it gives up after a while when nobody
 * answers. -ENOENT: there is no fabric.
 */
int fabric_connect(char name[FABRIC_NAME]);

/* The same to another socket of the fabric, which has so long to answer. */
enum { FABRIC_PATIENCE_MS = 10000 };
struct fabric_socket {
	const char *name;
	int type;
	unsigned patience_ms;
};
int fabric_connect_to(char name[FABRIC_NAME], const struct fabric_socket *to);

/* Fills in the host, and what the caller says. */
void fabric_where(struct fabric_where *w, const char *ca, uint32_t port);

/*
 * Sends a request over a connection and reads its answer: how many bytes of it are at `answer`, at least a
 * struct fabric_done whose error is 0; or -errno, the fabric's own if it said one.
 */
int fabric_ask_over(
	int fd, enum fabric_umad_type type, const void *request, size_t len, void *answer, size_t room);
/* The same over a connection of its own to that fabric; NULL: ours. */
int fabric_ask(const char *fabric, enum fabric_umad_type type, const void *request, size_t len, void *answer,
	size_t room);

#endif
