/* SPDX-License-Identifier: MIT */
/*
 * In two passes: the lines become records of nodes and of cable ends; then all nodes are added, the cables
 * are plugged in, and the lines of our own are done. So a cable may name a node that comes later. A
 * description comes from anywhere: everything is bounded by the length of the text, and nothing recurses.
 */
#include "subnet/topo_parse.h"
#include "subnet/topo_lex.h"

#include "base/gid.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING UINT32_MAX

/* What a link may be told: 0 is not told, caps as they are. */
struct link_words {
	uint8_t width, speed, speed_ext;
	bool ext_told;
	bool trained; /* of the link, not of this end */
};

struct record {
	unsigned line, nports;
	enum subnet_node_type type;
	char id[SUBNET_NAME];       /* in this text */
	char desc[SUBNET_NAME + 1]; /* "": none */
	uint64_t guid, sys_guid;    /* 0: not told */
	uint32_t vendor, device;    /* NOTHING: not told */
	struct link_words link;
	struct subnet_node *node;
};

struct cable_end {
	unsigned line, record, port, peer_port;
	struct lex_word peer;
	uint64_t guid;
	struct link_words link;
};

struct own_line {
	unsigned line;
	struct lex rest; /* behind the @ */
};

struct parser {
	struct subnet *s;
	struct topo *t;
	struct record *record;
	struct cable_end *end;
	struct own_line *own;
	unsigned nrecords, nends, nowns;
	struct record **by_id; /* in order of their ids */
	struct record next;    /* attributes that stand before a node */
	bool inside;           /* a record that no empty line has ended */
	unsigned line;
	char *err;
	int status;
};

__attribute__((format(printf, 3, 4))) static bool fail(struct parser *p, unsigned line, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (p->status)
		return false;
	p->status = -EINVAL;
	n = snprintf(p->err, TOPO_ERROR, "line %u: ", line);
	va_start(ap, fmt);
	vsnprintf(p->err + n, TOPO_ERROR - (size_t)n, fmt, ap);
	va_end(ap);
	return false;
}

static bool no_memory(struct parser *p)
{
	p->status = -ENOMEM;
	return false;
}

/* A word for a message: cut to 40 characters, strange ones as '?'. */
static const char *shown(struct lex_word w, char buf[44])
{
	size_t n = w.len < 40 ? w.len : 40;

	for (size_t i = 0; i < n; i++)
		buf[i] = w.at[i] >= ' ' && w.at[i] < 0x7f ? w.at[i] : '?';
	strcpy(buf + n, w.len > n ? "..." : "");
	return buf;
}

/* Room for one more, by doubling whenever the count is a power of two. */
static void *one_more(struct parser *p, void *array, unsigned n, size_t size)
{
	void *more = n & (n - 1) ? array : realloc(array, (n ? 2 * (size_t)n : 1) * size);

	if (!more)
		no_memory(p);
	return more;
}

/* ---- words about links ---- */

static const struct {
	const char *name;
	uint8_t speed, ext;
} speeds[] = {{"SDR", 1, 0}, {"DDR", 3, 0}, {"QDR", 7, 0}, {"FDR10", 7, 0}, {"FDR", 7, 1}, {"EDR", 7, 3},
	{"HDR", 7, 7}, {"NDR", 7, 15}};

static uint8_t width_of_lanes(uint64_t lanes)
{
	switch (lanes) {
	case 1:
		return 1;
	case 2:
		return 1 | 16;
	case 4:
		return 1 | 2;
	case 8:
		return 1 | 2 | 4;
	case 12:
		return 1 | 2 | 8;
	default:
		return 0;
	}
}

/* 4xHDR: a link that trained so. False: another word. */
static bool trained_word(struct lex_word w, struct link_words *out)
{
	struct lex l = {w.at, w.at + w.len};
	uint64_t lanes;

	if (!lex_number(&l, 12, &lanes) || !width_of_lanes(lanes) || !lex_char(&l, 'x'))
		return false;
	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (lex_same((struct lex_word){l.at, (size_t)(l.end - l.at)}, speeds[i].name)) {
			*out = (struct link_words){
				width_of_lanes(lanes), speeds[i].speed, speeds[i].ext, true, true};
			return true;
		}
	return false;
}

static void trained_in_comment(struct lex comment, struct link_words *out)
{
	struct lex_word w;

	while (!lex_done(&comment))
		if (!lex_quoted(&comment, &w) && lex_word(&comment, &w) && trained_word(w, out))
			return;
}

