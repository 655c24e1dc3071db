/* SPDX-License-Identifier: MIT */
/*
 * iWARP connections, for who manages connections: TCP connections that carry queue pairs. One is opened by
 * MPA's request and reply (RFC 5044, RFC 6581), in which the programs' private data goes.
 *
 *   iwarp_conn_listen()                                iwarp_conn_connect()
 *       |  IWARP_CONN_REQUEST, with a new connection       |  IWARP_CONN_FAILED: refused, nobody there,
 *   iwarp_conn_accept(), or iwarp_conn_reject()            |  too late
 *       |  IWARP_CONN_ESTABLISHED                          |  IWARP_CONN_ESTABLISHED
 *       '------ IWARP_CONN_DISCONNECTED: whoever began ----'
 *
 * Once a connection is established its queue pair is in RTS, and stays with it until either goes. Every one
 * ends with iwarp_conn_close(), at any time.
 *
 * Who locks what. Events are told under the drive lock, so one at a time, by whatever thread drives. The
 * functions here take the drive lock, but for iwarp_conn_close(): the manager may hold its own lock then,
 * under which `user` is changed, and looked at when an event is told.
 */
#ifndef IWARP_CONN_H
#define IWARP_CONN_H

#include "base/export.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct hca_adapter;

struct iwarp_conn {
	void *manager; /* never changes */
	void *user;    /* the manager's, under its own lock */
};

enum iwarp_conn_event_type {
	IWARP_CONN_REQUEST,
	IWARP_CONN_ESTABLISHED,
	IWARP_CONN_FAILED, /* before it was established */
	IWARP_CONN_DISCONNECTED,
};

struct iwarp_conn_event {
	enum iwarp_conn_event_type type;
	struct iwarp_conn *listener; /* REQUEST */
	int status;        /* FAILED: -errno; -ECONNREFUSED: by the peer's program, or nobody listens */
	uint16_t ird, ord; /* READs: of the peer's that we take, of ours that it takes */
	const uint8_t *private_data; /* the peer's, as long as the call lasts */
	uint32_t private_len;
	const struct sockaddr *local, *remote;
};

/* REQUEST: false when it cannot be taken now. It is told again before long. */
typedef bool iwarp_conn_fn(struct iwarp_conn *c, const struct iwarp_conn_event *e);

/* NULL: no memory, or no adapter that is up. Connections that a listener makes have its manager and function,
 * and no user. */
EXPORTED struct iwarp_conn *iwarp_conn_new(
	struct hca_adapter *a, iwarp_conn_fn *tell, void *manager, void *user);
/* 0 or -errno. */
EXPORTED int iwarp_conn_listen(
	struct hca_adapter *a, struct iwarp_conn *c, const struct sockaddr *addr, bool v6only, int backlog);

struct iwarp_conn_param {
	const struct sockaddr *from, *to;
	uint8_t tclass;
	uint32_t qpn; /* a queue pair in INIT, or RTR, without a connection */
	uint16_t ird, ord;
	const void *private_data;
	uint32_t private_len;
};
/* 0 or -errno; then ESTABLISHED or FAILED will be told. */
EXPORTED int iwarp_conn_connect(
	struct hca_adapter *a, struct iwarp_conn *c, const struct iwarp_conn_param *p);
/* Answers REQUEST: 0 or -errno. addresses, tclass are not used. */
EXPORTED int iwarp_conn_accept(struct hca_adapter *a, struct iwarp_conn *c, const struct iwarp_conn_param *p);
EXPORTED int iwarp_conn_reject(
	struct hca_adapter *a, struct iwarp_conn *c, const void *private_data, uint32_t len);

/* Ends what is open, as a queue pair's way to ERR does; DISCONNECTED follows once the peer has closed, too. 0
 * or -ENOTCONN. */
EXPORTED int iwarp_conn_disconnect(struct hca_adapter *a, struct iwarp_conn *c);

/* The manager is through with it: nothing is told any more once `user` is NULL. What is open is ended in the
 * background. Any thread, any lock. */
EXPORTED void iwarp_conn_close(struct iwarp_conn *c);
/* Waits until what was closed is out of the way: its addresses can be used again. */
EXPORTED void iwarp_conn_settle(struct hca_adapter *a);

#endif
