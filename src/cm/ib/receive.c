/* SPDX-License-Identifier: MIT */
/*
 * What the peer says. A function per message; each finds its connection, looks at the state, acts, and tells
 * the user last. Duplicates are answered as Linux's ib_cm answers them, and in three places better, where
 * Linux is silent and the peer has to wait for its timers: a REQ again after our REP gets the REP again at
 * once; a REP for a connection that is gone gets a REJ; two DREQs that cross
 * answer each other without the users' help.
 *
 * A message is believed when it comes from the connection's peer and names ids that were drawn at random. It
 * answers to where the connection was made with, never to what the message itself says.
 */
#include "cm/ib/core.h"

#include "observe/probe.h"

#include <string.h>

/* ---- answers without a connection ---- */
static void refuse(struct cm_core *core, const struct cm_path *path, const struct cm_msg *to, uint16_t reason)
{
	struct cm_msg m = {
		.attr = CM_REJ, .tid = to->tid, .local_id = to->remote_id, .remote_id = to->local_id};

	m.rej.about = to->attr == CM_REQ ? CM_ABOUT_REQ : CM_ABOUT_REP;
	m.rej.reason = reason;
	cm_send(core, path, &m);
}

static void refuse_sidr(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *to, uint16_t status)
{
	struct cm_msg m = {.attr = CM_SIDR_REP, .tid = to->tid, .local_id = to->local_id};

	m.sidr_rep.status = (uint8_t)status;
	m.sidr_rep.service_id = to->sidr_req.service_id;
	cm_send(core, path, &m);
}

/* ---- finding ---- */
static bool same_gid(const uint8_t *a, const uint8_t *b)
{
	return !memcmp(a, b, 16);
}

/* The connection a message is about: by our id, and by the peer's where we know it. Else NULL and why. */
static struct cm_conn *find(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, enum cm_verdict *why)
{
	struct cm_conn *c = cm_table_find(&core->table, CM_BY_LOCAL, m->remote_id, NULL);

	*why = CM_V_UNKNOWN;
	if (!c || c->sidr || (c->remote_id && c->remote_id != m->local_id))
		return NULL;
	*why = CM_V_WRONG_SOURCE;
	return same_gid(c->path.remote, path->remote) ? c : NULL;
}

/*
 * Who gives up may not know our id: a REJ for timeout is also found by the peer's own, as long as the peer
 * has not shown that it knows ours. After that half as many bits to guess must not end a connection.
 */
static struct cm_conn *find_rejected(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, enum cm_verdict *why)
{
	struct cm_conn *c = find(core, path, m, why);

	if (c || m->rej.reason != CM_REJ_TIMEOUT || m->remote_id)
		return c;
	c = cm_table_find(&core->table, CM_BY_REMOTE, m->local_id, path->remote);
	return c && cm_in(c, CM_IN(REQ_RCVD) | CM_IN(MRA_REQ_SENT) | CM_IN(REP_SENT)) ? c : NULL;
}

/* Nobody listens, yet: the request goes out again soon. false: that has been often enough. */
static bool retry_no_listener(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	const uint64_t first = 10 * 1000 * 1000;

	if (!cm_in(c, CM_IN(REQ_SENT) | CM_IN(SIDR_REQ_SENT)) ||
		c->no_listener >= core->no_listener_retries || !c->retries)
		return false;
	timer_set(&core->timers, &c->timer, now + (first << c->no_listener++));
	return true;
}

/* ---- REQ ---- */
static void send_mra(struct cm_core *core, struct cm_conn *c, enum cm_about about)
{
	struct cm_msg m = cm_message(c, CM_MRA);

	m.mra.about = (uint8_t)about;
	m.mra.service_timeout = c->mra_timeout;
	cm_send(core, &c->path, &m);
}

