/* SPDX-License-Identifier: MIT */
/* The devices as a program will see them: asked through the public verbs calls of our own library. */
#ifndef TOOL_DEVLIST_H
#define TOOL_DEVLIST_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_gid {
	int index;
	uint8_t raw[16];
	const char *type;
	char netdev[IF_NAMESIZE];
};

struct verbs_dev {
	char name[64];
	char netdev[IF_NAMESIZE]; /* of the first GID; "" when it has none */
	uint64_t guid;            /* big-endian */
	const char *state;
	const char *link_layer;
	bool active;
	int mtu, max_mtu; /* bytes */
	double rate_gbps;
	int ngids; /* used ones */
	struct verbs_gid *gids;
};

/* Loads libibverbs.so.1 from our directory and asks it. On success 0 and an array of n devices that
 * verbs_free() takes back; else -1 and a sentence in why. */
int verbs_load(struct verbs_dev **devs, int *n, char *why, size_t len);
void verbs_free(struct verbs_dev *devs, int n);

/* Has the library list its devices once, which makes it write its sysfs-like tree. */
void verbs_touch(void);

/* "fe80::1", or "192.0.2.1" for an IPv4-mapped GID. */
void verbs_gid_str(const uint8_t raw[16], char buf[INET6_ADDRSTRLEN]);

#endif
