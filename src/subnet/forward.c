/* SPDX-License-Identifier: MIT */
/*
 * From port to port: over a cable, into a node, and in a switch to the port that its tables name. A hop is a
 * few function calls on a packet that lies where the sender put it. What a switch decides, fabric/walk.c
 * decides for it; here it is done, and counted as IBA 16.1.3.5 says.
 */
#include "subnet/parts.h"

#include "fabric/walk.h"
#include "wire/smp.h"

/* What is counted of a packet that gets no further, and at which of the two ports. */
static const struct tally {
	bool at_input;
	uint8_t counter, detail;
} tally[WALK_END_COUNT] = {
	[WALK_PKEY_IN] = {true, CNT_RCV_CONSTRAINT, CNT_RCV_CONSTRAINT},
	[WALK_NO_ROUTE] = {true, CNT_RCV_SWITCH_RELAY, CNT_DLID_MAPPING},
	[WALK_RETURNS] = {true, CNT_RCV_SWITCH_RELAY, CNT_LOOPING},
	[WALK_BAD_VL] = {true, CNT_RCV_SWITCH_RELAY, CNT_VL_MAPPING},
	[WALK_INACTIVE] = {false, CNT_XMIT_DISCARDS, CNT_INACTIVE},
	[WALK_TOO_LONG] = {false, CNT_XMIT_DISCARDS, CNT_NEIGHBOR_MTU},
	[WALK_PKEY_OUT] = {false, CNT_XMIT_CONSTRAINT, CNT_XMIT_CONSTRAINT},
	[WALK_TOO_FAR] = {false, CNT_XMIT_DISCARDS, CNT_LIFETIME},
};

static void drop(enum walk_end end, struct subnet_port *in, struct subnet_port *out, const struct packet *p)
{
	const struct tally *t = &tally[end];
	struct subnet_port *at = t->at_input ? in : out;

	if (end == WALK_DEAF || end == WALK_STRANGER)
		return; /* IBA counts neither */
	at->regs->count.total[t->counter]++;
	if (t->detail != t->counter)
		at->regs->count.total[t->detail]++;
	if (end == WALK_PKEY_IN || end == WALK_PKEY_OUT)
		trap_switch_bad_pkey(at, p);
}

static struct walk_for kind_of(const struct packet *p)
{
	return (struct walk_for){.pkey = bth_pkey(p->bth),
		.words = p->lrh.words,
		.sl = p->lrh.sl,
		.management = p->lrh.vl == VL_MANAGEMENT};
}

/* ---- over a cable ---- */
static void count_sent(struct subnet_port *out, const struct packet *p)
{
	uint64_t *total = out->regs->count.total;

	total[CNT_XMIT_PKTS]++;
	total[CNT_XMIT_DATA] += p->lrh.words;
	total[lid_is_mcast(p->lrh.dlid) ? CNT_MCAST_XMIT : CNT_UNICAST_XMIT]++;
	if (p->lrh.vl != VL_MANAGEMENT)
		total[CNT_XMIT_DATA_SL + (p->lrh.sl & 15)] += p->lrh.words;
}

static void count_received(struct subnet_port *in, const struct packet *p)
{
	uint64_t *total = in->regs->count.total;

	total[CNT_RCV_PKTS]++;
	total[CNT_RCV_DATA] += p->lrh.words;
	total[lid_is_mcast(p->lrh.dlid) ? CNT_MCAST_RCV : CNT_UNICAST_RCV]++;
	if (p->lrh.vl != VL_MANAGEMENT)
		total[CNT_RCV_DATA_SL + (p->lrh.sl & 15)] += p->lrh.words;
	if (in->regs->phy_errors)
		in->regs->phy_errors--;
}

/* Its VCRC is wrong. Too many of these in a row, and the port complains (IBA 7.12.2). */
static void damaged(struct subnet_port *in)
{
	uint64_t *total = in->regs->count.total;

	total[CNT_SYMBOL_ERRORS]++;
	total[CNT_RCV_ERRORS]++;
	total[CNT_LOCAL_PHYSICAL]++;
	if (++in->regs->phy_errors <= in->regs->phy_threshold)
		return;
	in->regs->phy_errors = 0;
	total[CNT_LINK_INTEGRITY]++;
	trap_link_integrity(in);
}

/* The port at the other end, or NULL: it never got there. */
static struct subnet_port *cross(struct subnet *s, struct subnet_port *out, struct packet *p)
{
	if (out->shared->phys != PHYS_LINK_UP)
		return NULL;
	count_sent(out, p);
	if (s->crcs)
		crc_leave(p);
	if (s->ops.seen)
		s->ops.seen(s->arg, out, p);
	if (out->shared->flags & FABRIC_PLAIN)
		return out->peer;
	switch (fault_fate(s, out, p)) {
	case FATE_PASSES:
		return out->peer;
	case FATE_DAMAGED:
		damaged(out->peer);
		return NULL;
	case FATE_LOST:
	case FATE_HELD:
		return NULL;
	}
	return NULL;
}