static enum cm_verdict same_req(struct cm_core *core, struct cm_conn *c, const struct cm_msg *m)
{
	if (c->state == CM_S_MRA_REQ_SENT)
		send_mra(core, c, CM_ABOUT_REQ);
	else if (cm_in(c, CM_IN(REP_SENT) | CM_IN(MRA_REP_RCVD)))
		cm_send_again(core, c);
	else if (c->state == CM_S_TIMEWAIT)
		refuse(core, &c->path, m, CM_REJ_STALE_CONN);
	return CM_V_DUPLICATE;
}

/*
 * The peer uses an id or a QP again that we still hold for it: it has lost its memory. It is
 * told so, and the old connection taken down; the user learns of that when the DREQ is answered or not.
 *
 * A request alone can say that, and a QP number can be guessed. So the connection only ends when the message
 * also names the adapter that it was made with, which Linux's ib_cm wants as well.
 */
static enum cm_verdict stale(struct cm_core *core, struct cm_conn *old, const struct cm_path *path,
	const struct cm_msg *m, uint64_t now)
{
	uint64_t guid = m->attr == CM_REQ ? m->req.ca_guid : m->rep.ca_guid;

	refuse(core, path, m, CM_REJ_STALE_CONN);
	if (old->state == CM_S_ESTABLISHED && old->remote_guid == guid)
		cm_disconnect(core, old, NULL, 0, now);
	return CM_V_STALE;
}

static uint16_t wrong_with(const struct cm_msg *m)
{
	if (m->req.transport != CM_TRANSPORT_RC && m->req.transport != CM_TRANSPORT_UC)
		return CM_REJ_INVALID_TRANSPORT;
	if (m->req.mtu < 1 || m->req.mtu > 5)
		return CM_REJ_INVALID_MTU;
	if (!m->local_id)
		return CM_REJ_INVALID_COMM_ID;
	return 0;
}

static void tell_request(
	struct cm_core *core, struct cm_conn *c, struct cm_conn *listener, const struct cm_msg *m)
{
	const struct cm_event e = {
		.type = c->sidr ? CM_EV_SIDR_REQ : CM_EV_REQ, .msg = m, .listener = listener};

	core->ops->event(core->arg, c, &e);
}

/* A connection for a request, with both ids; NULL: none, and *refusal may say why. */
static struct cm_conn *incoming(struct cm_core *core, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refusal)
{
	struct cm_conn *c = core->ops->incoming(core->arg, listener, path, m, refusal);

	if (!c)
		return NULL;
	cm_conn_init(c);
	c->path = *path;
	c->service_id = listener->service_id;
	c->remote_id = m->local_id;
	c->sidr = m->attr == CM_SIDR_REQ;
	if (cm_conn_name(core, c)) { /* in no table yet: goes back as it came */
		c->abandoned = true;
		cm_tell(core, c, CM_EV_GONE, NULL);
		return NULL;
	}
	c->tid = m->tid;
	cm_table_add(&core->table, CM_BY_REMOTE, c);
	return c;
}

static enum cm_verdict new_req(
	struct cm_core *core, struct cm_conn *listener, const struct cm_path *path, const struct cm_msg *m)
{
	uint16_t refusal = wrong_with(m);
	struct cm_conn *c = refusal ? NULL : incoming(core, listener, path, m, &refusal);

	if (refusal && !c)
		refuse(core, path, m, refusal);
	if (!c)
		return refusal ? CM_V_REFUSED : CM_V_NO_ROOM;
	c->remote_qpn = m->req.qpn;
	c->remote_guid = m->req.ca_guid;
	c->wait = cm_time(m->req.local_timeout, CM_WAIT_MAX);
	c->timewait = cm_time(m->req.primary.ack_timeout, CM_WAIT_MAX);
	c->max_retries = m->req.max_cm_retries;
	cm_table_add(&core->table, CM_BY_QPN, c);
	cm_set_state(core, c, CM_S_REQ_RCVD);
	tell_request(core, c, listener, m);
	return CM_V_TAKEN;
}

