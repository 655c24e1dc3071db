/* SPDX-License-Identifier: MIT */
/*
 * What programs ask the subnet's administration, as ib_sa does it in a kernel: a program's question comes
 * from its QP1, goes to the subnet manager's LID as one of this client's, with its transactions and repeats
 * (mad/ib), and the answer goes back with the program's own transaction id. Each port has a client, from its
 * first question on.
 */
#include "base/log.h"
#include "fabric/shared.h"
#include "fabricd/attach_parts.h"
#include "fabricd/umad_parts.h"
#include "subnet/packet.h"
#include "wire/sa.h"

#include <stdlib.h>
#include <string.h>

enum { OWN_TIDS = 1u << 30, TIMEOUT_MS = 500, RETRIES = 3 }; /* those of programs' agents count from 1 */

struct sa_port {
	struct list node;
	struct attach *all;
	struct subnet_port *at;
	struct ibmad_port mad;
	struct ibmad_agent *agent;
	struct list questions;
	uint32_t last; /* of our transactions */
};

struct question {
	struct list node;
	struct attach_conn *conn; /* NULL: it is gone, or the question is our own */
	uint64_t tid;             /* the program's */
	uint32_t own;
	uint16_t lid; /* of the subnet manager that was asked */
	bool ours;
	bool kept;            /* its port has not left a group because of it */
	bool waits;           /* to be asked, until the port has left that group */
	uint8_t mad[MAD_LEN]; /* as it was asked */
};

/* ---- answers ---- */
static struct question *find(struct sa_port *s, uint32_t own)
{
	list_for_each(n, &s->questions)
	{
		struct question *q = container_of(n, struct question, node);

		if (q->own == own)
			return q;
	}
	return NULL;
}

static bool is_join(const struct question *q)
{
	const struct mad_hdr h = mad_hdr_get(q->mad);

	return h.attr == SA_MC_MEMBER && h.method == MAD_METHOD_SET;
}

static bool is_leave(const struct question *q)
{
	const struct mad_hdr h = mad_hdr_get(q->mad);

	return h.attr == SA_MC_MEMBER && h.method == SA_DELETE;
}

static bool is_of_group(const struct question *q, const uint8_t *mad)
{
	return !memcmp(q->mad + SA_DATA, mad + SA_DATA, 16);
}

/* Whether the port is about to leave this group. */
static bool is_leaving(const struct sa_port *s, const uint8_t *mad)
{
	list_for_each(n, &s->questions)
	{
		const struct question *q = container_of(n, struct question, node);

		if (is_leave(q) && is_of_group(q, mad))
			return true;
	}
	return false;
}

bool sa_client_keeps(struct attach *all, const struct subnet_port *at, const uint8_t mad[MAD_LEN])
{
	bool any = false;

	list_for_each(n, &all->sa_ports)
	{
		struct sa_port *s = container_of(n, struct sa_port, node);

		if (s->at != at)
			continue;
		list_for_each(k, &s->questions)
		{
			struct question *q = container_of(k, struct question, node);

			if (q->conn && is_join(q) && is_of_group(q, mad))
				any = q->kept = true;
		}
	}
	return any;
}

static void free_question(struct question *q)
{
	if (q->conn)
		q->conn->nquestions--;
	list_del(&q->node);
	free(q);
}

static void answer(
	struct sa_port *s, const struct question *q, const struct ibmad_addr *from, const uint8_t *msg)
{
	uint8_t mad[MAD_LEN], room[PACKET_MAD_LEN];
	struct packet_addr a = {.slid = from->lid,
		.dlid = s->at->shared->lid,
		.sl = from->sl,
		.pkey = s->at->shared->pkey[0],
		.sqpn = GSI_QPN,
		.dqpn = GSI_QPN,
		.qkey = GSI_QKEY};
	struct packet p;

	memcpy(mad, msg, MAD_LEN);
	put_be64(mad + 8, q->tid);
	packet_mad_make(&p, room, &a, mad);
	trunk_put(q->conn, s->at, &p);
}

