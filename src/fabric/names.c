/* SPDX-License-Identifier: MIT */
#include "fabric/names.h"

#include "base/gid.h"

#include <string.h>

enum { VERSION = 1 };
#define MAGIC 0x61726e61u

size_t fabric_names_size(uint32_t nhosts, uint32_t nips)
{
	return sizeof(struct fabric_names) + nhosts * sizeof(struct fabric_host) +
	       nips * sizeof(struct fabric_ip);
}

struct fabric_names *fabric_names_init(void *zeroed, uint32_t nhosts, uint32_t nips)
{
	struct fabric_names *n = zeroed;

	*n = (struct fabric_names){.magic = MAGIC, .version = VERSION, .nhosts = nhosts, .nips = nips};
	return n;
}

bool fabric_names_are_whole(const struct fabric_names *n, size_t size)
{
	return size >= sizeof(*n) && n->magic == MAGIC && n->version == VERSION &&
	       fabric_names_size(n->nhosts, n->nips) == size;
}

struct fabric_host *fabric_names_host(const struct fabric_names *n, uint32_t i)
{
	return i < n->nhosts ? (struct fabric_host *)(uintptr_t)(n + 1) + i : NULL;
}

struct fabric_ip *fabric_names_ip(const struct fabric_names *n, uint32_t i)
{
	struct fabric_host *behind = (struct fabric_host *)(uintptr_t)(n + 1) + n->nhosts;

	return i < n->nips ? (struct fabric_ip *)behind + i : NULL;
}

/* ---- looking ---- */
static bool is_of(const struct fabric_ip *ip, bool v6)
{
	return gid_is_v4(ip->addr) != v6;
}

const struct fabric_ip *fabric_names_find(const struct fabric_names *n, const uint8_t addr[16])
{
	for (uint32_t i = 0; i < n->nips; i++)
		if (gid_same(fabric_names_ip(n, i)->addr, addr))
			return fabric_names_ip(n, i);
	return NULL;
}

const struct fabric_ip *fabric_names_of_port(const struct fabric_names *n, uint32_t port, bool v6)
{
	for (uint32_t i = 0; i < n->nips; i++)
		if (fabric_names_ip(n, i)->port == port && is_of(fabric_names_ip(n, i), v6))
			return fabric_names_ip(n, i);
	return NULL;
}

const struct fabric_ip *fabric_names_of_host(const struct fabric_names *n, const char *name, bool v6)
{
	for (uint32_t i = 0; i < n->nips; i++) {
		const struct fabric_ip *ip = fabric_names_ip(n, i);
		const struct fabric_host *h = fabric_names_host(n, ip->host);

		if (h && is_of(ip, v6) && !strncmp(h->name, name, sizeof(h->name)))
			return ip;
	}
	return NULL;
}
