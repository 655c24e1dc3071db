/* SPDX-License-Identifier: MIT */
/*
 * Every RoCEv2 packet that Linux's own rxe sent in the captures under PCAP_DIR: its ICRC through the
 * product's check, and its headers through the product's table of operations.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "pcap.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

static void no_packet_is_overlooked(void **state)
{
	assert_int_equal(packet_count, PCAP_TOTAL);
}

static void every_icrc_is_right(void **state)
{
	for (struct packet *p = packets; p < packets + packet_count; p++) {
		check(p, icrc_check(&p->flow, p->data, p->len, true, p->ip_id));
		check(p, icrc_check(&p->flow, p->data, p->len, false, 0));
	}
}

static void a_wrong_id_is_noticed_by_whoever_knows_it(void **state)
{
	for (struct packet *p = packets; p < packets + packet_count; p++)
		check(p, icrc_check(&p->flow, p->data, p->len, true, p->ip_id + 1) == !p->v4);
}

/* Each bit of each packet in turn, but for the masked byte of the BTH. */
static void every_damaged_bit_is_caught(void **state)
{
	for (struct packet *p = packets; p < packets + packet_count; p++) {
		uint8_t copy[4200];
		check(p, p->len <= sizeof copy);
		memcpy(copy, p->data, p->len);
		for (size_t bit = 0; bit < p->len * 8; bit++) {
			copy[bit / 8] ^= 1 << bit % 8;
			check(p, icrc_check(&p->flow, copy, p->len, false, 0) == (bit / 8 == 4));
			copy[bit / 8] ^= 1 << bit % 8;
		}
	}
}

static bool is_mtu(size_t n)
{
	return n >= 256 && n <= 4096 && (n & (n - 1)) == 0;
}

static void check_lengths(const struct packet *p)
{
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(p->data));
	check(p, op != NULL);

	bool ud = (bth_opcode(p->data) & IBT_SERVICE_MASK) == IBT_UD;
	size_t headers = BTH_LEN + (ud ? DETH_LEN : 0) + op->ext_len, pad = bth_pad(p->data);
	check(p, p->len % 4 == 0);
	check(p, p->len >= headers + pad + ICRC_LEN);

	size_t payload = p->len - headers - pad - ICRC_LEN;
	if (!(op->flags & OPF_PAYLOAD))
		check(p, payload == 0 && pad == 0);
	else if (!(op->flags & OPF_END))
		check(p, is_mtu(payload) && pad == 0);
	else
		check(p, payload <= 4096);

	if (op->flags & OPF_WRITE && op->flags & OPF_RETH) {
		uint32_t length = reth_get(p->data + BTH_LEN).len;
		check(p, op->flags & OPF_END ? length == payload : length > payload);
	}
}

static void headers_pad_and_payload_add_up(void **state)
{
	for (struct packet *p = packets; p < packets + packet_count; p++)
		check_lengths(p);
}

/* The header flags of a row say the same as its length. */
static void operation_rows_are_consistent(void **state)
{
	for (int i = 0; i < OP_COUNT; i++) {
		const struct ibt_op_info *op = &ibt_op_table[i];
		unsigned f = op->flags;
		unsigned len = (f & OPF_RETH ? RETH_LEN : 0) + (f & OPF_AETH ? AETH_LEN : 0) +
			       (f & OPF_ATOMICETH ? ATOMICETH_LEN : 0) +
			       (f & OPF_ATOMICACK ? ATOMICACK_LEN : 0) + (f & OPF_IMM ? IMM_LEN : 0) +
			       (f & OPF_IETH ? IETH_LEN : 0);
		assert_int_equal(op->ext_len, len);
		assert_int_equal(!!(f & OPF_REQUEST) + !!(f & OPF_RESPONSE), i != OP_RESERVED);
	}
}

static void fixed_bth_fields_are_what_rxe_sends(void **state)
{
	for (struct packet *p = packets; p < packets + packet_count; p++) {
		check(p, bth_tver(p->data) == 0);
		check(p, bth_pkey(p->data) == PKEY_DEFAULT);
		check(p, p->flow.sport >= 0xc000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_packet_is_overlooked),
		cmocka_unit_test(every_icrc_is_right),
		cmocka_unit_test(a_wrong_id_is_noticed_by_whoever_knows_it),
		cmocka_unit_test(every_damaged_bit_is_caught),
		cmocka_unit_test(operation_rows_are_consistent),
		cmocka_unit_test(headers_pad_and_payload_add_up),
		cmocka_unit_test(fixed_bth_fields_are_what_rxe_sends),
	};
	return cmocka_run_group_tests(tests, pcap_read_all, pcap_free_all);
}