/* A membership that the SA has confirmed; what we renew ourselves is one already. */
static bool note_join(struct sa_port *s, const struct question *q, const uint8_t *mad)
{
	const struct mad_hdr h = mad_hdr_get(mad);
	bool joined = is_join(q) && h.attr == SA_MC_MEMBER && h.method == MAD_METHOD_GET_RESP && !h.status;

	if (joined && !q->ours)
		members_joined(s->all, q->conn, s->at, mad);
	else if (is_join(q) && q->ours && h.status)
		log_warn("a group could not be joined again: status 0x%04x", h.status);
	return joined;
}

/* What is lost for want of memory nobody answers. */
static void send_question(struct sa_port *s, struct question *q)
{
	const struct fabric_port *port = s->at->shared;
	const struct ibmad_addr to = {
		.qpn = GSI_QPN, .qkey = GSI_QKEY, .lid = port->sm_lid, .sl = port->sm_sl};
	uint8_t copy[MAD_LEN];

	memcpy(copy, q->mad, MAD_LEN);
	put_be64(copy + 8, q->own); /* the upper half is the agent's */
	q->lid = to.lid;
	q->waits = false;
	if (ibmad_send(s->agent, &to, copy, MAD_LEN, TIMEOUT_MS, RETRIES, loop_now(s->all->d->loop)))
		free_question(q);
}

/*
 * A leave that got no answer in time is repeated, and so may arrive twice: a join that the SA sees in between
 * would be undone, and nobody would know. So joins wait until the leave before them is over.
 */
static void send_waiting(struct sa_port *s, const uint8_t *mad)
{
	list_for_each_safe(n, &s->questions)
	{
		struct question *q = container_of(n, struct question, node);

		if (q->waits && is_of_group(q, mad))
			send_question(s, q);
	}
}

/* A program that gets no answer from us waits no longer than it wanted to. */
static void on_deliver(void *arg, struct ibmad_agent *agent, const struct ibmad_addr *from, unsigned status,
	const uint8_t *msg, size_t len)
{
	struct sa_port *s = arg;
	struct question *q = find(s, get_be32(msg + 12));
	bool joined = false;

	if (!q)
		return;
	list_del(&q->node); /* it is not on its way any more */
	if (!status && len >= MAD_LEN) {
		joined = note_join(s, q, msg);
		if (q->conn && !q->conn->broken)
			answer(s, q, from, msg);
	}
	if (q->kept && !joined)
		members_not_joined(s->all, s->at, q->mad);
	if (is_leave(q) && !is_leaving(s, q->mad))
		send_waiting(s, q->mad);
	free_question(q);
}

static void on_send(void *arg, unsigned qp, const struct ibmad_addr *to, const uint8_t mad[MAD_LEN])
{
	struct sa_port *s = arg;

	umad_qp_put_mad(s->all->d->umad, s->at, qp, to, mad);
}

static const struct ibmad_ops ops = {on_send, on_deliver};

/* Numbers can be guessed: an answer is that of whom was asked. */
static bool is_forged(struct sa_port *s, const struct packet_addr *a, const uint8_t *mad)
{
	const struct question *q =
		get_be32(mad + 8) == s->agent->tid_high ? find(s, get_be32(mad + 12)) : NULL;

	return q && mad[3] & MAD_METHOD_RESPONSE && (q->waits || a->slid != q->lid);
}

bool sa_client_arrived(struct attach *all, struct subnet_port *at, const struct packet *p)
{
	struct packet_addr a;
	const uint8_t *mad;

	if (!packet_mad_parse(p, &a, &mad))
		return false;
	list_for_each(n, &all->sa_ports)
	{
		struct sa_port *s = container_of(n, struct sa_port, node);
		const struct ibmad_addr from = {.qpn = a.sqpn, .lid = a.slid, .sl = a.sl};

		if (s->at == at)
			return is_forged(s, &a, mad) ||
			       ibmad_receive(&s->mad, GSI_QPN, &from, mad, loop_now(all->d->loop));
	}
	return false;
}

/* ---- questions ---- */
static struct sa_port *open_port(struct attach *all, struct subnet_port *at)
{
	static const struct ibmad_reg reg = {.qp = GSI_QPN};
	struct sa_port *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->all = all;
	s->at = at;
	list_init(&s->questions);
	ibmad_port_init(&s->mad, &ops, s);
	s->mad.last_tid_high = OWN_TIDS;
	if (ibmad_register(&s->mad, &reg, NULL, &s->agent)) {
		ibmad_port_fini(&s->mad);
		free(s);
		return NULL;
	}
	list_add_tail(&all->sa_ports, &s->node);
	return s;
}

