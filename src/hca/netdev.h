/* SPDX-License-Identifier: MIT */
/* Network interfaces as the kernel has them, which devices follow (hca/device.h). No lock; nothing blocks. */
#ifndef HCA_NETDEV_H
#define HCA_NETDEV_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

enum { HCA_NETDEVS = 64, HCA_NETDEV_ADDRS = 64 }; /* what goes beyond is left out */

struct hca_netdev {
	char name[IF_NAMESIZE];
	unsigned flags, mtu; /* IFF_* */
	uint32_t ifindex;
	uint8_t mac[6];
	bool has_mac;
	int naddrs;
	uint8_t addr[HCA_NETDEV_ADDRS][16]; /* in the order of a GID table: EUI-64 link-local, IPv4, IPv6 */
};

struct hca_netdevs {
	int n;
	struct hca_netdev dev[HCA_NETDEVS];
};

/* All interfaces, up or not: 0 or -errno. */
int hca_netdevs_read(struct hca_netdevs *all);
/* The EUI-64 of its hardware address, or else something stable for this host and boot; host order. */
uint64_t hca_netdev_guid(const struct hca_netdev *d);

/* A netlink socket that is readable when interfaces or addresses changed, the caller's to close; -errno. */
int hca_netdevs_watch(void);
/* Takes what it says, before they are read again. */
void hca_netdevs_drain(int fd);

#endif
