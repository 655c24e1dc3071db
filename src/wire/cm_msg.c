/* SPDX-License-Identifier: MIT */
/*
 * A row per field, in the order of the spec's tables (IBA volume 1, tables 106 to 121): where it lies in the
 * message (byte and bit behind the MAD header, bit 0 is the byte's most significant), how many bits it has,
 * and which member it is.
 */
#include "wire/cm_msg.h"

#include "base/asserts.h"
#include "wire/qpn.h"

#include <string.h>

struct field {
	uint16_t member, size; /* in struct cm_msg */
	uint16_t at, bits;     /* on the wire, in bits */
};

#define BITS(field, byte, bit, width)                                                                        \
	{                                                                                                    \
		offsetof(struct cm_msg, field), sizeof(((struct cm_msg *)0)->field), (byte)*8 + (bit), width \
	}
#define BYTES(field, byte, len)                                                                              \
	{                                                                                                    \
		offsetof(struct cm_msg, field), len, (byte)*8, (len)*8                                       \
	}
#define REQ_PATH(path, byte)                                                                                 \
	BITS(req.path.local_lid, byte, 0, 16), BITS(req.path.remote_lid, (byte) + 2, 0, 16),                 \
		BYTES(req.path.local_gid, (byte) + 4, 16), BYTES(req.path.remote_gid, (byte) + 20, 16),      \
		BITS(req.path.flow_label, (byte) + 36, 0, 20), BITS(req.path.rate, (byte) + 39, 2, 6),       \
		BITS(req.path.tclass, (byte) + 40, 0, 8), BITS(req.path.hop_limit, (byte) + 41, 0, 8),       \
		BITS(req.path.sl, (byte) + 42, 0, 4), BITS(req.path.subnet_local, (byte) + 42, 4, 1),        \
		BITS(req.path.ack_timeout, (byte) + 43, 0, 5)
#define COMM_IDS BITS(local_id, 0, 0, 32), BITS(remote_id, 4, 0, 32)

static const struct field req_fields[] = {
	BITS(local_id, 0, 0, 32),
	BITS(req.vendor_id, 5, 0, 24),
	BITS(req.service_id, 8, 0, 64),
	BITS(req.ca_guid, 16, 0, 64),
	BITS(req.qkey, 28, 0, 32),
	BITS(req.qpn, 32, 0, 24),
	BITS(req.responder_resources, 35, 0, 8),
	BITS(req.local_eecn, 36, 0, 24),
	BITS(req.initiator_depth, 39, 0, 8),
	BITS(req.remote_eecn, 40, 0, 24),
	BITS(req.remote_timeout, 43, 0, 5),
	BITS(req.transport, 43, 5, 2),
	BITS(req.flow_control, 43, 7, 1),
	BITS(req.psn, 44, 0, 24),
	BITS(req.local_timeout, 47, 0, 5),
	BITS(req.retry_count, 47, 5, 3),
	BITS(req.pkey, 48, 0, 16),
	BITS(req.mtu, 50, 0, 4),
	BITS(req.rdc_exists, 50, 4, 1),
	BITS(req.rnr_retry, 50, 5, 3),
	BITS(req.max_cm_retries, 51, 0, 4),
	BITS(req.srq, 51, 4, 1),
	BITS(req.ext_transport, 51, 5, 3),
	REQ_PATH(primary, 52),
	REQ_PATH(alternate, 96),
	BITS(req.sap_supported, 139, 5, 1),
	BYTES(priv, 140, 92),
};

static const struct field mra_fields[] = {
	COMM_IDS,
	BITS(mra.about, 8, 0, 2),
	BITS(mra.service_timeout, 9, 0, 5),
	BYTES(priv, 10, 222),
};

static const struct field rej_fields[] = {
	COMM_IDS,
	BITS(rej.about, 8, 0, 2),
	BITS(rej.info_len, 9, 0, 7),
	BITS(rej.reason, 10, 0, 16),
	BYTES(rej.info, 12, CM_INFO_MAX),
	BYTES(priv, 84, 148),
};

