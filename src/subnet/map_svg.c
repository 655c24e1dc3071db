/* SPDX-License-Identifier: MIT */
/*
 * Rows of nodes, hosts at the bottom in their order, each switch above the middle of what hangs from it.
 * Where switches of one row are cabled to each other (a ring, a torus, a dragonfly) they lie on a circle
 * instead, with their hosts around it.
 */
#include "subnet/map.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABELLED = 64 /* nodes of a row that are still labelled */, MARGIN = 48, TITLE = 40 };

struct place {
	double x, y, key;
	unsigned node;
};

struct drawing {
	const struct subnet *s;
	struct map_levels l;
	struct place *at; /* by the index of the node */
	double width, height, host_size, switch_size;
	bool round;
};

static void put_escaped(FILE *f, const char *text)
{
	for (; *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		default:
			fputc((unsigned char)*text < 0x80 ? *text : '?', f); /* may be no UTF-8 */
		}
}

static int by_key(const void *a, const void *b)
{
	const struct place *p = a, *q = b;

	return p->key < q->key ? -1 : p->key > q->key ? 1 : p->node < q->node ? -1 : p->node > q->node;
}

/* The middle of what hangs from a switch in lower rows; behind all others where nothing does. */
static double middle_below(const struct drawing *d, const struct subnet_node *n)
{
	double sum = 0;
	unsigned count = 0;

	for (unsigned p = 1; p <= n->nports; p++) {
		const struct subnet_port *peer = n->port[p].peer;

		if (peer && d->l.of[peer->node->index] < d->l.of[n->index]) {
			sum += d->at[peer->node->index].x;
			count++;
		}
	}
	return count ? sum / count : d->width;
}

/* Spreads a row evenly, in the order of keys. */
static bool place_row(struct drawing *d, unsigned row, double y)
{
	unsigned n = d->l.count[row], k = 0;
	struct place *line = calloc(n + 1u, sizeof(*line));

	if (!line)
		return false;
	for (unsigned i = 0; i < subnet_nodes(d->s); i++)
		if (d->l.of[i] == row) {
			const struct subnet_node *node = subnet_node(d->s, i);

			line[k++] = (struct place){.node = i, .key = row ? middle_below(d, node) : i};
		}
	qsort(line, n, sizeof(*line), by_key);
	for (unsigned i = 0; i < n; i++)
		d->at[line[i].node] = (struct place){
			.x = MARGIN + (d->width - 2 * MARGIN) * (i + 0.5) / n, .y = y, .node = line[i].node};
	free(line);
	return true;
}

static bool place_rows(struct drawing *d)
{
	double step = (d->height - TITLE - 2 * MARGIN) / (d->l.rows > 1 ? d->l.rows - 1 : 1);

	for (unsigned row = 0; row < d->l.rows; row++)
		if (!place_row(d, row, d->height - MARGIN - row * step))
			return false;
	return true;
}

static unsigned hosts_at(const struct subnet_node *sw)
{
	unsigned n = 0;

	for (unsigned p = 1; p <= sw->nports; p++)
		n += sw->port[p].peer && sw->port[p].peer->node->type != SUBNET_SWITCH;
	return n;
}

/* Switches on a circle, each with its hosts further out. */
static void place_round(struct drawing *d)
{
	double cx = d->width / 2, cy = TITLE + (d->height - TITLE) / 2,
	       outer = (d->height - TITLE) / 2 - MARGIN;
	unsigned n = subnet_nodes(d->s) - d->l.count[0], k = 0;

	for (unsigned i = 0; i < subnet_nodes(d->s); i++) {
		const struct subnet_node *sw = subnet_node(d->s, i);
		unsigned hosts = hosts_at(sw), h = 0;
		double angle = 2 * M_PI * k / n - M_PI / 2;

		if (!d->l.of[i])
			continue;
		d->at[i] = (struct place){
			.x = cx + 0.7 * outer * cos(angle), .y = cy + 0.7 * outer * sin(angle)};
		for (unsigned p = 1; p <= sw->nports; p++) {
			const struct subnet_port *peer = sw->port[p].peer;
			double out = angle + 2 * M_PI / n * ((h + 0.5) / (hosts ? hosts : 1) - 0.5) * 0.8;

			if (!peer || d->l.of[peer->node->index])
				continue;
			d->at[peer->node->index] =
				(struct place){.x = cx + outer * cos(out), .y = cy + outer * sin(out)};
			h++;
		}
		k++;
	}
}

