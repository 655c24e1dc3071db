/* SPDX-License-Identifier: MIT */
/*
 * Ports, as IBA means them: where a device meets a network. A port has addresses (GIDs), partitions (P_Keys),
 * a state and an MTU; queue pairs and address handles belong to one. Those of RoCE and iWARP follow a network
 * interface, one port each device; those of InfiniBand what the subnet manager has set (port_ib.c).
 *
 * What rdma_cm binds to is another thing by the same name: host/ports.h.
 */
#ifndef HCA_PORT_H
#define HCA_PORT_H

#include "base/lock.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fabric_port;
struct hca_device;
struct hca_netdev;

enum {
	HCA_PORTS = 9,
	HCA_GID_TABLE = 32,
	HCA_PKEY_TABLE = 32
}; /* at most; those of Ethernet have 1, 32, 1 */

struct hca_gid {
	uint8_t raw[16]; /* all zero: empty slot */
};

/* What only a port of InfiniBand has, as the table of its fabric says (fabric/shared.h). */
struct hca_port_ib {
	_Atomic uint32_t index; /* in the table */
	_Atomic uint8_t mtu;    /* any thread reads these two, the others under the adapter's lock */
	uint8_t state, phys, max_mtu, width, speed, vls;
	uint32_t cap_mask;
	uint32_t reregisters; /* how often clients were asked to */
};

struct hca_port {
	struct hca_device *dev;
	uint8_t num;          /* from 1 on */
	uint8_t link_layer;   /* IBV_LINK_LAYER_* */
	bool up;              /* the adapter's lock */
	_Atomic unsigned mtu; /* of the interface, which it follows while others look */
	_Atomic uint32_t
		lids; /* hca_port_lids(). What a subnet manager sets: 0 on Ethernet, as are the next */
	uint16_t sm_lid;
	uint8_t sm_sl;
	struct hca_port_ib ib;
	uint16_t npkeys, ngids;                /* how long its tables are */
	_Atomic uint16_t pkey[HCA_PKEY_TABLE]; /* host order; entries change in place while others look */
	struct lock gid_lock;
	struct hca_gid gid[HCA_GID_TABLE]; /* under gid_lock; entries change in place */
};

#define for_each_port(p, d) for (struct hca_port *p = (d)->port; p < (d)->port + (d)->nports; p++)

/* A port on Ethernet: down, without addresses, in the default partition. The device has one more. */
void hca_port_init(struct hca_port *p, struct hca_device *d, uint8_t num);
/* By its number, as verbs have it; NULL: there is none. */
struct hca_port *hca_device_port(struct hca_device *d, unsigned num);

/* The same on InfiniBand: the port with this index in the fabric's table. */
void hca_port_init_ib(struct hca_port *p, struct hca_device *d, uint8_t num, uint32_t index);

enum {
	HCA_PORT_STATE_CHANGED = 1,
	HCA_PORT_GIDS_CHANGED = 2,
	HCA_PORT_LID_CHANGED = 4,
	HCA_PORT_SM_CHANGED = 8,
	HCA_PORT_PKEYS_CHANGED = 16,
	HCA_PORT_REREGISTER = 32,
};
/*
 * Takes over state, MTU and addresses of the interface; NULL: it is gone, and only the state changes. An
 * address that stays keeps its index. What changed: HCA_PORT_*_CHANGED. The adapter's lock.
 */
unsigned hca_port_follow(struct hca_port *p, const struct hca_netdev *nd);

/* The same on InfiniBand; NULL: the fabric is gone, and only the state changes. */
unsigned hca_port_follow_ib(struct hca_port *p, const struct fabric_port *from);

/* Its LIDs, as they were at one moment. Any thread. */
struct hca_lids {
	uint16_t base;
	uint8_t lmc;
};
static inline struct hca_lids hca_port_lids(const struct hca_port *p)
{
	uint32_t both = atomic_load_explicit(&p->lids, memory_order_relaxed);

	return (struct hca_lids){.base = (uint16_t)both, .lmc = (uint8_t)(both >> 16)};
}

/* Whether packets for this address are for this port: a GID of its own, or one made from its LIDs. Any
 * thread. */
bool hca_port_is_at(struct hca_port *p, const uint8_t gid[16]);
/* The entry, all zero when it is empty. false: the table is shorter. Any thread. */
bool hca_port_gid(struct hca_port *p, unsigned index, uint8_t gid[16]);
/* The index of a GID, -1 when the port does not have it. Any thread. */
int hca_port_gid_index(struct hca_port *p, const uint8_t gid[16]);
/* The entry, host order. false: the table is shorter. */
bool hca_port_pkey(const struct hca_port *p, unsigned index, uint16_t *pkey);
/* The index of exactly this key, -1 when the port does not have it. */
int hca_port_pkey_index(const struct hca_port *p, uint16_t pkey);
/* What QP1 uses, and who was told no other. */
static inline uint16_t hca_port_default_pkey(const struct hca_port *p)
{
	return atomic_load_explicit(&p->pkey[0], memory_order_relaxed);
}

/* The largest IBA MTU whose packets fit an interface. */
enum ibv_mtu hca_mtu_of(unsigned netdev_mtu);
static inline unsigned hca_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* The largest MTU of its packets. Any thread. */
enum ibv_mtu hca_port_mtu(const struct hca_port *p);
static inline bool hca_port_is_ib(const struct hca_port *p)
{
	return p->link_layer == IBV_LINK_LAYER_INFINIBAND;
}

/* The adapter's lock. */
void hca_port_attr(const struct hca_port *p, struct ibv_port_attr *attr);

#endif
