/* SPDX-License-Identifier: MIT */
/*
 * Subnet management packets: the header behind that of every MAD, and the attributes (IBA volume 1, chapter
 * 14.2). The header of a directed route has D, HopPointer and HopCount where others have a status of 16 bits
 * and nothing.
 *
 *    0  MAD header (24)             4: D(1) status(15)   6: HopPointer   7: HopCount
 *   24  M_Key(64)
 *   32  DrSLID(16) DrDLID(16)       LID_PERMISSIVE: that part of the route is all directed
 *   64  attribute (64)
 *  128  InitialPath[64]             the ports to leave by; [0] is not used
 *  192  ReturnPath[64]              the ports it came in by
 */
#ifndef WIRE_SMP_H
#define WIRE_SMP_H

#include "wire/mad.h"

#include <stdbool.h>

enum {
	SMP_CLASS_VERSION = 1,
	SMP_STATUS = 4,
	SMP_HOP_PTR = 6,
	SMP_HOP_COUNT = 7,
	SMP_MKEY = 24,
	SMP_DR_SLID = 32,
	SMP_DR_DLID = 34,
	SMP_DATA = 64,
	SMP_DATA_LEN = 64,
	SMP_INITIAL_PATH = 128,
	SMP_RETURN_PATH = 192,
	SMP_PATH_LEN = 64,
	SMP_RETURNING = 0x8000, /* D: the answer, on its way back */
};

enum smp_attr {
	SMP_NOTICE = 0x0002,
	SMP_NODE_DESC = 0x0010,
	SMP_NODE_INFO = 0x0011,
	SMP_SWITCH_INFO = 0x0012,
	SMP_GUID_INFO = 0x0014,
	SMP_PORT_INFO = 0x0015,
	SMP_PKEY_TABLE = 0x0016,
	SMP_SL2VL = 0x0017,
	SMP_VL_ARB = 0x0018,
	SMP_LFT = 0x0019,
	SMP_MFT = 0x001b,
	SMP_SM_INFO = 0x0020,
	SMP_MLNX_PORT_INFO = 0xff90, /* Mellanox's own */
};

/* PortInfo.CapabilityMask */
enum {
	PORT_CAP_IS_SM = 1u << 1,
	PORT_CAP_NOTICE = 1u << 2,
	PORT_CAP_TRAP = 1u << 3,
	PORT_CAP_SL_MAPPING = 1u << 6,
	PORT_CAP_SYSTEM_IMAGE_GUID = 1u << 11,
	PORT_CAP_SWITCH_PKEY_TRAP = 1u << 12,
	PORT_CAP_EXTENDED_SPEEDS = 1u << 14,
	PORT_CAP_CM = 1u << 16,
	PORT_CAP_DR_NOTICE = 1u << 21,
	PORT_CAP_MASK_NOTICE = 1u << 22,
	PORT_CAP_REREGISTER = 1u << 25,
	PORT_CAP_OTHER_NOTICE = 1u << 26,
};

static inline bool smp_is_directed(const uint8_t *smp)
{
	return smp[1] == MAD_CLASS_SUBN_DIRECTED;
}

static inline bool smp_is_returning(const uint8_t *smp)
{
	return smp[SMP_STATUS] & SMP_RETURNING >> 8;
}

static inline uint64_t smp_mkey(const uint8_t *smp)
{
	return get_be64(smp + SMP_MKEY);
}

/* ---- NodeInfo ---- */
struct node_info {
	uint8_t node_type, nports, local_port;
	uint64_t sys_guid, node_guid, port_guid;
	uint16_t partition_cap, device_id;
	uint32_t revision, vendor_id;
};

static inline void node_info_put(uint8_t *p, const struct node_info *n)
{
	p[0] = MAD_BASE_VERSION;
	p[1] = SMP_CLASS_VERSION;
	p[2] = n->node_type;
	p[3] = n->nports;
	put_be64(p + 4, n->sys_guid);
	put_be64(p + 12, n->node_guid);
	put_be64(p + 20, n->port_guid);
	put_be16(p + 28, n->partition_cap);
	put_be16(p + 30, n->device_id);
	put_be32(p + 32, n->revision);
	p[36] = n->local_port;
	put_be24(p + 37, n->vendor_id);
}

static inline struct node_info node_info_get(const uint8_t *p)
{
	return (struct node_info){p[2], p[3], p[36], get_be64(p + 4), get_be64(p + 12), get_be64(p + 20),
		get_be16(p + 28), get_be16(p + 30), get_be32(p + 32), get_be24(p + 37)};
}

/* ---- SwitchInfo ---- */
struct switch_info {
	uint16_t linear_cap, random_cap, mcast_cap, linear_top;
	uint8_t default_port, default_mcast_primary, default_mcast_other;
	uint8_t life_time;
	bool state_change;
	uint16_t lids_per_port, enforce_cap;
	bool enforce_in, enforce_out;
	uint16_t mcast_top;
};

static inline void switch_info_put(uint8_t *p, const struct switch_info *s)
{
	put_be16(p, s->linear_cap);
	put_be16(p + 2, s->random_cap);
	put_be16(p + 4, s->mcast_cap);
	put_be16(p + 6, s->linear_top);
	p[8] = s->default_port;
	p[9] = s->default_mcast_primary;
	p[10] = s->default_mcast_other;
	p[11] = (uint8_t)(s->life_time << 3 | (s->state_change ? 4 : 0));
	put_be16(p + 12, s->lids_per_port);
	put_be16(p + 14, s->enforce_cap);
	p[16] = (uint8_t)((s->enforce_in ? 0x80 : 0) | (s->enforce_out ? 0x40 : 0));
	p[17] = 0;
	put_be16(p + 18, s->mcast_top);
}

static inline struct switch_info switch_info_get(const uint8_t *p)
{
	return (struct switch_info){get_be16(p), get_be16(p + 2), get_be16(p + 4), get_be16(p + 6), p[8],
		p[9], p[10], p[11] >> 3, p[11] & 4, get_be16(p + 12), get_be16(p + 14), p[16] & 0x80,
		p[16] & 0x40, get_be16(p + 18)};
}

/* ---- PortInfo ---- */
struct port_info {
	uint64_t mkey, prefix;
	uint16_t lid, sm_lid;
	uint32_t cap_mask;
	uint16_t diag, mkey_lease;
	uint8_t local_port;
	uint8_t width_enabled, width_supported, width_active;
	uint8_t speed_supported, state, phys, down_default;
	uint8_t mkey_protect, lmc, speed_active, speed_enabled;
	uint8_t mtu, sm_sl, vl_cap, init_type;
	uint8_t vl_high_limit, vl_arb_high_cap, vl_arb_low_cap, init_reply, mtu_cap;
	uint8_t vl_stall, hoq_life, vls;
	bool enforce_in, enforce_out;
	uint16_t mkey_violations, pkey_violations, qkey_violations;
	uint8_t guid_cap;
	bool reregister;
	uint8_t subnet_timeout, resp_time, phy_errors, overrun_errors;
	uint8_t speed_ext_active, speed_ext_supported, speed_ext_enabled;
};

/* In the attribute modifier: the subnet manager knows extended speeds. */
#define PORT_INFO_EXTENDED (1u << 31)

void port_info_put(uint8_t p[SMP_DATA_LEN], const struct port_info *i);
struct port_info port_info_get(const uint8_t p[SMP_DATA_LEN]);

#endif