/* ---- in a node ---- */
static bool is_directed(const struct packet *p)
{
	return p->lrh.vl == VL_MANAGEMENT && p->lrh.dlid == LID_PERMISSIVE && p->len == PACKET_MAD_LEN &&
	       bth_dqpn(p->bth) == SMI_QPN && smp_is_directed(packet_mad(p));
}

/* Whoever is at the other end of a cable is only asked by management, and groups have none of that. */
static bool is_for(const struct subnet_port *end, const struct packet *p)
{
	bool management = p->lrh.vl == VL_MANAGEMENT;

	if (p->lrh.dlid == LID_PERMISSIVE)
		return management;
	return lid_is_mcast(p->lrh.dlid) ? !management : fabric_port_has_lid(end->shared, p->lrh.dlid);
}

/* What has come over a cable: NULL when it ended here, or the port that it, or its answer, leaves by. */
static struct subnet_port *arrive(struct subnet *s, struct subnet_port *in, struct packet *p)
{
	const struct walk_for what = kind_of(p);
	enum walk_end end;

	if (s->crcs && !crc_vcrc_is_right(p)) {
		damaged(in);
		return NULL;
	}
	count_received(in, p);
	end = fabric_takes(in->shared, &what);
	if (end) {
		drop(end, in, NULL, p);
		return NULL;
	}
	if (is_directed(p))
		return deliver_directed(s, in, p, false);
	if (is_switch(in->node))
		return forward_relay(s, in, p);
	return is_for(in, p) ? deliver(s, in, p) : NULL;
}

void forward_travel(struct subnet *s, struct subnet_port *out, struct packet *p)
{
	struct subnet_port *in;

	while (out) {
		in = cross(s, out, p);
		out = in ? arrive(s, in, p) : NULL;
	}
}

void forward_land(struct subnet *s, struct subnet_port *out, struct packet *p)
{
	if (out->shared->phys == PHYS_LINK_UP)
		forward_travel(s, arrive(s, out->peer, p), p);
}

struct subnet_port *forward_send(struct subnet *s, struct subnet_port *out, unsigned in_num, struct packet *p)
{
	const struct walk_for what = kind_of(p);
	enum walk_end end = fabric_sends(s->table, out->shared, in_num, &what, &p->lrh.vl);

	if (!end)
		return out;
	drop(end, is_switch(out->node) ? &out->node->port[in_num] : out, out, p);
	return NULL;
}

/* ---- groups ---- */
bool subnet_in_group(const struct subnet_node *sw, uint16_t mlid, unsigned num)
{
	if (mlid < LID_MCAST || mlid - LID_MCAST >= SUBNET_MLIDS || num > sw->nports)
		return false;
	return sw->sw->mft[num / 16 * SUBNET_MLIDS + (mlid - LID_MCAST)] >> num % 16 & 1;
}

/*
 * A copy for every port that the table names, but for the one it came in by. In a tree each link sees a
 * packet once, so that one with more copies than there are ports goes round in circles.
 */
static struct subnet_port *replicate(struct subnet *s, struct subnet_port *in, struct packet *p)
{
	struct subnet_node *n = in->node;
	bool has_members = false;

	if (++p->hops > WALK_HOPS_MAX)
		return NULL;
	for (unsigned num = 0; num <= n->nports; num++) {
		struct packet copy = *p;

		if (!subnet_in_group(n, p->lrh.dlid, num))
			continue;
		has_members = true;
		if (num == in->num)
			continue;
		if (!s->copies) {
			drop(WALK_TOO_FAR, in, &n->port[num], p);
			return NULL;
		}
		s->copies--;
		if (num)
			forward_travel(s, forward_send(s, &n->port[num], in->num, &copy), &copy);
		else
			deliver(s, in, &copy); /* is asked for nothing: it is a group's */
	}
	if (!has_members)
		drop(WALK_NO_ROUTE, in, NULL, p);
	return NULL;
}

struct subnet_port *forward_relay(struct subnet *s, struct subnet_port *in, struct packet *p)
{
	enum walk_end end;
	uint8_t num;

	if (lid_is_mcast(p->lrh.dlid))
		return p->lrh.vl == VL_MANAGEMENT ? NULL : replicate(s, in, p);
	if (p->lrh.dlid == LID_PERMISSIVE && p->lrh.vl == VL_MANAGEMENT)
		return deliver(s, in, p);
	end = fabric_route(s->table, in->shared, p->lrh.dlid, &num);
	if (end) {
		drop(end, in, NULL, p);
		return NULL;
	}
	if (!num)
		return is_for(&in->node->port[0], p) ? deliver(s, in, p) : NULL;
	if (++p->hops > WALK_HOPS_MAX) {
		drop(WALK_TOO_FAR, in, &in->node->port[num], p);
		return NULL;
	}
	return forward_send(s, &in->node->port[num], in->num, p);
}
