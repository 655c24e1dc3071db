/* SPDX-License-Identifier: MIT */
#include "fabric/clear.h"

#include "base/fence.h"
#include "fabric/walk.h"

static uint32_t host_of(const struct fabric_table *t, uint32_t slot)
{
	const struct fabric_program *p = fabric_program(t, slot);

	return p ? p->host : 0;
}

/* The port with this LID, if it is of this host. */
static const struct fabric_port *port_of(const struct fabric_table *t, uint32_t host, uint16_t lid)
{
	const struct fabric_port *p = fabric_port(t, fabric_lid_port(t, lid));

	return p && host && p->host == host && fabric_port_has_lid(p, lid) ? p : NULL;
}

/* ---- a path ---- */
static bool may_send(const struct fabric_port *own, const struct fabric_path_of *p)
{
	return own->state == PORT_ACTIVE && fabric_port_has_lid(own, p->slid) &&
	       fabric_port_has_pkey(own, p->pkey) && (!p->sgid || fabric_port_has_gid(own, p->sgid));
}

static bool arrives(
	const struct fabric_table *t, uint32_t from, uint32_t to, uint16_t dlid, const struct walk_for *what)
{
	struct walk w;

	return fabric_walk(t, from, dlid, what, &w) == WALK_ARRIVED && w.port == to && w.plain;
}

/* What comes back is of a full member when we are a limited one, and of any when we are a full one. */
static bool leads_both_ways(const struct fabric_table *t, const struct fabric_path_of *p, uint32_t peer)
{
	struct walk_for what = {.pkey = p->pkey,
		.words = (uint16_t)((mtu_bytes(p->mtu) + LINK_HEADERS_MAX) / 4),
		.sl = p->sl};

	if (!arrives(t, p->port, peer, p->dlid, &what))
		return false;
	what.pkey |= PKEY_FULL;
	return arrives(t, peer, p->port, p->slid, &what);
}

static bool is_clear(const struct fabric_table *t, const struct fabric_path_of *p)
{
	const struct fabric_port *own = fabric_port(t, p->port),
				 *peer = port_of(t, host_of(t, p->slot), p->dlid);

	if (!own || !peer || peer->state != PORT_ACTIVE || !may_send(own, p) ||
		!fabric_port_takes_pkey(peer, p->pkey))
		return false;
	/* What a port sends to itself is on no cable. */
	return own == peer || leads_both_ways(t, p, fabric_lid_port(t, p->dlid));
}

/*
 * The table may be changed while we look, for as long as a sweep of the fabric's manager takes, or for ever
 * when the fabric is stopped. Then what it says now holds for this once, as for a packet that is on its way
 * through the switches meanwhile.
 */
bool fabric_is_clear(const struct fabric_table *t, const struct fabric_path_of *p, uint64_t *epoch)
{
	enum { TRIES = 3 };
	bool clear = false;

	for (int i = 0; i < TRIES; i++) {
		*epoch = fabric_epoch(t);
		clear = is_clear(t, p);
		fence_acquire();
		if (!(*epoch & 1) && fabric_epoch(t) == *epoch)
			return clear;
	}
	*epoch = FABRIC_NO_EPOCH;
	return clear;
}

/* ---- the program at the other end ---- */
uint32_t fabric_host_of(const struct fabric_table *t, uint32_t slot, int pid)
{
	const struct fabric_program *p = fabric_program(t, slot);

	return p && pid && p->pid == pid ? p->host : 0;
}

bool fabric_is_anothers(const struct fabric_table *t, uint32_t slot, int pid)
{
	const struct fabric_program *p = fabric_program(t, slot);

	return p && p->host && p->pid != pid;
}

bool fabric_may_claim(const struct fabric_table *t, uint32_t host, uint32_t to, const struct fabric_claim *c)
{
	const struct fabric_port *sender = port_of(t, host, c->slid);

	return sender && port_of(t, host_of(t, to), c->dlid) &&
	       (!c->sgid || fabric_port_has_gid(sender, c->sgid));
}
