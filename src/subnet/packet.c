/* SPDX-License-Identifier: MIT */
/* Making packets, taking them apart, turning them round. */
#include "subnet/packet.h"

#include "wire/icrc.h"

void packet_set_lengths(struct packet *p)
{
	p->lrh.lnh = p->has_grh ? LNH_GLOBAL : LNH_LOCAL;
	p->lrh.words = (uint16_t)((packet_size(p) + ICRC_LEN) / 4);
	if (p->has_grh) {
		p->grh.len = (uint16_t)(p->len + ICRC_LEN);
		p->grh.next = GRH_NXT_IBA;
	}
}

static void deth_put(uint8_t *p, uint32_t qkey, uint32_t sqpn)
{
	put_be32(p, qkey);
	put_be32(p + 4, sqpn & 0xffffff);
}

void packet_mad_make(struct packet *p, uint8_t room[PACKET_MAD_LEN], const struct packet_addr *a,
	const uint8_t mad[MAD_LEN])
{
	*p = (struct packet){.lrh = {.vl = a->dqpn == SMI_QPN ? VL_MANAGEMENT : a->vl,
				     .sl = a->sl,
				     .slid = a->slid,
				     .dlid = a->dlid},
		.has_grh = a->has_grh,
		.grh = a->grh,
		.bth = room,
		.len = PACKET_MAD_LEN};
	packet_set_lengths(p);
	bth_put(room, IBT_UD | OP_SEND_ONLY, false, 0, a->pkey, a->dqpn, false, 0);
	deth_put(room + BTH_LEN, a->qkey, a->sqpn);
	memcpy(packet_mad(p), mad, MAD_LEN);
}

bool packet_mad_parse(const struct packet *p, struct packet_addr *a, const uint8_t **mad)
{
	const uint8_t *deth = p->bth + BTH_LEN;

	if (p->len != PACKET_MAD_LEN || bth_opcode(p->bth) != (IBT_UD | OP_SEND_ONLY) || bth_pad(p->bth) ||
		bth_tver(p->bth) || bth_dqpn(p->bth) > GSI_QPN)
		return false;
	*a = (struct packet_addr){.slid = p->lrh.slid,
		.dlid = p->lrh.dlid,
		.sl = p->lrh.sl,
		.vl = p->lrh.vl,
		.pkey = bth_pkey(p->bth),
		.sqpn = get_be24(deth + 5),
		.dqpn = bth_dqpn(p->bth),
		.qkey = get_be32(deth),
		.has_grh = p->has_grh,
		.grh = p->grh};
	*mad = packet_mad(p);
	return true;
}

static void swap_gids(struct grh *h)
{
	uint8_t was[16];

	memcpy(was, h->sgid, 16);
	memcpy(h->sgid, h->dgid, 16);
	memcpy(h->dgid, was, 16);
}

void packet_mad_turn(struct packet *p)
{
	uint8_t *deth = p->bth + BTH_LEN;
	uint32_t from = get_be24(deth + 5), to = bth_dqpn(p->bth);
	uint16_t slid = p->lrh.slid;

	p->lrh.slid = p->lrh.dlid;
	p->lrh.dlid = slid;
	put_be24(p->bth + 5, from);
	deth_put(deth, to == GSI_QPN ? GSI_QKEY : 0, to);
	if (p->has_grh)
		swap_gids(&p->grh);
	p->hops = 0;
}

size_t packet_put(const struct packet *p, uint8_t *out, size_t room)
{
	size_t at = LRH_LEN;

	if (packet_size(p) > room)
		return 0;
	lrh_put(out, &p->lrh);
	if (p->has_grh) {
		grh_put(out + at, &p->grh);
		at += GRH_LEN;
	}
	memcpy(out + at, p->bth, p->len);
	return at + p->len;
}

size_t packet_put_crcs(const struct packet *p, uint8_t *out, size_t room)
{
	size_t len = room < PACKET_CRCS ? 0 : packet_put(p, out, room - PACKET_CRCS);

	if (!len)
		return 0;
	if (p->has_crcs)
		memcpy(out + len, p->crcs, ICRC_LEN);
	else
		icrc_put(out + len, icrc_iba(out, len));
	len += ICRC_LEN;
	vcrc_put(out + len, vcrc_packet(out, len));
	return len + VCRC_LEN;
}

bool packet_get(struct packet *p, uint8_t *bytes, size_t len)
{
	size_t front;

	if (len < LRH_LEN)
		return false;
	*p = (struct packet){.lrh = lrh_get(bytes)};
	if (p->lrh.lnh < LNH_LOCAL || p->lrh.lver || len % 4 || p->lrh.words != (len + ICRC_LEN) / 4)
		return false;
	p->has_grh = p->lrh.lnh == LNH_GLOBAL;
	front = LRH_LEN + (p->has_grh ? GRH_LEN : 0);
	if (len < front + BTH_LEN || len - front > PACKET_BODY_MAX)
		return false;
	if (p->has_grh)
		p->grh = grh_get(bytes + LRH_LEN);
	p->bth = bytes + front;
	p->len = (uint32_t)(len - front);
	return true;
}
