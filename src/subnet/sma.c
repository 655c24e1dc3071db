/* SPDX-License-Identifier: MIT */
/*
 * The subnet management agent of a node (IBA volume 1, 14.2.5): a row per attribute. What a row's functions
 * refuse is answered with a status, never with silence: a subnet manager would wait and ask again. What is
 * not an agent's business (SMInfo, traps, answers) goes up to whoever manages from here.
 */
#include "subnet/parts.h"

#include "wire/smp.h"

struct request {
	struct subnet *subnet;
	struct subnet_node *node;
	struct subnet_port *in;  /* where it came in */
	struct subnet_port *end; /* the end port that it is for */
	uint32_t mod;
	uint64_t mkey;
	uint8_t *data; /* Get: zeroed, to be filled. Set: what is asked for; filled with what there is then */
};

/* A port of the node by its number; NULL: no such port. Of an adapter 0 is the one it came in by. */
static struct subnet_port *port_named(const struct request *r, unsigned num)
{
	return num || is_switch(r->node) ? subnet_port(r->node, num) : r->in;
}

/* ---- NodeDescription, NodeInfo ---- */
static uint16_t get_node_desc(struct request *r)
{
	memcpy(r->data, r->node->desc, strnlen(r->node->desc, SMP_DATA_LEN));
	return MAD_STATUS_OK;
}

static uint16_t get_node_info(struct request *r)
{
	const struct subnet_node *n = r->node;
	const struct node_info info = {.node_type = (uint8_t)n->type,
		.nports = (uint8_t)n->nports,
		.local_port = r->in->num,
		.sys_guid = n->sys_guid,
		.node_guid = n->guid,
		.port_guid = r->end->guid,
		.partition_cap = FABRIC_PKEYS,
		.device_id = (uint16_t)n->device_id,
		.revision = n->revision,
		.vendor_id = n->vendor_id};

	node_info_put(r->data, &info);
	return MAD_STATUS_OK;
}

/* ---- SwitchInfo ---- */
static uint16_t get_switch_info(struct request *r)
{
	const struct subnet_switch *sw = r->node->sw;
	const struct switch_info info = {.linear_cap = FABRIC_LIDS,
		.mcast_cap = SUBNET_MLIDS,
		.linear_top = fabric_switch(r->subnet->table, sw->index)->top,
		.default_port = sw->default_port,
		.default_mcast_primary = sw->default_mcast_primary,
		.default_mcast_other = sw->default_mcast_other,
		.life_time = sw->life_time,
		.state_change = sw->state_change,
		.enforce_cap = FABRIC_PKEYS,
		.enforce_in = true,
		.enforce_out = true};

	switch_info_put(r->data, &info);
	return MAD_STATUS_OK;
}

static uint16_t set_switch_info(struct request *r)
{
	const struct switch_info info = switch_info_get(r->data);
	struct subnet_switch *sw = r->node->sw;
	struct fabric_switch *f = fabric_switch(r->subnet->table, sw->index);

	if (info.linear_top >= FABRIC_LIDS)
		return MAD_STATUS_BAD_FIELD;
	if (f->top != info.linear_top) {
		table_changes(r->subnet);
		f->top = info.linear_top;
	}
	sw->default_port = info.default_port;
	sw->default_mcast_primary = info.default_mcast_primary;
	sw->default_mcast_other = info.default_mcast_other;
	sw->life_time = info.life_time;
	if (info.state_change) /* writing a one clears it */
		sw->state_change = false;
	return MAD_STATUS_OK;
}

/* ---- GUIDInfo: eight to a block, of which there is one ---- */
static uint16_t get_guid_info(struct request *r)
{
	if (r->mod)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < FABRIC_GUIDS; i++)
		put_be64(r->data + 8 * i, r->end->shared->guid[i]);
	return MAD_STATUS_OK;
}

