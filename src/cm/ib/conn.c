/* SPDX-License-Identifier: MIT */
/*
 * The states of a connection and the ways between them (IBA volume 1, chapter 12). The functions of the
 * arrows are in calls.c (lower case: what the user does) and receive.c (upper case: what came); "timer" is
 * expire().
 *
 *        active                                                     passive
 *
 *                                  IDLE -----listen----> LISTEN
 *          connect |                                        | REQ, a connection of its own
 *                  v                                        v
 *      .------ REQ_SENT                                  REQ_RCVD -- prepare_mra --> MRA_REQ_SENT
 *  MRA |           |  ^ timer                               |                            |
 *      v           |  |                                     | accept                     | accept
 *  MRA_REQ_RCVD ---|--'                                     v                            |
 *      |           |                               .---- REP_SENT <----------------------'
 *  REP |       REP |                           MRA |        |  ^ timer
 *      |           v                               v        |  |
 *      '-----> REP_RCVD -- prepare_mra -.     MRA_REP_RCVD -|--'
 *                  |                    v           |       |
 *        establish |              MRA_REP_SENT      | RTU   | RTU, data_came
 *                  v                    |           v       v
 *             ESTABLISHED <-------------'           ESTABLISHED
 *                  |
 *      disconnect  |  DREQ (from REP_SENT and MRA_REP_RCVD too: the RTU was lost)
 *           .------'------.
 *           v             v
 *       DREQ_SENT     DREQ_RCVD
 *           | DREP,       | disconnect (sends the DREP)
 *           | DREQ, timer |
 *           '--> TIMEWAIT <--- REJ after REP_RCVD, a stale REJ, reject after REP_SENT
 *                    | timer
 *                    v
 *                  IDLE <--- REJ, reject, abandon, or the timer's last, before a connection is known to both
 *
 *      datagrams:  IDLE -- sidr_request --> SIDR_REQ_SENT -- SIDR_REP, timer --> IDLE
 *                  IDLE -- SIDR_REQ --> SIDR_REQ_RCVD -- sidr_reply --> SIDR_REP_SENT -- timer --> IDLE
 *
 * Two things are not the specification's. When a MRA's time is over the message goes out again from the state
 * before the MRA, so that a peer which is still busy may say so again. SIDR_REP_SENT remembers an answer for
 * as long as its request may be repeated; the specification forgets it, and the user would be asked twice.
 */
#include "base/asserts.h"
#include "cm/ib/core.h"
#include "observe/probe.h"
#include "wire/qpn.h"

#include "base/list.h"

#include <errno.h>

/* ---- names ---- */
const char *cm_state_name(enum cm_state s)
{
	static const char *const names[] = {
#define X(name) #name,
		CM_STATES(X)
#undef X
	};

	return names[s];
}

const char *cm_event_name(enum cm_event_type e)
{
	static const char *const names[] = {
#define X(name) #name,
		CM_EVENTS(X)
#undef X
	};

	return names[e];
}

const char *cm_verdict_name(enum cm_verdict v)
{
	static const char *const names[] = {
#define X(name) #name,
		CM_VERDICTS(X)
#undef X
	};

	return names[v];
}

/* ---- life ---- */
void cm_core_init(struct cm_core *core, const struct cm_ops *ops, void *arg, uint32_t slot, uint64_t ca_guid,
	struct cm_link **buckets, uint32_t n)
{
	uint64_t seed = (uint64_t)ops->random(arg) << 32 | ops->random(arg);

	*core = (struct cm_core){.ops = ops, .arg = arg, .slot = slot, .ca_guid = ca_guid};
	cm_table_init(&core->table, buckets, n, seed);
}

void cm_conn_init(struct cm_conn *c)
{
	void *user = c->user;

	*c = (struct cm_conn){.user = user, .max_retries = CM_MAX_RETRIES};
}

int cm_conn_name(struct cm_core *core, struct cm_conn *c)
{
	for (int tries = 0; tries < 64; tries++) {
		uint32_t id = comm_id_make(core->slot, core->ops->random(core->arg));

		if (!id || cm_table_find(&core->table, CM_BY_LOCAL, id, NULL))
			continue;
		c->local_id = id;
		c->tid = id;
		cm_table_add(&core->table, CM_BY_LOCAL, c);
		return 0;
	}
	return -EAGAIN;
}

