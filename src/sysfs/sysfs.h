/* SPDX-License-Identifier: MIT */
/* The files a kernel RDMA device would have in /sys and /dev, for programs that look there. */
#ifndef SYSFS_SYSFS_H
#define SYSFS_SYSFS_H

#include <stddef.h>
#include <stdint.h>

struct sysfs_gid {
	uint8_t raw[16]; /* all zeros: an empty slot of the table */
	char ndev[16];
};

struct sysfs_port {
	int num;        /* from 1 */
	int state;      /* enum ibv_port_state */
	int phys_state; /* 5 is LinkUp */
	const char *link_layer;
	uint16_t lid, sm_lid;
	uint8_t lmc, sm_sl;
	uint32_t cap_mask;
	unsigned rate_gbps;
	const char *rate; /* "100 Gb/sec (1X NDR)"; NULL: the usual width and speed of rate_gbps */
	int ngids;        /* the table's length, empty slots included */
	const struct sysfs_gid *gids;
	int npkeys;
	const uint16_t *pkeys; /* host order */
	const char *counters;  /* a directory, which is linked to; NULL: none */
	/* InfiniBand: N of umadN and issmN, and the file that stands for issmN. issm is NULL: it has neither.
	 */
	int mad_index;
	const char *issm;
};

struct sysfs_dev {
	char name[64];
	const char *desc;   /* a file, which is linked to as node_desc; NULL: "anyrdma NAME" */
	const char *netdev; /* NULL: none */
	int index;          /* N of uverbsN; -1: none */
	uint64_t node_guid,
		sys_guid; /* big-endian values, as ibv_get_device_guid() returns it; sys_guid 0: the same */
	const char *node_type; /* "1: CA" or "4: RNIC" */
	int nports;
	const struct sysfs_port *ports;
};

/* sysfs_root writes the path of the tree's root to buf (it holds class/ and dev/) and creates the
 * directory when it is not there. One tree per user and network namespace. Returns 0 or -errno. */
int sysfs_root(char *buf, size_t len);

/* sysfs_update brings the tree up to date with the n devices. Writes only when something changed; a
 * reader sees the old tree or the new one, never half of one. Any number of processes and threads may
 * call it at once: one writes, others wait for it, a second at most (-EBUSY). Returns 0 or -errno; a
 * caller can go on without the tree. */
int sysfs_update(const struct sysfs_dev *devs, int n);

/* The same for a tree in another directory, sys/ below it. */
int sysfs_update_in(const char *dir, const struct sysfs_dev *devs, int n);

#endif