static uint16_t set_guid_info(struct request *r)
{
	bool changed = false;

	if (r->mod)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 1; i < FABRIC_GUIDS; i++) { /* the first is the port's own */
		uint64_t guid = get_be64(r->data + 8 * i);

		if (guid == r->end->shared->guid[i])
			continue;
		table_changes(r->subnet);
		r->end->shared->guid[i] = guid;
		changed = true;
	}
	if (changed)
		tell_changed(r->end, SUBNET_GUIDS_CHANGED);
	return MAD_STATUS_OK;
}

/* ---- PortInfo: sma_port.c ---- */
static uint16_t get_port_info(struct request *r)
{
	struct subnet_port *p = port_named(r, r->mod & ~PORT_INFO_EXTENDED);

	if (!p)
		return MAD_STATUS_BAD_FIELD;
	sma_get_port_info(p, r->mkey, r->data);
	r->data[28] = r->in->num; /* LocalPortNum */
	return MAD_STATUS_OK;
}

static uint16_t set_port_info(struct request *r)
{
	struct subnet_port *p = port_named(r, r->mod & ~PORT_INFO_EXTENDED);

	return p ? sma_set_port_info(p, r->mod, r->data) : MAD_STATUS_BAD_FIELD;
}

/* ---- P_KeyTable: 32 to a block, of which there is one; a switch has one for each port ---- */
static struct subnet_port *pkey_port(const struct request *r)
{
	if (r->mod & 0xffff)
		return NULL;
	return is_switch(r->node) ? subnet_port(r->node, r->mod >> 16) : r->in;
}

static uint16_t get_pkeys(struct request *r)
{
	const struct subnet_port *p = pkey_port(r);

	if (!p)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		put_be16(r->data + 2 * i, p->shared->pkey[i]);
	return MAD_STATUS_OK;
}

static uint16_t set_pkeys(struct request *r)
{
	struct subnet_port *p = pkey_port(r);
	bool changed = false;

	if (!p)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < FABRIC_PKEYS; i++) {
		uint16_t pkey = get_be16(r->data + 2 * i);

		if (pkey == p->shared->pkey[i])
			continue;
		table_changes(r->subnet);
		p->shared->pkey[i] = pkey;
		changed = true;
	}
	if (changed && p == end_port(p))
		tell_changed(p, SUBNET_PKEYS_CHANGED);
	return MAD_STATUS_OK;
}

/* ---- SLtoVLMappingTable: of a switch one for each pair of input and output ---- */
static struct fabric_row *row_named(const struct request *r)
{
	unsigned in = r->mod >> 8 & 0xff, out = r->mod & 0xff;

	if (!is_switch(r->node))
		return fabric_row(r->subnet->table, r->in->shared->sl2vl);
	if (in > r->node->nports || out > r->node->nports)
		return NULL;
	return fabric_row(r->subnet->table, r->node->port[out].shared->sl2vl + in);
}

static uint16_t get_sl2vl(struct request *r)
{
	const struct fabric_row *row = row_named(r);

	if (!row)
		return MAD_STATUS_BAD_FIELD;
	memcpy(r->data, row->vl, sizeof(row->vl));
	return MAD_STATUS_OK;
}

static uint16_t set_sl2vl(struct request *r)
{
	struct fabric_row *row = row_named(r);

	if (!row)
		return MAD_STATUS_BAD_FIELD;
	if (memcmp(row->vl, r->data, sizeof(row->vl))) {
		table_changes(r->subnet);
		memcpy(row->vl, r->data, sizeof(row->vl));
	}
	return MAD_STATUS_OK;
}

/* ---- VLArbitrationTable: blocks 1 and 2 of low priority, 3 and 4 of high, 32 entries each ---- */
static uint8_t *arb_named(const struct request *r)
{
	unsigned block = r->mod >> 16;
	struct subnet_port *p = is_switch(r->node) ? subnet_port(r->node, r->mod & 0xffff) : r->in;

	/* We have fewer than 32 of each: a second block has nothing. */
	return p && (block == 1 || block == 3) ? p->regs->vl_arb[block / 2] : NULL;
}