/* w=2 s=4 e=1, as ibsim has them. */
static bool link_options(struct parser *p, struct lex *l, struct link_words *out)
{
	while (!lex_done(l)) {
		char option = *l->at;
		uint64_t v;

		if (!strchr("wse", option))
			return fail(p, p->line, "what is not understood begins at '%c'", option);
		l->at++;
		if (!lex_char(l, '=') || !lex_number(l, 31, &v))
			return fail(p, p->line, "%c= wants a number up to 31", option);
		if (option == 'w')
			out->width = (uint8_t)v;
		else if (option == 's')
			out->speed = v & 7 ? v & 7 : 4;
		else {
			out->speed_ext = v & 15;
			out->ext_told = true;
		}
	}
	return true;
}

static void tell_caps(struct subnet_link_caps *caps, const struct link_words *w)
{
	if (w->width)
		caps->width = w->width;
	if (w->speed)
		caps->speed = w->speed;
	if (w->ext_told)
		caps->speed_ext = w->speed_ext;
}

/* ---- first pass: lines to records ---- */

static void forget_attributes(struct parser *p)
{
	struct link_words all = p->next.link; /* width= and its kind go on */

	p->next = (struct record){.vendor = NOTHING, .device = NOTHING, .link = all};
}

static bool node_line(struct parser *p, enum subnet_node_type type, struct lex *l, struct lex comment)
{
	struct record *r = one_more(p, p->record, p->nrecords, sizeof(*r));
	struct lex_word id, desc;
	uint64_t nports;

	if (!r)
		return false;
	p->record = r;
	if (p->nrecords == TOPO_MAX_NODES)
		return fail(p, p->line, "more than %d nodes", TOPO_MAX_NODES);
	r += p->nrecords;
	*r = p->next;
	r->type = type;
	r->line = p->line;
	if (!lex_number(l, SUBNET_MAX_PORTS, &nports) || !nports)
		return fail(p, p->line, "a node has 1 to %d ports: Switch 8 \"S1\"", SUBNET_MAX_PORTS);
	r->nports = (unsigned)nports;
	if (!lex_quoted(l, &id) || !id.len || !lex_copy(id, r->id, sizeof(r->id)))
		return fail(p, p->line, "a node has a name in quotes, of 1 to %d printable characters",
			SUBNET_NAME - 1);
	if (!lex_quoted(&comment, &desc) || !lex_copy(desc, r->desc, sizeof(r->desc)))
		r->desc[0] = '\0';
	p->nrecords++;
	p->inside = true;
	forget_attributes(p);
	return true;
}

/* [3](guid) "peer"[4](guid) options */
static bool cable_line(struct parser *p, struct lex *l, struct lex comment)
{
	struct cable_end *e = one_more(p, p->end, p->nends, sizeof(*e));
	uint64_t port, peer_port, ignored;
	const struct record *r;

	if (!e)
		return false;
	p->end = e;
	if (!p->inside)
		return fail(p, p->line, "a port without a node: a Switch or Ca line comes first");
	r = &p->record[p->nrecords - 1];
	e += p->nends;
	*e = (struct cable_end){.line = p->line, .record = p->nrecords - 1};
	if (!lex_number(l, r->nports, &port) || !port || !lex_char(l, ']'))
		return fail(p, p->line, "%.40s has ports [1] to [%u]", r->id, r->nports);
	if (lex_char(l, '(') && (!lex_hex(l, &e->guid) || !lex_char(l, ')')))
		return fail(p, p->line, "a port's GUID is a hexadecimal number in parentheses");
	if (!lex_quoted(l, &e->peer))
		return fail(p, p->line, "the other end of the cable is missing: [1] \"S1\"[2]");
	if (!lex_char(l, '[') || !lex_number(l, SUBNET_MAX_PORTS, &peer_port) || !peer_port ||
		!lex_char(l, ']'))
		return fail(p, p->line, "the other end of the cable has no port from 1 to %d: [1] \"S1\"[2]",
			SUBNET_MAX_PORTS);
	if (lex_char(l, '(') && (!lex_hex(l, &ignored) || !lex_char(l, ')')))
		return fail(p, p->line, "a port's GUID is a hexadecimal number in parentheses");
	e->port = (unsigned)port;
	e->peer_port = (unsigned)peer_port;
	trained_in_comment(comment, &e->link);
	p->nends++;
	return link_options(p, l, &e->link);
}