static enum cm_verdict got_req(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	struct cm_conn *c = cm_table_find(&core->table, CM_BY_REMOTE, m->local_id, path->remote), *listener;

	if (c && c->remote_qpn == m->req.qpn && c->service_id == m->req.service_id)
		return same_req(core, c, m);
	if (!c)
		c = cm_table_find(&core->table, CM_BY_QPN, m->req.qpn, path->remote);
	if (c)
		return stale(core, c, path, m, now);
	listener = cm_table_find(&core->table, CM_BY_SERVICE, m->req.service_id, NULL);
	if (listener)
		return new_req(core, listener, path, m);
	refuse(core, path, m, CM_REJ_INVALID_SERVICE_ID);
	return CM_V_REFUSED;
}

/* ---- REP, RTU ---- */
static enum cm_verdict same_rep(struct cm_core *core, struct cm_conn *c)
{
	if (c->state == CM_S_ESTABLISHED && cm_kept(c) == CM_RTU)
		cm_send_again(core, c);
	else if (c->state == CM_S_MRA_REP_SENT)
		send_mra(core, c, CM_ABOUT_REP);
	return CM_V_DUPLICATE;
}

static enum cm_verdict got_rep(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	enum cm_verdict why;
	struct cm_conn *c = find(core, path, m, &why), *old;

	if (!c) {
		if (why == CM_V_UNKNOWN)
			refuse(core, path, m, CM_REJ_INVALID_COMM_ID);
		return why;
	}
	if (!cm_in(c, CM_IN(REQ_SENT) | CM_IN(MRA_REQ_RCVD)))
		return same_rep(core, c);
	if (!m->local_id || cm_table_find(&core->table, CM_BY_REMOTE, m->local_id, path->remote))
		return CM_V_WRONG_STATE;
	old = cm_table_find(&core->table, CM_BY_QPN, m->rep.qpn, path->remote);
	if (old)
		return stale(core, old, path, m, now);
	c->remote_id = m->local_id;
	c->remote_qpn = m->rep.qpn;
	c->remote_guid = m->rep.ca_guid;
	cm_table_add(&core->table, CM_BY_REMOTE, c);
	cm_table_add(&core->table, CM_BY_QPN, c);
	cm_set_state(core, c, CM_S_REP_RCVD);
	cm_tell(core, c, CM_EV_REP, m);
	return CM_V_TAKEN;
}

static enum cm_verdict got_rtu(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	enum cm_verdict why;
	struct cm_conn *c = find(core, path, m, &why);

	if (!c)
		return why;
	if (!cm_in(c, CM_IN(REP_SENT) | CM_IN(MRA_REP_RCVD)))
		return CM_V_DUPLICATE;
	cm_set_state(core, c, CM_S_ESTABLISHED);
	cm_tell(core, c, CM_EV_ESTABLISHED, m);
	return CM_V_TAKEN;
}

/* ---- MRA, REJ ---- */
static enum cm_verdict got_mra(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	enum cm_verdict why;
	struct cm_conn *c = find(core, path, m, &why);

	if (!c)
		return why;
	if (c->state == CM_S_REQ_SENT && m->mra.about == CM_ABOUT_REQ)
		cm_set_state(core, c, CM_S_MRA_REQ_RCVD);
	else if (c->state == CM_S_REP_SENT && m->mra.about == CM_ABOUT_REP)
		cm_set_state(core, c, CM_S_MRA_REP_RCVD);
	else
		return CM_V_WRONG_STATE;
	timer_set(&core->timers, &c->timer, now + cm_time(m->mra.service_timeout, CM_MRA_MAX) + c->timewait);
	cm_tell(core, c, CM_EV_MRA, m);
	return CM_V_TAKEN;
}

