/* SPDX-License-Identifier: MIT */
#include "hca/path.h"

#include "base/log.h"
#include "fabric/clear.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/port.h"
#include "wire/lrh.h"

#include <errno.h>
#include <string.h>

/* The commonest mistake of a newcomer deserves a word; a program that probes does not deserve a flood. */
static void say_once(const char *what)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		log_warn("%s", what);
}

/* The source address that a vector names; false: none. */
static bool source_of(struct hca_port *p, const struct ibv_global_route *g, uint8_t sgid[16])
{
	if (!p || !hca_port_gid(p, g->sgid_index, sgid))
		return false;
	if (gid_is_zero(sgid))
		say_once("the program uses a GID index that is empty; `anyrdma devices` lists those that are "
			 "there");
	return !gid_is_zero(sgid);
}

/* ---- InfiniBand: a LID, and a GRH for who wants one ---- */
static bool is_ib_address(const struct ibv_ah_attr *ah)
{
	bool group = ah->is_global && gid_is_mcast(ah->grh.dgid.raw);

	return group ? lid_is_mcast(ah->dlid) : lid_is_unicast(ah->dlid);
}

static bool put_grh(struct hca_port *port, const struct ibv_global_route *g, struct frame_dest *to)
{
	to->has_grh = true;
	to->tclass = g->traffic_class;
	to->hop_limit = g->hop_limit;
	to->flow_label = g->flow_label & 0xfffff;
	memcpy(to->grh.dgid, g->dgid.raw, 16);
	return source_of(port, g, to->grh.sgid) && !gid_is_zero(to->grh.dgid);
}

static int resolve_ib(struct hca_port *port, const struct ibv_ah_attr *ah, struct hca_path *out)
{
	struct frame_dest *to = &out->dest;
	struct hca_lids own = hca_port_lids(port);

	if (!is_ib_address(ah))
		return EINVAL;
	*out = (struct hca_path){.port = port, .sl = ah->sl & 15, .mtu = hca_port_mtu(port)};
	to->ifindex = port->ib.index + 1;
	to->sl = ah->sl & 15;
	to->slid = (uint16_t)(own.base | (ah->src_path_bits & ((1u << own.lmc) - 1)));
	to->dlid = ah->dlid;
	if (ah->is_global && !put_grh(port, &ah->grh, to))
		return EINVAL;
	gid_of_lid(to->slid, to->sgid);
	if (lid_is_mcast(to->dlid))
		memcpy(to->dgid, to->grh.dgid, 16);
	else
		gid_of_lid(to->dlid, to->dgid);
	return 0;
}

void hca_path_walk(struct hca_path *p, uint32_t slot)
{
	const struct fabric_table *t = p->port->dev->adapter->table;

	p->clear = fabric_is_clear(t,
		&(struct fabric_path_of){.port = p->port->ib.index,
			.slid = p->dest.slid,
			.dlid = p->dest.dlid,
			.pkey = p->pkey,
			.sl = p->dest.sl,
			.mtu = p->mtu,
			.slot = slot,
			.sgid = p->dest.has_grh ? p->dest.grh.sgid : NULL},
		&p->epoch);
}

bool hca_path_may_be_shared(const struct hca_path *p, uint32_t slot)
{
	struct hca_adapter *a = p->port->dev->adapter;
	const struct fabric_program *there = fabric_program(a->table, slot);

	return hca_port_is_ib(p->port) ? there && there->host : hca_devices_have(a, p->dest.dgid);
}

/* ---- RoCE: a GRH, always ---- */
int hca_path_resolve(struct hca_device *d, const struct ibv_ah_attr *ah, struct hca_path *out)
{
	const struct ibv_global_route *g = &ah->grh;
	struct hca_port *port = hca_device_port(d, ah->port_num);
	uint8_t sgid[16];

	if (port && hca_port_is_ib(port))
		return resolve_ib(port, ah, out);

	/* RoCE addresses are GIDs: without a GRH there is no address. */
	if (!ah->is_global)
		say_once("the program gives no GID to connect with, and RoCE needs one: pass a GID index "
			 "(often -g 0 or "
			 "-x 0); `anyrdma devices` lists them");
	if (!ah->is_global || !source_of(port, g, sgid))
		return EINVAL;
	if (gid_is_zero(g->dgid.raw) || gid_is_v4(sgid) != gid_is_v4(g->dgid.raw))
		return EINVAL;
	*out = (struct hca_path){.port = port, .sl = ah->sl, .mtu = hca_port_mtu(port)};
	memcpy(out->dest.sgid, sgid, 16);
	memcpy(out->dest.dgid, g->dgid.raw, 16);
	out->dest.ifindex = d->ifindex;
	out->dest.tclass = g->traffic_class;
	out->dest.hop_limit = g->hop_limit ? g->hop_limit : 64;
	return 0;
}
