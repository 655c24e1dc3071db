/* SPDX-License-Identifier: MIT */
/*
 * Packets between programs and the subnet. A program says by which port of its host a packet leaves, and with
 * which addresses; all of that is checked, since the ring is the program's memory as well: a packet has a
 * LID, a P_Key and a GID of that port, and is a queue pair's of that program, or a MAD of QP1 (gsi.c). What
 * reaches an adapter for other queue pairs than 0 and 1 goes to the program whose slot the queue pair's
 * number names.
 *
 * A packet is copied twice: out of the one ring, so that nobody changes it under the switches, and into the
 * other, once it has arrived.
 */
#include "fabricd/attach_parts.h"
#include "fabricd/umad_parts.h"

#include "base/clock.h"
#include "base/fence.h"
#include "base/log.h"
#include "base/memfile.h"
#include "fabric/shared.h"
#include "subnet/packet.h"
#include "wire/qpn.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AT_ONCE = 64, ROUNDS = 32, LOOK_NS = 30 * 1000 };
_Static_assert((int)PACKET_BODY_MAX == (int)TRUNK_BYTES_MAX, "what fits a ring fits a link");

/* ---- life ---- */
int trunk_open(struct attach_conn *c)
{
	int fd = memfile_make("anyrdma-trunk", sizeof(struct trunk));

	if (fd < 0)
		return fd;
	c->trunk = memfile_map(fd, sizeof(struct trunk), PROT_READ | PROT_WRITE, NULL);
	if (!c->trunk) {
		close(fd);
		return -ENOMEM;
	}
	c->rx = (struct trunk_rx){.ring = &c->trunk->to_fabric};
	c->tx = (struct trunk_tx){.ring = &c->trunk->to_program};
	return fd;
}

void trunk_close(struct attach_conn *c)
{
	if (!c->trunk)
		return;
	tally_fold(c);
	c->all->slot[c->slot] = NULL;
	attach_tell(c, false);
	munmap(c->trunk, sizeof(*c->trunk));
	c->trunk = NULL;
}

/* ---- from programs ---- */
/* The port it leaves by, if it is one of the program's host. */
static struct subnet_port *port_of(const struct attach_conn *c, uint32_t index)
{
	struct subnet_port *p = index < c->all->nports ? c->all->port[index] : NULL;

	for (unsigned i = 0; p && i < c->host->nhcas; i++)
		if (c->host->hca[i] == p->node)
			return p;
	return NULL;
}

/* A datagram says which queue pair it is from. */
static bool is_own(const struct attach_conn *c, const uint8_t *bth, uint32_t len)
{
	if ((bth_opcode(bth) & IBT_SERVICE_MASK) != IBT_UD)
		return true;
	return len >= BTH_LEN + DETH_LEN && qpn_slot(get_be24(bth + BTH_LEN + 5)) == c->slot;
}

static bool may_send(const struct attach_conn *c, const struct subnet_port *from,
	const struct trunk_packet *t, const uint8_t *bth)
{
	if (t->len < BTH_LEN || t->len % 4 || !from || bth_dqpn(bth) == SMI_QPN ||
		(bth_dqpn(bth) != GSI_QPN && !is_own(c, bth, t->len)))
		return false;
	return fabric_port_has_lid(from->shared, t->slid) &&
	       fabric_port_has_pkey(from->shared, bth_pkey(bth)) &&
	       (!t->has_grh || fabric_port_has_gid(from->shared, t->grh.sgid));
}

/*
 * A switch gives no packet back by the port it came by: what a queue pair sends to its own group the adapter
 * gives to the others at its port (IBA 10.5). Those of a limited member are limited ones, too, and may not
 * hear it (IBA 10.9.3); nobody has done anything wrong.
 */
static void loop_back(struct fabricd *d, struct subnet_port *from, const struct packet *p)
{
	if (lid_is_mcast(p->lrh.dlid) && from->shared->state == PORT_ACTIVE &&
		fabric_port_takes_pkey(from->shared, bth_pkey(p->bth)))
		trunk_arrived(d, from, p);
}

static void send_packet(
	struct attach_conn *c, const struct trunk_packet *t, const uint8_t *bytes, uint64_t now)
{
	uint8_t body[TRUNK_BYTES_MAX];
	struct subnet_port *from = port_of(c, t->port);
	struct packet p;

	memcpy(body, bytes, t->len);
	if (!may_send(c, from, t, body)) {
		c->all->count.refused++;
		return;
	}
	p = (struct packet){.lrh = {.sl = t->sl & 15, .slid = t->slid, .dlid = t->dlid},
		.has_grh = t->has_grh,
		.bth = body,
		.len = t->len};
	if (t->has_grh) {
		p.grh = (struct grh){.tclass = t->tclass,
			.hop_limit = t->hop_limit,
			.flow_label = t->flow_label & 0xfffff};
		memcpy(p.grh.sgid, t->grh.sgid, 16);
		memcpy(p.grh.dgid, t->grh.dgid, 16);
	}
	packet_set_lengths(&p);
	if (bth_dqpn(body) != GSI_QPN) {
		loop_back(c->all->d, from, &p);
		subnet_inject(c->all->d->subnet, from, &p, now);
	} else if (!gsi_send(c, from, &p, now)) {
		c->all->count.refused++;
		return;
	}
	c->all->count.sent++;
}

