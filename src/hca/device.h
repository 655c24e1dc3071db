/* SPDX-License-Identifier: MIT */
/*
 * Devices: two per network interface that is up, roce_<netdev> and iwarp_<netdev>. Their port (hca/port.h)
 * follows the interface: its addresses make the GID table, its MTU the path MTU, its state the port state.
 * Or, where the program is on a host of a fabric, that host's adapters: ib0, ib1, … (device_ib.c).
 */
#ifndef HCA_DEVICE_H
#define HCA_DEVICE_H

#include "base/frame.h"
#include "base/gid.h"
#include "base/list.h"
#include "hca/kind.h"
#include "hca/port.h"
#include "hca/qp.h"

#include <infiniband/verbs.h>
#include <net/if.h>

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

struct hca_device {
	struct hca_verbs_device vd;
	struct hca_adapter *adapter;
	struct list node;
	char netdev[IF_NAMESIZE];
	uint32_t ifindex;
	bool gone, loopback;
	enum hca_kind kind;
	_Atomic uint64_t guid; /* host order; any thread */
	unsigned nports;
	struct hca_port port[HCA_PORTS]; /* by number: hca_device_port() */
};

static inline struct hca_device *hca_device(struct ibv_device *d)
{
	return (struct hca_device *)d;
}

/* Reads the interfaces and brings adapter->devices up to date, raising GID and port events. */
int hca_devices_refresh(struct hca_adapter *a);
/* A descriptor that is readable when that is worth while, the caller's to close; -errno. */
int hca_devices_watch(struct hca_adapter *a);
/* It is readable: refreshes, and tells QP1's agents. */
void hca_devices_changed(struct hca_adapter *a, int fd);

/*
 * The port that has this address, of the first kind of device that does; it stays. NULL: none of ours has it.
 */
struct hca_port *hca_devices_port(struct hca_adapter *a, const uint8_t gid[16]);
/* Whether it is a device's address: not a broadcast, not a group. Answers can be sent from there. */
static inline bool hca_devices_have(struct hca_adapter *a, const uint8_t gid[16])
{
	return hca_devices_port(a, gid);
}
/* The interface that what this host sends to itself comes in by; 0: there is none. */
uint32_t hca_devices_loopback(struct hca_adapter *a);

/* ---- device_ib.c ---- */
/* Brings the adapters of a fabric's host up to date. */
int hca_devices_refresh_ib(struct hca_adapter *a);
/* The same if the fabric has changed since: a look, mostly. Nothing elsewhere. */
void hca_devices_look(struct hca_adapter *a);
/* After fork, in the child: the fabric is the parent's. */
void hca_devices_abandon(struct hca_adapter *a);
/* ---- device.c, for it; the adapter's lock ---- */
/* Tells the programs that have it open what a port's follow() says. */
void hca_port_raise(struct hca_port *p, unsigned changed);

void hca_device_attr(const struct hca_device *d, struct ibv_device_attr *attr);

#endif
