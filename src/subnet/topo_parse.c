/* SPDX-License-Identifier: MIT */
/*
 * Descriptions of a subnet. They come from anywhere: everything is bounded by the length of the text, and
 * nothing recurses.
 */
#include "subnet/topo_parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool topo_fail(struct topo_parser *p, unsigned line, const char *fmt, ...)
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

bool topo_no_memory(struct topo_parser *p)
{
	p->status = -ENOMEM;
	return false;
}

const char *topo_shown(struct lex_word w, char buf[44])
{
	size_t n = w.len < 40 ? w.len : 40;

	for (size_t i = 0; i < n; i++)
		buf[i] = w.at[i] >= ' ' && w.at[i] < 0x7f ? w.at[i] : '?';
	strcpy(buf + n, w.len > n ? "..." : "");
	return buf;
}

int topo_parse(struct subnet *s, struct topo *t, const char *text, size_t len, char err[TOPO_ERROR])
{
	struct topo_parser p = {.s = s, .t = t, .err = err};

	topo_read_lines(&p, text, len);
	if (!p.status && !p.nrecords)
		topo_fail(&p, p.line, "the description has no node");
	if (!p.status)
		topo_add_nodes(&p);
	for (unsigned i = 0; i < p.nends && !p.status; i++)
		topo_plug_in(&p, &p.end[i]);
	for (unsigned i = 0; i < p.nowns && !p.status; i++)
		topo_do_own_line(&p, &p.own[i]);
	free(p.record);
	free(p.end);
	free(p.own);
	free(p.by_id);
	return p.status;
}