static bool attribute_line(struct parser *p, struct lex_word key, struct lex *l)
{
	struct record *n = &p->next;
	char buf[44];
	uint64_t v;

	if (!lex_number(l, UINT64_MAX, &v))
		return fail(p, p->line, "%s= wants a number", shown(key, buf));
	if (lex_same(key, "vendid"))
		n->vendor = v & 0xffffff;
	else if (lex_same(key, "devid"))
		n->device = v & 0xffff;
	else if (lex_same(key, "sysimgguid"))
		n->sys_guid = v;
	else if (lex_same(key, "switchguid") || lex_same(key, "caguid") || lex_same(key, "hcaguids") ||
		 lex_same(key, "rtguid"))
		n->guid = v;
	else if (lex_same(key, "width"))
		n->link.width = v & 31;
	else if (lex_same(key, "speed"))
		n->link.speed = v & 7;
	else if (lex_same(key, "extspeed")) {
		n->link.speed_ext = v & 15;
		n->link.ext_told = true;
	} else
		return fail(p, p->line, "there is no attribute '%s'", shown(key, buf));
	return true;
}

static bool own_line(struct parser *p, struct lex *l)
{
	struct own_line *o = one_more(p, p->own, p->nowns, sizeof(*o));

	if (!o)
		return false;
	p->own = o;
	o[p->nowns++] = (struct own_line){p->line, *l};
	return true;
}

static bool read_line(struct parser *p, struct lex *l)
{
	static const struct {
		const char *word;
		enum subnet_node_type type;
	} kinds[] = {{"Switch", SUBNET_SWITCH}, {"Hca", SUBNET_CA}, {"Ca", SUBNET_CA}, {"Rt", SUBNET_ROUTER}};
	struct lex comment = lex_comment(l), words = *l;
	struct lex_word w;
	char buf[44];

	if (lex_done(l)) {
		p->inside &= comment.at != comment.end; /* a line with a comment alone is not empty */
		return true;
	}
	if (lex_char(l, '@'))
		return own_line(p, l);
	if (lex_char(l, '['))
		return cable_line(p, l, comment);
	lex_word(&words, &w);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (lex_same(w, kinds[i].word)) {
			*l = words;
			return node_line(p, kinds[i].type, l, comment);
		}
	if (memchr(w.at, '=', w.len)) {
		w.len = (size_t)((const char *)memchr(w.at, '=', w.len) - w.at);
		l->at = w.at + w.len + 1;
		return attribute_line(p, w, l);
	}
	return fail(p, p->line,
		"'%s' is not understood; a line is a Switch or Ca, a [port], or begins with @",
		shown(w, buf));
}

static void read_lines(struct parser *p, const char *text, size_t len)
{
	const char *end = text + len;

	while (text < end && !p->status) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		struct lex l = {text, stop ? stop : end};

		p->line++;
		read_line(p, &l);
		text = stop ? stop + 1 : end;
	}
}

/* ---- second pass: nodes ---- */

static int by_id(const void *a, const void *b)
{
	return strcmp((*(struct record *const *)a)->id, (*(struct record *const *)b)->id);
}

static int by_desc(const void *a, const void *b)
{
	return strcmp((*(struct record *const *)a)->desc, (*(struct record *const *)b)->desc);
}

static struct record *find_record(const struct parser *p, struct lex_word id)
{
	struct record key, *at = &key, **found;

	if (!lex_copy(id, key.id, sizeof(key.id)) || !p->nrecords)
		return NULL;
	found = bsearch(&at, p->by_id, p->nrecords, sizeof(*p->by_id), by_id);
	return found ? *found : NULL;
}

/* S-0002c90000000010: nobody chose that. */
static bool named_by_guid(const char *id)
{
	return strchr("SHR", id[0]) && id[1] == '-' && strlen(id) == 18 &&
	       strspn(id + 2, "0123456789abcdefABCDEF") == 16;
}

/* Blanks the descriptions that cannot be names: several nodes have them. They stay what is told on the wire.
 */
static bool choose_names(struct parser *p, struct record **sorted, uint8_t *unique)
{
	qsort(sorted, p->nrecords, sizeof(*sorted), by_desc);
	for (unsigned i = 0; i < p->nrecords; i++) {
		bool alone = (!i || by_desc(&sorted[i - 1], &sorted[i])) &&
			     (i + 1 == p->nrecords || by_desc(&sorted[i], &sorted[i + 1]));

		unique[sorted[i] - p->record] = alone;
	}
	qsort(sorted, p->nrecords, sizeof(*sorted), by_id);
	for (unsigned i = 1; i < p->nrecords; i++)
		if (!by_id(&sorted[i - 1], &sorted[i]))
			return fail(p,
				sorted[i]->line > sorted[i - 1]->line ? sorted[i]->line : sorted[i - 1]->line,
				"there is already a node \"%.40s\"", sorted[i]->id);
	return true;
}

