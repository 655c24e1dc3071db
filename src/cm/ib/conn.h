/* SPDX-License-Identifier: MIT */
/*
 * The IB connection manager (IBA volume 1, chapter 12) without sockets, clock, threads or allocation. It
 * takes what the user wants, what was received, and the time; it calls back with MADs to send and with
 * events, and says when it wants to be called again. rdma_cm stands on it; the simulation drives it.
 *
 *   conn.c      the states (the diagram is there), the one door between them, timers
 *   calls.c     what the user asks for
 *   receive.c   what the peer says: new messages, duplicates, stale connections
 *   table.c     finding a connection; timers.c: finding the next deadline
 *
 * Who owns what. The caller owns every struct cm_conn and the table's buckets. From cm_listen, cm_connect,
 * cm_sidr_request, or being returned by incoming(), until the event CM_EV_GONE the core may hold pointers to
 * a connection. Every connection ends with cm_abandon(), in whatever state it is, and CM_EV_GONE: at once or
 * after TIMEWAIT. Then it may be freed or used again.
 *
 * One core serves all devices and ports of a process. Calls are serialised by the caller. event() is the last
 * thing a call does, so it may call back into the core, for the same connection too; send(), incoming() and
 * random() may not.
 *
 * Times are in ns from any origin; UINT64_MAX is never.
 */
#ifndef CM_CONN_H
#define CM_CONN_H

#include "base/timers.h"
#include "cm/ib/table.h"
#include "wire/cm_msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CM_STATES(X)                                                                                         \
	X(IDLE)                                                                                              \
	X(LISTEN)                                                                                            \
	X(REQ_SENT)                                                                                          \
	X(REQ_RCVD)                                                                                          \
	X(MRA_REQ_SENT)                                                                                      \
	X(MRA_REQ_RCVD)                                                                                      \
	X(REP_SENT)                                                                                          \
	X(REP_RCVD)                                                                                          \
	X(MRA_REP_SENT)                                                                                      \
	X(MRA_REP_RCVD)                                                                                      \
	X(ESTABLISHED)                                                                                       \
	X(DREQ_SENT)                                                                                         \
	X(DREQ_RCVD)                                                                                         \
	X(TIMEWAIT)                                                                                          \
	X(SIDR_REQ_SENT)                                                                                     \
	X(SIDR_REQ_RCVD)                                                                                     \
	X(SIDR_REP_SENT)

enum cm_state {
#define X(name) CM_S_##name,
	CM_STATES(X)
#undef X
		CM_STATE_COUNT,
};

#define CM_EVENTS(X)                                                                                         \
	X(REQ)          /* a new connection asks: cm_accept, cm_reject */                                    \
	X(REP)          /* the peer accepts: cm_establish, cm_reject */                                      \
	X(ESTABLISHED)  /* passive side: by RTU, or by cm_data_came (no message then) */                     \
	X(REJ)          /* rejected; also after REP or ESTABLISHED, when the peer gives up */                \
	X(MRA)          /* the peer needs longer; nothing to do */                                           \
	X(UNREACHABLE)  /* REQ, REP or SIDR_REQ was not answered */                                          \
	X(DREQ)         /* the peer disconnects; answer by cm_disconnect if the state is DREQ_RCVD */        \
	X(DREP)         /* the peer has agreed to disconnect */                                              \
	X(DREQ_TIMEOUT) /* it did not say; disconnected all the same */                                      \
	X(TIMEWAIT_EXIT)                                                                                     \
	X(SIDR_REQ) /* a new request for a UD service: cm_sidr_reply */                                      \
	X(SIDR_REP) /* its answer, whatever the status */                                                    \
	X(GONE)     /* after cm_abandon: the core knows it no more */

enum cm_event_type {
#define X(name) CM_EV_##name,
	CM_EVENTS(X)
#undef X
		CM_EVENT_COUNT,
};

/* What became of a received MAD. */
#define CM_VERDICTS(X)                                                                                       \
	X(TAKEN)                                                                                             \
	X(DUPLICATE)    /* of something done before; answered again where there is an answer */              \
	X(STALE)        /* a peer that has forgotten a connection which we still have: rejected */           \
	X(REFUSED)      /* rejected: nobody listens, a bad field, or incoming() said so */                   \
	X(NO_ROOM)      /* incoming() had none: forgotten, the peer asks again */                            \
	X(UNKNOWN)      /* about a connection nobody has; answered so that the peer learns it */             \
	X(WRONG_SOURCE) /* right ids from a wrong address: dropped */                                        \
	X(WRONG_STATE)  /* makes no sense in this state: dropped */                                          \
	X(MALFORMED)

enum cm_verdict {
#define X(name) CM_V_##name,
	CM_VERDICTS(X)
#undef X
		CM_VERDICT_COUNT,
};

const char *cm_state_name(enum cm_state s);
const char *cm_event_name(enum cm_event_type e);
const char *cm_verdict_name(enum cm_verdict v);

/* Between which addresses, as GIDs. `via` is the caller's: device, port, GID index. */
struct cm_path {
	uint8_t local[16], remote[16];
	void *via;
};

struct cm_conn {
	enum cm_state state;
	bool sidr, abandoned;
	uint32_t local_id, remote_id; /* remote_id is 0 until it is known */
	uint32_t local_qpn, remote_qpn;
	uint64_t service_id, tid;
	uint64_t remote_guid; /* the peer's adapter, as it says */
	struct cm_path path;
	void *user; /* the caller's */