static const struct field rep_fields[] = {
	COMM_IDS,
	BITS(rep.qkey, 8, 0, 32),
	BITS(rep.qpn, 12, 0, 24),
	BITS(rep.vendor_h, 15, 0, 8),
	BITS(rep.eecn, 16, 0, 24),
	BITS(rep.vendor_m, 19, 0, 8),
	BITS(rep.psn, 20, 0, 24),
	BITS(rep.vendor_l, 23, 0, 8),
	BITS(rep.responder_resources, 24, 0, 8),
	BITS(rep.initiator_depth, 25, 0, 8),
	BITS(rep.target_ack_delay, 26, 0, 5),
	BITS(rep.failover, 26, 5, 2),
	BITS(rep.flow_control, 26, 7, 1),
	BITS(rep.rnr_retry, 27, 0, 3),
	BITS(rep.srq, 27, 3, 1),
	BITS(rep.ca_guid, 28, 0, 64),
	BYTES(priv, 36, 196),
};

static const struct field rtu_fields[] = {COMM_IDS, BYTES(priv, 8, 224)};
static const struct field dreq_fields[] = {COMM_IDS, BITS(dreq.remote_qpn, 8, 0, 24), BYTES(priv, 12, 220)};
static const struct field drep_fields[] = {COMM_IDS, BYTES(priv, 8, 224)};

static const struct field sidr_req_fields[] = {
	BITS(local_id, 0, 0, 32),
	BITS(sidr_req.pkey, 4, 0, 16),
	BITS(sidr_req.service_id, 8, 0, 64),
	BYTES(priv, 16, 216),
};

static const struct field sidr_rep_fields[] = {
	BITS(local_id, 0, 0, 32),
	BITS(sidr_rep.status, 4, 0, 8),
	BITS(sidr_rep.info_len, 5, 0, 8),
	BITS(sidr_rep.qpn, 8, 0, 24),
	BITS(sidr_rep.service_id, 12, 0, 64),
	BITS(sidr_rep.qkey, 20, 0, 32),
	BYTES(sidr_rep.info, 24, CM_INFO_MAX),
	BYTES(priv, 96, 136),
};

static const struct field lap_fields[] = {
	COMM_IDS,
	BITS(lap.remote_qpn, 12, 0, 24),
	BITS(lap.remote_timeout, 15, 0, 5),
	BYTES(priv, 64, 168),
};

static const struct field apr_fields[] = {
	COMM_IDS,
	BITS(apr.info_len, 8, 0, 8),
	BITS(apr.status, 9, 0, 8),
	BYTES(apr.info, 12, CM_INFO_MAX),
	BYTES(priv, 84, 148),
};

/* ---- a row per message ---- */
static const struct message {
	const char *name;
	const struct field *fields;
	size_t count;
} messages[] = {
#define ROW(name, table) [CM_##name - CM_REQ] = {#name, table, sizeof(table) / sizeof(table[0])}
	ROW(REQ, req_fields),
	ROW(MRA, mra_fields),
	ROW(REJ, rej_fields),
	ROW(REP, rep_fields),
	ROW(RTU, rtu_fields),
	ROW(DREQ, dreq_fields),
	ROW(DREP, drep_fields),
	ROW(SIDR_REQ, sidr_req_fields),
	ROW(SIDR_REP, sidr_rep_fields),
	ROW(LAP, lap_fields),
	ROW(APR, apr_fields),
#undef ROW
};

static const struct message *message(unsigned attr)
{
	return attr >= CM_REQ && attr <= CM_APR ? &messages[attr - CM_REQ] : NULL;
}

/* ---- fields ---- */
static uint64_t get_bits(const uint8_t *p, unsigned at, unsigned bits)
{
	uint64_t v = 0;

	for (unsigned i = at; i < at + bits; i++)
		v = v << 1 | (p[i / 8] >> (7 - i % 8) & 1);
	return v;
}

static void put_bits(uint8_t *p, unsigned at, unsigned bits, uint64_t v)
{
	for (unsigned i = at + bits; i-- > at; v >>= 1)
		p[i / 8] |= (uint8_t)((v & 1) << (7 - i % 8));
}

