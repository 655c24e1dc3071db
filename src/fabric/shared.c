/* SPDX-License-Identifier: MIT */
#include "fabric/shared.h"

#include "base/fence.h"

const struct fabric_table fabric_none;

/* Where the parts begin, each on a cache line, the forwarding tables on a page: an untouched one costs
 * nothing. */
static void lay_out(struct fabric_table *t, const struct fabric_counts *n)
{
	const uint64_t line = 64, page = 4096;

	t->n = *n;
	t->programs = QPN_SLOTS;
	t->programs_at = (sizeof(*t) + line - 1) & ~(line - 1);
	t->ports_at = t->programs_at + QPN_SLOTS * sizeof(struct fabric_program);
	t->switches_at = t->ports_at + (uint64_t)n->ports * sizeof(struct fabric_port);
	t->lids_at = (t->switches_at + (uint64_t)n->switches * sizeof(struct fabric_switch) + line - 1) &
		     ~(line - 1);
	t->rows_at = t->lids_at + (uint64_t)FABRIC_LIDS * sizeof(uint32_t);
	t->lft_at = (t->rows_at + (uint64_t)n->rows * sizeof(struct fabric_row) + page - 1) & ~(page - 1);
	t->size = t->lft_at + (uint64_t)n->switches * FABRIC_LIDS;
}

size_t fabric_table_size(const struct fabric_counts *n)
{
	struct fabric_table t;

	lay_out(&t, n);
	return (size_t)t.size;
}

struct fabric_table *fabric_table_init(void *zeroed, const struct fabric_counts *n)
{
	struct fabric_table *t = zeroed;

	lay_out(t, n);
	for (uint32_t i = 0; i < n->ports; i++)
		fabric_port(t, i)->peer = FABRIC_NONE;
	t->version = FABRIC_VERSION;
	t->magic = FABRIC_MAGIC;
	return t;
}

void fabric_change_begin(struct fabric_table *t)
{
	if (t->epoch & 1)
		return;
	__atomic_store_n(&t->epoch, t->epoch + 1, __ATOMIC_RELAXED);
	fence_release(); /* before any store that follows */
}

void fabric_change_end(struct fabric_table *t)
{
	if (t->epoch & 1)
		__atomic_store_n(&t->epoch, t->epoch + 1, __ATOMIC_RELEASE);
}
