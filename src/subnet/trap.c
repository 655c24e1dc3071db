/* SPDX-License-Identifier: MIT */
/*
 * Traps: what a port tells the subnet manager without being asked (IBA volume 1, 13.4.9 and 14.2.5.1). Each
 * kind has one slot in its port: what happens again while the first is not heard takes its place. A trap goes
 * to the master's LID on VL 15, once and then every SubnetTimeOut, until a TrapRepress with its transaction
 * id comes. Nobody to tell it to: it is forgotten; who becomes the master looks at everything anyway.
 *
 *            raise()                 trap_expire()               trap_expire(), every SubnetTimeOut
 *   empty ------------> pending ------------------> told -----------.
 *     ^                    ^                         |  ^           |
 *     |                    '------- raise() ---------'  '-----------'
 *     '------------------ trap_repress() ------------'
 *
 * A port sends no second trap within a 64th of SubnetTimeOut, and no second one of a kind within all of it
 * unless the first has been heard: a link that flaps does not drown the manager, one that is cut while the
 * manager still works on the last cut is told at once.
 */
#include "subnet/parts.h"

#include "wire/smp.h"

enum { INTERVAL_MIN = 1000000 }; /* ns; SubnetTimeOut can say 4 us */

static const struct {
	uint16_t number;
	uint8_t type;
} kinds[TRAP_SLOTS] = {
	{TRAP_LINK_STATE, NOTICE_URGENT},
	{TRAP_LINK_INTEGRITY, NOTICE_URGENT},
	{TRAP_LOCAL_CHANGES, NOTICE_INFO},
	{TRAP_BAD_MKEY, NOTICE_SECURITY},
	{TRAP_BAD_PKEY, NOTICE_SECURITY},
	{TRAP_BAD_QKEY, NOTICE_SECURITY},
	{TRAP_SWITCH_BAD_PKEY, NOTICE_SECURITY},
};

static uint64_t interval(const struct port_agent *a)
{
	uint64_t ns = 4096ull << a->port->shared->timeout;

	return ns < INTERVAL_MIN ? INTERVAL_MIN : ns;
}

/* The details behind a notice's header; NULL when there is nobody to tell. */
static uint8_t *raise(struct port_agent *a, enum trap_number which)
{
	struct subnet_port *end = a->port;
	struct subnet *s = end->node->subnet;
	struct trap_slot *t = a->trap;
	unsigned i = 0;

	while (kinds[i].number != which)
		i++;
	t += i;
	if (!end->shared->sm_lid)
		return NULL;
	t->pending = true;
	t->tid = (uint64_t)end->index << 32 | (uint32_t)++a->tid;
	t->due = t->sent && t->sent + interval(a) > s->now ? t->sent + interval(a) : s->now;
	notice_put(t->notice, (enum notice_type)kinds[i].type, (uint8_t)end->node->type, kinds[i].number,
		end->shared->lid);
	agent_arm(s, a, t->due);
	return t->notice + NOTICE_DETAILS;
}

/* ---- each kind and its details (wire/notice.h has the pictures) ---- */
void trap_link_state(struct subnet_port *sw0)
{
	uint8_t *d = raise(sw0->regs->agent, TRAP_LINK_STATE);

	if (d)
		put_be16(d, sw0->shared->lid);
}

void trap_link_integrity(struct subnet_port *p)
{
	uint8_t *d = raise(p->regs->agent, TRAP_LINK_INTEGRITY);

	if (!d)
		return;
	put_be16(d + 2, end_port(p)->shared->lid);
	d[4] = p->num;
}

void trap_local_changes(struct subnet_port *end, uint16_t flags)
{
	uint8_t *d = raise(end->regs->agent, TRAP_LOCAL_CHANGES);

	if (!d)
		return;
	put_be16(d + 2, end->shared->lid);
	d[5] = flags ? 1 : 0;
	put_be32(d + 6, end->shared->cap_mask);
	put_be16(d + 10, flags);
}

void trap_bad_mkey(struct port_agent *a, const struct packet *p, const uint8_t *smp)
{
	uint8_t *d = raise(a, TRAP_BAD_MKEY);
	unsigned hops = smp[SMP_HOP_COUNT];

	if (!d)
		return;
	put_be16(d + 2, p->lrh.slid);
	d[6] = smp[3];
	memcpy(d + 8, smp + 16, 2);
	memcpy(d + 10, smp + 20, 4);
	put_be64(d + 14, smp_mkey(smp));
	if (!smp_is_directed(smp))
		return;
	memcpy(d + 4, smp + SMP_DR_SLID, 2);
	d[23] = (uint8_t)(0x80 | (hops > NOTICE_PATH_MAX ? 0x40 | NOTICE_PATH_MAX : hops));
	memcpy(d + 24, smp + SMP_RETURN_PATH + 1, NOTICE_PATH_MAX);
}

