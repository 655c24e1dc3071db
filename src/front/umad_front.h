/* SPDX-License-Identifier: MIT */
/* What the files of libibumad know of each other. Errors are -errno, and errno is set, as rdma-core has it.
 */
#ifndef FRONT_UMAD_FRONT_H
#define FRONT_UMAD_FRONT_H

#include "base/list.h"
#include "fabric/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static inline int umad_error(int err)
{
	errno = err;
	return -err;
}

/* ---- umad_ca.c ---- */
/* Says once, in one sentence, why there are no adapters here and what to do; err: what the fabric said. */
void umad_explain(int err);
/*
 * Which adapter and port a call means: NULL is the first one with an active port, port 0 the active one of
 * the adapter. Their names and numbers; 0 or a positive errno.
 */
int umad_resolve(const char *ca_name, int portnum, char ca[FABRIC_CA_NAME], uint32_t *port);

/* ---- ports that are open: umad_port.c ---- */
enum { UMAD_HDR = 24 }; /* bytes of a MAD that come back when nobody answered */

/* A request for which a response, or its timeout, is still to come. */
struct umad_waiting {
	struct list node;
	uint64_t deadline; /* by when the fabric would have said so; counts while there is none */
	struct fabric_mad mad;
	size_t len; /* its header; all of it, if it was sent while there was no fabric */
	uint8_t msg[];
};

struct umad_handle {
	struct list node; /* of all that are open */
	unsigned refs;
	/*
	 * fd: the program's descriptor, and its name for the port. The connection; while there is none, the
	 * timer, which becomes readable when it is time to look. The number never changes.
	 */
	int fd, timer;
	/* Fabric and host are those of the first time, whatever the environment says later. */
	char fabric[FABRIC_NAME];
	struct fabric_where where;

	/*
	 * sending: who has it alone writes, registers agents, connects again, and may wait for the fabric.
	 * lock: guards what follows, and is never held while anything waits; taken inside the other.
	 */
	pthread_mutex_t sending, lock;
	bool closed;
	uint64_t lost_at, look_at; /* while down: since when; when to look whether the fabric is back */
	_Atomic bool down;         /* a first look needs no lock */
	uint64_t secret;
	struct fabric_register agent[FABRIC_AGENTS];
	uint32_t agents;                /* bit i: there is one */
	struct list waiting, timed_out; /* struct umad_waiting */
	struct fabric_msg in;           /* the message that is being received */
	size_t have;                    /* bytes of it, its header included */
	uint8_t *body;
};

/* NULL with errno EINVAL: no such port. Held until it is put, closed or not. */
struct umad_handle *umad_handle_get(int portid);
void umad_handle_put(struct umad_handle *p);
/* The connection is gone: whoever waits for a response is told, and it is looked for from time to time. */
void umad_handle_lost(struct umad_handle *p);
/* Looks whether the fabric is back, when it is time to; harmless when it never was gone. */
void umad_handle_mend(struct umad_handle *p);
/* Forgets what has come of the message that is being received. The lock is held. */
void umad_handle_forget(struct umad_handle *p);
/* While it is down: sets the timer for what is due first. The lock is held. */
void umad_handle_set_alarm(struct umad_handle *p);
/* Writes a message of an agent to the fabric, by who has `sending`: 0 or a positive errno. */
int umad_handle_write(int fd, const struct fabric_mad *mad, const void *msg, size_t len);
/* Methods of responses have the bit; TrapRepress answers a trap; BM says so in its attribute modifier. */
bool umad_is_response(const uint8_t *mad);
/* REGISTER and UNREGISTER, by who has `sending`: 0 or a positive errno. */
int umad_handle_agent(struct umad_handle *p, enum fabric_umad_type type, struct fabric_register r);

#endif
