/* SPDX-License-Identifier: MIT */
/*
 * A packet has come to its end: who takes it. Queue pair 0 is subnet management's: directed routes go on from
 * here, the SMA answers, the rest goes up. Queue pair 1 is the PMA's, and everybody else's above. An answer
 * is the same packet turned round.
 */
#include "subnet/parts.h"

#include "subnet/smp_route.h"
#include "wire/perf.h"
#include "wire/smp.h"

/* ---- queue pair 0 ---- */
static struct subnet_port *hand_up(struct subnet *s, struct subnet_port *in, const struct packet *p)
{
	s->ops.arrived(s->arg, end_port(in), p);
	return NULL;
}

static struct subnet_port *take_step(
	struct subnet *s, struct subnet_port *in, struct packet *p, bool may_begin, bool *here)
{
	const struct smp_at at = {in->num, (uint8_t)in->node->nports, is_switch(in->node), may_begin};
	struct smp_next next;

	*here = false;
	switch (smp_route(packet_mad(p), &at, &next)) {
	case SMP_HERE:
		*here = true;
		return NULL;
	case SMP_LEAVES:
		p->lrh.dlid = p->lrh.slid = LID_PERMISSIVE;
		return forward_send(s, &in->node->port[next.out], in->num, p);
	case SMP_BY_LID:
		p->lrh.slid = end_port(in)->shared->lid;
		p->lrh.dlid = next.lid;
		return originate(s, end_port(in), p);
	case SMP_DROP:
		break;
	}
	return NULL;
}

/* Back along the directed part, unless the request came to us by LID behind it. */
static struct subnet_port *answer_directed(struct subnet *s, struct subnet_port *in, struct packet *p)
{
	struct subnet_port *out;
	bool here;

	if (p->lrh.dlid != LID_PERMISSIVE && get_be16(packet_mad(p) + SMP_DR_DLID) != LID_PERMISSIVE) {
		packet_mad_turn(p);
		return originate(s, end_port(in), p);
	}
	out = take_step(s, in, p, true, &here);
	return here ? hand_up(s, in, p) : out;
}

static struct subnet_port *manage(struct subnet *s, struct subnet_port *in, struct packet *p)
{
	uint8_t *smp = packet_mad(p);

	switch (sma_handle(s, in, p, smp)) {
	case SMA_NOT_OURS:
		return hand_up(s, in, p);
	case SMA_SILENT:
		return NULL;
	case SMA_ANSWERED:
		break;
	}
	if (smp_is_directed(smp))
		return answer_directed(s, in, p);
	packet_mad_turn(p);
	if (p->lrh.slid == LID_PERMISSIVE)
		p->lrh.slid = end_port(in)->shared->lid;
	return originate(s, end_port(in), p);
}

struct subnet_port *deliver_directed(
	struct subnet *s, struct subnet_port *in, struct packet *p, bool from_here)
{
	struct subnet_port *out;
	bool here;

	if (!crc_end(in, p))
		return NULL;
	out = take_step(s, in, p, from_here || p->lrh.dlid != LID_PERMISSIVE, &here);
	return here ? manage(s, in, p) : out;
}

/* ---- queue pair 1 ---- */
static uint16_t own_pkey(const struct subnet_port *end, uint16_t pkey)
{
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		if (pkey_matches(end->shared->pkey[i], pkey))
			return end->shared->pkey[i];
	return 0;
}

static void violation(
	struct subnet_port *end, enum trap_number which, uint16_t *counter, const struct packet *p)
{
	if (*counter != UINT16_MAX)
		++*counter;
	trap_bad_key(end, which, p);
}

void subnet_bad_pkey(struct subnet_port *end, const struct packet *p, uint64_t now)
{
	end->node->subnet->now = now;
	violation(end, TRAP_BAD_PKEY, &end->regs->agent->pkey_violations, p);
}

void subnet_bad_qkey(struct subnet_port *end, const struct packet *p, uint64_t now)
{
	end->node->subnet->now = now;
	violation(end, TRAP_BAD_QKEY, &end->regs->agent->qkey_violations, p);
}

static struct subnet_port *general(struct subnet *s, struct subnet_port *in, struct packet *p, uint32_t qkey)
{
	struct subnet_port *end = end_port(in);
	uint16_t pkey = own_pkey(end, bth_pkey(p->bth));

	if (!pkey) {
		subnet_bad_pkey(end, p, s->now);
		return NULL;
	}
	if (qkey != GSI_QKEY) {
		subnet_bad_qkey(end, p, s->now);
		return NULL;
	}
	if (packet_mad(p)[1] != MAD_CLASS_PERF || !lid_is_unicast(p->lrh.dlid) ||
		!pma_handle(in->node, packet_mad(p)))
		return hand_up(s, in, p);
	packet_mad_turn(p);
	put_be16(p->bth + 2, pkey);
	return originate(s, end, p);
}

struct subnet_port *deliver(struct subnet *s, struct subnet_port *in, struct packet *p)
{
	bool management = p->lrh.vl == VL_MANAGEMENT;
	struct packet_addr a;
	const uint8_t *mad;

	if (!crc_end(in, p))
		return NULL;
	if (!packet_mad_parse(p, &a, &mad))
		return management || bth_dqpn(p->bth) <= GSI_QPN ? NULL : hand_up(s, in, p);
	if (management != (a.dqpn == SMI_QPN))
		return NULL;
	if (a.dqpn == GSI_QPN)
		return general(s, in, p, a.qkey);
	if (smp_is_directed(mad))
		return deliver_directed(s, in, p, false);
	return mad[1] == MAD_CLASS_SUBN ? manage(s, in, p) : NULL;
}
