/* SPDX-License-Identifier: MIT */
/* The first pass over a description: its lines become records. */
#include "subnet/topo_parts.h"

#include <stdlib.h>
#include <string.h>

/* Room for one more, by doubling whenever the count is a power of two. */
static void *one_more(struct topo_parser *p, void *array, unsigned n, size_t size)
{
	void *more = n & (n - 1) ? array : realloc(array, (n ? 2 * (size_t)n : 1) * size);

	if (!more)
		topo_no_memory(p);
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
static bool link_options(struct topo_parser *p, struct lex *l, struct link_words *out)
{
	while (!lex_done(l)) {
		char option = *l->at;
		uint64_t v;

		if (!strchr("wse", option))
			return topo_fail(p, p->line, "what is not understood begins at '%c'", option);
		l->at++;
		if (!lex_char(l, '=') || !lex_number(l, 31, &v))
			return topo_fail(p, p->line, "%c= wants a number up to 31", option);
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

/* ---- lines ---- */

static void forget_attributes(struct topo_parser *p)
{
	struct link_words all = p->next.link; /* width= and its kind go on */

	p->next = (struct record){.vendor = TOPO_NOTHING, .device = TOPO_NOTHING, .link = all};
}

static bool node_line(struct topo_parser *p, enum subnet_node_type type, struct lex *l, struct lex comment)
{
	struct record *r = one_more(p, p->record, p->nrecords, sizeof(*r));
	struct lex_word id, desc;
	uint64_t nports;

	if (!r)
		return false;
	p->record = r;
	if (p->nrecords == TOPO_MAX_NODES)
		return topo_fail(p, p->line, "more than %d nodes", TOPO_MAX_NODES);
	r += p->nrecords;
	*r = p->next;
	r->type = type;
	r->line = p->line;
	if (!lex_number(l, SUBNET_MAX_PORTS, &nports) || !nports)
		return topo_fail(p, p->line, "a node has 1 to %d ports: Switch 8 \"S1\"", SUBNET_MAX_PORTS);
	r->nports = (unsigned)nports;
	if (!lex_quoted(l, &id) || !id.len || !lex_copy(id, r->id, sizeof(r->id)))
		return topo_fail(p, p->line, "a node has a name in quotes, of 1 to %d printable characters",
			SUBNET_NAME - 1);
	if (!lex_quoted(&comment, &desc) || !lex_copy(desc, r->desc, sizeof(r->desc)))
		r->desc[0] = '\0';
	p->nrecords++;
	p->inside = true;
	forget_attributes(p);
	return true;
}

/* [3](guid) "peer"[4](guid) options */
static bool cable_line(struct topo_parser *p, struct lex *l, struct lex comment)
{
	struct cable_end *e = one_more(p, p->end, p->nends, sizeof(*e));
	uint64_t port, peer_port, ignored;
	const struct record *r;

	if (!e)
		return false;
	p->end = e;
	if (!p->inside)
		return topo_fail(p, p->line, "a port without a node: a Switch or Ca line comes first");
	r = &p->record[p->nrecords - 1];
	e += p->nends;
	*e = (struct cable_end){.line = p->line, .record = p->nrecords - 1};
	if (!lex_number(l, r->nports, &port) || !port || !lex_char(l, ']'))
		return topo_fail(p, p->line, "%.40s has ports [1] to [%u]", r->id, r->nports);
	if (lex_char(l, '(') && (!lex_hex(l, &e->guid) || !lex_char(l, ')')))
		return topo_fail(p, p->line, "a port's GUID is a hexadecimal number in parentheses");
	if (!lex_quoted(l, &e->peer))
		return topo_fail(p, p->line, "the other end of the cable is missing: [1] \"S1\"[2]");
	if (!lex_char(l, '[') || !lex_number(l, SUBNET_MAX_PORTS, &peer_port) || !peer_port ||
		!lex_char(l, ']'))
		return topo_fail(p, p->line,
			"the other end of the cable has no port from 1 to %d: [1] \"S1\"[2]",
			SUBNET_MAX_PORTS);
	if (lex_char(l, '(') && (!lex_hex(l, &ignored) || !lex_char(l, ')')))
		return topo_fail(p, p->line, "a port's GUID is a hexadecimal number in parentheses");
	e->port = (unsigned)port;
	e->peer_port = (unsigned)peer_port;
	trained_in_comment(comment, &e->link);
	p->nends++;
	return link_options(p, l, &e->link);
}

static bool attribute_line(struct topo_parser *p, struct lex_word key, struct lex *l)
{
	struct record *n = &p->next;
	char buf[44];
	uint64_t v;

	if (!lex_number(l, UINT64_MAX, &v))
		return topo_fail(p, p->line, "%s= wants a number", topo_shown(key, buf));
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
		return topo_fail(p, p->line, "there is no attribute '%s'", topo_shown(key, buf));
	return true;
}

static bool own_line(struct topo_parser *p, struct lex *l)
{
	struct own_line *o = one_more(p, p->own, p->nowns, sizeof(*o));

	if (!o)
		return false;
	p->own = o;
	o[p->nowns++] = (struct own_line){p->line, *l};
	return true;
}

static bool read_line(struct topo_parser *p, struct lex *l)
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
	return topo_fail(p, p->line,
		"'%s' is not understood; a line is a Switch or Ca, a [port], or begins with @",
		topo_shown(w, buf));
}

void topo_read_lines(struct topo_parser *p, const char *text, size_t len)
{
	const char *end = text + len;

	forget_attributes(p);
	while (text < end && !p->status) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		struct lex l = {text, stop ? stop : end};

		p->line++;
		read_line(p, &l);
		text = stop ? stop + 1 : end;
	}
}
