/* SPDX-License-Identifier: MIT */
#include "subnet/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNSEEN = 0xff };

/* Breadth first from all hosts at once. Switches that no host reaches are in the top row. */
bool map_levels(const struct subnet *s, struct map_levels *l)
{
	unsigned n = subnet_nodes(s), head = 0, tail = 0;
	uint32_t *queue = calloc(n + 1u, sizeof(*queue));

	*l = (struct map_levels){.of = malloc(n + 1u), .rows = 1};
	if (!queue || !l->of) {
		free(queue);
		free(l->of);
		return false;
	}
	memset(l->of, UNSEEN, n + 1u);
	for (unsigned i = 0; i < n; i++)
		if (subnet_node(s, i)->type != SUBNET_SWITCH) {
			l->of[i] = 0;
			queue[tail++] = i;
		}
	for (; head < tail; head++) {
		const struct subnet_node *at = subnet_node(s, queue[head]);
		unsigned next = l->of[at->index] + 1u;

		for (unsigned p = 1; p <= at->nports; p++) {
			const struct subnet_port *peer = at->port[p].peer;

			if (!peer || l->of[peer->node->index] != UNSEEN)
				continue;
			l->of[peer->node->index] = (uint8_t)(next < MAP_LEVELS ? next : MAP_LEVELS - 1);
			queue[tail++] = peer->node->index;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		if (l->of[i] == UNSEEN)
			l->of[i] = 1;
		if (l->of[i] >= l->rows)
			l->rows = l->of[i] + 1u;
		l->count[l->of[i]]++;
	}
	free(queue);
	return true;
}

/* Cables between two rows, or within one; cut ones too, counted apart. */
static unsigned cables_between(
	const struct subnet *s, const struct map_levels *l, unsigned low, unsigned high, unsigned *cut)
{
	unsigned n = 0;

	*cut = 0;
	for (unsigned i = 0; i < subnet_nodes(s); i++) {
		const struct subnet_node *at = subnet_node(s, i);

		for (unsigned p = 1; p <= at->nports && l->of[i] == low; p++) {
			const struct subnet_port *peer = at->port[p].peer;

			if (!peer || l->of[peer->node->index] != high || (low == high && peer < &at->port[p]))
				continue;
			n++;
			*cut += at->port[p].cut;
		}
	}
	return n;
}

/* The first and last name of a row: "node1 … node32". */
static void put_names(FILE *f, const struct subnet *s, const struct map_levels *l, unsigned row, bool utf8)
{
	const struct subnet_node *first = NULL, *second = NULL, *last = NULL;

	for (unsigned i = 0; i < subnet_nodes(s); i++)
		if (l->of[i] == row) {
			last = subnet_node(s, i);
			if (!first)
				first = last;
			else if (!second)
				second = last;
		}
	fprintf(f, "%s", first->id);
	if (l->count[row] == 2)
		fprintf(f, ", %s", second->id);
	else if (l->count[row] == 3)
		fprintf(f, ", %s, %s", second->id, last->id);
	else if (last != first)
		fprintf(f, " %s %s", utf8 ? "…" : "...", last->id);
}

static void put_marks(FILE *f, unsigned n, unsigned room, const char *mark, bool utf8)
{
	unsigned shown = n <= room ? n : room - 1;

	for (unsigned i = 0; i < shown; i++)
		fputs(mark, f);
	if (shown < n)
		fputs(utf8 ? "…" : "~", f);
	for (unsigned i = shown + (shown < n); i < room; i++)
		fputc(' ', f);
}

static void put_cables(FILE *f, unsigned n, unsigned cut, const char *where, bool utf8)
{
	if (!n)
		return;
	fprintf(f, "%10s%s %u cable%s%s", "", utf8 ? "│" : "|", n, n == 1 ? "" : "s", where);
	if (cut)
		fprintf(f, ", %u cut", cut);
	fputc('\n', f);
}

static void put_rows(
	FILE *f, const struct subnet *s, const struct map_levels *l, const struct map_style *style)
{
	unsigned room = style->columns < 60 ? 8 : style->columns / 4 < 32 ? style->columns / 4 : 32;
	bool utf8 = style->utf8;

	for (unsigned row = l->rows; row-- > 0;) {
		unsigned n = l->count[row], cut;
		char what[32];

		if (!n)
			continue;
		if (row)
			snprintf(what, sizeof(what), l->rows == 2 ? "switches" : "level %u", row);
		else
			snprintf(what, sizeof(what), "hosts");
		fprintf(f, "%-10s", what);
		put_marks(f, n, room, row ? (utf8 ? "■" : "#") : (utf8 ? "●" : "o"), utf8);
		fprintf(f, "  %u %s%s: ", n, row ? "switch" : "host", n == 1 ? "" : row ? "es" : "s");
		put_names(f, s, l, row, utf8);
		fputc('\n', f);
		n = cables_between(s, l, row, row, &cut);
		put_cables(f, n, cut, row ? " between them" : "", utf8);
		for (unsigned below = row; row && below-- > 0;) {
			n = cables_between(s, l, row, below, &cut);
			put_cables(f, n, cut, below + 1 == row ? "" : " further down", utf8);
		}
	}
}

/* "[3] S2[1]", with an x where the cable is cut. */
static int cable_text(char *buf, size_t room, const struct subnet_port *p, bool utf8)
{
	char far[8] = "";

	if (p->peer->node->nports > 1)
		snprintf(far, sizeof(far), "[%u]", p->peer->num);
	return snprintf(
		buf, room, "[%u] %s%s%s", p->num, p->cut ? (utf8 ? "✂ " : "x ") : "", p->peer->node->id, far);
}

/* A node and its cables, in columns as wide as the widest. */
static void put_wiring(FILE *f, const struct subnet_node *n, unsigned indent, const struct map_style *style)
{
	unsigned width = 0, at = indent;
	char buf[2 * SUBNET_NAME];

	for (unsigned p = 1; p <= n->nports; p++)
		if (n->port[p].peer) {
			int len = cable_text(buf, sizeof(buf), &n->port[p], false);

			width = (unsigned)len > width ? (unsigned)len : width;
		}
	fprintf(f, "%-*s", (int)indent, n->id);
	for (unsigned p = 1, pad = 0; p <= n->nports; p++) {
		if (!n->port[p].peer)
			continue;
		if (at > indent && at + width > style->columns) {
			fprintf(f, "\n%*s", (int)indent, "");
			at = indent;
			pad = 0;
		}
		fprintf(f, "%*s", (int)pad, "");
		cable_text(buf, sizeof(buf), &n->port[p], style->utf8);
		fputs(buf, f);
		/* Bytes are not columns: the scissors have three of them. */
		pad = width + 2 - (unsigned)cable_text(buf, sizeof(buf), &n->port[p], false);
		at += width + 2;
	}
	fputc('\n', f);
}

static void put_all_wiring(
	FILE *f, const struct subnet *s, const struct map_levels *l, const struct map_style *style)
{
	unsigned indent = 8;

	for (unsigned i = 0; i < subnet_nodes(s); i++)
		if (subnet_node(s, i)->type == SUBNET_SWITCH && strlen(subnet_node(s, i)->id) + 2 > indent)
			indent = (unsigned)strlen(subnet_node(s, i)->id) + 2;
	fputc('\n', f);
	for (unsigned row = l->rows; row-- > 1;)
		for (unsigned i = 0; i < subnet_nodes(s); i++)
			if (l->of[i] == row)
				put_wiring(f, subnet_node(s, i), indent, style);
	if (l->rows == 1)
		put_wiring(f, subnet_node(s, 0), indent, style);
}

char *map_text(const struct subnet *s, const struct map_style *style, size_t *len)
{
	struct map_levels l;
	char *text = NULL;
	FILE *f;

	if (!map_levels(s, &l))
		return NULL;
	f = open_memstream(&text, len);
	if (f && subnet_nodes(s)) {
		put_rows(f, s, &l, style);
		if (subnet_nodes(s) <= MAP_SMALL)
			put_all_wiring(f, s, &l, style);
	}
	free(l.of);
	if (!f || fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
