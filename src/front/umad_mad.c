/* SPDX-License-Identifier: MIT */
/*
 * A MAD buffer: struct ib_user_mad, the MAD itself behind it. These calls read and fill it; none touches a
 * port. Addresses lie in it in network order, except the P_Key index.
 */
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <infiniband/umad.h>

size_t umad_size(void)
{
	return sizeof(struct ib_user_mad);
}

void *umad_get_mad(void *umad)
{
	return ((struct ib_user_mad *)umad)->data;
}

ib_mad_addr_t *umad_get_mad_addr(void *umad)
{
	return &((struct ib_user_mad *)umad)->addr;
}

int umad_status(void *umad)
{
	return ((struct ib_user_mad *)umad)->status;
}

/* The caller's flow label is in host order. Without mad_addr the packet has no GRH. */
int umad_set_grh(void *umad, void *mad_addr)
{
	ib_mad_addr_t *dst = umad_get_mad_addr(umad);
	const ib_mad_addr_t *src = mad_addr;

	dst->grh_present = src != NULL;
	if (!src)
		return 0;
	memcpy(dst->gid, src->gid, sizeof(dst->gid));
	dst->flow_label = htobe32(src->flow_label);
	dst->hop_limit = src->hop_limit;
	dst->traffic_class = src->traffic_class;
	return 0;
}

int umad_set_addr_net(void *umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey)
{
	ib_mad_addr_t *addr = umad_get_mad_addr(umad);

	addr->lid = dlid;
	addr->qpn = dqp;
	addr->sl = sl;
	addr->qkey = qkey;
	return 0;
}

int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16(dlid), htobe32(dqp), sl, htobe32(qkey));
}

int umad_set_pkey(void *umad, int pkey_index)
{
	umad_get_mad_addr(umad)->pkey_index = pkey_index;
	return 0;
}

int umad_get_pkey(void *umad)
{
	return umad_get_mad_addr(umad)->pkey_index;
}

/* Sets the level of messages, unless it is negative, and returns the one in force. There are no messages. */
int umad_debug(int level)
{
	static int current;

	if (level >= 0)
		current = level;
	return current;
}

void umad_addr_dump(ib_mad_addr_t *addr)
{
	fprintf(stderr, "qpn %u qkey 0x%x lid %u sl %u path_bits %u pkey_index %u\n", be32toh(addr->qpn),
		be32toh(addr->qkey), be16toh(addr->lid), addr->sl, addr->path_bits, addr->pkey_index);
	fprintf(stderr, "grh_present %u gid_index %u hop_limit %u traffic_class %u flow_label 0x%x gid 0x",
		addr->grh_present, addr->gid_index, addr->hop_limit, addr->traffic_class,
		be32toh(addr->flow_label));
	for (size_t i = 0; i < sizeof(addr->gid); i++)
		fprintf(stderr, "%02x", addr->gid[i]);
	fputc('\n', stderr);
}

void umad_dump(void *umad)
{
	struct ib_user_mad *mad = umad;

	fprintf(stderr, "agent %u status %u timeout %u ms\n", mad->agent_id, mad->status, mad->timeout_ms);
	umad_addr_dump(&mad->addr);
}
