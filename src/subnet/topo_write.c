/* SPDX-License-Identifier: MIT */
#include "subnet/topo_write.h"

#include "base/gid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *topo_link_name(const struct subnet_link_caps *caps, char buf[16])
{
	static const char *const plain[] = {"SDR", "DDR", "QDR"}, *const ext[] = {"FDR", "EDR", "HDR", "NDR"};
	unsigned lanes = caps->width & 8    ? 12
			 : caps->width & 4  ? 8
			 : caps->width & 2  ? 4
			 : caps->width & 16 ? 2
					    : 1;
	const char *speed = "SDR";

	for (unsigned i = 0; i < 3; i++)
		if (caps->speed & 1u << i)
			speed = plain[i];
	for (unsigned i = 0; i < 4; i++)
		if (caps->speed_ext & 1u << i)
			speed = ext[i];
	snprintf(buf, 16, "%ux%s", lanes, speed);
	return buf;
}

static char letter(const struct subnet_node *n)
{
	return n->type == SUBNET_SWITCH ? 'S' : n->type == SUBNET_CA ? 'H' : 'R';
}

/* A quote in a description would end it early; ibnetdiscover writes a space there as well. */
static void put_desc(FILE *f, const struct subnet_node *n)
{
	fputc('"', f);
	for (const char *c = n->desc; *c; c++)
		fputc(*c == '"' || (unsigned char)*c < ' ' ? ' ' : *c, f);
	fputc('"', f);
}

static void put_ref(FILE *f, const struct subnet_node *n)
{
	fprintf(f, "\"%c-%016" PRIx64 "\"", letter(n), n->guid);
}

/* What both ends can do: a cable is as good as its worse end. */
static struct subnet_link_caps common(const struct subnet_port *a, const struct subnet_port *b)
{
	return (struct subnet_link_caps){a->caps.width & b->caps.width, a->caps.speed & b->caps.speed,
		a->caps.speed_ext & b->caps.speed_ext, 0};
}

static void put_port(FILE *f, const struct subnet_port *p)
{
	struct subnet_link_caps caps;
	char buf[16];

	if (!p->peer)
		return;
	caps = common(p, p->peer);
	fprintf(f, "[%u]", p->num);
	if (p->node->type != SUBNET_SWITCH)
		fprintf(f, "(%" PRIx64 ")", p->guid);
	fputs(" \t", f);
	put_ref(f, p->peer->node);
	fprintf(f, "[%u]", p->peer->num);
	if (p->peer->node->type != SUBNET_SWITCH)
		fprintf(f, "(%" PRIx64 ")", p->peer->guid);
	fputs(" \t\t# ", f);
	put_desc(f, p->peer->node);
	fprintf(f, " %s\n", topo_link_name(&caps, buf));
}

static void put_node(FILE *f, const struct subnet_node *n)
{
	static const char *const words[] = {
		[SUBNET_CA] = "Ca", [SUBNET_SWITCH] = "Switch", [SUBNET_ROUTER] = "Rt"};
	static const char *const guids[] = {
		[SUBNET_CA] = "caguid", [SUBNET_SWITCH] = "switchguid", [SUBNET_ROUTER] = "rtguid"};

	fprintf(f, "vendid=0x%x\ndevid=0x%x\nsysimgguid=0x%" PRIx64 "\n%s=0x%" PRIx64, n->vendor_id,
		n->device_id, n->sys_guid, guids[n->type], n->guid);
	if (n->type == SUBNET_SWITCH)
		fprintf(f, "(%" PRIx64 ")", n->port[0].guid);
	fprintf(f, "\n%s\t%u ", words[n->type], n->nports);
	put_ref(f, n);
	fputs("\t\t# ", f);
	put_desc(f, n);
	fputc('\n', f);
	for (unsigned i = 1; i <= n->nports; i++)
		put_port(f, &n->port[i]);
	fputc('\n', f);
}

static void put_nodes(FILE *f, const struct subnet *s, enum subnet_node_type type)
{
	for (unsigned i = 0; i < subnet_nodes(s); i++)
		if (subnet_node(s, i)->type == type)
			put_node(f, subnet_node(s, i));
}

static void put_ip(FILE *f, const struct topo_ip *ip)
{
	bool v4 = gid_is_v4(ip->addr);
	char text[INET6_ADDRSTRLEN];

	inet_ntop(v4 ? AF_INET : AF_INET6, ip->addr + (v4 ? 12 : 0), text, sizeof(text));
	fputs("@ip ", f);
	put_ref(f, ip->port->node);
	fprintf(f, "[%u] %s/%u\n", ip->port->num, text, ip->prefix - (v4 ? 96 : 0));
}

static void put_mtus(FILE *f, const struct subnet_node *n)
{
	enum { USUAL = 5 };

	for (unsigned i = 1; i <= n->nports; i++) {
		if (n->port[i].caps.mtu == USUAL)
			continue;
		fputs("@mtu ", f);
		put_ref(f, n);
		fprintf(f, "[%u] %u\n", i, 128u << n->port[i].caps.mtu);
	}
}

static void put_own(FILE *f, const struct topo *t)
{
	for (unsigned i = 0; i < t->nhosts; i++) {
		const struct topo_host *h = &t->host[i];

		if (h->nhcas == 1 && !strcmp(h->name, h->hca[0]->id))
			continue;
		fprintf(f, "@host \"%s\"", h->name);
		for (unsigned k = 0; k < h->nhcas; k++) {
			fputc(' ', f);
			put_ref(f, h->hca[k]);
		}
		fputc('\n', f);
	}
	for (unsigned i = 0; i < t->nips; i++)
		put_ip(f, &t->ip[i]);
	for (unsigned i = 0; i < t->nfaults; i++) {
		fputs("@fault ", f);
		put_ref(f, t->fault[i].port->node);
		fprintf(f, "[%u] %s\n", t->fault[i].port->num, t->fault[i].what);
	}
	for (unsigned i = 0; i < t->nsites; i++) {
		fputs("@site ", f);
		put_ref(f, t->site[i].node);
		fprintf(f, " %s\n", t->site[i].where);
	}
}

char *topo_write(const struct subnet *s, const struct topo *t, size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	if (!f)
		return NULL;
	fputs("# Topology of an InfiniBand subnet, in the format of ibnetdiscover\n\n", f);
	put_nodes(f, s, SUBNET_SWITCH);
	put_nodes(f, s, SUBNET_CA);
	put_nodes(f, s, SUBNET_ROUTER);
	for (unsigned i = 0; i < subnet_nodes(s); i++)
		put_mtus(f, subnet_node(s, i));
	put_own(f, t);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
