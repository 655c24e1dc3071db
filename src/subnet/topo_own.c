/* SPDX-License-Identifier: MIT */
/* Lines of our own, which ibnetdiscover does not have: hosts, IP addresses, faults, MTUs, sites. */
#include "subnet/topo_parts.h"

#include "base/gid.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct subnet_node *node_named(struct topo_parser *p, struct lex *l, unsigned line)
{
	char name[SUBNET_NAME], buf[44];
	struct subnet_node *n = NULL;
	struct lex_word w;
	struct record *r;

	if (!lex_quoted(l, &w)) {
		topo_fail(p, line, "the name of a node in quotes is missing");
		return NULL;
	}
	r = topo_find_record(p, w);
	if (r)
		return r->node;
	if (lex_copy(w, name, sizeof(name)))
		n = subnet_find(p->s, name);
	if (!n)
		topo_fail(p, line, "there is no node \"%s\"", topo_shown(w, buf));
	return n;
}

/* "node"[port]; without, port 1 */
static struct subnet_port *port_named(struct topo_parser *p, struct lex *l, unsigned line)
{
	struct subnet_node *n = node_named(p, l, line);
	uint64_t port = 1;

	if (!n)
		return NULL;
	if (lex_char(l, '[') && (!lex_number(l, n->nports, &port) || !port || !lex_char(l, ']'))) {
		topo_fail(p, line, "\"%.40s\" has ports [1] to [%u]", n->id, n->nports);
		return NULL;
	}
	return subnet_port(n, (unsigned)port);
}

static bool own_host(struct topo_parser *p, struct lex *l, unsigned line)
{
	char name[SUBNET_NAME];
	struct lex_word w;

	if (!lex_name(l, &w) || !w.len || !lex_copy(w, name, sizeof(name)) || strchr(name, '"'))
		return topo_fail(
			p, line, "@host NAME \"HCA\"...: the name is missing, or none that can be used");
	do {
		struct subnet_node *n = node_named(p, l, line);
		int err;

		if (!n)
			return false;
		if (n->type != SUBNET_CA)
			return topo_fail(p, line, "\"%.40s\" is no adapter", n->id);
		err = topo_add_hca(p->t, name, n);
		if (err == -EBUSY)
			return topo_fail(p, line, "\"%.40s\" already belongs to a host", n->id);
		if (err)
			return topo_no_memory(p);
	} while (!lex_done(l));
	return true;
}

static bool own_ip(struct topo_parser *p, struct lex *l, unsigned line)
{
	struct subnet_port *port = port_named(p, l, line);
	uint8_t addr[16] = {[10] = 0xff, [11] = 0xff};
	char text[INET6_ADDRSTRLEN + 4], *slash;
	uint64_t prefix = 128;
	struct lex_word w;
	bool v4;

	if (!port)
		return false;
	if (port->node->type != SUBNET_CA)
		return topo_fail(p, line, "\"%.40s\" is no adapter", port->node->id);
	if (!lex_word(l, &w) || !lex_copy(w, text, sizeof(text)))
		return topo_fail(p, line, "@ip \"HCA\"[1] 10.0.0.1/24: the address is missing");
	slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	v4 = inet_pton(AF_INET, text, addr + 12) == 1;
	if (!v4 && inet_pton(AF_INET6, text, addr) != 1)
		return topo_fail(p, line, "'%s' is no IP address", text);
	if (slash) {
		struct lex digits = {slash + 1, slash + 1 + strlen(slash + 1)};

		if (!lex_number(&digits, v4 ? 32 : 128, &prefix) || !lex_done(&digits))
			return topo_fail(p, line, "'%s' is no prefix length", slash + 1);
		prefix += v4 ? 96 : 0;
	}
	if (p->t->nips == TOPO_MAX_IPS)
		return topo_fail(p, line, "more than %d lines with @ip", TOPO_MAX_IPS);
	return !topo_add_ip(p->t, port, addr, (uint8_t)prefix) || topo_no_memory(p);
}

/* The rest of a line as a string for the caller to free. */
static char *rest_of(struct lex *l)
{
	lex_done(l);
	return strndup(l->at, (size_t)(l->end - l->at));
}

static bool own_fault(struct topo_parser *p, struct lex *l, unsigned line)
{
	struct subnet_port *port = port_named(p, l, line);
	char *rest = port ? rest_of(l) : NULL;
	bool done = false;

	if (!port)
		return false;
	if (rest && !*rest)
		topo_fail(p, line, "@fault \"S1\"[3] loss=1%%: the fault is missing");
	else
		done = (rest && !topo_add_fault(p->t, port, rest)) || topo_no_memory(p);
	free(rest);
	return done;
}

static bool own_mtu(struct topo_parser *p, struct lex *l, unsigned line)
{
	struct subnet_port *port = port_named(p, l, line);
	uint64_t bytes = 0;

	if (!port)
		return false;
	if (!lex_number(l, 4096, &bytes) || !lex_done(l))
		bytes = 0;
	for (uint8_t code = 1; code <= 5; code++)
		if (bytes == 128u << code) {
			port->caps.mtu = code;
			return true;
		}
	return topo_fail(p, line, "@mtu \"S1\"[3] 2048: the MTU is 256, 512, 1024, 2048 or 4096");
}

static bool own_site(struct topo_parser *p, struct lex *l, unsigned line)
{
	struct subnet_node *n = node_named(p, l, line);
	char *rest = n ? rest_of(l) : NULL;
	bool done;

	if (!n)
		return false;
	done = (rest && !topo_add_site(p->t, n, rest)) || topo_no_memory(p);
	free(rest);
	return done;
}

bool topo_do_own_line(struct topo_parser *p, struct own_line *o)
{
	static const struct {
		const char *word;
		bool (*fn)(struct topo_parser *p, struct lex *l, unsigned line);
	} kinds[] = {{"host", own_host}, {"ip", own_ip}, {"fault", own_fault}, {"mtu", own_mtu},
		{"site", own_site}};
	struct lex_word w;
	char buf[44];

	lex_word(&o->rest, &w);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (lex_same(w, kinds[i].word))
			return kinds[i].fn(p, &o->rest, o->line);
	return topo_fail(p, o->line, "there is no @%s; there are @host, @ip, @fault, @mtu and @site",
		topo_shown(w, buf));
}
