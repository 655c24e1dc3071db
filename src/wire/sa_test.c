/* SPDX-License-Identifier: MIT */
/* Records as OpenSM 3.3.23 sent them to saquery, from a capture; and what is compared of them. */
#include "wire/sa.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

/* The path from LID 1 to LID 3 of tree:2,2,2. */
static const uint8_t path[64] = {0, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x61, 0x6e, 0, 0,
	0, 0x07, 0x01, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x61, 0x6e, 0, 0, 0, 0x05, 0x01, 0, 3, 0, 1, 0, 0,
	0, 0, 0, 0x80, 0xff, 0xff, 0, 0, 0x85, 0x91, 0x92};

/* IPoIB's broadcast group. */
static const uint8_t member[52] = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff,
	0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b, 0x1b, 0xc0, 0, 0x84, 0, 0xff, 0xff,
	0x83, 0x92, 0, 0, 0, 0, 0x20};

static const uint8_t node[108] = {0, 3, 0, 0, 1, 1, 1, 1, 0x02, 0x61, 0x6e, 0, 0, 0, 7, 0, 0x02, 0x61, 0x6e,
	0, 0, 0, 7, 0, 0x02, 0x61, 0x6e, 0, 0, 0, 7, 1, 0, 0x20, 0, 1, 0, 0, 0, 1, 1, 0x02, 0x61, 0x6e, 'n',
	'o', 'd', 'e', '3'};

static void path_record(void **state)
{
	struct sa_path p = sa_path_get(path);
	uint8_t out[64];

	assert_int_equal(p.dlid, 3);
	assert_int_equal(p.slid, 1);
	assert_int_equal(p.dgid[15], 1);
	assert_int_equal(p.dgid[14], 7);
	assert_int_equal(p.sgid[14], 5);
	assert_true(p.reversible);
	assert_int_equal(p.numb, 0);
	assert_int_equal(p.pkey, 0xffff);
	assert_int_equal(p.mtu, SA_EXACTLY << 6 | 5);
	assert_int_equal(sa_rate_tenths(p.rate & 0x3f), 2000);
	assert_int_equal(p.life, SA_EXACTLY << 6 | 18);
	p.flow_label = 0xabcde; /* what it has none of */
	p.hop_limit = 0x3f;
	p.raw = true;
	p.qos_class = 0x123;
	p.sl = 4;
	p.tclass = 9;
	p.preference = 2;
	sa_path_put(out, &p);
	assert_int_equal(get_be32(out + 44), 0x8abcde3f);
	assert_int_equal(get_be16(out + 52), 0x1234);
	p = sa_path_get(out);
	assert_int_equal(p.flow_label, 0xabcde);
	assert_int_equal(p.qos_class, 0x123);
	assert_int_equal(p.sl, 4);
	p = sa_path_get(path);
	sa_path_put(out, &p);
	assert_memory_equal(out, path, sizeof(path));
}

static void mc_member_record(void **state)
{
	struct sa_member m = sa_member_get(member);
	uint8_t out[52];

	assert_int_equal(m.qkey, 0x0b1b);
	assert_int_equal(m.mlid, 0xc000);
	assert_int_equal(m.mtu, SA_EXACTLY << 6 | 4);
	assert_int_equal(m.rate, SA_EXACTLY << 6 | 3);
	assert_int_equal(m.life, SA_EXACTLY << 6 | 18);
	assert_int_equal(m.scope, 2);
	assert_int_equal(m.join, 0);
	sa_member_put(out, &m);
	assert_memory_equal(out, member, sizeof(member));
	m.sl = 5;
	m.flow_label = 0x12345;
	m.hop_limit = 0x67;
	m.join = JOIN_FULL;
	m.proxy = true;
	sa_member_put(out, &m);
	assert_int_equal(get_be32(out + 44), 0x51234567);
	assert_int_equal(out[48], 0x21);
	assert_int_equal(out[49], 0x80);
	m = sa_member_get(out);
	assert_int_equal(m.flow_label, 0x12345);
	assert_true(m.proxy);
}

