/* SPDX-License-Identifier: MIT */
/*
 * What datagram rsockets say to each other; docs/wire/rsocket.md has the pictures. Two headers:
 *
 *  - before data in a UD message, the sender's address: 8 bytes with an IPv4, 24 with an IPv6 address;
 *  - in UDP packets between the two UDP sockets, the sender's QP number: 16 or 28 bytes. DATA carries a
 *    message for a peer whose QP is not known yet, CTRL answers it.
 */
#ifndef RSOCKET_DGRAM_WIRE_H
#define RSOCKET_DGRAM_WIRE_H

#include "base/bytes.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define DG_TAG 0x55555555u

enum { DG_UDP_DATA = 0, DG_UDP_CTRL = 7 };
enum { DG_HDR4 = 8, DG_HDR6 = 24, DG_UDP_HDR4 = 16, DG_UDP_HDR6 = 28 };
enum { DG_HDR_MOST = DG_HDR6, DG_UDP_HDR_MOST = DG_UDP_HDR6 };

/* A stock peer gives each message this much room, with its header, both ways. */
enum { DG_ROOM = 2048 };

union dg_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static inline uint32_t dg_hdr_len(const union dg_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? DG_HDR6 : DG_HDR4;
}

static inline uint32_t dg_udp_hdr_len(const union dg_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? DG_UDP_HDR6 : DG_UDP_HDR4;
}

/* Writes the header of a UD message; its length. Addresses and ports are in network order as they are. */
static inline uint32_t dg_hdr_put(uint8_t *p, const union dg_addr *from)
{
	if (from->sa.sa_family == AF_INET6) {
		p[0] = 6;
		p[1] = DG_HDR6;
		memcpy(p + 2, &from->in6.sin6_port, 2);
		memcpy(p + 4, &from->in6.sin6_flowinfo, 4);
		memcpy(p + 8, &from->in6.sin6_addr, 16);
		return DG_HDR6;
	}
	p[0] = 4;
	p[1] = DG_HDR4;
	memcpy(p + 2, &from->in.sin_port, 2);
	memcpy(p + 4, &from->in.sin_addr, 4);
	return DG_HDR4;
}

/* Reads it: its length, or 0 when it is none. */
static inline uint32_t dg_hdr_get(const uint8_t *p, uint32_t len, union dg_addr *from)
{
	memset(from, 0, sizeof(*from));
	if (len >= DG_HDR4 && p[0] == 4 && p[1] == DG_HDR4) {
		from->in.sin_family = AF_INET;
		memcpy(&from->in.sin_port, p + 2, 2);
		memcpy(&from->in.sin_addr, p + 4, 4);
		return DG_HDR4;
	}
	if (len >= DG_HDR6 && p[0] == 6 && p[1] == DG_HDR6) {
		from->in6.sin6_family = AF_INET6;
		memcpy(&from->in6.sin6_port, p + 2, 2);
		memcpy(&from->in6.sin6_flowinfo, p + 4, 4);
		memcpy(&from->in6.sin6_addr, p + 8, 16);
		return DG_HDR6;
	}
	return 0;
}

/*
 * The header of a UDP packet. The stock library fills the IPv6 address from a place four bytes too early
 * (flow information, then 12 bytes of the address) and never reads it; neither do we.
 */
static inline uint32_t dg_udp_hdr_put(uint8_t *p, int op, uint32_t qpn, const union dg_addr *from)
{
	bool six = from->sa.sa_family == AF_INET6;

	put_be32(p, DG_TAG);
	p[4] = six ? 6 : 4;
	p[5] = (uint8_t)op;
	p[6] = six ? DG_UDP_HDR6 : DG_UDP_HDR4;
	p[7] = 0;
	put_be32(p + 8, qpn);
	if (six)
		memcpy(p + 12, &from->in6.sin6_addr, 16);
	else
		memcpy(p + 12, &from->in.sin_addr, 4);
	return p[6];
}

/* Reads it, of a packet that came from an address of this family: its length, or 0 when it is none. */
static inline uint32_t dg_udp_hdr_get(const uint8_t *p, uint32_t len, int family, int *op, uint32_t *qpn)
{
	uint32_t want = family == AF_INET6 ? DG_UDP_HDR6 : DG_UDP_HDR4;

	if (len < want || get_be32(p) != DG_TAG || p[4] != (family == AF_INET6 ? 6 : 4) || p[6] != want ||
		(p[5] != DG_UDP_DATA && p[5] != DG_UDP_CTRL))
		return 0;
	*op = p[5];
	*qpn = get_be32(p + 8) & 0xffffff;
	return want;
}

#endif
