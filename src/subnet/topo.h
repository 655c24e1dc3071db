/* SPDX-License-Identifier: MIT */
/*
 * What a description says besides nodes and cables: which adapters make up a host, its IP addresses, faults
 * that links begin with, and links that end at another site. Pure data; the nodes belong to the subnet.
 */
#ifndef SUBNET_TOPO_H
#define SUBNET_TOPO_H

#include "subnet/model.h"

enum {
	TOPO_ERROR = 192, /* bytes of a message */
	TOPO_MAX_NODES =
		16384, /* of one description: unicast LIDs end at 0xbfff, and switches use them too */
	TOPO_MAX_IPS = 2 * TOPO_MAX_NODES /* that it gives: each is looked for at each port */
};

/* A virtual machine: a name and one or more adapters, which its programs see as ib0, ib1, … */
struct topo_host {
	char name[SUBNET_NAME];
	struct subnet_node **hca;
	unsigned nhcas;
};

struct topo_ip {
	struct subnet_port *port;
	uint8_t addr[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t prefix;   /* of 128 bits */
};

struct topo_fault {
	struct subnet_port *port;
	char *what; /* as `anyrdma fabric inject` takes it */
};

struct topo_site {
	struct subnet_node *node;
	char *where;
};

struct topo {
	struct topo_host *host;
	struct topo_ip *ip;
	struct topo_fault *fault;
	struct topo_site *site;
	unsigned nhosts, nips, nfaults, nsites;
};

/* Why subnet_add() took no node, by its errno. */
const char *topo_why_not(int err);

void topo_fini(struct topo *t);

/*
 * Each adapter that no host has yet becomes a host of its own, named like it. Call it when all nodes are
 * there. 0; -ENOMEM; -EEXIST a host already has the name of a free adapter.
 */
int topo_complete(struct topo *t, struct subnet *s);

struct topo_host *topo_host(const struct topo *t, const char *name);
/* The host an adapter belongs to; NULL: none, or not an adapter. */
struct topo_host *topo_host_of(const struct topo *t, const struct subnet_node *hca);

/* 0, -ENOMEM, or -EBUSY: another host has this adapter. */
int topo_add_hca(struct topo *t, const char *host, struct subnet_node *hca);
int topo_add_ip(struct topo *t, struct subnet_port *port, const uint8_t addr[16], uint8_t prefix);
int topo_add_fault(struct topo *t, struct subnet_port *port, const char *what);
int topo_add_site(struct topo *t, struct subnet_node *node, const char *where);

/*
 * Gives each adapter port that has no address the next one of a range, port by port, hosts in order:
 * 10.47.0.1, 10.47.0.2, … 0; -ENOSPC the range is too small; -ENOMEM.
 */
int topo_number(struct topo *t, const uint8_t net[16], uint8_t prefix);

#endif
