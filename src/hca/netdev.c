/* SPDX-License-Identifier: MIT */
#include "hca/netdev.h"

#include "base/fd.h"
#include "base/gid.h"

#include <endian.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- reading ---- */
static void read_mtu(struct hca_netdevs *all)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (int i = 0; i < all->n; i++) {
		struct ifreq r;

		memset(&r, 0, sizeof(r));
		memcpy(r.ifr_name, all->dev[i].name, sizeof(r.ifr_name));
		all->dev[i].mtu = fd < 0 || ioctl(fd, SIOCGIFMTU, &r) ? 1500 : (unsigned)r.ifr_mtu;
	}
	if (fd >= 0)
		close(fd);
}

static struct hca_netdev *netdev_named(struct hca_netdevs *all, const char *name, unsigned flags)
{
	struct hca_netdev *d;

	for (int i = 0; i < all->n; i++) {
		if (!strcmp(all->dev[i].name, name))
			return &all->dev[i];
	}
	if (all->n == (int)(sizeof(all->dev) / sizeof(all->dev[0])))
		return NULL;
	d = &all->dev[all->n++];
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->ifindex = if_nametoindex(name);
	d->flags = flags;
	return d;
}

static void add_address(struct hca_netdev *d, const struct sockaddr *sa)
{
	uint8_t *g = d->addr[d->naddrs];

	if (d->naddrs == HCA_NETDEV_ADDRS)
		return;
	if (sockaddr_is_ip(sa)) {
		gid_of_sockaddr(sa, g);
		d->naddrs++;
	} else if (sa->sa_family == AF_PACKET) {
		const struct sockaddr_ll *ll = (const struct sockaddr_ll *)sa;

		d->has_mac = ll->sll_halen == 6 && !(d->flags & IFF_LOOPBACK);
		memcpy(d->mac, ll->sll_addr, 6);
	}
}

static void eui64(const uint8_t mac[6], uint8_t out[8])
{
	memcpy(out, mac, 3);
	memcpy(out + 5, mac + 3, 3);
	out[3] = 0xff;
	out[4] = 0xfe;
	out[0] ^= 2;
}

/* Order of the GID table: the EUI-64 link-local address, IPv4, other IPv6. */
static int address_rank(const struct hca_netdev *d, const uint8_t g[16])
{
	uint8_t ll[16] = {0xfe, 0x80};

	eui64(d->mac, ll + 8);
	if (d->has_mac && !memcmp(g, ll, 16))
		return 0;
	return gid_is_v4(g) ? 1 : 2;
}

static void sort_addresses(struct hca_netdev *d)
{
	for (int i = 1; i < d->naddrs; i++) {
		for (int k = i; k && address_rank(d, d->addr[k]) < address_rank(d, d->addr[k - 1]); k--) {
			uint8_t t[16];

			memcpy(t, d->addr[k], 16);
			memcpy(d->addr[k], d->addr[k - 1], 16);
			memcpy(d->addr[k - 1], t, 16);
		}
	}
}

int hca_netdevs_read(struct hca_netdevs *all)
{
	struct ifaddrs *list, *i;

	all->n = 0;
	if (getifaddrs(&list))
		return -errno;
	for (i = list; i; i = i->ifa_next) {
		struct hca_netdev *d =
			strchr(i->ifa_name, ':') ? NULL : netdev_named(all, i->ifa_name, i->ifa_flags);

		if (d && i->ifa_addr)
			add_address(d, i->ifa_addr);
	}
	freeifaddrs(list);
	read_mtu(all);
	for (int n = 0; n < all->n; n++)
		sort_addresses(&all->dev[n]);
	return 0;
}

/* ---- GUIDs ---- */
/* No hardware address: something stable for this host and boot. */
static uint64_t guid_without_mac(const char *name)
{
	uint64_t h = 0xcbf29ce484222325ull;
	char text[64] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (f) {
		if (!fgets(text, sizeof(text), f))
			text[0] = 0;
		fclose(f);
	}
	for (const char *p = text; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
	for (const char *p = name; *p; p++)
		h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
	return (h & ~(0x01ull << 56)) | 0x02ull << 56; /* locally administered */
}

uint64_t hca_netdev_guid(const struct hca_netdev *d)
{
	uint64_t guid;

	if (!d->has_mac)
		return guid_without_mac(d->name);
	eui64(d->mac, (uint8_t *)&guid);
	return be64toh(guid);
}

/* ---- watching ---- */
int hca_netdevs_watch(void)
{
	struct sockaddr_nl sa = {
		.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
	int fd = fd_above_stdio(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

void hca_netdevs_drain(int fd)
{
	char buf[8192];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		; /* what changed does not matter: everything is read again */
}
