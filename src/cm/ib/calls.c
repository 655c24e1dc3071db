/* SPDX-License-Identifier: MIT */
/* What the user asks for. Each checks the state, makes the message, goes through the door. */
#include "cm/ib/core.h"

#include <errno.h>
#include <string.h>

/* Private data into its field, or -EINVAL when it does not fit. */
static int put_priv(struct cm_msg *m, const void *priv, size_t len)
{
	if (len > cm_priv_len(m->attr))
		return -EINVAL;
	if (len)
		memcpy(m->priv, priv, len);
	return 0;
}

/* The caller's part of a message, with our part in it. */
static void put_ids(const struct cm_conn *c, struct cm_msg *m, enum cm_attr attr)
{
	m->attr = attr;
	m->tid = c->tid;
	m->local_id = c->local_id;
	m->remote_id = c->remote_id;
}

int cm_listen(struct cm_core *core, struct cm_conn *c, uint64_t service_id)
{
	if (cm_table_find(&core->table, CM_BY_SERVICE, service_id, NULL))
		return -EADDRINUSE;
	cm_conn_init(c);
	c->service_id = service_id;
	cm_set_state(core, c, CM_S_LISTEN);
	cm_table_add(&core->table, CM_BY_SERVICE, c);
	return 0;
}

/* The spec's rule: the answer's time there, and the way there and back: twice the packet life time,
 * which is what the ack timeout is made of. */
int cm_connect(
	struct cm_core *core, struct cm_conn *c, const struct cm_path *path, struct cm_msg *m, uint64_t now)
{
	int err;

	cm_conn_init(c);
	c->path = *path;
	c->service_id = m->req.service_id;
	c->local_qpn = m->req.qpn;
	c->timewait = cm_time(m->req.primary.ack_timeout, CM_WAIT_MAX);
	c->wait = cm_time(m->req.remote_timeout, CM_WAIT_MAX) + c->timewait;
	c->max_retries = m->req.max_cm_retries;
	err = cm_conn_name(core, c);
	if (err)
		return err;
	put_ids(c, m, CM_REQ);
	m->req.ca_guid = core->ca_guid;
	cm_send_waiting(core, c, m, CM_S_REQ_SENT, now);
	return 0;
}

int cm_accept(struct cm_core *core, struct cm_conn *c, struct cm_msg *m, uint64_t now)
{
	if (!cm_in(c, CM_IN(REQ_RCVD) | CM_IN(MRA_REQ_SENT)))
		return -EINVAL;
	put_ids(c, m, CM_REP);
	m->rep.ca_guid = core->ca_guid;
	c->local_qpn = m->rep.qpn;
	cm_send_waiting(core, c, m, CM_S_REP_SENT, now);
	return 0;
}

int cm_establish(struct cm_core *core, struct cm_conn *c, const void *priv, size_t len)
{
	struct cm_msg m = cm_message(c, CM_RTU);
	int err = cm_in(c, CM_IN(REP_RCVD) | CM_IN(MRA_REP_SENT)) ? put_priv(&m, priv, len) : -EINVAL;

	if (err)
		return err;
	cm_set_state(core, c, CM_S_ESTABLISHED);
	cm_send_kept(core, c, &m);
	return 0;
}

int cm_data_came(struct cm_core *core, struct cm_conn *c)
{
	if (!cm_in(c, CM_IN(REP_SENT) | CM_IN(MRA_REP_RCVD)))
		return -EINVAL;
	cm_set_state(core, c, CM_S_ESTABLISHED);
	cm_tell(core, c, CM_EV_ESTABLISHED, NULL);
	return 0;
}

/* Once a REP is on its way the peer may think itself connected: its DREQ will find us in TIMEWAIT. */
static int reject(struct cm_core *core, struct cm_conn *c, const struct cm_msg *m, uint64_t now)
{
	if (cm_in(c, CM_IN(REP_SENT) | CM_IN(MRA_REP_RCVD))) {
		cm_send_rej(core, c, m);
		cm_enter_timewait(core, c, now);
		return 0;
	}
	if (!cm_in(c, CM_IN(REQ_SENT) | CM_IN(MRA_REQ_RCVD) | CM_IN(REQ_RCVD) | CM_IN(MRA_REQ_SENT) |
			      CM_IN(REP_RCVD) | CM_IN(MRA_REP_SENT)))
		return -EINVAL;
	cm_send_rej(core, c, m);
	cm_set_state(core, c, CM_S_IDLE);
	return 0;
}