	/* the core's own */
	uint8_t retries, max_retries; /* left; in all */
	uint8_t no_listener;          /* how often nobody was listening */
	uint8_t mra_timeout;          /* what a MRA would promise */
	uint64_t wait, timewait;      /* between two attempts; in TIMEWAIT */
	uint8_t repeat[MAD_LEN];      /* what the timer, or a duplicate of what it answers, sends again */
	struct cm_link link[CM_INDEXES];
	struct timer timer;
};

struct cm_event {
	enum cm_event_type type;
	const struct cm_msg *msg; /* what was received, as long as the call lasts; NULL: no message */
	struct cm_conn *listener; /* REQ, SIDR_REQ */
};

struct cm_ops {
	/* Sends a MAD from QP1 to QP1 (GSI_QKEY). Loss is fine. */
	void (*send)(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN]);
	void (*event)(void *arg, struct cm_conn *c, const struct cm_event *e);
	/*
	 * A connection for a request to this listener, of any content but `user`. NULL: none; then *refuse
	 * may be set to a reason to reject with (cm_rej_reason; for SIDR_REQ a cm_sidr_status), and otherwise
	 * the request is forgotten, which is what a full backlog does.
	 */
	struct cm_conn *(*incoming)(void *arg, struct cm_conn *listener, const struct cm_path *path,
		const struct cm_msg *m, uint16_t *refuse);
	uint32_t (*random)(void *arg); /* not to be guessed: communication ids are made of it */
};

struct cm_core {
	const struct cm_ops *ops;
	void *arg;
	uint32_t slot; /* of the process: upper bits of every id */
	uint64_t ca_guid;
	/*
	 * How often a REQ or SIDR_REQ that nobody listens for is sent again before the user is told, first
	 * after 10 ms and then twice as long each time. cm_core_init says 0.
	 */
	uint8_t no_listener_retries;
	struct cm_table table;
	struct timers timers;
	uint64_t verdicts[CM_VERDICT_COUNT];
	uint64_t repeated; /* messages sent again by the timer */
};

/* What Linux's rdma_cm asks for in a REQ; 4.096 us * 2^t. */
enum { CM_RESPONSE_TIMEOUT = 20, CM_MAX_RETRIES = 15, CM_MRA_TIMEOUT = 24 };

/* buckets as for cm_table_init */
void cm_core_init(struct cm_core *core, const struct cm_ops *ops, void *arg, uint32_t slot, uint64_t ca_guid,
	struct cm_link **buckets, uint32_t n);

/* ---- what the user asks for: 0, or -EINVAL when the state does not allow it ---- */

/*
 * One listener per service id (-EADDRINUSE): who wants several by address tells them apart in incoming().
 * The connection is in any content but `user`, or IDLE.
 */
int cm_listen(struct cm_core *core, struct cm_conn *c, uint64_t service_id);
/*
 * Sends a REQ. Of *m the caller fills req, priv and attr_mod; the core fills ids, CA GUID and tid. The path
 * is copied. -EAGAIN: no free id.
 */
int cm_connect(
	struct cm_core *core, struct cm_conn *c, const struct cm_path *path, struct cm_msg *m, uint64_t now);
/* Sends a REP, filled likewise. Events on the QP may come before the RTU: see cm_data_came. */
int cm_accept(struct cm_core *core, struct cm_conn *c, struct cm_msg *m, uint64_t now);
/* Sends the RTU: ESTABLISHED, without an event. */
int cm_establish(struct cm_core *core, struct cm_conn *c, const void *priv, size_t len);
/* The passive side's QP has received something: the RTU is as good as here. */
int cm_data_came(struct cm_core *core, struct cm_conn *c);
/* info is the reason's additional information; IDLE or TIMEWAIT without an event. */
int cm_reject(struct cm_core *core, struct cm_conn *c, uint16_t reason, const void *info, size_t info_len,
	const void *priv, size_t len, uint64_t now);
/* Sends a DREQ when ESTABLISHED, the DREP that is owed when DREQ_RCVD. */
int cm_disconnect(struct cm_core *core, struct cm_conn *c, const void *priv, size_t len, uint64_t now);
/* The user thinks: a duplicate of the REQ or REP is answered by a MRA from now on, as Linux's rdma_cm does.
 */
int cm_prepare_mra(struct cm_core *core, struct cm_conn *c, uint8_t service_timeout);
/* Does not wait for an answer to a REQ or SIDR_REQ any longer: CM_EV_UNREACHABLE. */
int cm_give_up(struct cm_core *core, struct cm_conn *c, uint64_t now);
/* Of *m the caller fills sidr_req (sidr_rep) and priv. */
int cm_sidr_request(
	struct cm_core *core, struct cm_conn *c, const struct cm_path *path, struct cm_msg *m, uint64_t now);
int cm_sidr_reply(struct cm_core *core, struct cm_conn *c, struct cm_msg *m, uint64_t now);
/* Ends it politely from any state. No event follows but CM_EV_GONE, perhaps before this returns. */
void cm_abandon(struct cm_core *core, struct cm_conn *c, uint64_t now);

/* ---- what comes from outside ---- */

/* A MAD received on QP1 from path->remote. Any bytes of any length. */
enum cm_verdict cm_receive(
	struct cm_core *core, const struct cm_path *path, const uint8_t *mad, size_t len, uint64_t now);
/* Runs what is due. */
void cm_expire(struct cm_core *core, uint64_t now);
/* When cm_expire wants to be called next. */
uint64_t cm_deadline(const struct cm_core *core);

#endif
