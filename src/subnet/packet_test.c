/* SPDX-License-Identifier: MIT */
/* Golden bytes of management datagrams, and what is not one. */
#include "subnet/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static uint8_t room[PACKET_MAD_LEN], mad[MAD_LEN];

static const struct packet_addr to_qp1 = {.slid = 0x0102,
	.dlid = 0x0304,
	.sl = 3,
	.vl = 2,
	.pkey = 0xffff,
	.sqpn = 0x123456,
	.dqpn = GSI_QPN,
	.qkey = GSI_QKEY};

static void smp_is_as_the_wire_has_it(void **state)
{
	static const uint8_t golden[] = {0xf0, 0x02, 0xff, 0xff, 0x00, 0x48, 0xff, 0xff, /* LRH */
		0x64, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,                          /* BTH */
		0, 0, 0, 0, 0, 0, 0, 0,                                                  /* DETH */
		0x01, 0x81};
	struct packet_addr a = {.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = PKEY_DEFAULT};
	uint8_t out[LRH_LEN + PACKET_MAD_LEN];
	struct packet p;

	memset(mad, 0, sizeof(mad));
	mad[0] = MAD_BASE_VERSION;
	mad[1] = MAD_CLASS_SUBN_DIRECTED;
	packet_mad_make(&p, room, &a, mad);
	assert_int_equal(packet_put(&p, out, sizeof(out)), LRH_LEN + PACKET_MAD_LEN);
	assert_memory_equal(out, golden, sizeof(golden));
	assert_int_equal(packet_put(&p, out, sizeof(out) - 1), 0);
}

static void gmp_with_grh_is_as_the_wire_has_it(void **state)
{
	static const uint8_t golden[] = {0x20, 0x33, 0x03, 0x04, 0x00, 0x52, 0x01, 0x02, /* LRH */
		0x6a, 0xb1, 0x23, 0x45, 0x01, 0x18, 0x1b, 0x40,                          /* GRH */
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,                    /* SGID */
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,                    /* DGID */
		0x64, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0,                          /* BTH */
		0x80, 0x01, 0, 0, 0, 0x12, 0x34, 0x56};                                  /* DETH */
	struct packet_addr a = to_qp1, b;
	uint8_t out[PACKET_HEADERS_MAX + PACKET_MAD_LEN];
	const uint8_t *found;
	struct packet p, q;

	a.has_grh = true;
	a.grh = (struct grh){.tclass = 0xab, .flow_label = 0x12345, .hop_limit = 64};
	a.grh.sgid[0] = a.grh.dgid[0] = 0xfe;
	a.grh.sgid[1] = a.grh.dgid[1] = 0x80;
	a.grh.sgid[15] = 1;
	a.grh.dgid[15] = 2;
	memset(mad, 0x5a, sizeof(mad));
	packet_mad_make(&p, room, &a, mad);
	assert_int_equal(packet_put(&p, out, sizeof(out)), sizeof(out));
	assert_memory_equal(out, golden, sizeof(golden));

	assert_true(packet_get(&q, out, sizeof(out)));
	assert_true(packet_mad_parse(&q, &b, &found));
	assert_memory_equal(found, mad, MAD_LEN);
	assert_true(b.slid == a.slid && b.dlid == a.dlid && b.sl == a.sl && b.pkey == a.pkey && b.has_grh);
	assert_true(b.sqpn == a.sqpn && b.dqpn == a.dqpn && b.qkey == a.qkey && b.vl == a.vl);
	assert_true(b.grh.tclass == 0xab && b.grh.flow_label == 0x12345 && b.grh.hop_limit == 64);
	assert_memory_equal(b.grh.dgid, a.grh.dgid, 16);
}

static void answer_goes_back_where_the_question_came_from(void **state)
{
	struct packet_addr a = to_qp1, b;
	const uint8_t *found;
	struct packet p;

	a.has_grh = true;
	a.grh.sgid[15] = 1;
	a.grh.dgid[15] = 2;
	packet_mad_make(&p, room, &a, mad);
	p.hops = 5;
	packet_mad_turn(&p);
	assert_true(bth_dqpn(p.bth) == 0x123456 && p.lrh.dlid == a.slid && p.lrh.slid == a.dlid && !p.hops);
	assert_true(p.grh.sgid[15] == 2 && p.grh.dgid[15] == 1 && p.lrh.sl == a.sl);
	assert_false(packet_mad_parse(&p, &b, &found)); /* not for QP0 or QP1 */
	packet_mad_turn(&p);
	assert_true(packet_mad_parse(&p, &b, &found));
	assert_true(b.sqpn == 0x123456 && b.dqpn == GSI_QPN);
}

static void what_is_no_packet_is_refused(void **state)
{
	uint8_t out[LRH_LEN + PACKET_MAD_LEN];
	struct packet_addr a = to_qp1;
	const uint8_t *found;
	struct packet p, q;
	size_t len;

	packet_mad_make(&p, room, &a, mad);
	len = packet_put(&p, out, sizeof(out));
	assert_true(packet_get(&q, out, len));
	for (size_t cut = 0; cut < len; cut++)
		assert_false(packet_get(&q, out, cut)); /* PktLen is another */
	out[1] &= 0xfc;                                 /* raw */
	assert_false(packet_get(&q, out, len));
	out[1] |= LNH_LOCAL;
	out[0] |= 1; /* link version */
	assert_false(packet_get(&q, out, len));

	room[0] = IBT_RC | OP_SEND_ONLY;
	assert_false(packet_mad_parse(&p, &a, &found));
	room[0] = IBT_UD | OP_SEND_ONLY;
	p.len -= 4;
	assert_false(packet_mad_parse(&p, &a, &found));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smp_is_as_the_wire_has_it),
		cmocka_unit_test(gmp_with_grh_is_as_the_wire_has_it),
		cmocka_unit_test(answer_goes_back_where_the_question_came_from),
		cmocka_unit_test(what_is_no_packet_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