int cm_reject(struct cm_core *core, struct cm_conn *c, uint16_t reason, const void *info, size_t info_len,
	const void *priv, size_t len, uint64_t now)
{
	struct cm_msg m = cm_message(c, CM_REJ);

	if (info_len > CM_INFO_MAX || put_priv(&m, priv, len))
		return -EINVAL;
	m.rej.reason = reason;
	m.rej.info_len = (uint8_t)info_len;
	if (info_len)
		memcpy(m.rej.info, info, info_len);
	return reject(core, c, &m, now);
}

int cm_disconnect(struct cm_core *core, struct cm_conn *c, const void *priv, size_t len, uint64_t now)
{
	bool owed = c->state == CM_S_DREQ_RCVD;
	struct cm_msg m = cm_message(c, owed ? CM_DREP : CM_DREQ);

	if ((!owed && c->state != CM_S_ESTABLISHED) || put_priv(&m, priv, len))
		return -EINVAL;
	if (owed) {
		cm_enter_timewait(core, c, now);
		cm_send_kept(core, c, &m);
	} else {
		m.tid = c->local_id; /* a transaction of our own, whoever began the connection */
		m.dreq.remote_qpn = c->remote_qpn;
		cm_send_waiting(core, c, &m, CM_S_DREQ_SENT, now);
	}
	return 0;
}

int cm_prepare_mra(struct cm_core *core, struct cm_conn *c, uint8_t service_timeout)
{
	if (!cm_in(c, CM_IN(REQ_RCVD) | CM_IN(REP_RCVD)))
		return -EINVAL;
	c->mra_timeout = service_timeout;
	cm_set_state(core, c, c->state == CM_S_REQ_RCVD ? CM_S_MRA_REQ_SENT : CM_S_MRA_REP_SENT);
	return 0;
}

/* ---- datagrams ---- */
int cm_sidr_request(
	struct cm_core *core, struct cm_conn *c, const struct cm_path *path, struct cm_msg *m, uint64_t now)
{
	int err;

	cm_conn_init(c);
	c->sidr = true;
	c->path = *path;
	c->service_id = m->sidr_req.service_id;
	c->wait = cm_time(CM_RESPONSE_TIMEOUT, CM_WAIT_MAX);
	err = cm_conn_name(core, c);
	if (err)
		return err;
	put_ids(c, m, CM_SIDR_REQ);
	cm_send_waiting(core, c, m, CM_S_SIDR_REQ_SENT, now);
	return 0;
}

int cm_sidr_reply(struct cm_core *core, struct cm_conn *c, struct cm_msg *m, uint64_t now)
{
	if (c->state != CM_S_SIDR_REQ_RCVD)
		return -EINVAL;
	put_ids(c, m, CM_SIDR_REP);
	m->local_id = c->remote_id; /* the request's id is the only one a SIDR_REP has */
	m->sidr_rep.service_id = c->service_id;
	cm_set_state(core, c, CM_S_SIDR_REP_SENT);
	timer_set(&core->timers, &c->timer, now + c->timewait);
	cm_send_kept(core, c, m);
	return 0;
}

/* ---- the end ---- */
static void end(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	struct cm_msg m = {0};

	switch (c->state) {
	case CM_S_LISTEN:
	case CM_S_SIDR_REQ_SENT:
		cm_set_state(core, c, CM_S_IDLE);
		break;
	case CM_S_REQ_SENT:
	case CM_S_MRA_REQ_RCVD:
		cm_send_rej_timeout(core, c);
		cm_set_state(core, c, CM_S_IDLE);
		break;
	case CM_S_ESTABLISHED:
	case CM_S_DREQ_RCVD:
		cm_disconnect(core, c, NULL, 0, now);
		break;
	case CM_S_SIDR_REQ_RCVD:
		m.sidr_rep.status = CM_SIDR_REJECT;
		cm_sidr_reply(core, c, &m, now);
		break;
	default:
		cm_reject(core, c, CM_REJ_CONSUMER, NULL, 0, NULL, 0, now); /* or already on its way out */
	}
}

void cm_abandon(struct cm_core *core, struct cm_conn *c, uint64_t now)
{
	c->abandoned = true;
	end(core, c, now);
	cm_tell(core, c, CM_EV_GONE, NULL);
}
