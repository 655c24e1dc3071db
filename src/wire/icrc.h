/* SPDX-License-Identifier: MIT */
#ifndef ANYRDMA_WIRE_ICRC_H
#define ANYRDMA_WIRE_ICRC_H

/*
 * The invariant CRC that ends every RoCEv2 packet (IBA 7.8.1, Annex A17.3.3): CRC-32 over the IP, UDP and IBA
 * headers (of an InfiniBand packet: over LRH, GRH and IBA headers), with the fields a router may change taken
 * as all ones, and over payload and pad.
 *
 * The CRC value that passes between these functions is the CRC of everything so far. All functions are pure:
 * no I/O, no allocation, no lock, safe from any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The IP/UDP envelope of a RoCEv2 packet, as far as the ICRC covers it. Addresses as GIDs: IPv4 is
 * ::ffff:a.b.c.d. Ports in host order.
 */
struct icrc_flow {
	uint8_t src[16], dst[16];
	uint16_t sport, dport;
};

/*
 * icrc_front: the CRC of the pseudo header (8 x 0xff, masked IP header, masked UDP header) of a packet whose
 * UDP payload, BTH to ICRC, is udp_len bytes, and of its first hdr_len bytes, at least the 12 of the BTH,
 * whose byte 4 (FECN, BECN, reserved) is taken as 0xff. ip_id is the IPv4 identification, ignored for IPv6;
 * DF is set.
 */
uint32_t icrc_front(
	const struct icrc_flow *flow, uint32_t udp_len, uint16_t ip_id, const uint8_t *bth, size_t hdr_len);

/* icrc_bytes: continues over payload or pad. */
uint32_t icrc_bytes(uint32_t crc, const void *data, size_t len);

/* icrc_packet: all of it at once, for a packet in one piece; len bytes from the BTH to the pad, at least the
 * BTH. */
uint32_t icrc_packet(const struct icrc_flow *flow, const uint8_t *pkt, size_t len, uint16_t ip_id);

/*
 * icrc_iba: the ICRC of an InfiniBand packet in one piece, len bytes from the LRH to the pad (IBA 7.8.1): the
 * VL, the GRH's traffic class, flow label and hop limit, and the BTH's byte 4 are taken as all ones. 0 when
 * its headers are not whole.
 */
uint32_t icrc_iba(const uint8_t *pkt, size_t len);

/* icrc_put: writes the four bytes that go on the wire. */
void icrc_put(uint8_t out[4], uint32_t crc);

/*
 * icrc_check: whether the ICRC of a received packet is right; pkt is the UDP payload, BTH to ICRC, len bytes
 * of any content, any length. With exact, the IPv4 identification must have been ip_id. Without, ip_id is a
 * guess, the cheaper the better, and any identification is accepted, for receivers that cannot see it (a
 * plain UDP socket); then a packet damaged in many bits slips through with probability 2^-16 instead of
 * 2^-32; one damaged bit is always seen. IPv6 has no such field and is always checked in full.
 */
bool icrc_check(const struct icrc_flow *flow, const uint8_t *pkt, size_t len, bool exact, uint16_t ip_id);

#endif