static uint16_t get_vl_arb(struct request *r)
{
	const uint8_t *arb = arb_named(r);

	if (!arb)
		return MAD_STATUS_BAD_FIELD;
	memcpy(r->data, arb, 2 * SUBNET_VL_ARB);
	return MAD_STATUS_OK;
}

static uint16_t set_vl_arb(struct request *r)
{
	uint8_t *arb = arb_named(r);

	if (!arb)
		return MAD_STATUS_BAD_FIELD;
	memcpy(arb, r->data, 2 * SUBNET_VL_ARB);
	return MAD_STATUS_OK;
}

/* ---- LinearForwardingTable: 64 LIDs to a block ---- */
static uint16_t get_lft(struct request *r)
{
	if (r->mod >= FABRIC_LIDS / 64)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < 64; i++)
		r->data[i] = fabric_lft(r->subnet->table, r->node->sw->index, (uint16_t)(r->mod * 64 + i));
	return MAD_STATUS_OK;
}

static uint16_t set_lft(struct request *r)
{
	if (r->mod >= FABRIC_LIDS / 64)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < 64; i++) {
		uint16_t lid = (uint16_t)(r->mod * 64 + i);

		if (fabric_lft(r->subnet->table, r->node->sw->index, lid) == r->data[i])
			continue;
		table_changes(r->subnet);
		fabric_lft_set(r->subnet->table, r->node->sw->index, lid, r->data[i]);
	}
	return MAD_STATUS_OK;
}

/* ---- MulticastForwardingTable: 32 LIDs to a block, 16 ports to a position ---- */
static uint16_t *mft_block(const struct request *r)
{
	unsigned block = r->mod & 0x1ff, position = r->mod >> 28;

	if (block >= SUBNET_MLIDS / 32 || position > r->node->nports / 16)
		return NULL;
	return r->node->sw->mft + position * SUBNET_MLIDS + block * 32;
}

static uint16_t get_mft(struct request *r)
{
	const uint16_t *mft = mft_block(r);

	if (!mft)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < 32; i++)
		put_be16(r->data + 2 * i, mft[i]);
	return MAD_STATUS_OK;
}

static uint16_t set_mft(struct request *r)
{
	uint16_t *mft = mft_block(r);

	if (!mft)
		return MAD_STATUS_BAD_FIELD;
	for (unsigned i = 0; i < 32; i++)
		mft[i] = get_be16(r->data + 2 * i);
	return MAD_STATUS_OK;
}

/* ---- Notice: what has not been heard yet, for who asks rather than waits for traps ---- */
static uint16_t get_notice(struct request *r)
{
	trap_first(r->end->regs->agent, r->data);
	return MAD_STATUS_OK;
}

/* ---- Mellanox's ExtendedPortInfo: zeros, there is no FDR10. Only a description that was made elsewhere has
 * devices that OpenSM and ibnetdiscover ask for it; they complain where it is refused. ---- */
static uint16_t get_mlnx_port_info(struct request *r)
{
	return port_named(r, r->mod) ? MAD_STATUS_OK : MAD_STATUS_BAD_FIELD;
}

/* ---- the table ---- */
enum who { ANY, SWITCHES, OTHER_VENDORS };

