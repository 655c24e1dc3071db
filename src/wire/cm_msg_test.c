/* SPDX-License-Identifier: MIT */
/* Bounds, reserved bits and names; what Linux sends is in tests/wire/cm_pcap_test.c. */
#include "wire/cm_msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static const enum cm_attr all[] = {
#define X(name, id, priv) CM_##name,
	CM_ATTRS(X)
#undef X
};

#define for_each_attr(a) for (const enum cm_attr *a = all; a < all + sizeof(all) / sizeof(all[0]); a++)

/* A MAD of this kind with every bit of its body set. */
static void full(enum cm_attr attr, uint8_t mad[MAD_LEN])
{
	const struct cm_msg m = {.attr = attr};

	cm_msg_pack(&m, mad);
	memset(mad + MAD_HDR_LEN, 0xff, MAD_LEN - MAD_HDR_LEN);
}

static void reserved_bits_are_not_read_and_are_sent_as_zero(void **state)
{
	/* reserved bits of each message, counted in the spec's tables; LAP's path is not modelled */
	static const unsigned reserved[] = {[CM_REQ] = 8 + 32 + 2 * (6 + 3) + 3 + 2,
		[CM_MRA] = 6 + 3,
		[CM_REJ] = 6 + 1,
		[CM_REP] = 4,
		[CM_RTU] = 0,
		[CM_DREQ] = 8,
		[CM_DREP] = 0,
		[CM_SIDR_REQ] = 16,
		[CM_SIDR_REP] = 16 + 8,
		[CM_LAP] = 32 + 3 + 48 * 8,
		[CM_APR] = 16};

	for_each_attr(attr)
	{
		uint8_t mad[MAD_LEN], again[MAD_LEN];
		struct cm_msg m;
		unsigned zero = 0;

		full(*attr, mad);
		assert_true(cm_msg_parse(mad, MAD_LEN, &m));
		if (*attr == CM_REJ)
			m.rej.info_len = 0x7f;
		if (*attr == CM_APR)
			m.apr.info_len = 0xff;
		if (*attr == CM_SIDR_REP)
			m.sidr_rep.info_len = 0xff;
		cm_msg_pack(&m, again);
		for (unsigned i = MAD_HDR_LEN; i < MAD_LEN; i++)
			zero += 8 - (unsigned)__builtin_popcount(again[i]);
		if (zero != reserved[*attr])
			fail_msg("%s: %u reserved bits", cm_attr_name(*attr), zero);
	}
}

static void private_data_ends_with_the_message(void **state)
{
	for_each_attr(attr)
	{
		struct cm_msg m = {.attr = *attr}, back;
		uint8_t mad[MAD_LEN];
		unsigned len = cm_priv_len(*attr);

		memset(m.priv, 0xab, sizeof(m.priv));
		cm_msg_pack(&m, mad);
		assert_int_equal(mad[MAD_LEN - 1], 0xab);
		assert_int_equal(mad[MAD_LEN - len], 0xab);
		assert_int_not_equal(mad[MAD_LEN - len - 1], 0xab);
		assert_true(cm_msg_parse(mad, MAD_LEN, &back));
		assert_memory_equal(back.priv, m.priv, len);
		for (unsigned i = len; i < CM_PRIV_MAX; i++)
			assert_int_equal(back.priv[i], 0);
	}
}

static void only_whole_mads_of_our_class_and_version_are_taken(void **state)
{
	uint8_t mad[MAD_LEN + 1] = {0};
	struct cm_msg m;

	full(CM_RTU, mad);
	assert_false(cm_msg_parse(mad, MAD_LEN - 1, &m));
	assert_false(cm_msg_parse(mad, MAD_LEN + 1, &m));
	assert_false(cm_msg_parse(mad, 0, &m));
	for (unsigned byte = 0; byte < 4; byte++) {
		mad[byte] ^= 0x40;
		assert_false(cm_msg_parse(mad, MAD_LEN, &m));
		mad[byte] ^= 0x40;
	}
	for (unsigned attr = 0; attr < 0x10000; attr++) {
		put_be16(mad + 16, (uint16_t)attr);
		assert_int_equal(cm_msg_parse(mad, MAD_LEN, &m), attr >= CM_REQ && attr <= CM_APR);
	}
}

static void a_length_of_information_never_points_past_it(void **state)
{
	uint8_t mad[MAD_LEN];
	struct cm_msg m;

	full(CM_REJ, mad);
	assert_true(cm_msg_parse(mad, MAD_LEN, &m) && m.rej.info_len == CM_INFO_MAX);
	full(CM_SIDR_REP, mad);
	assert_true(cm_msg_parse(mad, MAD_LEN, &m) && m.sidr_rep.info_len == CM_INFO_MAX);
	full(CM_APR, mad);
	assert_true(cm_msg_parse(mad, MAD_LEN, &m) && m.apr.info_len == CM_INFO_MAX);
}

static void what_is_too_wide_does_not_touch_its_neighbours(void **state)
{
	struct cm_msg m = {.attr = CM_REQ}, back;
	uint8_t mad[MAD_LEN];

	m.req.qpn = 0xffabcdef;
	m.req.remote_timeout = 0xff;
	m.req.primary.rate = 0xfe;
	cm_msg_pack(&m, mad);
	assert_true(cm_msg_parse(mad, MAD_LEN, &back));
	assert_int_equal(back.req.qpn, 0xabcdef);
	assert_int_equal(back.req.remote_timeout, 0x1f);
	assert_int_equal(back.req.primary.rate, 0x3e);
	assert_int_equal(back.req.responder_resources, 0);
	assert_int_equal(back.req.transport, 0);
	assert_int_equal(back.req.flow_control, 0);
}

static void reasons_have_names(void **state)
{
	assert_string_equal(cm_rej_name(8), "invalid service ID");
	assert_string_equal(cm_rej_name(28), "consumer reject");
	assert_string_equal(cm_rej_name(34), "unknown reason");
	assert_string_equal(cm_sidr_name(1), "service ID not supported");
	assert_string_equal(cm_sidr_name(200), "unknown status");
	assert_string_equal(cm_attr_name(CM_SIDR_REQ), "SIDR_REQ");
	assert_string_equal(cm_attr_name((enum cm_attr)0), "unknown");
	assert_int_equal(cm_priv_len((enum cm_attr)0x1b), 0);
}

static void an_ip_header_of_another_version_is_refused(void **state)
{
	struct cm_ip ip = {.version = 4, .port = 7174, .src = {[10] = 0xff, 0xff, 10, 0, 0, 1}}, back;
	uint8_t p[CM_IP_LEN];

	cm_ip_pack(&ip, p);
	assert_true(cm_ip_parse(p, &back));
	assert_memory_equal(back.src, ip.src, 16);
	assert_int_equal(p[4 + 10], 0); /* on the wire IPv4 stands behind zeros */
	p[0] = 0x10;
	assert_false(cm_ip_parse(p, &back));
	p[0] = 0;
	p[1] = 0x50;
	assert_false(cm_ip_parse(p, &back));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(reserved_bits_are_not_read_and_are_sent_as_zero),
		cmocka_unit_test(private_data_ends_with_the_message),
		cmocka_unit_test(only_whole_mads_of_our_class_and_version_are_taken),
		cmocka_unit_test(a_length_of_information_never_points_past_it),
		cmocka_unit_test(what_is_too_wide_does_not_touch_its_neighbours),
		cmocka_unit_test(reasons_have_names),
		cmocka_unit_test(an_ip_header_of_another_version_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
