/* SPDX-License-Identifier: MIT */
/* PortInfo (IBA 14.2.5.6), byte by byte. */
#include "wire/smp.h"

static uint8_t nibbles(unsigned high, unsigned low)
{
	return (uint8_t)(high << 4 | (low & 15));
}

void port_info_put(uint8_t p[SMP_DATA_LEN], const struct port_info *i)
{
	memset(p, 0, SMP_DATA_LEN);
	put_be64(p, i->mkey);
	put_be64(p + 8, i->prefix);
	put_be16(p + 16, i->lid);
	put_be16(p + 18, i->sm_lid);
	put_be32(p + 20, i->cap_mask);
	put_be16(p + 24, i->diag);
	put_be16(p + 26, i->mkey_lease);
	p[28] = i->local_port;
	p[29] = i->width_enabled;
	p[30] = i->width_supported;
	p[31] = i->width_active;
	p[32] = nibbles(i->speed_supported, i->state);
	p[33] = nibbles(i->phys, i->down_default);
	p[34] = (uint8_t)(i->mkey_protect << 6 | (i->lmc & 7));
	p[35] = nibbles(i->speed_active, i->speed_enabled);
	p[36] = nibbles(i->mtu, i->sm_sl);
	p[37] = nibbles(i->vl_cap, i->init_type);
	p[38] = i->vl_high_limit;
	p[39] = i->vl_arb_high_cap;
	p[40] = i->vl_arb_low_cap;
	p[41] = nibbles(i->init_reply, i->mtu_cap);
	p[42] = (uint8_t)(i->vl_stall << 5 | (i->hoq_life & 31));
	p[43] = (uint8_t)(i->vls << 4 | (i->enforce_in ? 8 : 0) | (i->enforce_out ? 4 : 0));
	put_be16(p + 44, i->mkey_violations);
	put_be16(p + 46, i->pkey_violations);
	put_be16(p + 48, i->qkey_violations);
	p[50] = i->guid_cap;
	p[51] = (uint8_t)((i->reregister ? 0x80 : 0) | (i->subnet_timeout & 31));
	p[52] = i->resp_time & 31;
	p[53] = nibbles(i->phy_errors, i->overrun_errors);
	p[62] = nibbles(i->speed_ext_active, i->speed_ext_supported);
	p[63] = i->speed_ext_enabled & 31;
}

struct port_info port_info_get(const uint8_t p[SMP_DATA_LEN])
{
	return (struct port_info){
		.mkey = get_be64(p),
		.prefix = get_be64(p + 8),
		.lid = get_be16(p + 16),
		.sm_lid = get_be16(p + 18),
		.cap_mask = get_be32(p + 20),
		.diag = get_be16(p + 24),
		.mkey_lease = get_be16(p + 26),
		.local_port = p[28],
		.width_enabled = p[29],
		.width_supported = p[30],
		.width_active = p[31],
		.speed_supported = p[32] >> 4,
		.state = p[32] & 15,
		.phys = p[33] >> 4,
		.down_default = p[33] & 15,
		.mkey_protect = p[34] >> 6,
		.lmc = p[34] & 7,
		.speed_active = p[35] >> 4,
		.speed_enabled = p[35] & 15,
		.mtu = p[36] >> 4,
		.sm_sl = p[36] & 15,
		.vl_cap = p[37] >> 4,
		.init_type = p[37] & 15,
		.vl_high_limit = p[38],
		.vl_arb_high_cap = p[39],
		.vl_arb_low_cap = p[40],
		.init_reply = p[41] >> 4,
		.mtu_cap = p[41] & 15,
		.vl_stall = p[42] >> 5,
		.hoq_life = p[42] & 31,
		.vls = p[43] >> 4,
		.enforce_in = p[43] & 8,
		.enforce_out = p[43] & 4,
		.mkey_violations = get_be16(p + 44),
		.pkey_violations = get_be16(p + 46),
		.qkey_violations = get_be16(p + 48),
		.guid_cap = p[50],
		.reregister = p[51] & 0x80,
		.subnet_timeout = p[51] & 31,
		.resp_time = p[52] & 31,
		.phy_errors = p[53] >> 4,
		.overrun_errors = p[53] & 15,
		.speed_ext_active = p[62] >> 4,
		.speed_ext_supported = p[62] & 15,
		.speed_ext_enabled = p[63] & 31,
	};
}
