/* SPDX-License-Identifier: MIT */
/*
 * Who is who on a fabric: the names of its hosts, and the IP addresses of their ports. The description says
 * them, so they are the same as long as the fabric is up. The process that is the subnet writes them once;
 * programs map them (attach.h) and look.
 *
 *   header · hosts · addresses
 */
#ifndef FABRIC_NAMES_H
#define FABRIC_NAMES_H

#include "fabric/proto.h"

#include <stdbool.h>
#include <stddef.h>

struct fabric_host {
	char name[FABRIC_NAME];
};

struct fabric_ip {
	uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t port;    /* its index in the table (shared.h) */
	uint32_t host;
};

struct fabric_names {
	uint32_t magic, version;
	uint32_t nhosts, nips;
};

size_t fabric_names_size(uint32_t nhosts, uint32_t nips);
/* In zeroed memory of that size. */
struct fabric_names *fabric_names_init(void *zeroed, uint32_t nhosts, uint32_t nips);
/* Whether memory of so many bytes holds what its header says. */
bool fabric_names_are_whole(const struct fabric_names *n, size_t size);

/* NULL beyond the end. */
struct fabric_host *fabric_names_host(const struct fabric_names *n, uint32_t i);
struct fabric_ip *fabric_names_ip(const struct fabric_names *n, uint32_t i);

/* ---- looking; NULL: there is none ---- */
const struct fabric_ip *fabric_names_find(const struct fabric_names *n, const uint8_t addr[16]);
/* The first address of a port or of a host, of this family. */
const struct fabric_ip *fabric_names_of_port(const struct fabric_names *n, uint32_t port, bool v6);
const struct fabric_ip *fabric_names_of_host(const struct fabric_names *n, const char *name, bool v6);

#endif
