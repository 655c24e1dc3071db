/* SPDX-License-Identifier: MIT */
/* The performance management agent: a row for every field of every attribute that shows a counter. */
#include "subnet/parts.h"

#include "wire/perf.h"

#include <assert.h>

/* A field of an attribute, in bits from its beginning; select is the bit of CounterSelect that resets it. */
static const struct field {
	uint16_t attr, at;
	uint8_t bits, select, counter;
} fields[] = {
	{PERF_PORT_COUNTERS, 32, 16, 0, CNT_SYMBOL_ERRORS},
	{PERF_PORT_COUNTERS, 48, 8, 1, CNT_LINK_RECOVERY},
	{PERF_PORT_COUNTERS, 56, 8, 2, CNT_LINK_DOWNED},
	{PERF_PORT_COUNTERS, 64, 16, 3, CNT_RCV_ERRORS},
	{PERF_PORT_COUNTERS, 80, 16, 4, CNT_RCV_REMOTE_PHYSICAL},
	{PERF_PORT_COUNTERS, 96, 16, 5, CNT_RCV_SWITCH_RELAY},
	{PERF_PORT_COUNTERS, 112, 16, 6, CNT_XMIT_DISCARDS},
	{PERF_PORT_COUNTERS, 128, 8, 7, CNT_XMIT_CONSTRAINT},
	{PERF_PORT_COUNTERS, 136, 8, 8, CNT_RCV_CONSTRAINT},
	{PERF_PORT_COUNTERS, 152, 4, 9, CNT_LINK_INTEGRITY},
	{PERF_PORT_COUNTERS, 156, 4, 10, CNT_BUFFER_OVERRUN},
	{PERF_PORT_COUNTERS, 160, 16, 17, CNT_QP1_DROPPED},
	{PERF_PORT_COUNTERS, 176, 16, 11, CNT_VL15_DROPPED},
	{PERF_PORT_COUNTERS, 192, 32, 12, CNT_XMIT_DATA},
	{PERF_PORT_COUNTERS, 224, 32, 13, CNT_RCV_DATA},
	{PERF_PORT_COUNTERS, 256, 32, 14, CNT_XMIT_PKTS},
	{PERF_PORT_COUNTERS, 288, 32, 15, CNT_RCV_PKTS},
	{PERF_PORT_COUNTERS, 320, 32, 16, CNT_XMIT_WAIT},
	{PERF_RCV_ERROR_DETAILS, 32, 16, 0, CNT_LOCAL_PHYSICAL},
	{PERF_RCV_ERROR_DETAILS, 48, 16, 1, CNT_MALFORMED},
	{PERF_RCV_ERROR_DETAILS, 64, 16, 2, CNT_OVERRUN},
	{PERF_RCV_ERROR_DETAILS, 80, 16, 3, CNT_DLID_MAPPING},
	{PERF_RCV_ERROR_DETAILS, 96, 16, 4, CNT_VL_MAPPING},
	{PERF_RCV_ERROR_DETAILS, 112, 16, 5, CNT_LOOPING},
	{PERF_XMIT_DISCARD_DETAILS, 32, 16, 0, CNT_INACTIVE},
	{PERF_XMIT_DISCARD_DETAILS, 48, 16, 1, CNT_NEIGHBOR_MTU},
	{PERF_XMIT_DISCARD_DETAILS, 64, 16, 2, CNT_LIFETIME},
	{PERF_XMIT_DISCARD_DETAILS, 80, 16, 3, CNT_HOQ_LIFE},
	{PERF_PORT_COUNTERS_EXT, 64, 64, 0, CNT_XMIT_DATA},
	{PERF_PORT_COUNTERS_EXT, 128, 64, 1, CNT_RCV_DATA},
	{PERF_PORT_COUNTERS_EXT, 192, 64, 2, CNT_XMIT_PKTS},
	{PERF_PORT_COUNTERS_EXT, 256, 64, 3, CNT_RCV_PKTS},
	{PERF_PORT_COUNTERS_EXT, 320, 64, 4, CNT_UNICAST_XMIT},
	{PERF_PORT_COUNTERS_EXT, 384, 64, 5, CNT_UNICAST_RCV},
	{PERF_PORT_COUNTERS_EXT, 448, 64, 6, CNT_MCAST_XMIT},
	{PERF_PORT_COUNTERS_EXT, 512, 64, 7, CNT_MCAST_RCV},
#define SL(n)                                                                                                \
	{PERF_XMIT_DATA_SL, 32 + 32 * (n), 32, n, CNT_XMIT_DATA_SL + (n)},                                   \
	{                                                                                                    \
		PERF_RCV_DATA_SL, 32 + 32 * (n), 32, n, CNT_RCV_DATA_SL + (n)                                \
	}
	SL(0),
	SL(1),
	SL(2),
	SL(3),
	SL(4),
	SL(5),
	SL(6),
	SL(7),
	SL(8),
	SL(9),
	SL(10),
	SL(11),
	SL(12),
	SL(13),
	SL(14),
	SL(15),
#undef SL
};

static_assert(sizeof(fields) / sizeof(*fields) == PMA_FIELDS, "each has a base");

/* ---- fields ---- */
static uint64_t most(const struct field *f)
{
	return f->bits == 64 ? UINT64_MAX : (1ull << f->bits) - 1;
}

