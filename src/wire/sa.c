/* SPDX-License-Identifier: MIT */
#include "wire/sa.h"

/* ---- components, in the order of their bits ---- */
static const struct sa_field node[] = {{0, 16}, {0, 0}, {32, 8}, {40, 8}, {48, 8}, {56, 8}, {64, 64},
	{128, 64}, {192, 64}, {256, 16}, {272, 16}, {288, 32}, {320, 8}, {328, 24}, {352, 512}};

static const struct sa_field port_info[] = {{0, 16}, {16, 8}, {0, 0}, {32, 64}, {96, 64}, {160, 16},
	{176, 16}, {192, 32}, {224, 16}, {240, 16}, {256, 8}, {264, 8}, {272, 8}, {280, 8}, {288, 4},
	{292, 4}, {296, 4}, {300, 4}, {304, 2}, {0, 0}, {309, 3}, {312, 4}, {316, 4}, {320, 4}, {324, 4},
	{328, 4}, {332, 4}, {336, 8}, {344, 8}, {352, 8}, {360, 4}, {364, 4}, {368, 3}, {371, 5}, {376, 4},
	{380, 1}, {381, 1}, {382, 1}, {383, 1}, {384, 16}, {400, 16}, {416, 16}, {432, 8}, {0, 0}, {443, 5},
	{0, 0}, {451, 5}, {456, 4}, {460, 4}};

static const struct sa_field switch_info[] = {{0, 16}, {0, 0}, {32, 16}, {48, 16}, {64, 16}, {80, 16},
	{96, 8}, {104, 8}, {112, 8}, {120, 5}, {125, 1}, {0, 0}, {128, 16}, {144, 16}, {160, 1}, {161, 1}};

static const struct sa_field sl2vl[] = {{0, 16}, {16, 8}, {24, 8}};
static const struct sa_field lft[] = {{0, 16}, {16, 16}};
static const struct sa_field mft[] = {{0, 16}, {16, 4}, {0, 0}, {23, 9}};
static const struct sa_field guid_info[] = {{0, 16}, {16, 8}};
static const struct sa_field pkey_table[] = {{0, 16}, {16, 16}, {32, 8}};
static const struct sa_field vl_arb[] = {{0, 16}, {16, 8}, {24, 8}};

static const struct sa_field sm_info[] = {{0, 16}, {0, 0}, {32, 64}, {96, 64}, {160, 32}, {192, 4}, {196, 4}};

static const struct sa_field link[] = {{0, 16}, {16, 8}, {24, 8}, {32, 16}};

static const struct sa_field service[] = {{0, 64}, {64, 128}, {192, 16}, {224, 32}, {256, 128}, {384, 512},
	{896, 8}, {904, 8}, {912, 8}, {920, 8}, {928, 8}, {936, 8}, {944, 8}, {952, 8}, {960, 8}, {968, 8},
	{976, 8}, {984, 8}, {992, 8}, {1000, 8}, {1008, 8}, {1016, 8}, {1024, 16}, {1040, 16}, {1056, 16},
	{1072, 16}, {1088, 16}, {1104, 16}, {1120, 16}, {1136, 16}, {1152, 32}, {1184, 32}, {1216, 32},
	{1248, 32}, {1280, 64}, {1344, 64}};

/* Selectors, and what they are about, are compared by who knows the order of the values. */
static const struct sa_field path[] = {{0, 0}, {0, 0}, {64, 128}, {192, 128}, {320, 16}, {336, 16}, {352, 1},
	{0, 0}, {356, 20}, {376, 8}, {384, 8}, {0, 0}, {0, 0}, {400, 16}, {416, 12}, {428, 4}};

static const struct sa_field member[] = {{0, 128}, {128, 128}, {256, 32}, {288, 16}, {0, 0}, {0, 0}, {312, 8},
	{320, 16}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {352, 4}, {356, 20}, {376, 8}, {384, 4}, {0, 0}, {392, 1}};

#define FIELDS(list) sizeof(list) / sizeof(*(list)), list

static const struct sa_record records[] = {
	{SA_CLASS_PORT_INFO, 72, 0, NULL},
	{SA_INFORM_INFO, 36, 0, NULL},
	{SA_NODE, 108, FIELDS(node)},
	{SA_PORT_INFO, 68, FIELDS(port_info)},
	{SA_SWITCH_INFO, 24, FIELDS(switch_info)},
	{SA_SL2VL, 16, FIELDS(sl2vl)},
	{SA_LFT, 72, FIELDS(lft)},
	{SA_MFT, 72, FIELDS(mft)},
	{SA_GUID_INFO, 72, FIELDS(guid_info)},
	{SA_PKEY_TABLE, 72, FIELDS(pkey_table)},
	{SA_VL_ARB, 72, FIELDS(vl_arb)},
	{SA_SM_INFO, 28, FIELDS(sm_info)},
	{SA_LINK, 6, FIELDS(link)},
	{SA_SERVICE, 176, FIELDS(service)},
	{SA_PATH, 64, FIELDS(path)},
	{SA_MC_MEMBER, 52, FIELDS(member)},
};

const struct sa_record *sa_record(uint16_t attr)
{
	for (unsigned i = 0; i < sizeof(records) / sizeof(*records); i++)
		if (records[i].attr == attr)
			return &records[i];
	return NULL;
}

