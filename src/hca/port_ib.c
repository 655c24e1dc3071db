/* SPDX-License-Identifier: MIT */
/* Ports of InfiniBand: what the table of the fabric says of one becomes attributes, GIDs and P_Keys. */
#include "base/bytes.h"
#include "fabric/shared.h"
#include "hca/device.h"
#include "hca/port.h"

#include <string.h>

_Static_assert(
	(int)FABRIC_PKEYS == (int)HCA_PKEY_TABLE && (int)FABRIC_GUIDS <= (int)HCA_GID_TABLE, "tables fit");

void hca_port_init_ib(struct hca_port *p, struct hca_device *d, uint8_t num, uint32_t index)
{
	hca_port_init(p, d, num);
	p->link_layer = IBV_LINK_LAYER_INFINIBAND;
	p->ngids = FABRIC_GUIDS;
	p->npkeys = FABRIC_PKEYS;
	p->ib = (struct hca_port_ib){.index = index,
		.state = IBV_PORT_DOWN,
		.phys = PHYS_POLLING,
		.mtu = IBV_MTU_256,
		.max_mtu = IBV_MTU_4096};
}

static bool gids_follow(struct hca_port *p, const struct fabric_port *from)
{
	bool changed = false;

	lock_take(&p->gid_lock);
	for (unsigned i = 0; i < FABRIC_GUIDS; i++) {
		uint8_t gid[16] = {0};

		if (from->guid[i]) {
			put_be64(gid, from->prefix);
			put_be64(gid + 8, from->guid[i]);
		}
		changed |= memcmp(gid, p->gid[i].raw, 16) != 0;
		memcpy(p->gid[i].raw, gid, 16);
	}
	lock_drop(&p->gid_lock);
	return changed;
}

static bool pkeys_follow(struct hca_port *p, const struct fabric_port *from)
{
	bool changed = false;

	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		changed |= atomic_exchange_explicit(&p->pkey[i], from->pkey[i], memory_order_relaxed) !=
			   from->pkey[i];
	return changed;
}

static bool lid_follows(struct hca_port *p, const struct fabric_port *from)
{
	uint32_t both = (uint32_t)from->lmc << 16 | from->lid; /* hca_port_lids() */

	return atomic_exchange_explicit(&p->lids, both, memory_order_relaxed) != both;
}

static bool sm_follows(struct hca_port *p, const struct fabric_port *from)
{
	bool changed = p->sm_lid != from->sm_lid || p->sm_sl != from->sm_sl;

	p->sm_lid = from->sm_lid;
	p->sm_sl = from->sm_sl;
	return changed;
}

static void copy_attributes(struct hca_port_ib *ib, const struct fabric_port *from)
{
	ib->state = from->state;
	ib->phys = from->phys;
	ib->mtu = from->mtu >= IBV_MTU_256 && from->mtu <= IBV_MTU_4096 ? from->mtu : IBV_MTU_256;
	ib->max_mtu = from->mtu_cap;
	ib->width = from->width;
	ib->speed = from->speed_ext ? (uint8_t)(from->speed_ext << 4)
				    : from->speed; /* as verbs have it: FDR 16, … */
	ib->vls = from->vls;
	ib->cap_mask = from->cap_mask;
}

unsigned hca_port_follow_ib(struct hca_port *p, const struct fabric_port *from)
{
	bool up = from && from->state == PORT_ACTIVE;
	unsigned changed = up != p->up ? HCA_PORT_STATE_CHANGED : 0;

	p->up = up;
	if (!from) {
		p->ib.state = IBV_PORT_DOWN;
		return changed;
	}
	copy_attributes(&p->ib, from);
	changed |= gids_follow(p, from) ? HCA_PORT_GIDS_CHANGED : 0;
	changed |= pkeys_follow(p, from) ? HCA_PORT_PKEYS_CHANGED : 0;
	changed |= lid_follows(p, from) ? HCA_PORT_LID_CHANGED : 0;
	changed |= sm_follows(p, from) ? HCA_PORT_SM_CHANGED : 0;
	changed |= from->reregisters != p->ib.reregisters ? HCA_PORT_REREGISTER : 0;
	p->ib.reregisters = from->reregisters;
	return changed;
}
