/* SPDX-License-Identifier: MIT */
#include "mad/gsi_parts.h"

#include "hca/adapter.h"
#include "host/ports.h"

#include <errno.h>

/* The place of the class's router; -1: it has none. */
static int router_of(const struct mad_gsi *g, const uint8_t mad[MAD_LEN])
{
	for (int i = 0; i < MAD_ROUTERS && g->route[i].router; i++) {
		if (g->route[i].router->mgmt_class == mad_hdr_get(mad).mgmt_class)
			return i;
	}
	return -1;
}

static enum mad_whom whom(struct mad_gsi *g, const uint8_t mad[MAD_LEN], const struct mad_from *from,
	uint64_t now, uint32_t *slot)
{
	int i = router_of(g, mad);

	if (i < 0)
		return MAD_FOR_NOBODY;
	return g->route[i].router->route(g->route[i].state, g->adapter->ports, mad, from, now, slot);
}

/* false: nobody is there. Who is, but has no room, gets it later, or when its sender tries again. */
static bool hand_over(struct mad_gsi *g, uint32_t slot, const struct frame_in *in, uint64_t now)
{
	struct hca_adapter *a = g->adapter;
	int err = mad_late_waits(g, slot) ? -EAGAIN : hca_engine_hand_over(&a->engine, slot, in, true);

	if (err && err != -EAGAIN)
		return false;
	if (err && mad_late_keep(g, slot, in, now))
		return true;
	mad_tell_handed(a, slot, !err);
	return true;
}

static void hand_to_listeners(struct hca_adapter *a, const struct frame_in *in)
{
	struct slots slots;
	int err;

	host_ports_listeners(a->ports, &slots);
	for (uint32_t slot = 1; slot < QPN_SLOTS; slot++) {
		if (slot == a->slot || !slots_has(&slots, slot))
			continue;
		err = hca_engine_hand_over(&a->engine, slot, in, false);
		if (!err || err == -EAGAIN)
			mad_tell_handed(a, slot, !err);
	}
}

bool mad_route(struct mad_gsi *g, const struct frame_in *in, const uint8_t mad[MAD_LEN],
	const struct mad_from *from, uint64_t now)
{
	struct hca_adapter *a = g->adapter;
	uint32_t slot = a->slot;

	/* Whoever handed it over has asked who it is for: a second opinion could send it round in circles. */
	switch (in->handed ? MAD_FOR_SLOT : whom(g, mad, from, now, &slot)) {
	case MAD_FOR_SLOT:
		if (slot != a->slot && hand_over(g, slot, in, now))
			return false;
		/* Another's that cannot be handed over: it is dead by now. */
		if (slot == a->slot)
			mad_probe(a, MAD_RX, mad);
		else
			mad_probe(a, MAD_UNCLAIMED, mad);
		break;
	case MAD_FOR_LISTENERS:
		hand_to_listeners(a, in);
		mad_probe(a, MAD_RX, mad);
		break;
	case MAD_FOR_NOBODY:
		mad_probe(a, MAD_UNCLAIMED, mad);
		break;
	case MAD_LOST:
		hca_adapter_probe(a, MAD_DROP, .why = "the port file is being mended");
		hca_engine_look(&a->engine, false);
		return false;
	}
	return true;
}

uint32_t mad_addressee(const struct mad_gsi *g, const uint8_t mad[MAD_LEN])
{
	int i = router_of(g, mad);

	return i < 0 ? 0 : g->route[i].router->addressee(mad);
}

bool mad_refuse(const struct mad_gsi *g, const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN])
{
	int i = router_of(g, mad);

	return i >= 0 && g->route[i].router->refuse(mad, answer);
}
