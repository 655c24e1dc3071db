/* SPDX-License-Identifier: MIT */
#include "mad/ib/port_parts.h"

#include <string.h>

enum { SMP_DIRECTION = 0x8000 }; /* in the status of a directed route: a response */

void ibmad_port_init(struct ibmad_port *p, const struct ibmad_ops *ops, void *arg)
{
	*p = (struct ibmad_port){.ops = ops, .arg = arg, .deadline = UINT64_MAX};
	list_init(&p->agents);
}

void ibmad_port_fini(struct ibmad_port *p)
{
	list_for_each_safe(pos, &p->agents) ibmad_unregister(container_of(pos, struct ibmad_agent, node));
}

void ibmad_give(struct ibmad_agent *a, const struct ibmad_addr *from, const uint8_t *msg, size_t len)
{
	if (ibmad_is_response(msg)) {
		struct send *s = ibmad_send_find(a, from, msg);

		if (s)
			ibmad_send_free(s);
		else if (ibmad_does_rmpp(a) || !rmpp_is_active(msg))
			return; /* nobody waits for it, or not any more */
	}
	a->port->ops->deliver(a->port->arg, a, from, 0, msg, len);
}

/* An ACK has the method of a request when it is for a response: before anything else, is it for what we send?
 */
bool ibmad_receive(struct ibmad_port *p, unsigned qp, const struct ibmad_addr *from,
	const uint8_t mad[MAD_LEN], uint64_t now)
{
	struct ibmad_agent *a;

	if (rmpp_is_active(mad) && ibmad_segments_answered(p, from, mad, now))
		return true;
	a = ibmad_agent_of(p, qp, mad);
	if (!a)
		return false;
	if (rmpp_is_active(mad) && ibmad_does_rmpp(a))
		ibmad_segments_receive(a, from, mad, now);
	else
		ibmad_give(a, from, mad, MAD_LEN);
	return true;
}

bool ibmad_unsupported(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN])
{
	struct mad_hdr h = mad_hdr_get(mad);

	if (h.base_version != MAD_BASE_VERSION || (h.method != MAD_METHOD_GET && h.method != MAD_METHOD_SET))
		return false;
	memcpy(answer, mad, MAD_LEN);
	answer[3] = MAD_METHOD_GET_RESP;
	put_be16(answer + 4,
		MAD_STATUS_NO_ATTRIBUTE | (h.mgmt_class == MAD_CLASS_SUBN_DIRECTED ? SMP_DIRECTION : 0));
	return true;
}

/*
 * deliver() may not unregister agents, so lists change only where we stand. What is armed while we are at it
 * is later than now.
 */
void ibmad_expire(struct ibmad_port *p, uint64_t now)
{
	if (now < p->deadline)
		return;
	p->deadline = UINT64_MAX;
	list_for_each(pos, &p->agents)
	{
		struct ibmad_agent *a = container_of(pos, struct ibmad_agent, node);

		list_for_each_safe(send, &a->sends)
		{
			struct send *s = container_of(send, struct send, node);

			if (s->deadline <= now)
				ibmad_send_expire(s, now);
			else
				ibmad_arm(p, s->deadline);
		}
		list_for_each_safe(recv, &a->recvs)
		{
			struct recv *r = container_of(recv, struct recv, node);

			if (r->deadline <= now)
				ibmad_recv_expire(r, now);
			else
				ibmad_arm(p, r->deadline);
		}
	}
}