/* A REJ of our REQ that comes when the REP is already here was made of a copy of the REQ. */
static enum cm_verdict got_rej(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	const uint32_t early = CM_IN(REQ_SENT) | CM_IN(MRA_REQ_RCVD) | CM_IN(REQ_RCVD) | CM_IN(MRA_REQ_SENT) |
			       CM_IN(REP_SENT) | CM_IN(MRA_REP_RCVD);
	const uint32_t late = CM_IN(REP_RCVD) | CM_IN(MRA_REP_SENT) | CM_IN(ESTABLISHED) | CM_IN(DREQ_SENT);
	enum cm_verdict why;
	struct cm_conn *c = find_rejected(core, path, m, &why);

	if (!c)
		return why;
	if (m->rej.about == CM_ABOUT_REQ && !cm_in(c, CM_IN(REQ_SENT) | CM_IN(MRA_REQ_RCVD)))
		return CM_V_WRONG_STATE;
	if (!cm_in(c, early | late))
		return CM_V_DUPLICATE;
	if (m->rej.reason == CM_REJ_INVALID_SERVICE_ID && retry_no_listener(core, c, now))
		return CM_V_TAKEN;
	if (cm_in(c, late) || m->rej.reason == CM_REJ_STALE_CONN)
		cm_enter_timewait(core, c, now);
	else
		cm_set_state(core, c, CM_S_IDLE);
	cm_tell(core, c, CM_EV_REJ, m);
	return CM_V_TAKEN;
}

/* ---- DREQ, DREP ---- */
static void send_drep(struct cm_core *core, struct cm_conn *c, uint64_t tid)
{
	struct cm_msg m = cm_message(c, CM_DREP);

	m.tid = tid;
	cm_send_kept(core, c, &m);
}

/* For a connection nobody has: the peer is told that it is over. */
static void drep_for_nobody(struct cm_core *core, const struct cm_path *path, const struct cm_msg *to)
{
	const struct cm_msg m = {
		.attr = CM_DREP, .tid = to->tid, .local_id = to->remote_id, .remote_id = to->local_id};

	cm_send(core, path, &m);
}

static enum cm_verdict take_dreq(
	struct cm_core *core, struct cm_conn *c, const struct cm_msg *m, uint64_t now)
{
	c->tid = m->tid;
	if (c->state == CM_S_DREQ_SENT) { /* both at once */
		cm_enter_timewait(core, c, now);
		send_drep(core, c, m->tid);
	} else {
		cm_set_state(core, c, CM_S_DREQ_RCVD);
	}
	cm_tell(core, c, CM_EV_DREQ, m);
	return CM_V_TAKEN;
}

static enum cm_verdict got_dreq(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	enum cm_verdict why;
	struct cm_conn *c = find(core, path, m, &why);

	if (!c) {
		if (why == CM_V_UNKNOWN)
			drep_for_nobody(core, path, m);
		return why;
	}
	if (m->dreq.remote_qpn != c->local_qpn)
		return CM_V_WRONG_STATE;
	if (cm_in(c, CM_IN(REP_SENT) | CM_IN(MRA_REP_RCVD) | CM_IN(ESTABLISHED) | CM_IN(DREQ_SENT)))
		return take_dreq(core, c, m, now);
	if (!cm_in(c, CM_IN(TIMEWAIT) | CM_IN(DREQ_RCVD)))
		return CM_V_WRONG_STATE;
	if (c->state == CM_S_TIMEWAIT && cm_kept(c) == CM_DREP)
		cm_send_again(core, c);
	else if (c->state == CM_S_TIMEWAIT)
		send_drep(core, c, m->tid);
	return CM_V_DUPLICATE;
}

static enum cm_verdict got_drep(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	enum cm_verdict why;
	struct cm_conn *c = find(core, path, m, &why);

	if (!c)
		return why;
	if (c->state != CM_S_DREQ_SENT)
		return CM_V_DUPLICATE;
	cm_enter_timewait(core, c, now);
	cm_tell(core, c, CM_EV_DREP, m);
	return CM_V_TAKEN;
}

/* ---- SIDR ---- */
static enum cm_verdict new_sidr_req(
	struct cm_core *core, struct cm_conn *listener, const struct cm_path *path, const struct cm_msg *m)
{
	uint16_t refusal = 0;
	struct cm_conn *c = incoming(core, listener, path, m, &refusal);