static uint64_t field_get(const uint8_t *data, const struct field *f)
{
	const uint8_t *p = data + f->at / 8;

	switch (f->bits) {
	case 4:
		return f->at % 8 ? *p & 15 : *p >> 4;
	case 8:
		return *p;
	case 16:
		return get_be16(p);
	case 32:
		return get_be32(p);
	default:
		return get_be64(p);
	}
}

static void field_put(uint8_t *data, const struct field *f, uint64_t v)
{
	uint8_t *p = data + f->at / 8;

	switch (f->bits) {
	case 4:
		*p = (uint8_t)(f->at % 8 ? (*p & 0xf0) | v : (*p & 0x0f) | v << 4);
		break;
	case 8:
		*p = (uint8_t)v;
		break;
	case 16:
		put_be16(p, (uint16_t)v);
		break;
	case 32:
		put_be32(p, (uint32_t)v);
		break;
	default:
		put_be64(p, v);
	}
}

/* ---- a request is for one port or, of a switch, for all ---- */
struct ports {
	unsigned first, last;
};

static bool ports_named(const struct subnet_node *n, unsigned select, struct ports *out)
{
	if (select == PERF_ALL_PORTS && is_switch(n)) {
		*out = (struct ports){1, n->nports};
		return true;
	}
	*out = (struct ports){select, select};
	return subnet_port(n, select);
}

static uint64_t view(const struct subnet_node *n, unsigned port, unsigned i)
{
	const struct pma_counters *c = &n->port[port].regs->count;

	return c->total[fields[i].counter] - c->base[i];
}

/* Together at most what the field holds, as each of them. */
static uint64_t sum(const struct subnet_node *n, const struct ports *ports, unsigned i)
{
	uint64_t all = 0;

	for (unsigned port = ports->first; port <= ports->last; port++)
		if (__builtin_add_overflow(all, view(n, port, i), &all))
			return most(&fields[i]);
	return all < most(&fields[i]) ? all : most(&fields[i]);
}

static void get_counters(const struct subnet_node *n, uint16_t attr, const struct ports *ports, uint8_t *data)
{
	memset(data + 4, 0, PERF_DATA_LEN - 4);
	for (unsigned i = 0; i < PMA_FIELDS; i++)
		if (fields[i].attr == attr)
			field_put(data, &fields[i], sum(n, ports, i));
}

/* The bits behind those of CounterSelect are of PortCounters alone. */
static bool is_selected(const struct field *f, const uint8_t *data)
{
	unsigned select = get_be16(data + PERF_COUNTER_SELECT);

	if (f->select >= 16)
		select = (unsigned)data[PERF_COUNTER_SELECT2] << 16;
	return select >> f->select & 1;
}

static void set_counters(struct subnet_node *n, uint16_t attr, const struct ports *ports, const uint8_t *data)
{
	for (unsigned i = 0; i < PMA_FIELDS; i++) {
		const struct field *f = &fields[i];

		if (f->attr != attr || !is_selected(f, data))
			continue;
		for (unsigned port = ports->first; port <= ports->last; port++) {
			struct pma_counters *c = &n->port[port].regs->count;

			c->base[i] = c->total[f->counter] - field_get(data, f);
		}
	}
}

/* ---- attributes ---- */
static uint16_t class_port_info(const struct subnet_node *n, uint8_t *data)
{
	memset(data, 0, PERF_DATA_LEN);
	data[0] = MAD_BASE_VERSION;
	data[1] = PERF_CLASS_VERSION;
	put_be16(data + 2, PERF_CAP_EXTENDED | PERF_CAP_XMIT_WAIT | (is_switch(n) ? PERF_CAP_ALL_PORTS : 0));
	put_be32(data + 4, SUBNET_RESP_TIME);
	return MAD_STATUS_OK;
}

static bool has_counters(uint16_t attr)
{
	for (unsigned i = 0; i < PMA_FIELDS; i++)
		if (fields[i].attr == attr)
			return true;
	return false;
}

static uint16_t act(struct subnet_node *n, const struct mad_hdr *h, uint8_t *data)
{
	struct ports ports;

	if (h->base_version != MAD_BASE_VERSION || h->class_version != PERF_CLASS_VERSION)
		return MAD_STATUS_BAD_VERSION;
	if (h->attr == PERF_CLASS_PORT_INFO)
		return class_port_info(n, data); /* a Set would change where its traps go: there are none */
	if (!has_counters(h->attr))
		return MAD_STATUS_NO_ATTRIBUTE;
	if (!ports_named(n, data[PERF_PORT_SELECT], &ports))
		return MAD_STATUS_BAD_FIELD;
	take_tallies(n->subnet);
	if (h->method == MAD_METHOD_SET)
		set_counters(n, h->attr, &ports, data);
	get_counters(n, h->attr, &ports, data);
	return MAD_STATUS_OK;
}

bool pma_handle(struct subnet_node *n, uint8_t *mad)
{
	const struct mad_hdr h = mad_hdr_get(mad);

	if (h.method != MAD_METHOD_GET && h.method != MAD_METHOD_SET)
		return false;
	put_be16(mad + 4, act(n, &h, mad + PERF_DATA));
	mad[3] = MAD_METHOD_GET_RESP;
	return true;
}