static bool row_has_cables(const struct drawing *d)
{
	for (unsigned i = 0; i < subnet_nodes(d->s); i++)
		for (unsigned p = 1; p <= subnet_node(d->s, i)->nports && d->l.of[i]; p++) {
			const struct subnet_port *peer = subnet_node(d->s, i)->port[p].peer;

			if (peer && d->l.of[peer->node->index] == d->l.of[i])
				return true;
		}
	return false;
}

static void put_cable(FILE *f, const struct drawing *d, const struct subnet_port *p)
{
	const struct place *a = &d->at[p->node->index], *b = &d->at[p->peer->node->index];

	fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"%s/>\n", a->x, a->y, b->x, b->y,
		p->cut ? " class=\"cut\"" : "");
}

static void put_cables(FILE *f, const struct drawing *d)
{
	fputs("<g class=\"cables\">\n", f);
	for (unsigned i = 0; i < subnet_nodes(d->s); i++) {
		const struct subnet_node *n = subnet_node(d->s, i);

		for (unsigned p = 1; p <= n->nports; p++)
			if (n->port[p].peer && n->port[p].peer > &n->port[p])
				put_cable(f, d, &n->port[p]);
	}
	fputs("</g>\n", f);
}

static void put_node(FILE *f, const struct drawing *d, const struct subnet_node *n)
{
	const struct place *at = &d->at[n->index];
	bool host = !d->l.of[n->index], labelled = d->l.count[d->l.of[n->index]] <= LABELLED;
	double size = host ? d->host_size : d->switch_size;

	if (host)
		fprintf(f, "<circle class=\"host\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>", at->x, at->y,
			size);
	else
		fprintf(f,
			"<rect class=\"switch\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"rx=\"3\"><title>",
			at->x - size, at->y - size, 2 * size, 2 * size);
	put_escaped(f, n->id);
	fprintf(f, "</title></%s>\n", host ? "circle" : "rect");
	if (!labelled)
		return;
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">", at->x, at->y + (host || d->round ? size + 13 : -size - 5));
	put_escaped(f, n->id);
	fputs("</text>\n", f);
}

static void put_drawing(FILE *f, const struct drawing *d, const char *title)
{
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
		"height=\"%.0f\">\n"
		"<style>.cables line{stroke:#9aa5b1;stroke-width:1}.cables "
		".cut{stroke:#d64545;stroke-width:2;"
		"stroke-dasharray:5 4}.switch{fill:#3e4c59}.host{fill:#2186eb}"
		"text{font:11px "
		"sans-serif;fill:#323f4b;text-anchor:middle}.title{font-size:15px;text-anchor:start}"
		"</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		d->width, d->height, d->width, d->height);
	fprintf(f, "<text class=\"title\" x=\"%d\" y=\"26\">", MARGIN / 2);
	put_escaped(f, title);
	fputs("</text>\n", f);
	put_cables(f, d);
	for (unsigned i = 0; i < subnet_nodes(d->s); i++)
		put_node(f, d, subnet_node(d->s, i));
	fputs("</svg>\n", f);
}

static unsigned widest_row(const struct map_levels *l)
{
	unsigned most = 1;

	for (unsigned row = 0; row < l->rows; row++)
		most = l->count[row] > most ? l->count[row] : most;
	return most;
}

/* Room for the labels of the widest row, or for its dots. */
static void choose_size(struct drawing *d)
{
	unsigned most = widest_row(&d->l), top = d->l.rows;

	d->round = row_has_cables(d);
	if (d->round) {
		d->height = d->width = 420 + (most < 100 ? 14.0 * most : 1400);
		d->height += TITLE;
	} else {
		d->width = 2 * MARGIN + (most <= LABELLED ? 62.0 * most : most <= 400 ? 10.0 * most : 4000);
		d->width = d->width < 360 ? 360 : d->width;
		d->height = TITLE + 2 * MARGIN + (top > 1 ? (top - 1) * (110 + d->width / 24) : 40);
	}
	d->host_size = most <= LABELLED ? 7 : most <= 400 ? 4 : 1.8;
	d->switch_size = most <= LABELLED ? 9 : most <= 400 ? 6 : 5;
}

char *map_svg(const struct subnet *s, const char *title, size_t *len)
{
	struct drawing d = {.s = s};
	char *text = NULL;
	bool placed;
	FILE *f;

	if (!map_levels(s, &d.l))
		return NULL;
	choose_size(&d);
	d.at = calloc(subnet_nodes(s) + 1u, sizeof(*d.at));
	placed = d.at && (d.round || place_rows(&d));
	if (placed && d.round)
		place_round(&d);
	f = placed ? open_memstream(&text, len) : NULL;
	if (f)
		put_drawing(f, &d, title);
	free(d.l.of);
	free(d.at);
	if (!f || fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
