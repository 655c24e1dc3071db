/* SPDX-License-Identifier: MIT */
#include "hca/port.h"

#include "base/gid.h"
#include "hca/device.h"
#include "hca/netdev.h"
#include "wire/ibt.h"

#include <errno.h>
#include <string.h>

enum { ROCE_OVERHEAD = 40 + 8 + 12 + 16 + 28 + 4 }; /* IPv6, UDP, BTH, extension headers, ICRC */

void hca_port_init(struct hca_port *p, struct hca_device *d, uint8_t num)
{
	memset(p, 0, sizeof(*p));
	p->dev = d;
	p->num = num;
	p->link_layer = IBV_LINK_LAYER_ETHERNET;
	p->ngids = HCA_GID_TABLE;
	p->npkeys = 1;
	p->pkey[0] = PKEY_DEFAULT;
	lock_init(&p->gid_lock);
	if (d->nports < num)
		d->nports = num;
}

struct hca_port *hca_device_port(struct hca_device *d, unsigned num)
{
	return num >= 1 && num <= d->nports ? &d->port[num - 1] : NULL;
}

/* ---- GIDs ---- */
/* gid_lock held */
static int find_gid(const struct hca_port *p, const uint8_t gid[16])
{
	assert_locked(&p->gid_lock);
	for (int i = 0; i < p->ngids && !gid_is_zero(gid); i++) {
		if (!memcmp(p->gid[i].raw, gid, 16))
			return i;
	}
	return -1;
}

int hca_port_gid_index(struct hca_port *p, const uint8_t gid[16])
{
	int index;

	lock_take(&p->gid_lock);
	index = find_gid(p, gid);
	lock_drop(&p->gid_lock);
	return index;
}

bool hca_port_is_at(struct hca_port *p, const uint8_t gid[16])
{
	uint16_t lid = hca_port_is_ib(p) ? gid_lid(gid) : 0;
	struct hca_lids own = hca_port_lids(p);

	return lid ? own.base && lid >> own.lmc == own.base >> own.lmc : hca_port_gid_index(p, gid) >= 0;
}

bool hca_port_gid(struct hca_port *p, unsigned index, uint8_t gid[16])
{
	if (index >= p->ngids)
		return false;
	lock_take(&p->gid_lock);
	memcpy(gid, p->gid[index].raw, 16);
	lock_drop(&p->gid_lock);
	return true;
}

/* gid_lock held */
static bool drop_gids(struct hca_port *p, const struct hca_netdev *nd)
{
	bool changed = false;

	assert_locked(&p->gid_lock);
	for (int i = 0; i < p->ngids; i++) {
		bool still = gid_is_zero(p->gid[i].raw);

		for (int k = 0; k < nd->naddrs && !still; k++)
			still = !memcmp(p->gid[i].raw, nd->addr[k], 16);
		if (!still) {
			memset(p->gid[i].raw, 0, 16);
			changed = true;
		}
	}
	return changed;
}

/* gid_lock held */
static bool add_gid(struct hca_port *p, const uint8_t gid[16])
{
	assert_locked(&p->gid_lock);
	if (find_gid(p, gid) >= 0)
		return false;
	for (int i = 0; i < p->ngids; i++) {
		if (gid_is_zero(p->gid[i].raw)) {
			memcpy(p->gid[i].raw, gid, 16);
			return true;
		}
	}
	return false;
}

static bool gids_follow(struct hca_port *p, const struct hca_netdev *nd)
{
	bool changed;

	lock_take(&p->gid_lock);
	changed = drop_gids(p, nd);
	for (int k = 0; k < nd->naddrs; k++)
		changed |= add_gid(p, nd->addr[k]);
	lock_drop(&p->gid_lock);
	return changed;
}

unsigned hca_port_follow(struct hca_port *p, const struct hca_netdev *nd)
{
	bool up = nd && (nd->flags & IFF_UP) && (nd->flags & IFF_RUNNING);
	unsigned changed = up != p->up ? HCA_PORT_STATE_CHANGED : 0;

	p->up = up;
	if (!nd)
		return changed;
	p->mtu = nd->mtu;
	return changed | (gids_follow(p, nd) ? HCA_PORT_GIDS_CHANGED : 0);
}

/* ---- P_Keys ---- */
bool hca_port_pkey(const struct hca_port *p, unsigned index, uint16_t *pkey)
{
	if (index >= p->npkeys)
		return false;
	*pkey = atomic_load_explicit(&p->pkey[index], memory_order_relaxed);
	return true;
}

int hca_port_pkey_index(const struct hca_port *p, uint16_t pkey)
{
	for (int i = 0; i < p->npkeys; i++) {
		if (atomic_load_explicit(&p->pkey[i], memory_order_relaxed) == pkey)
			return i;
	}
	return -1;
}

/* ---- attributes ---- */
enum ibv_mtu hca_mtu_of(unsigned netdev_mtu)
{
	enum ibv_mtu mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && hca_mtu_bytes(mtu) + ROCE_OVERHEAD > netdev_mtu)
		mtu--;
	return mtu;
}

enum ibv_mtu hca_port_mtu(const struct hca_port *p)
{
	return hca_port_is_ib(p) ? (enum ibv_mtu)p->ib.mtu : hca_mtu_of(p->mtu);
}

/* What the subnet manager and the cable say, instead of an interface. */
static void attr_of_ib(const struct hca_port *p, struct ibv_port_attr *attr)
{
	attr->state = p->ib.state;
	attr->phys_state = p->ib.phys;
	attr->max_mtu = p->ib.max_mtu;
	attr->port_cap_flags = p->ib.cap_mask;
	attr->max_vl_num = p->ib.vls;
	attr->active_width = p->ib.width;
	attr->active_speed = p->ib.speed;
	attr->subnet_timeout = 18;
}

void hca_port_attr(const struct hca_port *p, struct ibv_port_attr *attr)
{
	*attr = (struct ibv_port_attr){
		.state = p->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = hca_port_mtu(p),
		.gid_tbl_len = p->ngids,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_REINIT_SUP | IBV_PORT_DEVICE_MGMT_SUP |
				  IBV_PORT_VENDOR_CLASS_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = HCA_MAX_MSG,
		.pkey_tbl_len = p->npkeys,
		.lid = hca_port_lids(p).base,
		.sm_lid = p->sm_lid,
		.lmc = hca_port_lids(p).lmc,
		.sm_sl = p->sm_sl,
		.max_vl_num = 1,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* 25 Gb/s a lane: no wire sets a limit */
		.phys_state = p->up ? 5 : 3,
		.link_layer = p->link_layer,
	};
	if (hca_port_is_ib(p))
		attr_of_ib(p, attr);
}