/* LIDs, queue pairs and GIDs of the two ends of a packet, from offset 2 of the details on. */
static void put_ends(uint8_t *d, const struct packet *p, uint32_t key, size_t key_len)
{
	uint8_t *qp = d + 6 + key_len;
	bool datagram = p->len >= BTH_LEN + DETH_LEN && (bth_opcode(p->bth) & IBT_SERVICE_MASK) == IBT_UD;

	put_be16(d + 2, p->lrh.slid);
	put_be16(d + 4, p->lrh.dlid);
	if (key_len == 4)
		put_be32(d + 6, key);
	else
		put_be16(d + 6, (uint16_t)key);
	put_be32(qp, (uint32_t)p->lrh.sl << 28 | (datagram ? get_be24(p->bth + BTH_LEN + 5) : 0));
	put_be32(qp + 4, bth_dqpn(p->bth));
	if (p->has_grh) {
		memcpy(qp + 8, p->grh.sgid, 16);
		memcpy(qp + 24, p->grh.dgid, 16);
	}
}

void trap_bad_key(struct subnet_port *end, enum trap_number which, const struct packet *p)
{
	bool has_qkey = p->len >= BTH_LEN + DETH_LEN;
	uint32_t key = which == TRAP_BAD_QKEY && has_qkey ? get_be32(p->bth + BTH_LEN) : bth_pkey(p->bth);
	uint8_t *d = raise(end->regs->agent, which);

	if (d)
		put_ends(d, p, key, 4);
}

void trap_switch_bad_pkey(struct subnet_port *p, const struct packet *packet)
{
	uint8_t *d = raise(p->regs->agent, TRAP_SWITCH_BAD_PKEY);

	if (!d)
		return;
	put_be16(d, 0x003f | (packet->has_grh ? 0x00c0 : 0)); /* which of the eight that follow are valid */
	put_ends(d, packet, bth_pkey(packet->bth), 2);
	put_be16(d + 48, end_port(p)->shared->lid);
	d[50] = p->num;
}

/* ---- telling ---- */
static void send_trap(struct subnet *s, struct port_agent *a, const struct trap_slot *t)
{
	const struct fabric_port *f = a->port->shared;
	const struct mad_hdr hdr = {MAD_BASE_VERSION, MAD_CLASS_SUBN, SMP_CLASS_VERSION, MAD_METHOD_TRAP, 0,
		0, t->tid, SMP_NOTICE, 0};
	const struct packet_addr to = {
		.slid = f->lid, .dlid = f->sm_lid, .sl = f->sm_sl, .pkey = PKEY_DEFAULT, .dqpn = SMI_QPN};
	uint8_t mad[MAD_LEN] = {0}, room[PACKET_MAD_LEN];
	struct packet p;

	mad_hdr_put(mad, &hdr);
	memcpy(mad + SMP_DATA, t->notice, NOTICE_LEN);
	packet_mad_make(&p, room, &to, mad);
	forward_travel(s, originate(s, a->port, &p), &p);
}

static void expire_slot(struct subnet *s, struct port_agent *a, struct trap_slot *t)
{
	if (!t->pending || t->due > s->now)
		return;
	if (!a->port->shared->sm_lid) {
		t->pending = false;
		return;
	}
	if (a->gate > s->now) {
		t->due = a->gate;
		return;
	}
	a->gate = s->now + interval(a) / 64;
	t->sent = s->now;
	t->due = s->now + interval(a);
	send_trap(s, a, t);
}

void trap_expire(struct subnet *s, struct port_agent *a)
{
	for (unsigned i = 0; i < TRAP_SLOTS; i++)
		expire_slot(s, a, &a->trap[i]);
	for (unsigned i = 0; i < TRAP_SLOTS; i++)
		if (a->trap[i].pending)
			agent_arm(s, a, a->trap[i].due);
}

void trap_repress(struct port_agent *a, const uint8_t *smp)
{
	uint64_t tid = get_be64(smp + 8);

	for (unsigned i = 0; i < TRAP_SLOTS; i++) {
		struct trap_slot *t = &a->trap[i];

		if (t->tid != tid || !tid)
			continue;
		t->pending = false;
		t->sent = 0; /* it has been heard: the next one may go at once */
	}
}

bool trap_first(const struct port_agent *a, uint8_t notice[NOTICE_LEN])
{
	for (unsigned i = 0; i < TRAP_SLOTS; i++)
		if (a->trap[i].pending) {
			memcpy(notice, a->trap[i].notice, NOTICE_LEN);
			return true;
		}
	return false;
}
