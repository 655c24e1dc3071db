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

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#define TOTAL 596 /* RoCE packets in all captures together */

struct packet {
	const char *file;
	int frame; /* as tshark counts them */
	struct icrc_flow flow;
	bool v4;
	uint16_t ip_id;
	const uint8_t *data; /* UDP payload, BTH to ICRC */
	size_t len;
};

static struct packet packets[2 * TOTAL];
static size_t packet_count;

#define check(p, condition)                                                                                  \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("%s: frame %d: not %s", (p)->file, (p)->frame, #condition);                 \
	} while (0)

/* ---- a tiny reader: little-endian pcap, Ethernet ---- */

enum {
	FILE_HDR = 24,
	RECORD_HDR = 16,
	ETH_HDR = 14,
	IPV4_HDR = 20,
	IPV6_HDR = 40,
	UDP_HDR = 8,
	PROTO_UDP = 17
};

static uint32_t get_le32(const uint8_t *p)
{
	return __builtin_bswap32(get_be32(p));
}

/* Addresses of the envelope; returns where UDP begins, or NULL when the frame is something else. */
static const uint8_t *parse_ip(const uint8_t *eth, struct packet *p)
{
	const uint8_t *ip = eth + ETH_HDR;
	uint16_t type = get_be16(eth + 12);

	p->v4 = type == 0x0800;
	if (p->v4 && ip[0] == 0x45 && ip[9] == PROTO_UDP) {
		p->ip_id = get_be16(ip + 4);
		p->flow.src[10] = p->flow.src[11] = p->flow.dst[10] = p->flow.dst[11] = 0xff;
		memcpy(p->flow.src + 12, ip + 12, 4);
		memcpy(p->flow.dst + 12, ip + 16, 4);
		return ip + IPV4_HDR;
	}
	if (type == 0x86dd && ip[6] == PROTO_UDP) {
		memcpy(p->flow.src, ip + 8, 16);
		memcpy(p->flow.dst, ip + 24, 16);
		return ip + IPV6_HDR;
	}
	return NULL;
}

static void take_frame(const char *file, int frame, const uint8_t *eth, size_t caplen)
{
	struct packet p = {.file = file, .frame = frame};
	const uint8_t *udp = caplen < ETH_HDR + IPV6_HDR + UDP_HDR ? NULL : parse_ip(eth, &p);

	if (!udp || get_be16(udp + 2) != ROCE_UDP_PORT)
		return;
	p.flow.sport = get_be16(udp);
	p.flow.dport = get_be16(udp + 2);
	p.data = udp + UDP_HDR;
	p.len = get_be16(udp + 4) - UDP_HDR;
	check(&p, p.data + p.len <= eth + caplen);
	assert_in_range(packet_count, 0, sizeof packets / sizeof packets[0] - 1);
	packets[packet_count++] = p;
}

/* The file's bytes stay allocated: the packets point into them. */
static uint8_t *read_all(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	*size = ftell(file);
	rewind(file);
	uint8_t *data = malloc(*size);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, *size, file), *size);
	fclose(file);
	return data;
}

static uint8_t *read_pcap(const char *path)
{
	size_t size, at = FILE_HDR;
	uint8_t *data = read_all(path, &size);

	assert_true(size >= FILE_HDR);
	assert_int_equal(get_le32(data), 0xa1b2c3d4);
	assert_int_equal(get_le32(data + 20), 1); /* Ethernet */
	for (int frame = 1; at + RECORD_HDR <= size; frame++) {
		size_t caplen = get_le32(data + at + 8);
		at += RECORD_HDR;
		assert_true(caplen <= size - at);
		take_frame(path, frame, data + at, caplen);
		at += caplen;
	}
	return data;
}

static glob_t captures;
static uint8_t **contents;

static int read_captures(void **state)
{
	assert_int_equal(glob(PCAP_DIR "/*.pcap", 0, NULL, &captures), 0);
	contents = calloc(captures.gl_pathc, sizeof *contents);
	assert_non_null(contents);
	for (size_t i = 0; i < captures.gl_pathc; i++) {
		size_t before = packet_count;
		contents[i] = read_pcap(captures.gl_pathv[i]);
		assert_true(packet_count > before);
	}
	return 0;
}

static int free_captures(void **state)
{
	for (size_t i = 0; i < captures.gl_pathc; i++)
		free(contents[i]);
	free(contents);
	globfree(&captures);
	return 0;
}

/* ---- the tests ---- */

static void no_packet_is_overlooked(void **state)
{
	assert_int_equal(packet_count, TOTAL);
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
	return cmocka_run_group_tests(tests, read_captures, free_captures);
}
