/* SPDX-License-Identifier: MIT */
/*
 * The ICRC of RoCEv2 and of InfiniBand. The CRC-32 itself is isa-l's, which folds with the vector unit; here
 * is what is theirs: the masked headers, and the check of a packet whose IP identification nobody told us.
 *
 * That check. The ICRC covers the IPv4 identification, and the kernel does not hand it to a UDP socket. But a
 * CRC is linear: two messages of equal length that differ by D have CRCs that differ by the CRC (without its
 * constants) of D. Let the word D be the identification's two bytes and the two behind it, little-endian, and
 * n the bytes from there to the end of what is covered. As polynomials over GF(2) modulo the CRC's P,
 *
 *      d  =  ICRC received + ICRC computed with id 0  =  D * x^(8n)
 *
 * P is not divisible by x, so x^(8n) has an inverse, and D = d * x^(-8n) is the one word that explains the
 * difference. The packet is good when that word is an identification and nothing else: upper half zero. An
 * undamaged packet always passes; a random d passes once in 2^16; no single-bit error does in packets up to
 * 9200 bytes (tried at every bit).
 *
 * Bits are reflected, as in the CRC itself: bit 31 is x^0, and multiplying by x shifts right.
 */

#include "wire/icrc.h"

#include "base/bytes.h"
#include "wire/ibt.h"
#include "wire/lrh.h"

#include <isa-l/crc.h>
#include <stdatomic.h>
#include <string.h>

#define POLY        0xedb88320u
#define ONE         0x80000000u /* x^0 */
#define X_MINUS_8   0x6567cb95u /* x^(-8) */
#define BTH_MASKED  4           /* FECN, BECN, reserved: switches write here */
#define HEADERS_MAX 64          /* no packet has more: copied at once */
#define UDP_LEN     8
#define IPV4_LEN    20
#define IPV4_ID     4 /* offset of the identification */
#define IPV4_DF     0x4000
#define IPV6_LEN    40
#define PSEUDO_MAX  (LRH_LEN + IPV6_LEN + UDP_LEN)
#define PROTO_UDP   17
#define UDP_PAYLOAD 65507 /* the most an IPv4 datagram carries */

static uint8_t *put16(uint8_t *p, uint16_t v)
{
	put_be16(p, v);
	return p + 2;
}

static uint8_t *put_bytes(uint8_t *p, const void *data, size_t len)
{
	memcpy(p, data, len);
	return p + len;
}

static bool is_ipv4(const struct icrc_flow *flow)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(flow->dst, mapped, sizeof mapped) == 0;
}

/* TOS, TTL and header checksum are masked. */
static uint8_t *put_ipv4(uint8_t *p, const struct icrc_flow *flow, uint32_t udp_len, uint16_t ip_id)
{
	p = put16(p, 0x45ff);
	p = put16(p, IPV4_LEN + UDP_LEN + udp_len);
	p = put16(p, ip_id);
	p = put16(p, IPV4_DF);
	p = put16(p, 0xff00 | PROTO_UDP);
	p = put16(p, 0xffff);
	p = put_bytes(p, flow->src + 12, 4);
	return put_bytes(p, flow->dst + 12, 4);
}

/* Traffic class, flow label and hop limit are masked. */
static uint8_t *put_ipv6(uint8_t *p, const struct icrc_flow *flow, uint32_t udp_len)
{
	p = put16(p, 0x6fff);
	p = put16(p, 0xffff);
	p = put16(p, UDP_LEN + udp_len);
	p = put16(p, PROTO_UDP << 8 | 0xff);
	p = put_bytes(p, flow->src, 16);
	return put_bytes(p, flow->dst, 16);
}

/* The pseudo header, at most PSEUDO_MAX bytes; returns its end. RoCEv2 has no LRH: eight 0xff stand in its
 * place. The UDP checksum is masked. */
static uint8_t *put_pseudo(uint8_t *p, const struct icrc_flow *flow, uint32_t udp_len, uint16_t ip_id)
{
	memset(p, 0xff, LRH_LEN);
	p += LRH_LEN;
	p = is_ipv4(flow) ? put_ipv4(p, flow, udp_len, ip_id) : put_ipv6(p, flow, udp_len);
	p = put16(p, flow->sport);
	p = put16(p, flow->dport);
	p = put16(p, UDP_LEN + udp_len);
	return put16(p, 0xffff);
}

uint32_t icrc_bytes(uint32_t crc, const void *data, size_t len)
{
	return len ? crc32_gzip_refl(crc, data, len) : crc;
}

/*
 * The pseudo header and the first n bytes of the packet, at most HEADERS_MAX, by one call: for so few bytes a
 * CRC call costs more than the copy.
 */
