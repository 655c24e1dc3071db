/* SPDX-License-Identifier: MIT */
/*
 * Streams: TCP connections that carry queue pairs (iWARP), for who manages connections. A stream is opened by
 * MPA's request and reply (RFC 5044, RFC 6581), in which the programs' private data goes.
 *
 *   hca_stream_listen()                             hca_stream_connect()
 *       |  STREAM_ASKED, with a new stream                |
 *   hca_stream_accept(), or hca_stream_reject()           |  STREAM_FAILED: refused, nobody there, too late
 *       |  STREAM_OPENED                                  |  STREAM_OPENED
 *       '------------ STREAM_ENDED: whoever began it -----'
 *
 * Once a stream is open its queue pair is in RTS, and stays with it until either goes. Every stream ends with
 * hca_stream_close(), at any time.
 *
 * Who locks what. Events are told under the drive lock, so one at a time, by whatever thread drives. The
 * functions here take the drive lock, but for hca_stream_close(): the manager may hold its own lock then,
 * under which `user` is changed, and looked at when an event is told.
 */
#ifndef IWARP_CONN_H
#define IWARP_CONN_H

#include "base/export.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct hca_adapter;

struct hca_stream {
	void *manager; /* never changes */
	void *user;    /* the manager's, under its own lock */
};

enum hca_stream_event_type { STREAM_ASKED, STREAM_OPENED, STREAM_FAILED, STREAM_ENDED };

struct hca_stream_event {
	enum hca_stream_event_type type;
	struct hca_stream *listener; /* ASKED */
	int status;        /* FAILED: -errno; -ECONNREFUSED: by the peer's program, or nobody listens */
	uint16_t ird, ord; /* READs: of the peer's that we take, of ours that it takes */
	const uint8_t *private_data; /* the peer's, as long as the call lasts */
	uint32_t private_len;
	const struct sockaddr *local, *remote;
};

/* ASKED: false when it cannot be taken now. It is told again before long. */
typedef bool hca_stream_fn(struct hca_stream *s, const struct hca_stream_event *e);

/* NULL: no memory, or no adapter that is up. Streams that a listener makes have its manager and function, and
 * no user. */
EXPORTED struct hca_stream *hca_stream_new(
	struct hca_adapter *a, hca_stream_fn *tell, void *manager, void *user);
/* 0 or -errno. */
EXPORTED int hca_stream_listen(
	struct hca_adapter *a, struct hca_stream *s, const struct sockaddr *addr, bool v6only, int backlog);

struct hca_stream_request {
	const struct sockaddr *from, *to;
	uint8_t tclass;
	uint32_t qpn; /* a queue pair in INIT, or RTR, without a stream */
	uint16_t ird, ord;
	const void *private_data;
	uint32_t private_len;
};
/* 0 or -errno; then OPENED or FAILED will be told. */
EXPORTED int hca_stream_connect(
	struct hca_adapter *a, struct hca_stream *s, const struct hca_stream_request *r);
/* Answers ASKED: 0 or -errno. addresses, tclass are not used. */
EXPORTED int hca_stream_accept(
	struct hca_adapter *a, struct hca_stream *s, const struct hca_stream_request *r);
EXPORTED int hca_stream_reject(
	struct hca_adapter *a, struct hca_stream *s, const void *private_data, uint32_t len);

/* Ends what is open, as a queue pair's way to ERR does; ENDED follows once the peer has closed, too. 0 or
 * -ENOTCONN. */
EXPORTED int hca_stream_disconnect(struct hca_adapter *a, struct hca_stream *s);

/* The manager is through with it: nothing is told any more once `user` is NULL. What is open is ended in the
 * background. Any thread, any lock. */
EXPORTED void hca_stream_close(struct hca_stream *s);
/* Waits until what was closed is out of the way: its addresses can be used again. */
EXPORTED void hca_stream_settle(struct hca_adapter *a);

#endif
