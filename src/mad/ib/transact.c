/* SPDX-License-Identifier: MIT */
/*
 * Sending: a request that expects a response is kept until it comes or time is up.
 *
 *	             no timeout: nothing is kept
 *	 send ----------------------------------------> (gone)
 *	   |                                              ^
 *	   |  plain, timeout      response                |
 *	   '--------> WAITING ----------------------------+
 *	   |            | ^  '-- timeout: again, or ETIMEDOUT
 *	   |            | |
 *	   |  RMPP      v | all acknowledged, timeout given
 *	   '--------> SEGMENTS ---------------------------+
 *	                    all acknowledged, no timeout
 */
#include "mad/ib/port_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_waiting_for(const struct send *s, const struct ibmad_addr *peer, const uint8_t *response)
{
	return s->timeout_ms && !memcmp(s->msg + 8, response + 8, 8) && s->msg[1] == response[1] &&
	       !ibmad_is_response(s->msg) &&
	       (s->to.grh != peer->grh || !s->to.grh || !memcmp(s->to.gid, peer->gid, 16));
}

struct send *ibmad_send_find(struct ibmad_agent *a, const struct ibmad_addr *peer, const uint8_t *response)
{
	list_for_each(pos, &a->sends)
	{
		struct send *s = container_of(pos, struct send, node);

		if (is_waiting_for(s, peer, response))
			return s;
	}
	return NULL;
}

/* As Linux has it: two requests may not share a transaction id, two responses not also their destination. */
static bool in_use(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *msg)
{
	list_for_each(pos, &a->sends)
	{
		struct send *s = container_of(pos, struct send, node);

		if (memcmp(s->msg + 8, msg + 8, 8) || s->msg[1] != msg[1] ||
			ibmad_is_response(s->msg) != ibmad_is_response(msg))
			continue;
		if (!ibmad_is_response(msg) || ibmad_same_peer(&s->to, to))
			return true;
	}
	return false;
}

void ibmad_send_free(struct send *s)
{
	s->agent->port->held -= sizeof(*s) + s->len;
	s->agent->nsends--;
	list_del(&s->node);
	free(s);
}

void ibmad_send_failed(struct send *s)
{
	struct ibmad_agent *a = s->agent;
	struct ibmad_addr to = s->to;
	uint8_t hdr[MAD_HDR_LEN];

	memcpy(hdr, s->msg, sizeof(hdr));
	ibmad_send_free(s);
	a->port->ops->deliver(a->port->arg, a, &to, ETIMEDOUT, hdr, sizeof(hdr));
}

/* A transaction id that the response will bring back to this agent, and to no other of the port. */
static void put_tid(const struct ibmad_agent *a, uint8_t *msg)
{
	if (!ibmad_is_response(msg))
		put_be32(msg + 8, a->tid_high);
}

static struct send *keep(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *msg, size_t len)
{
	size_t kept = len < MAD_LEN ? MAD_LEN : len;
	struct send *s;

	if (a->nsends >= IBMAD_MAX_SENDS || a->port->held + sizeof(*s) + kept > IBMAD_MAX_HELD)
		return NULL;
	s = calloc(1, sizeof(*s) + kept);
	if (!s)
		return NULL;
	s->agent = a;
	s->to = *to;
	s->len = kept;
	memcpy(s->msg, msg, len);
	put_tid(a, s->msg);
	list_add_tail(&a->sends, &s->node);
	a->nsends++;
	a->port->held += sizeof(*s) + kept;
	return s;
}

static void put_on_wire(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *mad)
{
	a->port->ops->send(a->port->arg, a->reg.qp, to, mad);
}

static int send_and_forget(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *msg, size_t len)
{
	uint8_t mad[MAD_LEN] = {0};

	memcpy(mad, msg, len);
	put_tid(a, mad);
	put_on_wire(a, to, mad);
	return 0;
}

void ibmad_send_wait(struct send *s, uint64_t now)
{
	s->deadline = now + s->timeout_ms * MS;
	ibmad_arm(s->agent->port, s->deadline);
}

int ibmad_send(struct ibmad_agent *a, const struct ibmad_addr *to, const uint8_t *msg, size_t len,
	unsigned timeout_ms, unsigned retries, uint64_t now)
{
	/* Whatever its type says: an agent whose segments we make has only data to send (OpenSM leaves it 0).
	 */
	bool segmented = len >= RMPP_HDR_END && ibmad_does_rmpp(a) && rmpp_is_active(msg);
	uint8_t hdr[MAD_HDR_LEN];
	struct send *s;

	if (len < RMPP_HDR_END || len > (segmented ? (size_t)IBMAD_MAX_MESSAGE : (size_t)MAD_LEN) ||
		(segmented && len < rmpp_data_offset(msg[1])))
		return -EINVAL;
	memcpy(hdr, msg, sizeof(hdr));
	put_tid(a, hdr);
	if (in_use(a, to, hdr))
		return -EINVAL;
	if (!segmented && !timeout_ms)
		return send_and_forget(a, to, msg, len);
	s = keep(a, to, msg, len);
	if (!s)
		return -ENOMEM;
	s->timeout_ms = timeout_ms;
	s->retries = s->retries_left = retries;
	s->segmented = segmented;
	if (segmented) {
		rmpp_send_init(&s->rmpp, s->msg, len);
		ibmad_segments_start(s, now);
	} else {
		ibmad_send_wait(s, now);
		put_on_wire(a, to, s->msg);
	}
	return 0;
}

void ibmad_send_expire(struct send *s, uint64_t now)
{
	if (!s->retries_left) {
		ibmad_send_failed(s);
	} else {
		s->retries_left--;
		if (s->segmented) {
			ibmad_segments_again(s, now);
		} else {
			ibmad_send_wait(s, now);
			put_on_wire(s->agent, &s->to, s->msg);
		}
	}
}