static bool bits_equal(const struct sa_field *f, const uint8_t *a, const uint8_t *b)
{
	for (unsigned i = f->at; i < f->at + f->bits;) {
		if (i % 8 == 0 && f->at + f->bits - i >= 8) {
			if (a[i / 8] != b[i / 8])
				return false;
			i += 8;
		} else {
			if ((a[i / 8] ^ b[i / 8]) >> (7 - i % 8) & 1)
				return false;
			i++;
		}
	}
	return true;
}

bool sa_matches(const struct sa_record *r, uint64_t mask, const uint8_t *question, const uint8_t *record)
{
	for (unsigned i = 0; i < r->nfields; i++)
		if (mask >> i & 1 && !bits_equal(&r->field[i], question, record))
			return false;
	return true;
}

/* ---- PathRecord ---- */
struct sa_path sa_path_get(const uint8_t *p)
{
	uint32_t word = get_be32(p + 44);
	struct sa_path r = {.dlid = get_be16(p + 40),
		.slid = get_be16(p + 42),
		.raw = word >> 31,
		.flow_label = word >> 8 & 0xfffff,
		.hop_limit = (uint8_t)word,
		.tclass = p[48],
		.reversible = p[49] >> 7,
		.numb = p[49] & 0x7f,
		.pkey = get_be16(p + 50),
		.qos_class = get_be16(p + 52) >> 4,
		.sl = p[53] & 15,
		.mtu = p[54],
		.rate = p[55],
		.life = p[56],
		.preference = p[57]};

	memcpy(r.dgid, p + 8, 16);
	memcpy(r.sgid, p + 24, 16);
	return r;
}

void sa_path_put(uint8_t *p, const struct sa_path *r)
{
	memset(p, 0, 64);
	memcpy(p + 8, r->dgid, 16);
	memcpy(p + 24, r->sgid, 16);
	put_be16(p + 40, r->dlid);
	put_be16(p + 42, r->slid);
	put_be32(p + 44, (uint32_t)r->raw << 31 | (r->flow_label & 0xfffff) << 8 | r->hop_limit);
	p[48] = r->tclass;
	p[49] = (uint8_t)(r->reversible << 7 | (r->numb & 0x7f));
	put_be16(p + 50, r->pkey);
	put_be16(p + 52, (uint16_t)(r->qos_class << 4 | (r->sl & 15)));
	p[54] = r->mtu;
	p[55] = r->rate;
	p[56] = r->life;
	p[57] = r->preference;
}

/* ---- MCMemberRecord ---- */
struct sa_member sa_member_get(const uint8_t *p)
{
	uint32_t word = get_be32(p + 44);
	struct sa_member m = {.qkey = get_be32(p + 32),
		.mlid = get_be16(p + 36),
		.mtu = p[38],
		.tclass = p[39],
		.pkey = get_be16(p + 40),
		.rate = p[42],
		.life = p[43],
		.sl = (uint8_t)(word >> 28),
		.flow_label = word >> 8 & 0xfffff,
		.hop_limit = (uint8_t)word,
		.scope = p[48] >> 4,
		.join = p[48] & 15,
		.proxy = p[49] >> 7};

	memcpy(m.mgid, p, 16);
	memcpy(m.port_gid, p + 16, 16);
	return m;
}

void sa_member_put(uint8_t *p, const struct sa_member *m)
{
	memset(p, 0, 52);
	memcpy(p, m->mgid, 16);
	memcpy(p + 16, m->port_gid, 16);
	put_be32(p + 32, m->qkey);
	put_be16(p + 36, m->mlid);
	p[38] = m->mtu;
	p[39] = m->tclass;
	put_be16(p + 40, m->pkey);
	p[42] = m->rate;
	p[43] = m->life;
	put_be32(p + 44, (uint32_t)m->sl << 28 | (m->flow_label & 0xfffff) << 8 | m->hop_limit);
	p[48] = (uint8_t)(m->scope << 4 | (m->join & 15));
	p[49] = (uint8_t)(m->proxy << 7);
}

/* ---- InformInfo ---- */
struct sa_inform sa_inform_get(const uint8_t *p)
{
	struct sa_inform i = {.lid_begin = get_be16(p + 16),
		.lid_end = get_be16(p + 18),
		.generic = p[22],
		.subscribe = p[23],
		.type = get_be16(p + 24),
		.trap = get_be16(p + 26),
		.qpn = get_be24(p + 28),
		.resp_time = p[31] & 31,
		.producer = get_be24(p + 33)};

	memcpy(i.gid, p, 16);
	return i;
}

/* ---- rates, by what they are, not by their codes ---- */
static const struct {
	uint8_t code;
	uint16_t tenths;
} rates[] = {{2, 25}, {5, 50}, {3, 100}, {11, 140}, {6, 200}, {15, 250}, {19, 280}, {4, 300}, {7, 400},
	{20, 500}, {12, 560}, {8, 600}, {9, 800}, {16, 1000}, {13, 1120}, {10, 1200}, {14, 1680}, {17, 2000},
	{18, 3000}, {21, 4000}, {22, 6000}, {23, 8000}, {24, 12000}};
enum { RATES = sizeof(rates) / sizeof(*rates) };

uint8_t sa_rate_of(unsigned tenths)
{
	uint8_t code = 0;

	for (unsigned i = 0; i < RATES && rates[i].tenths <= tenths; i++)
		code = rates[i].code;
	return code;
}

unsigned sa_rate_tenths(uint8_t code)
{
	for (unsigned i = 0; i < RATES; i++)
		if (rates[i].code == code)
			return rates[i].tenths;
	return 0;
}