/* As the same capture has them in AttributeOffset. */
static void records_begin_where_opensm_has_them(void **state)
{
	static const uint16_t offsets[][2] = {{SA_NODE, 14}, {SA_PORT_INFO, 9}, {SA_SWITCH_INFO, 3},
		{SA_LFT, 9}, {SA_SM_INFO, 4}, {SA_LINK, 1}, {SA_PATH, 8}, {SA_MC_MEMBER, 7},
		{SA_SERVICE, 22}};

	for (unsigned i = 0; i < sizeof(offsets) / sizeof(*offsets); i++)
		assert_int_equal(sa_stride(sa_record(offsets[i][0])), 8 * offsets[i][1]);
	assert_null(sa_record(0x4711));
}

/* A bit of the mask, and only that, is compared. */
static void components_are_compared(void **state)
{
	const struct sa_record *r = sa_record(SA_NODE);
	uint8_t question[108] = {0};

	assert_true(sa_matches(r, 0, question, node));
	for (unsigned bit = 0; bit < r->nfields; bit++)
		if (r->field[bit].bits)
			assert_false(sa_matches(r, 1ull << bit, question, node));
	memcpy(question, node, sizeof(node));
	assert_true(sa_matches(r, UINT64_MAX, question, node));
	question[44] = 'N'; /* NodeDescription is bit 14 */
	assert_false(sa_matches(r, UINT64_MAX, question, node));
	assert_true(sa_matches(r, UINT64_MAX & ~(1ull << 14), question, node));
	r = sa_record(SA_PORT_INFO); /* PortState: four bits of a byte, bit 15 */
	memset(question, 0, sizeof(question));
	question[36] = 0x74;
	assert_false(sa_matches(r, 1 << 15, question, node));
	memcpy(question, node, 36);
	question[36] = (uint8_t)(node[36] ^ 0xf0);
	assert_true(sa_matches(r, 1 << 15, question, node));
	assert_false(sa_matches(r, 1 << 14, question, node));
}

/* No field of a record ends behind it. */
static void fields_lie_in_their_records(void **state)
{
	for (unsigned attr = 0; attr < 0x100; attr++) {
		const struct sa_record *r = sa_record((uint16_t)attr);

		for (unsigned i = 0; r && i < r->nfields; i++)
			assert_in_range(r->field[i].at + r->field[i].bits, 0, 8 * r->len);
	}
}

static void rates_have_an_order_of_their_own(void **state)
{
	assert_int_equal(sa_rate_of(2000), 17);
	assert_int_equal(sa_rate_of(1999), 14);
	assert_int_equal(sa_rate_of(50), 5);
	assert_int_equal(sa_rate_of(24), 0);
	assert_int_equal(sa_rate_of(100000), 24);
	assert_true(sa_rate_tenths(5) < sa_rate_tenths(3));
	assert_int_equal(sa_rate_tenths(1), 0);
}

static void inform_info(void **state)
{
	uint8_t p[36] = {0};
	struct sa_inform i;

	put_be16(p + 16, 0xffff);
	p[22] = p[23] = 1;
	put_be16(p + 24, 0xffff);
	put_be16(p + 26, 128);
	put_be32(p + 28, 0x00000112);
	put_be32(p + 32, 0x00ffffff);
	i = sa_inform_get(p);
	assert_int_equal(i.lid_begin, 0xffff);
	assert_true(i.generic);
	assert_true(i.subscribe);
	assert_int_equal(i.trap, 128);
	assert_int_equal(i.qpn, 1);
	assert_int_equal(i.resp_time, 18);
	assert_int_equal(i.producer, 0xffffff);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(path_record),
		cmocka_unit_test(mc_member_record),
		cmocka_unit_test(records_begin_where_opensm_has_them),
		cmocka_unit_test(components_are_compared),
		cmocka_unit_test(fields_lie_in_their_records),
		cmocka_unit_test(rates_have_an_order_of_their_own),
		cmocka_unit_test(inform_info),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
