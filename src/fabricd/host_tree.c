/* SPDX-License-Identifier: MIT */
/* What the device files of a host say, out of the subnet: LIDs, states, P_Keys. */
#include "fabricd/host_tree.h"

#include "fabric/shared.h"
#include "sysfs/sysfs.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A port and the tables that its files are made of. */
struct described {
	struct sysfs_gid gid[FABRIC_GUIDS];
	char issm[PATH_MAX], counters[PATH_MAX], rate[40];
};

/* Width and speed, as the kernel says them: 100 Gb/s are 4X EDR, 2X HDR or 1X NDR. */
static void describe_rate(const struct fabric_port *p, char *buf, size_t len)
{
	struct speed {
		unsigned tenths; /* of a Gb/s */
		const char *name;
	};
	static const struct speed plain[] = {{25, ""}, {50, " DDR"}, {100, " QDR"}},
				  ext[] = {{140, " FDR"}, {250, " EDR"}, {500, " HDR"}, {1000, " NDR"}};
	static const uint8_t lanes[] = {1, 4, 8, 12, 2};
	unsigned width = lanes[p->width ? (unsigned)__builtin_ctz(p->width) % 5 : 0];
	const struct speed *s = &plain[0];

	if (p->speed_ext)
		s = &ext[(unsigned)__builtin_ctz(p->speed_ext) % 4];
	else if (p->speed)
		s = &plain[(unsigned)__builtin_ctz(p->speed) % 3];
	snprintf(buf, len, "%u%s Gb/sec (%uX%s)", s->tenths * width / 10, s->tenths * width % 10 ? ".5" : "",
		width, s->name);
}

static void describe_gids(const struct subnet_port *p, struct described *to)
{
	for (unsigned i = 0; i < FABRIC_GUIDS; i++) {
		uint64_t guid = i ? p->shared->guid[i] : p->guid;

		memset(&to->gid[i], 0, sizeof(to->gid[i]));
		if (!guid)
			continue;
		put_be64(to->gid[i].raw, p->shared->prefix);
		put_be64(to->gid[i].raw + 8, guid);
	}
}

static struct sysfs_port describe_port(
	const struct subnet_port *p, int number, const char *dir, struct described *to)
{
	const struct fabric_port *s = p->shared;

	describe_gids(p, to);
	describe_rate(s, to->rate, sizeof(to->rate));
	snprintf(to->counters, sizeof(to->counters), "%s/counters%d", dir, number);
	snprintf(to->issm, sizeof(to->issm), "%s/issm%d", dir, number);
	return (struct sysfs_port){.num = p->num,
		.state = s->state,
		.phys_state = s->phys,
		.link_layer = "InfiniBand",
		.lid = s->lid,
		.sm_lid = s->sm_lid,
		.lmc = s->lmc,
		.sm_sl = s->sm_sl,
		.cap_mask = s->cap_mask,
		.rate = to->rate,
		.ngids = FABRIC_GUIDS,
		.gids = to->gid,
		.npkeys = FABRIC_PKEYS,
		.pkeys = s->pkey,
		.counters = to->counters,
		.mad_index = number,
		.issm = to->issm};
}

int host_tree_write(const struct fabricd *d, const struct topo_host *h, const char *dir)
{
	struct sysfs_dev *devs = calloc(h->nhcas, sizeof(*devs));
	struct described *parts;
	struct sysfs_port *ports;
	char(*descs)[PATH_MAX] = calloc(h->nhcas, sizeof(*descs));
	unsigned total = 0;
	int n = 0, err = -ENOMEM;

	for (unsigned k = 0; k < h->nhcas; k++)
		total += h->hca[k]->nports;
	ports = calloc(total, sizeof(*ports));
	parts = calloc(total, sizeof(*parts));
	if (!devs || !ports || !parts || !descs)
		goto out;
	for (unsigned k = 0; k < h->nhcas; k++) {
		const struct subnet_node *hca = h->hca[k];

		devs[k] = (struct sysfs_dev){.desc = descs[k],
			.index = (int)k,
			.node_guid = htobe64(hca->guid),
			.sys_guid = htobe64(hca->sys_guid),
			.node_type = "1: CA",
			.nports = (int)hca->nports,
			.ports = ports + n};
		snprintf(devs[k].name, sizeof(devs[k].name), "ib%u", k);
		snprintf(descs[k], sizeof(descs[k]), "%s/node_desc%u", dir, k);
		for (unsigned p = 1; p <= hca->nports; p++, n++)
			ports[n] = describe_port(&hca->port[p], n, dir, &parts[n]);
	}
	err = sysfs_update_in(dir, devs, (int)h->nhcas);
out:
	free(devs);
	free(descs);
	free(ports);
	free(parts);
	return err;
}