static void member_set(void *m, unsigned size, uint64_t v)
{
	switch (size) {
	case 1:
		*(uint8_t *)m = (uint8_t)v;
		break;
	case 2:
		*(uint16_t *)m = (uint16_t)v;
		break;
	case 4:
		*(uint32_t *)m = (uint32_t)v;
		break;
	default:
		*(uint64_t *)m = v;
	}
}

static uint64_t member_get(const void *m, unsigned size)
{
	switch (size) {
	case 1:
		return *(const uint8_t *)m;
	case 2:
		return *(const uint16_t *)m;
	case 4:
		return *(const uint32_t *)m;
	default:
		return *(const uint64_t *)m;
	}
}

void cm_msg_pack(const struct cm_msg *m, uint8_t mad[MAD_LEN])
{
	const struct message *row = message(m->attr);
	const struct mad_hdr hdr = {MAD_BASE_VERSION, MAD_CLASS_CM, CM_CLASS_VERSION, MAD_METHOD_SEND, 0, 0,
		m->tid, (uint16_t)m->attr, m->attr_mod};
	uint8_t *body = mad + MAD_HDR_LEN;

	assert_that(row);
	memset(mad, 0, MAD_LEN);
	mad_hdr_put(mad, &hdr);
	for (const struct field *f = row->fields; f < row->fields + row->count; f++) {
		const uint8_t *member = (const uint8_t *)m + f->member;

		if (f->bits > 64)
			memcpy(body + f->at / 8, member, f->size);
		else
			put_bits(body, f->at, f->bits, member_get(member, f->size));
	}
}

static bool is_ours(const struct mad_hdr *h)
{
	return h->base_version == MAD_BASE_VERSION && h->mgmt_class == MAD_CLASS_CM &&
	       h->class_version == CM_CLASS_VERSION && h->method == MAD_METHOD_SEND;
}

/* Lengths that point past their field are cut to it: what reads the field may trust them. */
static void check_info_len(struct cm_msg *m)
{
	uint8_t *len = m->attr == CM_REJ        ? &m->rej.info_len
		       : m->attr == CM_SIDR_REP ? &m->sidr_rep.info_len
		       : m->attr == CM_APR      ? &m->apr.info_len
						: NULL;

	if (len && *len > CM_INFO_MAX)
		*len = CM_INFO_MAX;
}

bool cm_msg_parse(const uint8_t *mad, size_t len, struct cm_msg *m)
{
	const struct message *row;
	struct mad_hdr hdr;

	if (len != MAD_LEN)
		return false;
	hdr = mad_hdr_get(mad);
	row = message(hdr.attr);
	if (!is_ours(&hdr) || !row)
		return false;
	memset(m, 0, sizeof(*m));
	m->attr = (enum cm_attr)hdr.attr;
	m->tid = hdr.tid;
	m->attr_mod = hdr.attr_mod;
	for (const struct field *f = row->fields; f < row->fields + row->count; f++) {
		uint8_t *member = (uint8_t *)m + f->member;
		const uint8_t *body = mad + MAD_HDR_LEN;

		if (f->bits > 64)
			memcpy(member, body + f->at / 8, f->size);
		else
			member_set(member, f->size, get_bits(body, f->at, f->bits));
	}
	check_info_len(m);
	return true;
}

/* ---- names ---- */
unsigned cm_priv_len(enum cm_attr attr)
{
	switch (attr) {
#define X(name, id, priv)                                                                                    \
	case CM_##name:                                                                                      \
		return priv;
		CM_ATTRS(X)
#undef X
	}
	return 0;
}

const char *cm_attr_name(enum cm_attr attr)
{
	return message(attr) ? message(attr)->name : "unknown";
}

const char *cm_rej_name(unsigned reason)
{
	switch (reason) {
#define X(name, code, text)                                                                                  \
	case code:                                                                                           \
		return text;
		CM_REJ_REASONS(X)
#undef X
	}
	return "unknown reason";
}

