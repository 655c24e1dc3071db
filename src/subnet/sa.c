/* SPDX-License-Identifier: MIT */
/*
 * Questions to the subnet administration: a row per attribute with what may be done to it, and the records
 * that can be read off the subnet itself. Those that clients make have files of their own.
 */
#include "subnet/sm_parts.h"

#include "wire/rmpp.h"

#include <stdlib.h>

enum {
	TRUSTED_KEY = 1,     /* as OpenSM has it from the factory (sa_key) */
	CAP_GROUPS = 0x0200, /* ClassPortInfo.CapabilityMask: UD multicast */
	CAP_MATCH = 0x2000,  /* MATCH_CAPABILITIES */
	RESP_TIME = 16,
	MATCH_CAPABILITIES =
		31, /* bit of PortInfoRecord's modifier: all bits that are named, whatever others */
};

/* ---- who is who ---- */
void sm_gid(const struct subnet_port *end, uint8_t gid[16])
{
	put_be64(gid, end->shared->prefix);
	put_be64(gid + 8, end->shared->guid[0]);
}

struct subnet_port *sm_port_of_lid(const struct subnet_sm *m, uint16_t lid)
{
	uint32_t owner = lid < FABRIC_LIDS ? m->lid_owner[lid] : 0;

	return owner ? m->end[owner - 1] : NULL;
}

struct subnet_port *sm_port_of_gid(const struct subnet_sm *m, const uint8_t gid[16])
{
	for (unsigned i = 0; i < m->nends; i++)
		for (unsigned k = 0; k < FABRIC_GUIDS; k++) {
			const struct fabric_port *f = m->end[i]->shared;

			if (f->guid[k] && f->guid[k] == get_be64(gid + 8) && f->prefix == get_be64(gid))
				return m->end[i];
		}
	return NULL;
}

/* ---- the answer ---- */
bool sa_add(struct sa_request *r, const uint8_t *record)
{
	struct sa_state *sa = &r->m->sa;
	size_t stride = sa_stride(r->record);

	if (sa->len + stride > SA_ANSWER_MAX)
		return false;
	if (sa->len + stride > sa->room) {
		size_t room = 2 * sa->room + stride;
		uint8_t *answer = realloc(sa->answer, room);

		if (!answer)
			return false;
		sa->answer = answer;
		sa->room = room;
	}
	memset(sa->answer + sa->len, 0, stride);
	memcpy(sa->answer + sa->len, record, r->record->len);
	sa->len += stride;
	r->found++;
	return true;
}

bool sa_add_match(struct sa_request *r, const uint8_t *record)
{
	return !sa_matches(r->record, r->mask, r->data, record) || sa_add(r, record);
}

/* ---- records of the subnet itself ---- */
static bool add_node(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[108] = {0}, data[SMP_DATA_LEN];

	put_be16(record, end->shared->lid);
	memset(data, 0, sizeof(data));
	sma_do(end, MAD_METHOD_GET, SMP_NODE_INFO, 0, data);
	memcpy(record + 4, data, 40);
	sma_do(end, MAD_METHOD_GET, SMP_NODE_DESC, 0, data);
	memcpy(record + 44, data, SMP_DATA_LEN);
	return sa_add_match(r, record);
}

static bool add_port(struct sa_request *r, struct subnet_port *p)
{
	uint8_t record[68] = {0};
	uint64_t mask = r->mask;
	bool ok;

	put_be16(record, end_port(p)->shared->lid);
	record[2] = p->num;
	sma_do(end_port(p), MAD_METHOD_GET, SMP_PORT_INFO, p->num, record + 4);
	if (!r->trusted)
		memset(record + 4, 0, 8); /* its M_Key */
	if (r->h.attr_mod >> MATCH_CAPABILITIES && mask & 1 << 7) {
		if (get_be32(r->data + 24) & ~get_be32(record + 24))
			return true;
		r->mask &= ~(1ull << 7);
	}
	ok = sa_add_match(r, record);
	r->mask = mask;
	return ok;
}

