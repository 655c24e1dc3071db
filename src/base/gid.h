/* SPDX-License-Identifier: MIT */
/*
 * GIDs, and the IP addresses they are: an IPv4 address is a mapped one (::ffff:a.b.c.d). Socket addresses are
 * of IP, or InfiniBand's own, a GID and a service id, whose lower 16 bits are its port (AF_IB).
 */
#ifndef BASE_GID_H
#define BASE_GID_H

#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* By words: compilers make a call of comparing 16 bytes, which small messages notice. */
static inline bool gid_same(const uint8_t a[16], const uint8_t b[16])
{
	uint64_t x[2], y[2];

	memcpy(x, a, 16);
	memcpy(y, b, 16);
	return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
}

static inline bool gid_is_zero(const uint8_t g[16])
{
	static const uint8_t zero[16];

	return !memcmp(g, zero, 16);
}

static inline bool gid_is_v4(const uint8_t g[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(g, prefix, 12);
}

static inline bool gid_is_mcast(const uint8_t g[16])
{
	return g[0] == 0xff || (gid_is_v4(g) && (g[12] & 0xf0) == 0xe0);
}

static inline bool gid_is_link_local(const uint8_t g[16])
{
	return g[0] == 0xfe && (g[1] & 0xc0) == 0x80;
}

/*
 * A LID as an address: where a subnet has LIDs, what is told apart by GIDs elsewhere is told apart by these.
 * The prefix is nobody's; no packet carries it.
 */
static inline void gid_of_lid(uint16_t lid, uint8_t gid[16])
{
	static const uint8_t prefix[14] = {0xfe, 0x00, 'L', 'I', 'D'};

	memcpy(gid, prefix, 14);
	gid[14] = (uint8_t)(lid >> 8);
	gid[15] = (uint8_t)lid;
}

/* The LID that it was made from; 0: it is another address. */
static inline uint16_t gid_lid(const uint8_t gid[16])
{
	uint16_t lid = (uint16_t)(gid[14] << 8 | gid[15]);
	uint8_t made[16];

	gid_of_lid(lid, made);
	return gid_same(gid, made) ? lid : 0;
}

static inline void gid_of_v4(const void *addr, uint8_t gid[16])
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, addr, 4);
}

static inline void gid_of_sockaddr(const struct sockaddr *sa, uint8_t gid[16])
{
	if (sa->sa_family == AF_INET6)
		memcpy(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	else if (sa->sa_family == AF_IB)
		memcpy(gid, &((const struct sockaddr_ib *)sa)->sib_addr, 16);
	else
		gid_of_v4(&((const struct sockaddr_in *)sa)->sin_addr, gid);
}

static inline socklen_t sockaddr_len(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_IB)
		return sizeof(struct sockaddr_ib);
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static inline bool sockaddr_is_ib(const struct sockaddr *sa)
{
	return sa->sa_family == AF_IB;
}

static inline bool sockaddr_is_ip(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET || sa->sa_family == AF_INET6;
}

/* The port, which is at the same place in both families of IP; 0 where there is no address. */
static inline uint16_t sockaddr_port(const struct sockaddr *sa)
{
	if (sockaddr_is_ib(sa))
		return (uint16_t)be64toh(((const struct sockaddr_ib *)sa)->sib_sid);
	return sockaddr_is_ip(sa) ? ntohs(((const struct sockaddr_in *)sa)->sin_port) : 0;
}

static inline void sockaddr_set_port(struct sockaddr *sa, uint16_t port)
{
	struct sockaddr_ib *ib = (struct sockaddr_ib *)sa;

	if (sockaddr_is_ib(sa))
		ib->sib_sid = htobe64((be64toh(ib->sib_sid) & ~(uint64_t)UINT16_MAX) | port);
	else
		((struct sockaddr_in *)sa)->sin_port = htons(port);
}

/* The interface of a link-local address; 0: of any other. */
static inline uint32_t sockaddr_scope(const struct sockaddr *sa)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

	return sa->sa_family == AF_INET6 && gid_is_link_local(in6->sin6_addr.s6_addr) ? in6->sin6_scope_id
										      : 0;
}

/* An IPv4 address as an IPv6 socket says it, in place, and back. Any other stays what it is. */
static inline void sockaddr_map(struct sockaddr_in6 *sa)
{
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = sa->sin6_port};

	if (sa->sin6_family != AF_INET)
		return;
	gid_of_v4(&((const struct sockaddr_in *)sa)->sin_addr, in6.sin6_addr.s6_addr);
	*sa = in6;
}

static inline void sockaddr_unmap(struct sockaddr_in6 *sa)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = sa->sin6_port};

	if (sa->sin6_family != AF_INET6 || !gid_is_v4(sa->sin6_addr.s6_addr))
		return;
	memcpy(&in.sin_addr, sa->sin6_addr.s6_addr + 12, 4);
	memset(sa, 0, sizeof(*sa));
	memcpy(sa, &in, sizeof(in));
}

/* A link-local address is one of this interface. */
static inline void gid_to_sockaddr(
	const uint8_t gid[16], uint16_t port, uint32_t ifindex, struct sockaddr_storage *out)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	struct sockaddr_in *in = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	if (gid_is_v4(gid)) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, gid + 12, 4);
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		in6->sin6_scope_id = gid_is_link_local(gid) ? ifindex : 0;
		memcpy(&in6->sin6_addr, gid, 16);
	}
}

#endif