const char *cm_sidr_name(unsigned status)
{
	switch (status) {
#define X(name, code, text)                                                                                  \
	case code:                                                                                           \
		return text;
		CM_SIDR_STATUSES(X)
#undef X
	}
	return "unknown status";
}

/* ---- IP addresses in private data ---- */
static const uint8_t mapped[12] = {[10] = 0xff, 0xff};

/* IPv4 lies in the last four bytes, behind zeros. */
static void addr_put(uint8_t *p, const uint8_t gid[16], bool v4)
{
	memset(p, 0, 16);
	if (v4)
		memcpy(p + 12, gid + 12, 4);
	else
		memcpy(p, gid, 16);
}

static void addr_get(const uint8_t *p, uint8_t gid[16], bool v4)
{
	memcpy(gid, p, 16);
	if (v4)
		memcpy(gid, mapped, sizeof(mapped));
}

void cm_ip_pack(const struct cm_ip *ip, uint8_t p[CM_IP_LEN])
{
	p[0] = 0; /* version of this header */
	p[1] = (uint8_t)(ip->version << 4);
	put_be16(p + 2, ip->port);
	addr_put(p + 4, ip->src, ip->version == 4);
	addr_put(p + 20, ip->dst, ip->version == 4);
}

bool cm_ip_parse(const uint8_t p[CM_IP_LEN], struct cm_ip *ip)
{
	ip->version = p[1] >> 4;
	ip->port = get_be16(p + 2);
	if (p[0] != 0 || (ip->version != 4 && ip->version != 6))
		return false;
	addr_get(p + 4, ip->src, ip->version == 4);
	addr_get(p + 20, ip->dst, ip->version == 4);
	return true;
}

int cm_owner(const uint8_t *mad, size_t len, uint64_t *service_id)
{
	struct cm_msg m;

	if (!cm_msg_parse(mad, len, &m))
		return CM_OWNER_NONE;
	if (m.attr == CM_REQ || m.attr == CM_SIDR_REQ) {
		*service_id = m.attr == CM_REQ ? m.req.service_id : m.sidr_req.service_id;
		return CM_OWNER_SERVICE;
	}
	if (m.attr == CM_SIDR_REP)
		return (int)comm_id_slot(m.local_id);
	if (m.attr == CM_REJ && !m.remote_id) /* who gives up before a REP names its own id (IBA 12.6.7.2) */
		return m.rej.reason == CM_REJ_TIMEOUT && m.local_id ? CM_OWNER_ANY : CM_OWNER_NONE;
	return (int)comm_id_slot(m.remote_id);
}

bool cm_refuse(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN])
{
	struct cm_msg m, no;

	if (!cm_msg_parse(mad, MAD_LEN, &m))
		return false;
	no = (struct cm_msg){.tid = m.tid};
	if (m.attr == CM_REQ) {
		no.attr = CM_REJ;
		no.remote_id = m.local_id;
		no.rej.about = CM_ABOUT_REQ;
		no.rej.reason = CM_REJ_INVALID_SERVICE_ID;
	} else if (m.attr == CM_SIDR_REQ) {
		no.attr = CM_SIDR_REP;
		no.local_id = m.local_id;
		no.sidr_rep.status = CM_SIDR_UNSUPPORTED;
		no.sidr_rep.service_id = m.sidr_req.service_id;
	} else {
		return false;
	}
	cm_msg_pack(&no, answer);
	return true;
}

bool cm_answer_for_dead(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN])
{
	struct cm_msg m, say;

	if (!cm_msg_parse(mad, MAD_LEN, &m) || (m.attr != CM_DREQ && m.attr != CM_REP))
		return false;
	say = (struct cm_msg){
		.attr = CM_DREP, .tid = m.tid, .local_id = m.remote_id, .remote_id = m.local_id};
	if (m.attr == CM_REP) {
		say.attr = CM_REJ;
		say.rej.about = CM_ABOUT_REP;
		say.rej.reason = CM_REJ_INVALID_COMM_ID;
	}
	cm_msg_pack(&say, answer);
	return true;
}
