/* SPDX-License-Identifier: MIT */
/* What conn.c, calls.c and receive.c share. */
#ifndef CM_CORE_H
#define CM_CORE_H

#include "cm/ib/conn.h"

/*
 * Times a peer names are believed within bounds: shorter ones would make us send again and again, longer ones
 * keep a connection for hours. 67 ms to 8.6 s for an answer, up to 137 s where a MRA asks for it.
 */
enum { CM_WAIT_MIN = 14, CM_WAIT_MAX = 21, CM_MRA_MAX = 25 };

uint64_t cm_time(unsigned exponent, unsigned max);

/* Every field but `user` as after birth. */
void cm_conn_init(struct cm_conn *c);
/* Gives it an id of its own; -EAGAIN when none was found. */
int cm_conn_name(struct cm_core *core, struct cm_conn *c);
/* The one door. IDLE takes it out of every table; leaving a state stops its timer. */
void cm_set_state(struct cm_core *core, struct cm_conn *c, enum cm_state next);
void cm_enter_timewait(struct cm_core *core, struct cm_conn *c, uint64_t now);
/* Tells the user; GONE instead, when it is abandoned and over. The last thing to do with c. */
void cm_tell(struct cm_core *core, struct cm_conn *c, enum cm_event_type type, const struct cm_msg *m);

/* A message of this connection with its ids and tid, nothing else. */
struct cm_msg cm_message(const struct cm_conn *c, enum cm_attr attr);
void cm_send(struct cm_core *core, const struct cm_path *path, const struct cm_msg *m);
/* Sends, and keeps it to be sent again. */
void cm_send_kept(struct cm_core *core, struct cm_conn *c, const struct cm_msg *m);
void cm_send_again(struct cm_core *core, struct cm_conn *c);
enum cm_attr cm_kept(const struct cm_conn *c);
/* Sends, keeps, and waits for the answer in this state. */
void cm_send_waiting(
	struct cm_core *core, struct cm_conn *c, const struct cm_msg *m, enum cm_state next, uint64_t now);

/* A REJ as the state wants it. */
void cm_send_rej(struct cm_core *core, struct cm_conn *c, const struct cm_msg *filled);
/* The other side may not know our id yet: it finds the connection by the id and the CA GUID. */
void cm_send_rej_timeout(struct cm_core *core, struct cm_conn *c);

static inline bool cm_in(const struct cm_conn *c, uint32_t states)
{
	return states >> c->state & 1;
}
#define CM_IN(name) (1u << CM_S_##name)

#endif
