/* SPDX-License-Identifier: MIT */
/* The names and IP addresses of the description, for programs to map. */
#include "fabric/names.h"

#include "base/memfile.h"
#include "fabricd/attach_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void fill(struct fabric_names *n, const struct topo *t)
{
	for (uint32_t i = 0; i < n->nhosts; i++)
		snprintf(fabric_names_host(n, i)->name, FABRIC_NAME, "%s", t->host[i].name);
	for (uint32_t i = 0; i < n->nips; i++) {
		const struct topo_host *h = topo_host_of(t, t->ip[i].port->node);
		struct fabric_ip *ip = fabric_names_ip(n, i);

		memcpy(ip->addr, t->ip[i].addr, 16);
		ip->port = t->ip[i].port->index;
		ip->host = h ? (uint32_t)(h - t->host) : n->nhosts;
	}
}

int attach_names(const struct topo *t, size_t *size)
{
	size_t len = fabric_names_size(t->nhosts, t->nips);
	int fd = memfile_make("anyrdma-names", len);
	void *at = fd < 0 ? NULL : memfile_map(fd, len, PROT_READ | PROT_WRITE, NULL);

	if (fd < 0)
		return fd;
	if (!at) {
		close(fd);
		return -ENOMEM;
	}
	fill(fabric_names_init(at, t->nhosts, t->nips), t);
	munmap(at, len);
	*size = len;
	if (memfile_read_only(fd)) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

/* FNV-1a: the same for this host of a fabric of this name whenever it is up, and hardly any other's. */
uint32_t attach_host_tag(const struct fabricd *d, const struct topo_host *h)
{
	char both[2 * SUBNET_NAME + 2];
	uint32_t tag = 2166136261u;

	snprintf(both, sizeof(both), "%s/%s", d->name, h->name);
	for (const char *c = both; *c; c++)
		tag = (tag ^ (uint8_t)*c) * 16777619u;
	return tag ? tag : 1;
}
