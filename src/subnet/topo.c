/* SPDX-License-Identifier: MIT */
#include "subnet/topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Arrays grow by doubling whenever their length is a power of two, so none has a field for its room. */
static void *grown(void *array, unsigned n, size_t size)
{
	return n & (n - 1) ? array : realloc(array, (n ? 2 * (size_t)n : 1) * size);
}

#define MAKE_ROOM(array, n)                                                                                  \
	({                                                                                                   \
		void *more = grown(array, n, sizeof(*(array)));                                              \
		if (more)                                                                                    \
			(array) = more;                                                                      \
		more ? 0 : -ENOMEM;                                                                          \
	})

const char *topo_why_not(int err)
{
	return err == EEXIST   ? "another one is called so"
	       : err == ENOSPC ? "all nodes together have more ports than a subnet may have"
			       : strerror(err);
}

void topo_fini(struct topo *t)
{
	for (unsigned i = 0; i < t->nhosts; i++)
		free(t->host[i].hca);
	for (unsigned i = 0; i < t->nfaults; i++)
		free(t->fault[i].what);
	for (unsigned i = 0; i < t->nsites; i++)
		free(t->site[i].where);
	free(t->host);
	free(t->ip);
	free(t->fault);
	free(t->site);
	*t = (struct topo){0};
}

struct topo_host *topo_host(const struct topo *t, const char *name)
{
	for (unsigned i = 0; i < t->nhosts; i++)
		if (!strcmp(t->host[i].name, name))
			return &t->host[i];
	return NULL;
}

struct topo_host *topo_host_of(const struct topo *t, const struct subnet_node *hca)
{
	for (unsigned i = 0; i < t->nhosts; i++)
		for (unsigned k = 0; k < t->host[i].nhcas; k++)
			if (t->host[i].hca[k] == hca)
				return &t->host[i];
	return NULL;
}

static struct topo_host *add_host(struct topo *t, const char *name)
{
	struct topo_host *h;

	if (strlen(name) >= SUBNET_NAME || MAKE_ROOM(t->host, t->nhosts))
		return NULL;
	h = &t->host[t->nhosts++];
	*h = (struct topo_host){0};
	strcpy(h->name, name);
	return h;
}

static int host_take(struct topo_host *h, struct subnet_node *hca)
{
	if (MAKE_ROOM(h->hca, h->nhcas))
		return -ENOMEM;
	h->hca[h->nhcas++] = hca;
	return 0;
}

int topo_add_hca(struct topo *t, const char *host, struct subnet_node *hca)
{
	struct topo_host *h = topo_host(t, host);

	if (topo_host_of(t, hca))
		return -EBUSY;
	if (!h)
		h = add_host(t, host);
	return h ? host_take(h, hca) : -ENOMEM;
}

int topo_add_ip(struct topo *t, struct subnet_port *port, const uint8_t addr[16], uint8_t prefix)
{
	if (MAKE_ROOM(t->ip, t->nips))
		return -ENOMEM;
	t->ip[t->nips] = (struct topo_ip){.port = port, .prefix = prefix};
	memcpy(t->ip[t->nips++].addr, addr, 16);
	return 0;
}

int topo_add_fault(struct topo *t, struct subnet_port *port, const char *what)
{
	char *copy = strdup(what);

	if (!copy || MAKE_ROOM(t->fault, t->nfaults)) {
		free(copy);
		return -ENOMEM;
	}
	t->fault[t->nfaults++] = (struct topo_fault){port, copy};
	return 0;
}

int topo_add_site(struct topo *t, struct subnet_node *node, const char *where)
{
	char *copy = strdup(where);

	if (!copy || MAKE_ROOM(t->site, t->nsites)) {
		free(copy);
		return -ENOMEM;
	}
	t->site[t->nsites++] = (struct topo_site){node, copy};
	return 0;
}

/* One byte per node says whose it is already: topo_host_of() for each of a thousand would take a while. */
int topo_complete(struct topo *t, struct subnet *s)
{
	unsigned named = t->nhosts; /* those of the description: few */
	uint8_t *taken = calloc(1, subnet_nodes(s) + 1);
	int err = taken ? 0 : -ENOMEM;

	for (unsigned i = 0; !err && i < named; i++)
		for (unsigned k = 0; k < t->host[i].nhcas; k++)
			taken[t->host[i].hca[k]->index] = 1;
	for (unsigned i = 0; !err && i < subnet_nodes(s); i++) {
		struct subnet_node *n = subnet_node(s, i);
		struct topo_host *h;

		if (n->type != SUBNET_CA || taken[i])
			continue;
		for (unsigned k = 0; k < named; k++)
			if (!strcmp(t->host[k].name, n->id))
				err = -EEXIST;
		if (err)
			break;
		h = add_host(t, n->id);
		err = h ? host_take(h, n) : -ENOMEM;
	}
	free(taken);
	return err;
}

/* Adds one to an address. False: it left the network. */
static bool count_up(uint8_t addr[16], const uint8_t net[16], unsigned prefix)
{
	for (int i = 15; i >= 0 && !++addr[i]; i--)
		;
	for (unsigned bit = 0; bit < prefix; bit++)
		if ((addr[bit / 8] ^ net[bit / 8]) & 0x80 >> bit % 8)
			return false;
	return true;
}

static bool address_taken(const struct topo *t, unsigned given, const uint8_t addr[16])
{
	for (unsigned i = 0; i < given; i++)
		if (!memcmp(t->ip[i].addr, addr, 16))
			return true;
	return false;
}

static bool port_has_address(const struct topo *t, unsigned given, const struct subnet_port *p)
{
	for (unsigned i = 0; i < given; i++)
		if (t->ip[i].port == p)
			return true;
	return false;
}

int topo_number(struct topo *t, const uint8_t net[16], uint8_t prefix)
{
	unsigned given = t->nips; /* by the description: few */
	uint8_t addr[16];

	memcpy(addr, net, sizeof(addr));
	for (unsigned i = 0; i < t->nhosts; i++)
		for (unsigned k = 0; k < t->host[i].nhcas; k++) {
			struct subnet_node *n = t->host[i].hca[k];

			for (unsigned p = 1; p <= n->nports; p++) {
				if (port_has_address(t, given, &n->port[p]))
					continue;
				do
					if (!count_up(addr, net, prefix))
						return -ENOSPC;
				while (address_taken(t, given, addr));
				if (topo_add_ip(t, &n->port[p], addr, prefix))
					return -ENOMEM;
			}
		}
	return 0;
}
