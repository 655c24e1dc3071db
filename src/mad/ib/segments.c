/* SPDX-License-Identifier: MIT */
/* Messages in segments: which of a port's they belong to, and their timers. */
#include "mad/ib/port_parts.h"

#include <stdlib.h>
#include <string.h>

static void put_on_wire(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *mad)
{
	a->port->ops->send(a->port->arg, a->reg.qp, to, mad);
}

/* ---- sending ---- */
static void wait_for_ack(struct send *s, uint64_t now)
{
	unsigned ms = s->timeout_ms && s->timeout_ms < RMPP_ACK_MS ? s->timeout_ms : RMPP_ACK_MS;

	s->deadline = now + ms * MS;
	ibmad_arm(s->agent->port, s->deadline);
}

static void send_window(struct send *s, uint64_t now)
{
	uint8_t mad[MAD_LEN];

	while (rmpp_send_next(&s->rmpp, mad))
		put_on_wire(s->agent, &s->to, mad);
	wait_for_ack(s, now);
}

void ibmad_segments_start(struct send *s, uint64_t now)
{
	send_window(s, now);
}

/* A response is waited for a little longer: the request has arrived, and need not be sent again. */
void ibmad_segments_again(struct send *s, uint64_t now)
{
	if (s->acked) {
		ibmad_send_wait(s, now);
	} else {
		rmpp_send_again(&s->rmpp);
		send_window(s, now);
	}
}

/* What it acknowledges has its transaction id and class, and the method without or with the response bit. */
static bool is_answer_to(const struct send *s, const struct ibmad_addr *from, const uint8_t *mad)
{
	return s->segmented && !memcmp(s->msg + 8, mad + 8, 8) && s->msg[1] == mad[1] &&
	       s->msg[3] == (mad[3] ^ MAD_METHOD_RESPONSE) && ibmad_same_peer(&s->to, from);
}

static struct send *find_sender(struct ibmad_port *p, const struct ibmad_addr *from, const uint8_t *mad)
{
	list_for_each(a, &p->agents)
	{
		list_for_each(pos, &container_of(a, struct ibmad_agent, node)->sends)
		{
			struct send *s = container_of(pos, struct send, node);

			if (is_answer_to(s, from, mad))
				return s;
		}
	}
	return NULL;
}

/* Nobody waits for the response to a response; for that to a request somebody does. */
static void has_arrived(struct send *s, const uint8_t *ack, uint64_t now)
{
	uint8_t turn[MAD_LEN];

	if (!s->timeout_ms) {
		ibmad_send_free(s);
		return;
	}
	s->acked = true;
	ibmad_send_wait(s, now);
	rmpp_turn(ack, turn);
	put_on_wire(s->agent, &s->to, turn);
}

static void refuse(
	struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *mad, enum rmpp_status why)
{
	uint8_t refusal[MAD_LEN];

	rmpp_refuse(mad, why, refusal);
	put_on_wire(a, to, refusal);
}

static void was_acked(struct send *s, const struct ibmad_addr *from, const uint8_t *ack, uint64_t now)
{
	enum rmpp_status why;

	if (s->acked)
		return;
	switch (rmpp_send_ack(&s->rmpp, ack, &why)) {
	case RMPP_ACK_OLD:
		break;
	case RMPP_ACK_NEW:
		s->retries_left = s->retries;
		send_window(s, now);
		break;
	case RMPP_ACK_ALL:
		has_arrived(s, ack, now);
		break;
	case RMPP_ACK_WRONG:
		refuse(s->agent, from, ack, why);
		ibmad_send_failed(s);
		break;
	}
}

bool ibmad_segments_answered(
	struct ibmad_port *p, const struct ibmad_addr *from, const uint8_t mad[MAD_LEN], uint64_t now)
{
	struct rmpp_hdr h = rmpp_hdr_get(mad);
	struct send *s;

	if (h.version != RMPP_VERSION || h.type == RMPP_DATA)
		return false;
	s = find_sender(p, from, mad);
	if (!s)
		return false;
	if (h.type == RMPP_ACK)
		was_acked(s, from, mad, now);
	else if (h.type == RMPP_STOP || h.type == RMPP_ABORT)
		ibmad_send_failed(s);
	return true;
}

/* ---- receiving ---- */
/* base version, class, class version and method; the transaction id */
static bool same_message(const uint8_t *a, const uint8_t *b)
{
	return !memcmp(a, b, 4) && !memcmp(a + 8, b + 8, 8);
}

static struct recv *find_receiver(struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t *mad)
{
	list_for_each(pos, &a->recvs)
	{
		struct recv *r = container_of(pos, struct recv, node);

		if (same_message(r->first, mad) && r->from.qpn == from->qpn &&
			ibmad_same_peer(&r->from, from))
			return r;
	}
	return NULL;
}

