/* SPDX-License-Identifier: MIT */
/*
 * Devices: two per network interface that is up, roce_<netdev> and iwarp_<netdev>. They follow the interface:
 * its addresses make the GID table, its MTU the path MTU, its state the port state.
 */
#ifndef HCA_DEVICE_H
#define HCA_DEVICE_H

#include "base/frame.h"
#include "base/gid.h"
#include "base/list.h"
#include "hca/kind.h"
#include "hca/qp.h"

#include <infiniband/verbs.h>
#include <net/if.h>

enum { HCA_GID_TABLE = 32 };

struct hca_adapter;

/* Stock provider libraries look at `ops` behind an ibv_device to see whether it is theirs: it never is. */
struct hca_verbs_device {
	struct ibv_device ibv;
	const void *ops;
	int refcount;
	void *entry[2];
	void *sysfs;
	uint64_t core_support;
};

struct hca_gid {
	uint8_t raw[16]; /* all zero: empty slot */
};

struct hca_device {
	struct hca_verbs_device vd;
	struct hca_adapter *adapter;
	struct list node;
	char netdev[IF_NAMESIZE];
	uint32_t ifindex;
	_Atomic unsigned mtu; /* follows the interface while others look */
	bool up, gone, loopback;
	enum hca_kind kind;
	uint64_t guid; /* host order */
	struct lock gid_lock;
	struct hca_gid gid[HCA_GID_TABLE]; /* under gid_lock; entries change in place */
};

static inline struct hca_device *hca_device(struct ibv_device *d)
{
	return (struct hca_device *)d;
}

/* Reads the interfaces and brings adapter->devices up to date, raising GID and port events. */
int hca_devices_refresh(struct hca_adapter *a);
/* The socket of hca_netdevs_watch() is readable: refreshes, and tells QP1's agents. */
void hca_devices_changed(struct hca_adapter *a, int fd);

enum ibv_mtu hca_mtu_of(unsigned netdev_mtu);
static inline unsigned hca_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* The entry, or all zero. */
void hca_device_gid(struct hca_device *d, unsigned index, uint8_t gid[16]);
/* The index of a GID, -1 when the device does not have it. */
int hca_device_gid_index(struct hca_device *d, const uint8_t gid[16]);
/* Whether it is a device's address: not a broadcast, not a group. Answers can be sent from there. */
bool hca_devices_have(struct hca_adapter *a, const uint8_t gid[16]);
/* The interface that what this host sends to itself comes in by; 0: there is none. */
uint32_t hca_devices_loopback(struct hca_adapter *a);
/* Resolves an address vector: 0 or EINVAL */
int hca_device_resolve(struct hca_device *d, const struct ibv_ah_attr *ah, struct frame_dest *out);

void hca_device_attr(const struct hca_device *d, struct ibv_device_attr *attr);
void hca_port_attr(const struct hca_device *d, struct ibv_port_attr *attr);

#endif