static struct sa_port *port_of(struct attach *all, struct subnet_port *at)
{
	list_for_each(n, &all->sa_ports)
	{
		struct sa_port *s = container_of(n, struct sa_port, node);

		if (s->at == at)
			return s;
	}
	return open_port(all, at);
}

/* What connections need, and no more: a program that wants all of it has libibumad. */
static bool may_ask(const struct mad_hdr *h)
{
	if (h->base_version != MAD_BASE_VERSION || h->class_version != SA_CLASS_VERSION)
		return false;
	if (h->attr == SA_MC_MEMBER)
		return h->method == MAD_METHOD_SET || h->method == SA_DELETE;
	return h->method == MAD_METHOD_GET && h->attr == SA_PATH;
}

static struct question *add(struct sa_port *s, struct attach_conn *c, const uint8_t *mad)
{
	struct question *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->conn = c;
	q->ours = !c;
	q->tid = get_be64(mad + 8);
	memcpy(q->mad, mad, MAD_LEN);
	q->own = ++s->last;
	list_add_tail(&s->questions, &q->node);
	if (c)
		c->nquestions++;
	return q;
}

void sa_client_send(
	struct attach *all, struct subnet_port *from, struct attach_conn *c, const uint8_t mad[MAD_LEN])
{
	struct sa_port *s = port_of(all, from);
	struct question *q = s ? add(s, c, mad) : NULL;

	if (!q)
		return;
	q->waits = is_join(q) && is_leaving(s, mad);
	if (!q->waits)
		send_question(s, q);
}

/* A program has left a group in which others of its port are: the SA's answer, without the SA. */
static void answer_for_sa(struct attach_conn *c, struct subnet_port *at, const uint8_t *mad)
{
	struct sa_port s = {.all = c->all, .at = at};
	const struct question q = {.conn = c, .tid = get_be64(mad + 8)};
	const struct ibmad_addr from = {.lid = at->shared->sm_lid, .sl = at->shared->sm_sl};
	uint8_t copy[MAD_LEN];

	memcpy(copy, mad, MAD_LEN);
	copy[3] = SA_DELETE_RESP;
	answer(&s, &q, &from, copy);
}

bool sa_client_ask(struct attach_conn *c, struct subnet_port *from, const uint8_t mad[MAD_LEN])
{
	const struct mad_hdr h = mad_hdr_get(mad);

	if (!may_ask(&h) || c->nquestions >= ATTACH_QUESTIONS ||
		(h.attr == SA_MC_MEMBER && !members_may(c, from, mad)))
		return false;
	if (h.attr == SA_MC_MEMBER && !members_must_ask(c, from, mad))
		answer_for_sa(c, from, mad);
	else
		sa_client_send(c->all, from, c, mad);
	return true;
}

void sa_client_forget(struct attach_conn *c)
{
	list_for_each(n, &c->all->sa_ports)
	{
		struct sa_port *s = container_of(n, struct sa_port, node);

		list_for_each(m, &s->questions)
		{
			struct question *q = container_of(m, struct question, node);

			if (q->conn == c)
				q->conn = NULL;
		}
	}
}

/* ---- life ---- */
static void expire(void *arg, uint64_t now)
{
	struct attach *all = arg;

	list_for_each(n, &all->sa_ports) ibmad_expire(&container_of(n, struct sa_port, node)->mad, now);
}

void sa_client_set_timer(struct attach *all)
{
	uint64_t first = UINT64_MAX;

	list_for_each(n, &all->sa_ports)
	{
		uint64_t due = ibmad_deadline(&container_of(n, struct sa_port, node)->mad);

		first = due < first ? due : first;
	}
	loop_timer_set(all->d->loop, &all->sa_timer, first);
}

void sa_client_open(struct attach *all)
{
	list_init(&all->sa_ports);
	list_init(&all->members);
	loop_timer_init(&all->sa_timer, expire, all);
}

void sa_client_close(struct attach *all)
{
	loop_timer_stop(&all->sa_timer);
	list_for_each_safe(n, &all->sa_ports)
	{
		struct sa_port *s = container_of(n, struct sa_port, node);

		list_for_each_safe(m, &s->questions) free_question(container_of(m, struct question, node));
		ibmad_port_fini(&s->mad);
		free(s);
	}
}