/* ---- the door ---- */
static const uint32_t arrows[CM_STATE_COUNT] = {
	[CM_S_IDLE] = CM_IN(LISTEN) | CM_IN(REQ_SENT) | CM_IN(REQ_RCVD) | CM_IN(SIDR_REQ_SENT) |
		      CM_IN(SIDR_REQ_RCVD),
	[CM_S_LISTEN] = CM_IN(IDLE),
	[CM_S_REQ_SENT] = CM_IN(MRA_REQ_RCVD) | CM_IN(REP_RCVD) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_MRA_REQ_RCVD] = CM_IN(REQ_SENT) | CM_IN(REP_RCVD) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_REQ_RCVD] = CM_IN(MRA_REQ_SENT) | CM_IN(REP_SENT) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_MRA_REQ_SENT] = CM_IN(REP_SENT) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_REP_SENT] =
		CM_IN(MRA_REP_RCVD) | CM_IN(ESTABLISHED) | CM_IN(DREQ_RCVD) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_MRA_REP_RCVD] =
		CM_IN(REP_SENT) | CM_IN(ESTABLISHED) | CM_IN(DREQ_RCVD) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_REP_RCVD] = CM_IN(MRA_REP_SENT) | CM_IN(ESTABLISHED) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_MRA_REP_SENT] = CM_IN(ESTABLISHED) | CM_IN(IDLE) | CM_IN(TIMEWAIT),
	[CM_S_ESTABLISHED] = CM_IN(DREQ_SENT) | CM_IN(DREQ_RCVD) | CM_IN(TIMEWAIT),
	[CM_S_DREQ_SENT] = CM_IN(TIMEWAIT),
	[CM_S_DREQ_RCVD] = CM_IN(TIMEWAIT),
	[CM_S_TIMEWAIT] = CM_IN(IDLE),
	[CM_S_SIDR_REQ_SENT] = CM_IN(IDLE),
	[CM_S_SIDR_REQ_RCVD] = CM_IN(SIDR_REP_SENT),
	[CM_S_SIDR_REP_SENT] = CM_IN(IDLE),
};

void cm_set_state(struct cm_core *core, struct cm_conn *c, enum cm_state next)
{
	assert_that(arrows[c->state] >> next & 1);
	PROBE(CM_STATE, .id = c->local_id, .from = cm_state_name(c->state), .to = cm_state_name(next));
	c->state = next;
	timer_clear(&core->timers, &c->timer);
	if (next == CM_S_IDLE)
		cm_table_remove(&core->table, c);
}

/* The peer knows that it is over: it may use its QP number again, though not yet its id. */
void cm_enter_timewait(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	cm_table_drop(&core->table, CM_BY_QPN, c);
	cm_set_state(core, c, CM_S_TIMEWAIT);
	timer_set(&core->timers, &c->timer, now + c->timewait);
}

void cm_tell(struct cm_core *core, struct cm_conn *c, enum cm_event_type type, const struct cm_msg *m)
{
	const struct cm_event e = {.type = c->abandoned ? CM_EV_GONE : type, .msg = c->abandoned ? NULL : m};

	if (c->abandoned && c->state != CM_S_IDLE)
		return;
	core->ops->event(core->arg, c, &e);
}

/* ---- messages ---- */
uint64_t cm_time(unsigned exponent, unsigned max)
{
	return 4096ull << (exponent < CM_WAIT_MIN ? CM_WAIT_MIN : exponent > max ? max : exponent);
}

struct cm_msg cm_message(const struct cm_conn *c, enum cm_attr attr)
{
	return (struct cm_msg){
		.attr = attr, .tid = c->tid, .local_id = c->local_id, .remote_id = c->remote_id};
}