static unsigned take_packets(struct attach_conn *c, uint64_t now)
{
	struct trunk_packet t;
	uint8_t *bytes;
	unsigned n = 0;
	int got = 0;

	while (n < AT_ONCE && (got = trunk_take(&c->rx, &t, &bytes)) > 0) {
		send_packet(c, &t, bytes, now);
		trunk_done(&c->rx);
		n++;
	}
	if (got < 0) {
		log_warn("a program wrote nonsense into its trunk, and is cut off");
		c->broken = true;
		shutdown(c->fd, SHUT_RDWR); /* the loop closes it */
	}
	return n;
}

void trunk_finish(struct attach_conn *c)
{
	enum {
		FULL = TRUNK_DATA / (2 * TRUNK_LINE) / AT_ONCE
	}; /* of the smallest; others may have the memory still */

	for (unsigned i = 0; i < FULL && c->trunk && !c->broken && take_packets(c, clock_ns()); i++)
		;
}

/* ---- to programs ---- */
void trunk_put(struct attach_conn *c, const struct subnet_port *at, const struct packet *p)
{
	struct trunk_packet t = {.port = at->index,
		.slid = p->lrh.slid,
		.dlid = p->lrh.dlid,
		.sl = p->lrh.sl,
		.has_grh = p->has_grh};
	struct trunk_packet *to = trunk_reserve(&c->tx, p->len);

	if (!to) {
		c->all->count.overruns++;
		return;
	}
	if (p->has_grh) {
		t.tclass = p->grh.tclass;
		t.hop_limit = p->grh.hop_limit;
		t.flow_label = p->grh.flow_label;
		memcpy(t.grh.sgid, p->grh.sgid, 16);
		memcpy(t.grh.dgid, p->grh.dgid, 16);
	}
	memcpy(to + 1, p->bth, p->len);
	trunk_commit(&c->tx, &t, p->len);
	c->all->count.received++;
	c->unrung = true;
}

bool trunk_is_on(const struct attach_conn *c, const struct subnet_port *at)
{
	for (unsigned i = 0; i < c->host->nhcas; i++)
		if (c->host->hca[i] == at->node)
			return true;
	return false;
}

/* A group's members are the programs' queue pairs: each program knows its own. */
static void put_to_all(struct attach *all, const struct subnet_port *at, const struct packet *p)
{
	list_for_each(n, &all->conns)
	{
		struct attach_conn *c = container_of(n, struct attach_conn, node);

		if (c->trunk && !c->broken && trunk_is_on(c, at))
			trunk_put(c, at, p);
	}
}

void trunk_arrived(struct fabricd *d, struct subnet_port *at, const struct packet *p)
{
	struct attach *all = d->attach;
	uint32_t qpn = bth_dqpn(p->bth);
	struct attach_conn *c;

	if (!all || at->node->type != SUBNET_CA)
		return;
	if (!fabric_port_takes_pkey(at->shared, bth_pkey(p->bth))) {
		subnet_bad_pkey(at, p, loop_now(d->loop));
		return;
	}
	if (qpn == QP_MULTICAST && lid_is_mcast(p->lrh.dlid)) {
		put_to_all(all, at, p);
		return;
	}
	/* That number and a group's LID go together: who the members are the switches know. */
	c = qpn == QP_MULTICAST || lid_is_mcast(p->lrh.dlid) ? NULL : all->slot[qpn_slot(qpn)];
	if (c && !c->broken && trunk_is_on(c, at))
		trunk_put(c, at, p);
	else
		all->count.unknown++;
}

static void ring_all(struct attach *all)
{
	list_for_each(n, &all->conns)
	{
		struct attach_conn *c = container_of(n, struct attach_conn, node);

		if (c->unrung && trunk_must_ring(&c->tx))
			fabric_ring(c->fd);
		c->unrung = false;
	}
}

/* ---- driving ---- */
static unsigned take_all(struct attach *all)
{
	uint64_t now = clock_ns();
	unsigned n = 0;

	list_for_each(l, &all->conns)
	{
		struct attach_conn *c = container_of(l, struct attach_conn, node);

		if (c->trunk && !c->broken)
			n += take_packets(c, now);
	}
	if (n)
		all->busy = now;
	if (all->d->umad)
		umad_qp_flush(all->d->umad);
	ring_all(all);
	return n;
}

/* Says so to all; false: somebody was faster. */
static bool fall_asleep(struct attach *all)
{
	bool nothing = true;

	list_for_each(l, &all->conns)
	{
		struct attach_conn *c = container_of(l, struct attach_conn, node);

		if (c->trunk && !c->broken)
			nothing &= trunk_sleep(&c->rx);
	}
	return nothing;
}

void trunk_before_sleep(void *arg, uint64_t now)
{
	struct attach *all = arg;

	for (unsigned i = 0; i < ROUNDS; i++)
		if (!take_all(all) && clock_ns() - all->busy > LOOK_NS)
			break;
	if (clock_ns() - all->busy <= LOOK_NS || !fall_asleep(all))
		loop_hurry(all->d->loop);
	sa_client_set_timer(all);
}
