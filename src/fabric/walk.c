/* SPDX-License-Identifier: MIT */
#include "fabric/walk.h"

enum walk_end fabric_takes(const struct fabric_port *in, const struct walk_for *what)
{
	if (in->state < (what->management ? PORT_INIT : PORT_ACTIVE))
		return WALK_DEAF;
	if (what->management || !(in->flags & FABRIC_PKEY_IN))
		return WALK_ARRIVED;
	/* A limited member sends its limited key, which is what the port's table has too: the membership is
	 * not asked. */
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		if (pkey_matches(in->pkey[i] | PKEY_FULL, what->pkey))
			return WALK_ARRIVED;
	return WALK_PKEY_IN;
}

enum walk_end fabric_route(
	const struct fabric_table *t, const struct fabric_port *in, uint16_t dlid, uint8_t *num)
{
	const struct fabric_switch *sw = fabric_switch(t, in->sw);

	if (!sw || !lid_is_unicast(dlid) || dlid > sw->top)
		return WALK_NO_ROUTE;
	*num = fabric_lft(t, in->sw, dlid);
	if (*num > sw->nports)
		return WALK_NO_ROUTE;
	return *num == in->num && *num ? WALK_RETURNS : WALK_ARRIVED;
}

static bool may_leave(const struct fabric_port *out, const struct walk_for *what)
{
	if (!(out->flags & FABRIC_PKEY_OUT))
		return true;
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		if (pkey_matches(out->pkey[i], what->pkey))
			return true;
	return false;
}

enum walk_end fabric_sends(const struct fabric_table *t, const struct fabric_port *out, unsigned in_num,
	const struct walk_for *what, uint8_t *vl)
{
	const struct fabric_row *row = fabric_row(t, out->sl2vl + in_num);

	*vl = VL_MANAGEMENT;
	if (what->management)
		return out->state < PORT_INIT ? WALK_INACTIVE : WALK_ARRIVED;
	if (row)
		*vl = (uint8_t)fabric_row_vl(row, what->sl);
	if (*vl >= fabric_vl_count(out->vls))
		return WALK_BAD_VL;
	if (out->state != PORT_ACTIVE)
		return WALK_INACTIVE;
	if (what->words * 4u > mtu_bytes(out->mtu) + LINK_HEADERS_MAX)
		return WALK_TOO_LONG;
	return may_leave(out, what) ? WALK_ARRIVED : WALK_PKEY_OUT;
}

/* Over the cable: the port at the other end, or NULL. */
static const struct fabric_port *cross(
	const struct fabric_table *t, const struct fabric_port *from, struct walk *w)
{
	const struct fabric_port *to = fabric_port(t, from->peer);

	if (to) {
		w->plain = w->plain && from->flags & to->flags & FABRIC_PLAIN;
		w->port = from->peer;
	}
	return to;
}

enum walk_end fabric_walk(const struct fabric_table *t, uint32_t from, uint16_t dlid,
	const struct walk_for *what, struct walk *out)
{
	const struct fabric_port *at = fabric_port(t, from);
	const struct fabric_switch *sw;
	unsigned in_num = 0;
	enum walk_end end;
	uint8_t num;

	*out = (struct walk){.port = from, .plain = true};
	if (!at)
		return WALK_INACTIVE;
	for (;;) {
		if (at->sw != FABRIC_NONE) { /* at a switch: to the port that it leaves by */
			end = fabric_route(t, at, dlid, &num);
			sw = fabric_switch(t, at->sw);
			if (end || !sw)
				return end;
			in_num = at->num;
			out->port = sw->first + num;
			at = fabric_port(t, out->port);
			if (!at || !num)
				return at && fabric_port_has_lid(at, dlid) ? WALK_ARRIVED : WALK_STRANGER;
			if (++out->hops > WALK_HOPS_MAX)
				return WALK_TOO_FAR;
		}
		end = fabric_sends(t, at, in_num, what, &out->vl);
		if (end)
			return end;
		at = cross(t, at, out);
		if (!at)
			return WALK_INACTIVE;
		end = fabric_takes(at, what);
		if (end)
			return end;
		if (at->sw == FABRIC_NONE)
			return fabric_port_has_lid(at, dlid) ? WALK_ARRIVED : WALK_STRANGER;
	}
}
