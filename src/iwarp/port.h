/* SPDX-License-Identifier: MIT */
/*
 * The provider of iWARP: all TCP connections (streams) of an adapter, and what its files share. pump.c moves
 * bytes between sockets and queue pairs, open.c opens connections, local_upgrade.c finds out that both ends
 * are on one host, stream_state.c says which state follows which, and port.c has all of them, wakes for them
 * and ends them.
 * Everything under the drive lock where nothing else is said.
 */
#ifndef IWARP_PORT_H
#define IWARP_PORT_H

#include "base/timers.h"
#include "hca/adapter.h"
#include "hca/provider.h"
#include "iwarp/conn.h"
#include "iwarp/life.h"

/* Changed by stream_set_state() alone; stream_state.c has the picture. */
enum stream_state {
	STREAM_FRESH,
	STREAM_LISTENING,
	STREAM_RETRY_CONNECT, /* nobody listened: will try again */
	STREAM_CONNECTING,    /* TCP */
	STREAM_NEGOTIATING,   /* MPA's request and reply */
	STREAM_UPGRADING,     /* and it is not known yet whether the peer can be reached by shared memory */
	STREAM_BACKLOGGED,    /* the request is there, and the manager has no room */
	STREAM_AWAIT_APP,     /* the request is there, and the program thinks */
	STREAM_OPEN,          /* has a queue pair */
	STREAM_DRAINING,      /* its last bytes leave, and the peer's are dropped */
	STREAM_CLOSED,        /* no socket */
};

struct stream {
	struct iwarp_conn pub;
	struct hca_engine *e;
	struct iwarp_port *port;
	struct list node;
	iwarp_conn_fn *tell;
	enum stream_state state;
	int fd;
	uint32_t watched; /* EPOLL*, what the set knows; for open ones under qp->lock */
	struct timer timer;
	uint64_t give_up;  /* BACKLOGGED */
	struct hca_qp *qp; /* when OPEN; and it points back */
	uint32_t qpn;
	struct stream *listener; /* until the manager has it */
	unsigned pending;        /* listeners: those it is the listener of */
	bool owned;              /* the manager has it, and will close it */
	int why;                 /* -errno that IWARP_CONN_FAILED says; 0: it was closed */
	bool end_told; /* IWARP_CONN_FAILED or IWARP_CONN_DISCONNECTED are told, or there is nobody to be told
			*/
	bool established;        /* IWARP_CONN_ESTABLISHED is told */
	bool shut;               /* nothing more to send */
	bool peer_closed;        /* DRAINING */
	_Atomic bool blocked;    /* the socket has no room */
	_Atomic bool tx_failed;  /* sending failed: receiving will tell why */
	_Atomic bool rx_no_recv; /* a receive is missing */
	_Atomic bool closing;    /* iwarp_conn_close() */
	bool by_frames;          /* the socket has nothing but its end to tell */
	bool counted;            /* UPGRADING: in port->upgrading */
	uint64_t upgrade_by;
	struct iwarp_connect mpa;
	struct sockaddr_storage local, remote;
	uint8_t tclass, retries;
	bool fit_mss;   /* segments no longer than TCP's */
	uint8_t *stage; /* of both directions: IWARP_STAGE, IWARP_STAGE_OUT */
	uint8_t *rest;  /* DRAINING: what is left to send */
	uint32_t rest_len, rest_sent;
};

struct iwarp_port {
	struct hca_provider provider;
	_Alignas(64) struct list all; /* not on the line that who posts reads */
	unsigned nopen;               /* with a queue pair, whose bytes they carry */
	unsigned upgrading;           /* that wait for the link to reach somebody */
	int epfd;
	struct timers timers; /* of streams */
	unsigned skipped;
	_Atomic bool tidy_wanted;             /* some thread wants them to be looked at */
	_Atomic unsigned rx_no_recv, blocked; /* how many are */
};

/* Without descriptors there is no iWARP: 0 all the same, or -ENOMEM. */
int iwarp_port_open(struct hca_adapter *a);

/* The adapter's; NULL: it has none. */
static inline struct iwarp_port *iwarp_port_in(struct hca_adapter *a)
{
	struct hca_provider *v = a->engine.provider[HCA_STREAMS];

	return v ? container_of(v, struct iwarp_port, provider) : NULL;
}

/* ---- port.c ---- */
struct stream *stream_new(struct iwarp_port *port, iwarp_conn_fn *tell, void *user);
/* EPOLLIN, EPOLLOUT, or 0: not at all. */
void stream_watch(struct stream *s, uint32_t events);
void stream_set_deadline(struct stream *s, uint64_t at);
void stream_clear_deadline(struct stream *s);
/* The next tidying up looks at all streams. Any thread. */
void iwarp_port_wake(struct iwarp_port *port);
/* Tells the manager, with the addresses filled in; returns what it says. */
bool stream_tell(struct stream *s, struct iwarp_conn_event *ev);
/* No socket any more: says so, once. reset: the peer is told that it broke. */
void stream_close_socket(struct stream *s, bool reset, int status);

/* ---- stream_state.c ---- */
/* To another state than it is in. With its queue pair's lock held, if it has one, from and to OPEN. */
void stream_set_state(struct stream *s, enum stream_state state);

/* ---- open.c ---- */
void stream_accept_all(struct stream *listener, uint64_t now);
/* Tries again; then the TCP connection is there, or is not. */
void stream_retry_connect(struct stream *s, uint64_t now);
void stream_connected(struct stream *s, uint64_t now);
/* NEGOTIATING: moves bytes of request and reply, and goes on with what they say. */
void stream_negotiate(struct stream *s, uint64_t now);
/* It broke before it was open. */
void stream_setup_failed(struct stream *s, int status, uint64_t now);
void stream_tell_request(struct stream *s, uint64_t now);
/* AWAIT_APP: refuses. false: too much private data. */
bool stream_reject(struct stream *s, const void *private_data, uint32_t len, uint64_t now);

/* ---- local_upgrade.c ---- */
/* Whether the peer seems to be on this host, and we could reach it by shared memory. */
bool stream_may_upgrade(struct stream *s);
/* Fills in who we are, before MPA says it. */
void stream_fill_identity(struct stream *s);
/* The peer has said who it is: goes on with that, now or when the link knows more. */
void stream_upgrade(struct stream *s, uint64_t now);
void stream_stop_upgrade(struct stream *s);
/* Both have decided; the stream has a queue pair. */
void stream_upgrade_done(struct stream *s);
/* The socket of a stream by shared memory has something: how much happened. */
int stream_receive_end(struct stream *s, uint64_t now);
/* A queue pair that can be connected, or NULL. */
struct hca_qp *stream_free_qp(struct iwarp_port *port, uint32_t qpn);

/* ---- pump.c ---- */
/* Ties both together and begins; the queue pair is in INIT or RTR and has no stream. 0 or -errno. */
int stream_attach_qp(struct stream *s, struct hca_qp *qp, const struct iwarp_params *p, uint64_t now);
/* See hca/provider.h. */
bool iwarp_port_send(struct hca_qp *qp, bool driving, uint64_t now);
void iwarp_port_detach(struct hca_qp *qp);
/* The socket has room again. */
void stream_unblock(struct stream *s);
/* Receives what is there: how much happened. */
int stream_receive(struct stream *s, uint64_t now);
/* What the state of its queue pair asks for. */
void stream_follow_qp(struct stream *s, uint64_t now);
/* Last bytes, with no queue pair. */
void stream_drain(struct stream *s, uint64_t now);
/* The queue pair goes its own way; qp->lock held. */
void stream_detach_qp(struct stream *s, uint64_t now);

#endif