static bool add_node(struct parser *p, struct record *r, bool unique)
{
	bool by_description = unique && *r->desc && strlen(r->desc) < SUBNET_NAME && named_by_guid(r->id);
	struct subnet_node *n = subnet_add(p->s, r->type, r->nports, by_description ? r->desc : r->id);

	if (!n)
		return errno == ENOMEM ? no_memory(p)
				       : fail(p, r->line, "node \"%.40s\" cannot be added: %s", r->id,
						 topo_why_not(errno));
	r->node = n;
	if (*r->desc)
		strcpy(n->desc, r->desc);
	if (r->guid)
		subnet_set_guid(n, r->guid);
	if (r->sys_guid)
		n->sys_guid = r->sys_guid;
	if (r->vendor != NOTHING)
		n->vendor_id = r->vendor;
	if (r->device != NOTHING)
		n->device_id = r->device;
	for (unsigned i = 0; i <= n->nports; i++)
		tell_caps(&n->port[i].caps, &r->link);
	return true;
}

static void add_nodes(struct parser *p)
{
	uint8_t *unique = calloc(p->nrecords + 1u, 1);

	p->by_id = calloc(p->nrecords + 1u, sizeof(*p->by_id));
	if (!unique || !p->by_id)
		no_memory(p);
	for (unsigned i = 0; i < p->nrecords && !p->status; i++)
		p->by_id[i] = &p->record[i];
	if (!p->status && choose_names(p, p->by_id, unique))
		for (unsigned i = 0; i < p->nrecords && !p->status; i++)
			add_node(p, &p->record[i], unique[i]);
	free(unique);
}

/* ---- second pass: cables ---- */

static bool plug_in(struct parser *p, const struct cable_end *e)
{
	struct subnet_node *n = p->record[e->record].node;
	struct record *peer = find_record(p, e->peer);
	struct subnet_port *a = subnet_port(n, e->port), *b;
	char buf[44];

	if (!peer)
		return fail(p, e->line, "there is no node \"%s\"", shown(e->peer, buf));
	b = subnet_port(peer->node, e->peer_port);
	if (!b)
		return fail(p, e->line, "\"%.40s\" has ports [1] to [%u]", peer->id, peer->nports);
	if (e->guid && n->type != SUBNET_SWITCH)
		a->guid = e->guid;
	tell_caps(&a->caps, &e->link);
	if (e->link.trained)
		tell_caps(&b->caps, &e->link);
	if (a->peer == b)
		return true; /* told at the other end */
	if (a == b)
		return fail(p, e->line, "a cable has two ends, and this one ends where it begins");
	if (a->peer || b->peer) {
		struct subnet_port *taken = a->peer ? a : b;

		return fail(p, e->line, "%.40s[%u] is already connected to %.40s[%u]", taken->node->id,
			taken->num, taken->peer->node->id, taken->peer->num);
	}
	return !subnet_join(a, b) || fail(p, e->line, "these two ports cannot be joined");
}

/* ---- second pass: lines of our own ---- */

static struct subnet_node *node_named(struct parser *p, struct lex *l, unsigned line)
{
	char name[SUBNET_NAME], buf[44];
	struct subnet_node *n = NULL;
	struct lex_word w;
	struct record *r;

	if (!lex_quoted(l, &w)) {
		fail(p, line, "the name of a node in quotes is missing");
		return NULL;
	}
	r = find_record(p, w);
	if (r)
		return r->node;
	if (lex_copy(w, name, sizeof(name)))
		n = subnet_find(p->s, name);
	if (!n)
		fail(p, line, "there is no node \"%s\"", shown(w, buf));
	return n;
}

/* "node"[port]; without, port 1 */
static struct subnet_port *port_named(struct parser *p, struct lex *l, unsigned line)
{
	struct subnet_node *n = node_named(p, l, line);
	uint64_t port = 1;

	if (!n)
		return NULL;
	if (lex_char(l, '[') && (!lex_number(l, n->nports, &port) || !port || !lex_char(l, ']'))) {
		fail(p, line, "\"%.40s\" has ports [1] to [%u]", n->id, n->nports);
		return NULL;
	}
	return subnet_port(n, (unsigned)port);
}

