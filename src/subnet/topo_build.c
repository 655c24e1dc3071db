/* SPDX-License-Identifier: MIT */
/* The second pass: the records of nodes and cable ends become a subnet. */
#include "subnet/topo_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void tell_caps(struct subnet_link_caps *caps, const struct link_words *w)
{
	if (w->width)
		caps->width = w->width;
	if (w->speed)
		caps->speed = w->speed;
	if (w->ext_told)
		caps->speed_ext = w->speed_ext;
}

/* ---- nodes ---- */

static int by_id(const void *a, const void *b)
{
	return strcmp((*(struct record *const *)a)->id, (*(struct record *const *)b)->id);
}

static int by_desc(const void *a, const void *b)
{
	return strcmp((*(struct record *const *)a)->desc, (*(struct record *const *)b)->desc);
}

struct record *topo_find_record(const struct topo_parser *p, struct lex_word id)
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
static bool choose_names(struct topo_parser *p, struct record **sorted, uint8_t *unique)
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
			return topo_fail(p,
				sorted[i]->line > sorted[i - 1]->line ? sorted[i]->line : sorted[i - 1]->line,
				"there is already a node \"%.40s\"", sorted[i]->id);
	return true;
}

static bool add_node(struct topo_parser *p, struct record *r, bool unique)
{
	bool by_description = unique && *r->desc && strlen(r->desc) < SUBNET_NAME && named_by_guid(r->id);
	struct subnet_node *n = subnet_add(p->s, r->type, r->nports, by_description ? r->desc : r->id);

	if (!n)
		return errno == ENOMEM ? topo_no_memory(p)
				       : topo_fail(p, r->line, "node \"%.40s\" cannot be added: %s", r->id,
						 topo_why_not(errno));
	r->node = n;
	if (*r->desc)
		strcpy(n->desc, r->desc);
	if (r->guid)
		subnet_set_guid(n, r->guid);
	if (r->sys_guid)
		n->sys_guid = r->sys_guid;
	if (r->vendor != TOPO_NOTHING)
		n->vendor_id = r->vendor;
	if (r->device != TOPO_NOTHING)
		n->device_id = r->device;
	for (unsigned i = 0; i <= n->nports; i++)
		tell_caps(&n->port[i].caps, &r->link);
	return true;
}

void topo_add_nodes(struct topo_parser *p)
{
	uint8_t *unique = calloc(p->nrecords + 1u, 1);

	p->by_id = calloc(p->nrecords + 1u, sizeof(*p->by_id));
	if (!unique || !p->by_id)
		topo_no_memory(p);
	for (unsigned i = 0; i < p->nrecords && !p->status; i++)
		p->by_id[i] = &p->record[i];
	if (!p->status && choose_names(p, p->by_id, unique))
		for (unsigned i = 0; i < p->nrecords && !p->status; i++)
			add_node(p, &p->record[i], unique[i]);
	free(unique);
}

/* ---- cables ---- */

bool topo_plug_in(struct topo_parser *p, const struct cable_end *e)
{
	struct subnet_node *n = p->record[e->record].node;
	struct record *peer = topo_find_record(p, e->peer);
	struct subnet_port *a = subnet_port(n, e->port), *b;
	char buf[44];

	if (!peer)
		return topo_fail(p, e->line, "there is no node \"%s\"", topo_shown(e->peer, buf));
	b = subnet_port(peer->node, e->peer_port);
	if (!b)
		return topo_fail(p, e->line, "\"%.40s\" has ports [1] to [%u]", peer->id, peer->nports);
	if (e->guid && n->type != SUBNET_SWITCH)
		a->guid = e->guid;
	tell_caps(&a->caps, &e->link);
	if (e->link.trained)
		tell_caps(&b->caps, &e->link);
	if (a->peer == b)
		return true; /* told at the other end */
	if (a == b)
		return topo_fail(p, e->line, "a cable has two ends, and this one ends where it begins");
	if (a->peer || b->peer) {
		struct subnet_port *taken = a->peer ? a : b;

		return topo_fail(p, e->line, "%.40s[%u] is already connected to %.40s[%u]", taken->node->id,
			taken->num, taken->peer->node->id, taken->peer->num);
	}
	return !subnet_join(a, b) || topo_fail(p, e->line, "these two ports cannot be joined");
}