	if (refusal && !c)
		refuse_sidr(core, path, m, refusal);
	if (!c)
		return refusal ? CM_V_REFUSED : CM_V_NO_ROOM;
	c->timewait = cm_time(CM_MRA_TIMEOUT, CM_MRA_TIMEOUT); /* (15 + 1) * 4.3 s: all attempts */
	cm_set_state(core, c, CM_S_SIDR_REQ_RCVD);
	tell_request(core, c, listener, m);
	return CM_V_TAKEN;
}

static enum cm_verdict got_sidr_req(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	struct cm_conn *c = cm_table_find(&core->table, CM_BY_REMOTE, m->local_id | CM_ID_SIDR, path->remote);
	struct cm_conn *listener;

	if (c) {
		if (c->state == CM_S_SIDR_REP_SENT)
			cm_send_again(core, c);
		return CM_V_DUPLICATE;
	}
	listener = cm_table_find(&core->table, CM_BY_SERVICE, m->sidr_req.service_id, NULL);
	if (listener)
		return new_sidr_req(core, listener, path, m);
	refuse_sidr(core, path, m, CM_SIDR_UNSUPPORTED);
	return CM_V_REFUSED;
}

static enum cm_verdict got_sidr_rep(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	struct cm_conn *c = cm_table_find(&core->table, CM_BY_LOCAL, m->local_id, NULL);

	if (!c || c->state != CM_S_SIDR_REQ_SENT)
		return CM_V_UNKNOWN;
	if (!same_gid(c->path.remote, path->remote))
		return CM_V_WRONG_SOURCE;
	if (m->sidr_rep.service_id != c->service_id)
		return CM_V_WRONG_STATE;
	if (m->sidr_rep.status == CM_SIDR_UNSUPPORTED && retry_no_listener(core, c, now))
		return CM_V_TAKEN;
	cm_set_state(core, c, CM_S_IDLE);
	cm_tell(core, c, CM_EV_SIDR_REP, m);
	return CM_V_TAKEN;
}

/* ---- path migration: there is none ---- */
static enum cm_verdict got_lap(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	enum cm_verdict why;
	struct cm_conn *c = find(core, path, m, &why);
	struct cm_msg apr;

	if (!c)
		return why;
	if (c->state != CM_S_ESTABLISHED)
		return CM_V_WRONG_STATE;
	apr = cm_message(c, CM_APR);
	apr.tid = m->tid;
	apr.apr.status = CM_APR_UNSUPPORTED;
	cm_send(core, &c->path, &apr);
	return CM_V_REFUSED;
}

static enum cm_verdict got_apr(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now)
{
	return CM_V_WRONG_STATE; /* we never send what it answers */
}

/* ---- all of them ---- */
typedef enum cm_verdict handler(
	struct cm_core *core, const struct cm_path *path, const struct cm_msg *m, uint64_t now);

static handler *const handlers[] = {
	[CM_REQ - CM_REQ] = got_req,
	[CM_MRA - CM_REQ] = got_mra,
	[CM_REJ - CM_REQ] = got_rej,
	[CM_REP - CM_REQ] = got_rep,
	[CM_RTU - CM_REQ] = got_rtu,
	[CM_DREQ - CM_REQ] = got_dreq,
	[CM_DREP - CM_REQ] = got_drep,
	[CM_SIDR_REQ - CM_REQ] = got_sidr_req,
	[CM_SIDR_REP - CM_REQ] = got_sidr_rep,
	[CM_LAP - CM_REQ] = got_lap,
	[CM_APR - CM_REQ] = got_apr,
};

enum cm_verdict cm_receive(
	struct cm_core *core, const struct cm_path *path, const uint8_t *mad, size_t len, uint64_t now)
{
	struct cm_msg m;
	enum cm_verdict v = CM_V_MALFORMED;

	if (cm_msg_parse(mad, len, &m)) {
		PROBE(CM_RX, .message = cm_attr_name(m.attr), .id = m.remote_id, .remote_id = m.local_id);
		v = handlers[m.attr - CM_REQ](core, path, &m, now);
	}
	core->verdicts[v]++;
	return v;
}
