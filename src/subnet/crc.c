/* SPDX-License-Identifier: MIT */
/*
 * CRCs on every cable, for who wants to see that nobody on the way spoils a packet (subnet_check_crcs()). The
 * ICRC is made where a packet begins, stays as it is, and is checked where it ends; each port that a packet
 * leaves by makes its VCRC, and the port at the other end checks it (IBA 7.8). Directed routes are written
 * into the packet at every node: there it ends, and another one begins.
 */
#include "subnet/parts.h"

#include "wire/icrc.h"

#include <string.h>

void crc_leave(struct packet *p)
{
	uint8_t bytes[PACKET_WIRE_MAX];
	size_t len = packet_put_crcs(p, bytes, sizeof(bytes));

	p->has_crcs = len;
	if (len)
		memcpy(p->crcs, bytes + len - PACKET_CRCS, PACKET_CRCS);
}

bool crc_vcrc_is_right(const struct packet *p)
{
	uint8_t bytes[PACKET_WIRE_MAX];
	size_t len = p->has_crcs ? packet_put_crcs(p, bytes, sizeof(bytes)) : 0;

	return len && !memcmp(bytes + len - VCRC_LEN, p->crcs + ICRC_LEN, VCRC_LEN);
}

static bool icrc_is_right(const struct packet *p)
{
	uint8_t bytes[PACKET_WIRE_MAX], icrc[ICRC_LEN];

	icrc_put(icrc, icrc_iba(bytes, packet_put(p, bytes, sizeof(bytes))));
	return !memcmp(icrc, p->crcs, ICRC_LEN);
}

bool crc_end(struct subnet_port *in, struct packet *p)
{
	if (!p->has_crcs)
		return true; /* nobody checks, or it has not been on a cable */
	p->has_crcs = false;
	if (icrc_is_right(p))
		return true;
	in->regs->count.total[CNT_RCV_ERRORS]++;
	in->regs->count.total[CNT_LOCAL_PHYSICAL]++;
	return false;
}
