/* SPDX-License-Identifier: MIT */
/* Records that are a block of a table, as an SMP has it: where it is from, and eight bytes later the block.
 */
#include "subnet/sm_parts.h"

enum { HEAD = 8 };

/* A record whose block is that of an SMP. The head is filled in, but for the LID, which comes first in all.
 */
static bool add_block(
	struct sa_request *r, struct subnet_port *end, uint16_t attr, uint32_t mod, uint8_t *record)
{
	put_be16(record, end->shared->lid);
	memset(record + HEAD, 0, SMP_DATA_LEN);
	sma_do(end, MAD_METHOD_GET, attr, mod, record + HEAD);
	return sa_add_match(r, record);
}

/* From the number of an end port on: those of a switch that have tables, or the adapter's own. */
static unsigned last_port(const struct subnet_port *end)
{
	return is_switch(end->node) ? end->node->nports : end->num;
}

/* ---- one for each pair of input and output ---- */
static bool add_sl2vl(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[HEAD + SMP_DATA_LEN] = {0};
	unsigned last = is_switch(end->node) ? end->node->nports : 0;
	bool ok = true;

	for (unsigned in = 0; in <= last; in++)
		for (unsigned out = 0; out <= last && ok; out++) {
			record[2] = (uint8_t)in;
			record[3] = (uint8_t)(is_switch(end->node) ? out : end->num);
			ok = add_block(r, end, SMP_SL2VL, in << 8 | out, record);
		}
	return ok;
}

uint16_t sa_get_sl2vls(struct sa_request *r)
{
	return sa_of_all(r, add_sl2vl);
}

/* ---- forwarding tables ---- */
static bool add_lft(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[HEAD + SMP_DATA_LEN] = {0};
	bool ok = true;

	for (unsigned block = 0; is_switch(end->node) && block <= r->m->top / 64u && ok; block++) {
		put_be16(record + 2, (uint16_t)block);
		ok = add_block(r, end, SMP_LFT, block, record);
	}
	return ok;
}

uint16_t sa_get_lfts(struct sa_request *r)
{
	return sa_of_all(r, add_lft);
}

/* The highest MLID that a group has: those above are nobody's. */
static unsigned last_mlid(const struct subnet_sm *m)
{
	uint16_t last = LID_MCAST;

	list_for_each(pos, &m->sa.groups)
	{
		const struct sa_group *g = container_of(pos, struct sa_group, node);

		last = g->what.mlid > last ? g->what.mlid : last;
	}
	return last - LID_MCAST;
}

static bool add_mft(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[HEAD + SMP_DATA_LEN] = {0};
	unsigned last = last_mlid(r->m) / 32;
	bool ok = true;

	for (unsigned block = 0; is_switch(end->node) && block <= last; block++)
		for (unsigned position = 0; position <= end->node->nports / 16 && ok; position++) {
			put_be16(record + 2, (uint16_t)(position << 12 | block));
			ok = add_block(r, end, SMP_MFT, position << 28 | block, record);
		}
	return ok;
}

uint16_t sa_get_mfts(struct sa_request *r)
{
	return sa_of_all(r, add_mft);
}

/* ---- of end ports ---- */
static bool add_guids(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[HEAD + SMP_DATA_LEN] = {0};

	return add_block(r, end, SMP_GUID_INFO, 0, record);
}

uint16_t sa_get_guids(struct sa_request *r)
{
	return sa_of_all(r, add_guids);
}

/* ---- of all ports ---- */
static bool add_pkeys(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[HEAD + SMP_DATA_LEN] = {0};
	bool ok = true;

	for (unsigned k = end->num; k <= last_port(end) && ok; k++) {
		record[4] = (uint8_t)k;
		ok = add_block(r, end, SMP_PKEY_TABLE, is_switch(end->node) ? k << 16 : 0, record);
	}
	return ok;
}

/* Partitions are secrets. */
uint16_t sa_get_pkeys(struct sa_request *r)
{
	return r->trusted ? sa_of_all(r, add_pkeys) : SA_INVALID;
}

static bool add_vl_arb(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[HEAD + SMP_DATA_LEN] = {0};
	bool ok = true;

	for (unsigned k = end->num; k <= last_port(end); k++)
		for (unsigned block = 1; block <= 4 && ok;
			block++) { /* two of low and two of high priority */
			record[2] = (uint8_t)k;
			record[3] = (uint8_t)block;
			ok = add_block(r, end, SMP_VL_ARB, block << 16 | k, record);
		}
	return ok;
}

uint16_t sa_get_vl_arbs(struct sa_request *r)
{
	return sa_of_all(r, add_vl_arb);
}
