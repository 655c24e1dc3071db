/* SPDX-License-Identifier: MIT */
/*
 * The parts of topo_parse.c. A description is read in two passes, so a cable may name a node that comes
 * later:
 *
 *   topo_read.c   the lines become records of nodes, of cable ends, and of lines of our own
 *   topo_build.c  all nodes are added, then the cables are plugged in
 *   topo_own.c    and the lines of our own are done (@host, @ip, @fault, @mtu, @site)
 */
#ifndef SUBNET_TOPO_PARTS_H
#define SUBNET_TOPO_PARTS_H

#include "subnet/topo_lex.h"
#include "subnet/topo_parse.h"

#define TOPO_NOTHING UINT32_MAX

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
	uint32_t vendor, device;    /* TOPO_NOTHING: not told */
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

struct topo_parser {
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

/* ---- topo_parse.c ---- */
/* Says what is wrong in which line, unless something was before; false. */
bool topo_fail(struct topo_parser *p, unsigned line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool topo_no_memory(struct topo_parser *p);
/* A word for a message: cut to 40 characters, strange ones as '?'. */
const char *topo_shown(struct lex_word w, char buf[44]);

/* ---- topo_read.c ---- */
void topo_read_lines(struct topo_parser *p, const char *text, size_t len);

/* ---- topo_build.c ---- */
void topo_add_nodes(struct topo_parser *p);
bool topo_plug_in(struct topo_parser *p, const struct cable_end *e);
/* The node that the description calls so; NULL: none. After topo_add_nodes(). */
struct record *topo_find_record(const struct topo_parser *p, struct lex_word id);

/* ---- topo_own.c ---- */
bool topo_do_own_line(struct topo_parser *p, struct own_line *o);

#endif