static bool own_host(struct parser *p, struct lex *l, unsigned line)
{
	char name[SUBNET_NAME];
	struct lex_word w;

	if (!lex_name(l, &w) || !w.len || !lex_copy(w, name, sizeof(name)) || strchr(name, '"'))
		return fail(p, line, "@host NAME \"HCA\"...: the name is missing, or none that can be used");
	do {
		struct subnet_node *n = node_named(p, l, line);
		int err;

		if (!n)
			return false;
		if (n->type != SUBNET_CA)
			return fail(p, line, "\"%.40s\" is no adapter", n->id);
		err = topo_add_hca(p->t, name, n);
		if (err == -EBUSY)
			return fail(p, line, "\"%.40s\" already belongs to a host", n->id);
		if (err)
			return no_memory(p);
	} while (!lex_done(l));
	return true;
}

static bool own_ip(struct parser *p, struct lex *l, unsigned line)
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
		return fail(p, line, "\"%.40s\" is no adapter", port->node->id);
	if (!lex_word(l, &w) || !lex_copy(w, text, sizeof(text)))
		return fail(p, line, "@ip \"HCA\"[1] 10.0.0.1/24: the address is missing");
	slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	v4 = inet_pton(AF_INET, text, addr + 12) == 1;
	if (!v4 && inet_pton(AF_INET6, text, addr) != 1)
		return fail(p, line, "'%s' is no IP address", text);
	if (slash) {
		struct lex digits = {slash + 1, slash + 1 + strlen(slash + 1)};

		if (!lex_number(&digits, v4 ? 32 : 128, &prefix) || !lex_done(&digits))
			return fail(p, line, "'%s' is no prefix length", slash + 1);
		prefix += v4 ? 96 : 0;
	}
	if (p->t->nips == TOPO_MAX_IPS)
		return fail(p, line, "more than %d lines with @ip", TOPO_MAX_IPS);
	return !topo_add_ip(p->t, port, addr, (uint8_t)prefix) || no_memory(p);
}

/* The rest of a line as a string for the caller to free. */
static char *rest_of(struct lex *l)
{
	lex_done(l);
	return strndup(l->at, (size_t)(l->end - l->at));
}

static bool own_fault(struct parser *p, struct lex *l, unsigned line)
{
	struct subnet_port *port = port_named(p, l, line);
	char *rest = port ? rest_of(l) : NULL;
	bool done = false;

	if (!port)
		return false;
	if (rest && !*rest)
		fail(p, line, "@fault \"S1\"[3] loss=1%%: the fault is missing");
	else
		done = (rest && !topo_add_fault(p->t, port, rest)) || no_memory(p);
	free(rest);
	return done;
}

static bool own_mtu(struct parser *p, struct lex *l, unsigned line)
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
	return fail(p, line, "@mtu \"S1\"[3] 2048: the MTU is 256, 512, 1024, 2048 or 4096");
}

static bool own_site(struct parser *p, struct lex *l, unsigned line)
{
	struct subnet_node *n = node_named(p, l, line);
	char *rest = n ? rest_of(l) : NULL;
	bool done;

	if (!n)
		return false;
	done = (rest && !topo_add_site(p->t, n, rest)) || no_memory(p);
	free(rest);
	return done;
}

static bool do_own_line(struct parser *p, struct own_line *o)
{
	static const struct {
		const char *word;
		bool (*fn)(struct parser *p, struct lex *l, unsigned line);
	} kinds[] = {{"host", own_host}, {"ip", own_ip}, {"fault", own_fault}, {"mtu", own_mtu},
		{"site", own_site}};
	struct lex_word w;
	char buf[44];

	lex_word(&o->rest, &w);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (lex_same(w, kinds[i].word))
			return kinds[i].fn(p, &o->rest, o->line);
	return fail(
		p, o->line, "there is no @%s; there are @host, @ip, @fault, @mtu and @site", shown(w, buf));
}

int topo_parse(struct subnet *s, struct topo *t, const char *text, size_t len, char err[TOPO_ERROR])
{
	struct parser p = {.s = s, .t = t, .err = err};

	forget_attributes(&p);
	read_lines(&p, text, len);
	if (!p.status && !p.nrecords)
		fail(&p, p.line, "the description has no node");
	if (!p.status)
		add_nodes(&p);
	for (unsigned i = 0; i < p.nends && !p.status; i++)
		plug_in(&p, &p.end[i]);
	for (unsigned i = 0; i < p.nowns && !p.status; i++)
		do_own_line(&p, &p.own[i]);
	free(p.record);
	free(p.end);
	free(p.own);
	free(p.by_id);
	return p.status;
}