void cm_send(struct cm_core *core, const struct cm_path *path, const struct cm_msg *m)
{
	uint8_t mad[MAD_LEN];

	PROBE(CM_TX, .message = cm_attr_name(m->attr), .id = m->local_id, .remote_id = m->remote_id);
	cm_msg_pack(m, mad);
	core->ops->send(core->arg, path, mad);
}

void cm_send_kept(struct cm_core *core, struct cm_conn *c, const struct cm_msg *m)
{
	cm_msg_pack(m, c->repeat);
	cm_send_again(core, c);
}

void cm_send_again(struct cm_core *core, struct cm_conn *c)
{
	PROBE(CM_TX, .message = cm_attr_name(cm_kept(c)), .id = c->local_id, .remote_id = c->remote_id);
	core->ops->send(core->arg, &c->path, c->repeat);
}

enum cm_attr cm_kept(const struct cm_conn *c)
{
	return (enum cm_attr)mad_hdr_get(c->repeat).attr;
}

void cm_send_waiting(
	struct cm_core *core, struct cm_conn *c, const struct cm_msg *m, enum cm_state next, uint64_t now)
{
	cm_set_state(core, c, next);
	c->retries = c->max_retries;
	timer_set(&core->timers, &c->timer, now + c->wait);
	cm_send_kept(core, c, m);
}

void cm_send_rej(struct cm_core *core, struct cm_conn *c, const struct cm_msg *filled)
{
	struct cm_msg m = *filled;

	m.rej.about = cm_in(c, CM_IN(REQ_RCVD) | CM_IN(MRA_REQ_SENT))   ? CM_ABOUT_REQ
		      : cm_in(c, CM_IN(REP_RCVD) | CM_IN(MRA_REP_SENT)) ? CM_ABOUT_REP
									: CM_ABOUT_OTHER;
	cm_send(core, &c->path, &m);
}

void cm_send_rej_timeout(struct cm_core *core, struct cm_conn *c)
{
	struct cm_msg m = cm_message(c, CM_REJ);

	m.rej.reason = CM_REJ_TIMEOUT;
	m.rej.info_len = 8;
	put_be64(m.rej.info, core->ca_guid);
	cm_send_rej(core, c, &m);
}

/* ---- timers ---- */
uint64_t cm_deadline(const struct cm_core *core)
{
	return timers_next(&core->timers);
}

/* Once more: after a MRA's time, from the state before it. */
static void try_again(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	c->retries--;
	core->repeated++;
	if (c->state == CM_S_MRA_REQ_RCVD)
		cm_set_state(core, c, CM_S_REQ_SENT);
	else if (c->state == CM_S_MRA_REP_RCVD)
		cm_set_state(core, c, CM_S_REP_SENT);
	timer_set(&core->timers, &c->timer, now + c->wait);
	cm_send_again(core, c);
}

static void give_up(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	if (c->state == CM_S_DREQ_SENT) {
		cm_enter_timewait(core, c, now);
		cm_tell(core, c, CM_EV_DREQ_TIMEOUT, NULL);
		return;
	}
	if (!c->sidr)
		cm_send_rej_timeout(core, c);
	cm_set_state(core, c, CM_S_IDLE);
	cm_tell(core, c, CM_EV_UNREACHABLE, NULL);
}

int cm_give_up(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	if (!cm_in(c, CM_IN(REQ_SENT) | CM_IN(SIDR_REQ_SENT)))
		return -EINVAL;
	give_up(core, c, now);
	return 0;
}

static void expire(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	switch (c->state) {
	case CM_S_TIMEWAIT:
		cm_set_state(core, c, CM_S_IDLE);
		cm_tell(core, c, CM_EV_TIMEWAIT_EXIT, NULL);
		break;
	case CM_S_SIDR_REP_SENT:
		cm_set_state(core, c, CM_S_IDLE);
		if (c->abandoned)
			cm_tell(core, c, CM_EV_GONE, NULL);
		break;
	default:
		if (c->retries)
			try_again(core, c, now);
		else
			give_up(core, c, now);
	}
}

void cm_expire(struct cm_core *core, uint64_t now)
{
	struct timer *t;

	while ((t = timers_take_due(&core->timers, now)))
		expire(core, container_of(t, struct cm_conn, timer), now);
}
