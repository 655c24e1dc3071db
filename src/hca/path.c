/* SPDX-License-Identifier: MIT */
#include "hca/path.h"

#include "base/log.h"
#include "hca/device.h"
#include "hca/port.h"

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

int hca_path_resolve(struct hca_device *d, const struct ibv_ah_attr *ah, struct hca_path *out)
{
	const struct ibv_global_route *g = &ah->grh;
	struct hca_port *port = hca_device_port(d, ah->port_num);
	uint8_t sgid[16];

	/* RoCE addresses are GIDs: without a GRH there is no address. */
	if (!ah->is_global)
		say_once("the program gives no GID to connect with, and RoCE needs one: pass a GID index "
			 "(often -g 0 or "
			 "-x 0); `anyrdma devices` lists them");
	if (!ah->is_global || !source_of(port, g, sgid))
		return EINVAL;
	if (gid_is_zero(g->dgid.raw) || gid_is_v4(sgid) != gid_is_v4(g->dgid.raw))
		return EINVAL;
	*out = (struct hca_path){.port = port, .sl = ah->sl, .mtu = hca_mtu_of(port->mtu)};
	memcpy(out->dest.sgid, sgid, 16);
	memcpy(out->dest.dgid, g->dgid.raw, 16);
	out->dest.ifindex = d->ifindex;
	out->dest.tclass = g->traffic_class;
	out->dest.hop_limit = g->hop_limit ? g->hop_limit : 64;
	return 0;
}