static bool add_ports(struct sa_request *r, struct subnet_port *end)
{
	bool ok = true;

	if (!is_switch(end->node))
		return add_port(r, end);
	for (unsigned k = 0; k <= end->node->nports && ok; k++)
		ok = add_port(r, &end->node->port[k]);
	return ok;
}

static bool add_switch(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[4 + SMP_DATA_LEN] = {0};

	if (!is_switch(end->node))
		return true;
	put_be16(record, end->shared->lid);
	sma_do(end, MAD_METHOD_GET, SMP_SWITCH_INFO, 0, record + 4);
	return sa_add_match(r, record);
}

static bool add_sm(struct sa_request *r, struct subnet_port *end)
{
	uint8_t record[28] = {0};

	if (end != r->m->home)
		return true;
	put_be16(record, end->shared->lid);
	sm_info_put(r->m, record + 4);
	return sa_add_match(r, record);
}

static bool add_link(struct sa_request *r, struct subnet_port *p)
{
	uint8_t record[8] = {0};

	if (!sm_link_up(p))
		return true;
	put_be16(record, end_port(p)->shared->lid);
	record[2] = p->num;
	record[3] = p->peer->num;
	put_be16(record + 4, end_port(p->peer)->shared->lid);
	return sa_add_match(r, record);
}

static bool add_links(struct sa_request *r, struct subnet_port *end)
{
	bool ok = true;

	if (!is_switch(end->node))
		return add_link(r, end);
	for (unsigned k = 1; k <= end->node->nports && ok; k++)
		ok = add_link(r, &end->node->port[k]);
	return ok;
}

uint16_t sa_of_all(struct sa_request *r, bool (*one)(struct sa_request *, struct subnet_port *))
{
	for (unsigned i = 0; i < r->m->nends; i++)
		if ((sm_is_there(r->m->end[i]) || r->m->end[i] == r->m->home) && !one(r, r->m->end[i]))
			return SA_NO_RESOURCES;
	return MAD_STATUS_OK;
}

static uint16_t get_nodes(struct sa_request *r)
{
	return sa_of_all(r, add_node);
}

static uint16_t get_ports(struct sa_request *r)
{
	return sa_of_all(r, add_ports);
}

static uint16_t get_switches(struct sa_request *r)
{
	return sa_of_all(r, add_switch);
}

static uint16_t get_sms(struct sa_request *r)
{
	return sa_of_all(r, add_sm);
}

static uint16_t get_links(struct sa_request *r)
{
	return sa_of_all(r, add_links);
}

static uint16_t get_class_port_info(struct sa_request *r)
{
	uint8_t info[72] = {MAD_BASE_VERSION, SA_CLASS_VERSION};

	put_be16(info + 2, CAP_GROUPS | CAP_MATCH);
	put_be32(info + 4, RESP_TIME);
	put_be32(info + 32, GSI_QPN);
	put_be32(info + 36, GSI_QKEY);
	put_be32(info + 68, GSI_QKEY); /* for traps */
	return sa_add(r, info) ? MAD_STATUS_OK : SA_NO_RESOURCES;
}

/* ---- the table ---- */
static const struct attribute {
	uint16_t id;
	uint16_t (*get)(struct sa_request *); /* and GetTable */
	uint16_t (*set)(struct sa_request *);
	uint16_t (*remove)(struct sa_request *);
} attributes[] = {
	{SA_CLASS_PORT_INFO, get_class_port_info, NULL, NULL},
	{SA_INFORM_INFO, NULL, sa_set_inform, NULL},
	{SA_NODE, get_nodes, NULL, NULL},
	{SA_PORT_INFO, get_ports, NULL, NULL},
	{SA_SWITCH_INFO, get_switches, NULL, NULL},
	{SA_SL2VL, sa_get_sl2vls, NULL, NULL},
	{SA_LFT, sa_get_lfts, NULL, NULL},
	{SA_MFT, sa_get_mfts, NULL, NULL},
	{SA_GUID_INFO, sa_get_guids, NULL, NULL},
	{SA_PKEY_TABLE, sa_get_pkeys, NULL, NULL},
	{SA_VL_ARB, sa_get_vl_arbs, NULL, NULL},
	{SA_SM_INFO, get_sms, NULL, NULL},
	{SA_LINK, get_links, NULL, NULL},
	{SA_SERVICE, sa_get_services, sa_set_service, sa_delete_service},
	{SA_PATH, sa_get_paths, NULL, NULL},
	{SA_MC_MEMBER, sa_get_members, sa_set_member, sa_delete_member},
};

