/* SPDX-License-Identifier: MIT */
/* The word `tables`: what switches forward by, as they have it; no management datagram is asked. */
#include "fabricd/console.h"
#include "fabricd/describe.h"

#include "fabric/shared.h"

#include <errno.h>

enum { LINES_MAX = 1000000 }; /* of fat-tree:16 430,000: half a second */

static void put_unicast(const struct subnet_node *n, FILE *out)
{
	const struct fabric_table *t = subnet_table(n->subnet);
	uint32_t sw = n->port[0].shared->sw;
	unsigned top = fabric_switch(t, sw)->top;

	for (unsigned lid = 1; lid <= top && lid < FABRIC_LIDS; lid++) {
		uint8_t port = fabric_lft(t, sw, (uint16_t)lid);

		if (port != FABRIC_NO_PORT)
			fprintf(out, "%-16s %6u  %u\n", n->id, lid, port);
	}
}

static void put_groups(const struct subnet_node *n, FILE *out)
{
	for (unsigned mlid = LID_MCAST; mlid < LID_MCAST + SUBNET_MLIDS; mlid++) {
		bool any = false;

		for (unsigned num = 0; num <= n->nports; num++)
			if (subnet_in_group(n, (uint16_t)mlid, num)) {
				if (!any)
					fprintf(out, "%-16s 0x%04x ", n->id, mlid);
				fprintf(out, " %u", num);
				any = true;
			}
		if (any)
			fputc('\n', out);
	}
}

/* At most as many lines of LIDs as these switches have: everybody else waits while they are written. */
static unsigned long lines_of(const struct subnet *s, const struct subnet_node *const *only, unsigned n)
{
	unsigned long lines = 0;

	for (unsigned i = 0; i < (n ? n : subnet_nodes(s)); i++) {
		const struct subnet_node *sw = n ? only[i] : subnet_node(s, i);

		if (sw->type == SUBNET_SWITCH)
			lines += fabric_switch(subnet_table(s), sw->port[0].shared->sw)->top;
	}
	return lines;
}

int console_tables(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	const struct subnet_node *only[CONSOLE_WORDS];
	unsigned n = nwords > 1 ? nwords - 1 : 0;
	unsigned long lines;

	for (unsigned i = 0; i < n; i++) {
		only[i] = subnet_find(d->subnet, words[i + 1]);
		if (!only[i] || only[i]->type != SUBNET_SWITCH)
			return fprintf(out, "there is no switch '%.60s'; `anyrdma fabric map` shows them\n",
				       words[i + 1]),
			       -ENOENT;
	}
	lines = lines_of(d->subnet, only, n);
	if (lines > LINES_MAX)
		return fprintf(out,
			       "that would be some %lu lines: which switches? For example: anyrdma fabric "
			       "tables S1\n",
			       lines),
		       -E2BIG;
	fprintf(out, "%-16s %6s  %s\n", "SWITCH", "LID", "PORTS");
	for (unsigned i = 0; i < (n ? n : subnet_nodes(d->subnet)); i++) {
		const struct subnet_node *sw = n ? only[i] : subnet_node(d->subnet, i);

		if (sw->type != SUBNET_SWITCH)
			continue;
		put_unicast(sw, out);
		put_groups(sw, out);
	}
	return 0;
}