void ibmad_recv_free(struct recv *r)
{
	if (r->done)
		r->agent->ndone--;
	else
		r->agent->nrecvs--;
	r->agent->port->held -= r->rmpp.size;
	list_del(&r->node);
	rmpp_recv_fini(&r->rmpp);
	free(r);
}

static void forget_oldest_done(struct ibmad_agent *a)
{
	list_for_each(pos, &a->recvs)
	{
		struct recv *r = container_of(pos, struct recv, node);

		if (r->done) {
			ibmad_recv_free(r);
			return;
		}
	}
}

static struct recv *new_receiver(struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t *mad)
{
	struct recv *r = a->nrecvs < IBMAD_MAX_RECVS ? calloc(1, sizeof(*r)) : NULL;

	if (!r)
		return NULL;
	r->agent = a;
	r->from = *from;
	memcpy(r->first, mad, sizeof(r->first));
	list_add_tail(&a->recvs, &r->node);
	a->nrecvs++;
	return r;
}

static void rearm(struct recv *r, unsigned ms, uint64_t now)
{
	r->deadline = now + ms * MS;
	ibmad_arm(r->agent->port, r->deadline);
}

/* A response that is on its way keeps the request it answers from being repeated. */
static void hold_request(
	struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t *mad, uint64_t now)
{
	struct send *s = ibmad_is_response(mad) ? ibmad_send_find(a, from, mad) : NULL;

	if (s && now + s->timeout_ms * MS > s->deadline)
		s->deadline = now + s->timeout_ms * MS;
}

static void came_complete(struct recv *r, uint64_t now)
{
	struct ibmad_agent *a = r->agent;
	struct rmpp_recv whole = r->rmpp;
	struct ibmad_addr from = r->from;

	r->rmpp.msg = NULL;
	r->rmpp.size = 0;
	a->port->held -= whole.size;
	if (a->ndone >= IBMAD_MAX_DONE)
		forget_oldest_done(a); /* before this one is done: it may have been the first to begin */
	r->done = true;
	a->nrecvs--;
	a->ndone++;
	rearm(r, RMPP_DONE_MS, now);
	ibmad_give(a, &from, whole.msg, whole.len);
	rmpp_recv_fini(&whole);
}

static void took(struct recv *r, const struct ibmad_addr *from, const uint8_t *mad, enum rmpp_took how,
	enum rmpp_status why, uint64_t now)
{
	uint8_t ack[MAD_LEN];

	if (how == RMPP_TOOK_NOT) {
		refuse(r->agent, from, mad, why);
		ibmad_recv_free(r);
		return;
	}
	if (!r->done)
		rearm(r, RMPP_RECV_MS, now);
	if (how == RMPP_TOOK)
		return;
	rmpp_recv_ack(&r->rmpp, mad, ack);
	put_on_wire(r->agent, from, ack);
	if (how == RMPP_TOOK_ALL)
		came_complete(r, now);
}

static void receive_data(
	struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t *mad, uint64_t now)
{
	struct recv *r = find_receiver(a, from, mad);
	size_t room = IBMAD_MAX_HELD - a->port->held, before;
	enum rmpp_status why = 0;
	enum rmpp_took how;

	if (!r && rmpp_hdr_get(mad).segment > 1)
		return; /* of a message whose beginning was lost, or that we gave up */
	if (!r)
		r = new_receiver(a, from, mad);
	if (!r) {
		refuse(a, from, mad, RMPP_NO_RESOURCES);
		return;
	}
	before = r->rmpp.size;
	room += before;
	how = rmpp_recv_data(&r->rmpp, mad, room < IBMAD_MAX_MESSAGE ? room : IBMAD_MAX_MESSAGE, &why);
	a->port->held += r->rmpp.size - before;
	hold_request(a, from, mad, now);
	took(r, from, mad, how, why, now);
}

void ibmad_segments_receive(
	struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t mad[MAD_LEN], uint64_t now)
{
	struct rmpp_hdr h = rmpp_hdr_get(mad);
	struct recv *r;

	if (h.type == RMPP_ABORT || h.type == RMPP_STOP) {
		r = find_receiver(a, from, mad);
		if (r && !r->done)
			ibmad_recv_free(r);
	} else if (h.version != RMPP_VERSION) {
		refuse(a, from, mad, RMPP_BAD_VERSION);
	} else if (h.type == RMPP_DATA) {
		receive_data(a, from, mad, now);
	} else if (h.type != RMPP_ACK) {
		refuse(a, from, mad, RMPP_BAD_TYPE);
	}
}

void ibmad_recv_expire(struct recv *r, uint64_t now)
{
	uint8_t refusal[MAD_LEN];
	uint8_t mad[MAD_LEN] = {0};

	if (!r->done) {
		memcpy(mad, r->first, sizeof(r->first));
		rmpp_refuse(mad, RMPP_TOO_LONG, refusal);
		put_on_wire(r->agent, &r->from, refusal);
	}
	ibmad_recv_free(r);
}