static uint16_t (*function_of(const struct attribute *a, uint8_t method))(struct sa_request *)
{
	switch (method) {
	case MAD_METHOD_GET:
	case SA_GET_TABLE:
		return a->get;
	case MAD_METHOD_SET:
		return a->set;
	case SA_DELETE:
		return a->remove;
	}
	return NULL;
}

static uint16_t act(struct sa_request *r)
{
	const struct attribute *a = NULL;
	uint16_t status;

	if (r->h.class_version != SA_CLASS_VERSION)
		return MAD_STATUS_BAD_VERSION;
	for (unsigned i = 0; i < sizeof(attributes) / sizeof(*attributes); i++)
		if (attributes[i].id == r->h.attr)
			a = &attributes[i];
	if (!a || !function_of(a, r->h.method))
		return MAD_STATUS_NO_ATTRIBUTE;
	r->record = sa_record(r->h.attr);
	status = function_of(a, r->h.method)(r);
	if (status || r->h.method != MAD_METHOD_GET)
		return status;
	return !r->found ? SA_NO_RECORDS : r->found > 1 ? SA_TOO_MANY : MAD_STATUS_OK;
}

/* ---- messages ---- */
static bool is_request(const struct mad_hdr *h)
{
	return h->base_version == MAD_BASE_VERSION && h->mgmt_class == MAD_CLASS_SA &&
	       (h->method == MAD_METHOD_GET || h->method == MAD_METHOD_SET ||
		       (h->method >= SA_GET_TABLE && h->method <= SA_DELETE));
}

static uint8_t answer_method(uint8_t method)
{
	return method == MAD_METHOD_SET ? MAD_METHOD_GET_RESP : method | MAD_METHOD_RESPONSE;
}

/* A table goes in segments, even an empty one; anything else is one MAD. The SM_Key is nobody's to see. */
static size_t finish(const struct sa_request *r, uint16_t status)
{
	struct sa_state *sa = &r->m->sa;
	bool table = r->h.method == SA_GET_TABLE && !status;
	uint8_t *a = sa->answer;

	a[3] = answer_method(r->h.method);
	put_be16(a + 4, status);
	memset(a + MAD_HDR_LEN, 0, SA_MASK - MAD_HDR_LEN);
	if (status)
		memcpy(a + SA_DATA, r->data, SA_RECORD_MAX);
	else if (sa->len < MAD_LEN)
		memset(a + sa->len, 0, MAD_LEN - sa->len);
	if (!table)
		return MAD_LEN;
	put_be16(a + SA_ATTR_OFFSET, (uint16_t)(sa_stride(r->record) / 8));
	rmpp_hdr_put(a, &(struct rmpp_hdr){RMPP_VERSION, RMPP_DATA, RMPP_ACTIVE, 0, 0, 0});
	return sa->len;
}

size_t subnet_sa_answer(struct subnet_sm *m, uint16_t slid, const uint8_t *msg, size_t len, uint64_t now,
	const uint8_t **answer)
{
	struct sa_request r = {.m = m, .now = now};
	uint8_t data[SA_RECORD_MAX] = {0};
	uint16_t status;

	if (!m->master || len < SA_DATA)
		return 0;
	r.h = mad_hdr_get(msg);
	if (!is_request(&r.h))
		return 0;
	memcpy(data, msg + SA_DATA, len - SA_DATA < sizeof(data) ? len - SA_DATA : sizeof(data));
	r.data = data;
	r.mask = get_be64(msg + SA_MASK);
	r.trusted = get_be64(msg + SA_SM_KEY) == TRUSTED_KEY;
	r.asker = sm_port_of_lid(m, slid);
	memcpy(m->sa.answer, msg, SA_DATA);
	m->sa.len = SA_DATA;
	enter(m->s, now);
	status = act(&r);
	leave(m->s);
	len = finish(&r, status);
	*answer = m->sa.answer;
	return len;
}
