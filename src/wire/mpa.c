/* SPDX-License-Identifier: MIT */
#include "wire/mpa.h"

#include <isa-l/crc.h>

static const char request_key[16] = "MPA ID Req Frame", reply_key[16] = "MPA ID Rep Frame";

bool mpa_frame_get(const uint8_t b[MPA_FRAME_LEN], struct mpa_frame *f)
{
	f->reply = !memcmp(b, reply_key, sizeof(reply_key));
	if (!f->reply && memcmp(b, request_key, sizeof(request_key)))
		return false;
	f->flags = b[16];
	f->revision = b[17];
	f->private_len = get_be16(b + 18);
	return f->private_len <= MPA_PRIVATE_MAX;
}

void mpa_frame_put(uint8_t b[MPA_FRAME_LEN], const struct mpa_frame *f)
{
	memcpy(b, f->reply ? reply_key : request_key, sizeof(request_key));
	b[16] = f->flags;
	b[17] = f->revision;
	put_be16(b + 18, f->private_len);
}

struct mpa_v2 mpa_v2_get(const uint8_t b[MPA_V2_LEN])
{
	uint16_t ird = get_be16(b), ord = get_be16(b + 2);

	return (struct mpa_v2){
		.ird = ird & MPA_DEPTH_UNTOLD,
		.ord = ord & MPA_DEPTH_UNTOLD,
		.peer_to_peer = ird & 0x8000,
		.rtr = (uint8_t)((ird & 0x4000 ? MPA_RTR_ZERO : 0) | (ord & 0x8000 ? MPA_RTR_WRITE : 0) |
				 (ord & 0x4000 ? MPA_RTR_READ : 0)),
	};
}

void mpa_v2_put(uint8_t b[MPA_V2_LEN], const struct mpa_v2 *v)
{
	put_be16(b, (uint16_t)((v->ird & MPA_DEPTH_UNTOLD) | (v->peer_to_peer ? 0x8000 : 0) |
			       (v->rtr & MPA_RTR_ZERO ? 0x4000 : 0)));
	put_be16(b + 2, (uint16_t)((v->ord & MPA_DEPTH_UNTOLD) | (v->rtr & MPA_RTR_WRITE ? 0x8000 : 0) |
				   (v->rtr & MPA_RTR_READ ? 0x4000 : 0)));
}

enum { UPGRADE_VERSION = 1, UPGRADE_OK = 1 };
static const char upgrade_key[7] = "anyrdma";

bool mpa_upgrade_get(const uint8_t b[MPA_UPGRADE_LEN], struct mpa_upgrade *m)
{
	*m = (struct mpa_upgrade){0};
	if (memcmp(b, upgrade_key, sizeof(upgrade_key)))
		return false;
	if (b[7] != UPGRADE_VERSION)
		return true;
	m->ok = b[8] & UPGRADE_OK;
	m->qpn = get_be32(b + 12);
	m->psn = get_be32(b + 16);
	m->port = get_be16(b + 20);
	m->other_port = get_be16(b + 22);
	m->identity = get_be64(b + 24);
	memcpy(m->gid, b + 32, 16);
	memcpy(m->other_gid, b + 48, 16);
	return true;
}

void mpa_upgrade_put(uint8_t b[MPA_UPGRADE_LEN], const struct mpa_upgrade *m)
{
	memcpy(b, upgrade_key, sizeof(upgrade_key));
	b[7] = UPGRADE_VERSION;
	put_be32(b + 8, (uint32_t)(m->ok ? UPGRADE_OK : 0) << 24);
	put_be32(b + 12, m->qpn);
	put_be32(b + 16, m->psn);
	put_be16(b + 20, m->port);
	put_be16(b + 22, m->other_port);
	put_be64(b + 24, m->identity);
	memcpy(b + 32, m->gid, 16);
	memcpy(b + 48, m->other_gid, 16);
}

uint32_t mpa_span(uint64_t pos, uint32_t n)
{
	enum { BETWEEN = MPA_MARKER_EVERY - MPA_MARKER_LEN };
	uint32_t at = pos % MPA_MARKER_EVERY, first = MPA_MARKER_EVERY - at, span = n;

	if (!n)
		return 0;
	if (!at) {
		span += MPA_MARKER_LEN;
		first = BETWEEN;
	}
	if (n > first)
		span += (n - first + BETWEEN - 1) / BETWEEN * MPA_MARKER_LEN;
	return span;
}

uint32_t mpa_crc_add(uint32_t crc, const void *bytes, size_t len)
{
	while (len) {
		size_t part = len < 1 << 30 ? len : 1 << 30; /* isa-l counts in int */

		crc = crc32_iscsi((unsigned char *)bytes, (int)part, crc);
		bytes = (const char *)bytes + part;
		len -= part;
	}
	return crc;
}

/* The bits are reflected, as in iSCSI: the first byte holds the lowest. */
void mpa_crc_end(uint32_t crc, uint8_t b[MPA_CRC_LEN])
{
	put_be32(b, __builtin_bswap32(~crc));
}
