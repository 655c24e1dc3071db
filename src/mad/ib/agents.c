/* SPDX-License-Identifier: MIT */
/* Who is registered at a port, and whose a MAD is. */
#include "mad/ib/port_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	CLASS_BM = 0x05,
	CLASSES = 0x50, /* of requests that can be registered for, and the directed route */
	VERSIONS = 0x83,
	VENDOR_OUI = 37, /* where it is in a MAD */
};

bool ibmad_is_response(const uint8_t *mad)
{
	return mad[3] & MAD_METHOD_RESPONSE || mad[3] == MAD_METHOD_TRAP_REPRESS ||
	       (mad[1] == CLASS_BM && get_be32(mad + 20) & 1);
}

bool ibmad_same_peer(const struct ibmad_addr *a, const struct ibmad_addr *b)
{
	if (a->grh && b->grh)
		return !memcmp(a->gid, b->gid, 16);
	return a->lid == b->lid;
}

static bool is_smp(uint8_t mgmt_class)
{
	return mgmt_class == MAD_CLASS_SUBN || mgmt_class == MAD_CLASS_SUBN_DIRECTED;
}

/* The checks of ib_register_mad_agent(). */
static bool can_be(const struct ibmad_reg *r)
{
	uint8_t c = r->takes.mgmt_class;

	if (r->qp > 1 || r->rmpp_version > RMPP_VERSION)
		return false;
	if (!c)
		return true;
	if (r->takes.class_version >= VERSIONS || (c >= CLASSES && c != MAD_CLASS_SUBN_DIRECTED))
		return false;
	if (mad_is_vendor2(c) && !(r->oui[0] | r->oui[1] | r->oui[2]))
		return false;
	if (r->rmpp_version && !rmpp_class(c))
		return false;
	return is_smp(c) == !r->qp;
}

static bool overlap(const struct ibmad_reg *a, const struct ibmad_reg *b)
{
	if (mad_is_vendor2(a->takes.mgmt_class) && memcmp(a->oui, b->oui, 3))
		return false;
	return a->takes.mgmt_class && mad_class_overlaps(&a->takes, &b->takes);
}

static bool tid_taken(const struct ibmad_port *p, uint32_t high)
{
	list_for_each(pos, &p->agents)
	{
		if (container_of(pos, struct ibmad_agent, node)->tid_high == high)
			return true;
	}
	return !high;
}

int ibmad_register(struct ibmad_port *p, const struct ibmad_reg *reg, void *owner, struct ibmad_agent **agent)
{
	struct ibmad_agent *a;

	if (!can_be(reg))
		return -EINVAL;
	list_for_each(pos, &p->agents)
	{
		if (overlap(reg, &container_of(pos, struct ibmad_agent, node)->reg))
			return -EPERM;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->port = p;
	a->reg = *reg;
	a->owner = owner;
	while (tid_taken(p, ++p->last_tid_high))
		;
	a->tid_high = p->last_tid_high;
	list_init(&a->sends);
	list_init(&a->recvs);
	list_add_tail(&p->agents, &a->node);
	*agent = a;
	return 0;
}

void ibmad_unregister(struct ibmad_agent *a)
{
	list_for_each_safe(pos, &a->sends) ibmad_send_free(container_of(pos, struct send, node));
	list_for_each_safe(pos, &a->recvs) ibmad_recv_free(container_of(pos, struct recv, node));
	list_del(&a->node);
	free(a);
}

static bool takes(const struct ibmad_agent *a, const struct mad_hdr *h, const uint8_t *mad)
{
	if (!a->reg.takes.mgmt_class || !mad_class_has(&a->reg.takes, h))
		return false;
	return !mad_is_vendor2(h->mgmt_class) || !memcmp(a->reg.oui, mad + VENDOR_OUI, 3);
}

struct ibmad_agent *ibmad_agent_of(struct ibmad_port *p, unsigned qp, const uint8_t mad[MAD_LEN])
{
	struct mad_hdr h = mad_hdr_get(mad);
	bool response = ibmad_is_response(mad);

	list_for_each(pos, &p->agents)
	{
		struct ibmad_agent *a = container_of(pos, struct ibmad_agent, node);

		if (a->reg.qp == qp && (response ? a->tid_high == h.tid >> 32 : takes(a, &h, mad)))
			return a;
	}
	return NULL;
}