static uint32_t front(
	const struct icrc_flow *flow, uint32_t udp_len, uint16_t ip_id, const uint8_t *bth, size_t n)
{
	uint8_t buf[PSEUDO_MAX + HEADERS_MAX];
	uint8_t *p = put_pseudo(buf, flow, udp_len, ip_id);
	memcpy(p, bth, n);
	p[BTH_MASKED] = 0xff;
	return icrc_bytes(0, buf, p + n - buf);
}

uint32_t icrc_front(
	const struct icrc_flow *flow, uint32_t udp_len, uint16_t ip_id, const uint8_t *bth, size_t hdr_len)
{
	size_t n = hdr_len < HEADERS_MAX ? hdr_len : HEADERS_MAX;
	return icrc_bytes(front(flow, udp_len, ip_id, bth, n), bth + n, hdr_len - n);
}

/*
 * One call for a small packet, two for any other: its BTH joins the pseudo header. Cut there, since isa-l is
 * quickest when lengths are multiples of 16, as 36 + 12 bytes and most of what follows a BTH are: a packet of
 * 1 KiB takes 49 ns instead of 78.
 */
uint32_t icrc_packet(const struct icrc_flow *flow, const uint8_t *pkt, size_t len, uint16_t ip_id)
{
	size_t n = len < HEADERS_MAX ? len : BTH_LEN;
	return icrc_bytes(front(flow, len + ICRC_LEN, ip_id, pkt, n), pkt + n, len - n);
}

uint32_t icrc_iba(const uint8_t *pkt, size_t len)
{
	bool global = lrh_get(pkt).lnh == LNH_GLOBAL;
	size_t n = LRH_LEN + (global ? GRH_LEN : 0) + BTH_LEN;
	uint8_t head[LRH_LEN + GRH_LEN + BTH_LEN], *grh = head + LRH_LEN;

	if (len < n)
		return 0;
	memcpy(head, pkt, n);
	head[0] |= 0xf0; /* VL */
	if (global) {
		grh[0] |= 0x0f; /* traffic class, flow label */
		memset(grh + 1, 0xff, 3);
		grh[7] = 0xff; /* hop limit */
	}
	head[n - BTH_LEN + BTH_MASKED] = 0xff;
	return icrc_bytes(icrc_bytes(0, head, n), pkt + n, len - n);
}

void icrc_put(uint8_t out[4], uint32_t crc)
{
	for (int i = 0; i < ICRC_LEN; i++)
		out[i] = crc >> (8 * i) & 0xff;
}

static uint32_t icrc_get(const uint8_t in[4])
{
	return in[0] | in[1] << 8 | in[2] << 16 | (uint32_t)in[3] << 24;
}

/* a * b modulo P; masks instead of branches, since a received difference is as good as random */
static uint32_t gf_mul(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;
	for (int i = 0; i < 32; i++) {
		sum ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (POLY & -(b & 1));
	}
	return sum;
}

/* x^(-8n): square and multiply */
static uint32_t gf_inverse_shift(unsigned n)
{
	uint32_t power = ONE;
	for (uint32_t square = X_MINUS_8; n; n >>= 1, square = gf_mul(square, square))
		if (n & 1)
			power = gf_mul(power, square);
	return power;
}

/*
 * The same, remembered: traffic has few lengths. Up to 4352 bytes, that is path MTU 4096 and any headers.
 * Zero, which no power of x is, says not yet known; threads that race here store the same value.
 */
static uint32_t inverse_shift(unsigned n)
{
	static _Atomic uint32_t known[4352];
	if (n >= sizeof known / sizeof known[0])
		return gf_inverse_shift(n);

	uint32_t power = atomic_load_explicit(&known[n], memory_order_relaxed);
	if (!power) {
		power = gf_inverse_shift(n);
		atomic_store_explicit(&known[n], power, memory_order_relaxed);
	}
	return power;
}

/* Whether some IPv4 identification explains the difference to the ICRC computed for another one. */
static bool explained_by_id(uint32_t diff, size_t len)
{
	unsigned n = IPV4_LEN - IPV4_ID + UDP_LEN + len - ICRC_LEN;
	return gf_mul(diff, inverse_shift(n)) <= 0xffff;
}

bool icrc_check(const struct icrc_flow *flow, const uint8_t *pkt, size_t len, bool exact, uint16_t ip_id)
{
	if (len < BTH_LEN + ICRC_LEN || len > UDP_PAYLOAD)
		return false;

	uint32_t crc = icrc_packet(flow, pkt, len - ICRC_LEN, ip_id);
	uint32_t diff = crc ^ icrc_get(pkt + len - ICRC_LEN);
	return diff == 0 || (!exact && is_ipv4(flow) && explained_by_id(diff, len));
}