static const struct attribute {
	uint16_t id;
	enum who who;
	uint16_t (*get)(struct request *);
	uint16_t (*set)(struct request *); /* NULL: it cannot be set */
} attributes[] = {
	{SMP_NOTICE, ANY, get_notice, NULL},
	{SMP_NODE_DESC, ANY, get_node_desc, NULL},
	{SMP_NODE_INFO, ANY, get_node_info, NULL},
	{SMP_SWITCH_INFO, SWITCHES, get_switch_info, set_switch_info},
	{SMP_GUID_INFO, ANY, get_guid_info, set_guid_info},
	{SMP_PORT_INFO, ANY, get_port_info, set_port_info},
	{SMP_PKEY_TABLE, ANY, get_pkeys, set_pkeys},
	{SMP_SL2VL, ANY, get_sl2vl, set_sl2vl},
	{SMP_VL_ARB, ANY, get_vl_arb, set_vl_arb},
	{SMP_LFT, SWITCHES, get_lft, set_lft},
	{SMP_MFT, SWITCHES, get_mft, set_mft},
	{SMP_MLNX_PORT_INFO, OTHER_VENDORS, get_mlnx_port_info, NULL},
};

static bool is_one(const struct subnet_node *n, enum who who)
{
	return who == ANY || (who == SWITCHES ? is_switch(n) : n->vendor_id != SUBNET_VENDOR);
}

static const struct attribute *attribute_of(const struct subnet_node *n, uint16_t id)
{
	for (unsigned i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
		if (attributes[i].id == id)
			return is_one(n, attributes[i].who) ? &attributes[i] : NULL;
	return NULL;
}

/* A Set is answered with what there is afterwards, also when it was refused. */
static uint16_t act(struct request *r, const struct mad_hdr *h)
{
	const struct attribute *a = attribute_of(r->node, h->attr);
	uint16_t status = MAD_STATUS_OK;

	if (h->base_version != MAD_BASE_VERSION || h->class_version != SMP_CLASS_VERSION)
		return MAD_STATUS_BAD_VERSION;
	if (h->method != MAD_METHOD_GET && h->method != MAD_METHOD_SET)
		return MAD_STATUS_NO_METHOD;
	if (!a || (h->method == MAD_METHOD_SET && !a->set))
		return MAD_STATUS_NO_ATTRIBUTE;
	if (h->method == MAD_METHOD_SET)
		status = a->set(r);
	memset(r->data, 0, SMP_DATA_LEN);
	return (uint16_t)(a->get(r) | status);
}

uint16_t sma_do(
	struct subnet_port *end, uint8_t method, uint16_t attr, uint32_t mod, uint8_t data[SMP_DATA_LEN])
{
	const struct mad_hdr h = {.base_version = MAD_BASE_VERSION,
		.class_version = SMP_CLASS_VERSION,
		.method = method,
		.attr = attr};
	struct request r = {end->node->subnet, end->node, end, end, mod, end->regs->agent->mkey, data};

	return act(&r, &h);
}

/* Not answers, not even what only looks like one by its direction. */
static bool is_ours(const struct mad_hdr *h, const uint8_t *smp)
{
	if ((h->method & MAD_METHOD_RESPONSE) || (smp_is_directed(smp) && smp_is_returning(smp)))
		return false;
	return h->method != MAD_METHOD_TRAP && h->attr != SMP_SM_INFO;
}

enum sma_verdict sma_handle(struct subnet *s, struct subnet_port *in, const struct packet *p, uint8_t *smp)
{
	struct mad_hdr h = mad_hdr_get(smp);
	struct subnet_port *end = end_port(in);
	struct request r = {s, in->node, in, end, h.attr_mod, smp_mkey(smp), smp + SMP_DATA};

	if (!is_ours(&h, smp))
		return SMA_NOT_OURS;
	if (!mkey_allows(s, end->regs->agent, p, smp))
		return SMA_SILENT;
	if (h.method == MAD_METHOD_TRAP_REPRESS) {
		trap_repress(end->regs->agent, smp);
		return SMA_SILENT;
	}
	put_be16(smp + SMP_STATUS, (uint16_t)(act(&r, &h) | (smp_is_directed(smp) ? SMP_RETURNING : 0)));
	smp[3] = h.method == MAD_METHOD_SET ? MAD_METHOD_GET_RESP : h.method | MAD_METHOD_RESPONSE;
	return SMA_ANSWERED;
}
