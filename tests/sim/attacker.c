/* SPDX-License-Identifier: MIT */
#include "attacker.h"

#include "ib/echo.h"
#include "ib/port.h"
#include "link/link.h"

#include <string.h>

enum { STORM = 40, PAYLOAD_MAX = 4096, MESSAGE_MAX = 5 };

/* A frame before it leaves. */
struct draft {
	uint8_t hdr[FRAME_HDR_MAX];
	uint32_t hdr_len, len; /* len: of the payload */
	unsigned pad;          /* as the BTH tells it */
};

/* One draw per expression, since a compiler may evaluate operands in any order. */
static uint64_t pick(struct attacker *a, uint64_t below)
{
	return choose(a->choices, below);
}

static bool one_in(struct attacker *a, unsigned n)
{
	return choose_one_in(a->choices, n);
}

/* ---- sending ---- */
/* Headers that the opcode does not have are payload to who receives them. */
static void spare_canaries(struct draft *d)
{
	const struct ibt_op_info *op = ibt_op_lookup(d->hdr[0]);
	uint32_t deth = (d->hdr[0] & IBT_SERVICE_MASK) == IBT_UD ? DETH_LEN : 0;

	for (uint32_t i = op ? BTH_LEN + deth + op->ext_len : d->hdr_len; i < d->hdr_len; i++)
		d->hdr[i] -= d->hdr[i] == ATTACKER_NEVER;
}

static void emit(struct attacker *a, struct draft *d)
{
	static uint8_t payload[PAYLOAD_MAX];
	static struct frame_batch b;
	struct link *link = ibt_port_in(&a->node->adapter)->link;
	struct frame_out *f = &b.frame[0];

	spare_canaries(d);
	memset(payload, 0x60 + (uint8_t)(a->frames % 31), d->len);
	memset(f, 0, sizeof(*f));
	memcpy(f->hdr, d->hdr, d->hdr_len);
	f->hdr_len = (uint8_t)d->hdr_len;
	f->hdr[1] = (uint8_t)((f->hdr[1] & ~0x30) | (d->pad & 3) << 4);
	f->pad = (uint8_t)(-(d->hdr_len + d->len) & 3); /* or nobody would look further */
	f->payload_len = d->len;
	f->iov_count = d->len ? 1 : 0;
	b.iov[0] = (struct iovec){payload, d->len};
	b.nframes = 1;
	b.niov = f->iov_count;
	memcpy(b.dest.sgid, a->node->dev.port[0].gid[0].raw, 16);
	memcpy(b.dest.dgid, a->prey->dev.port[0].gid[0].raw, 16);
	b.dest.ifindex = 1;
	b.dest.hop_limit = 64;
	a->frames++;
	link->ops->send(link, &b);
}

static struct draft draft(struct hca_qp *qp, uint8_t op, uint32_t psn, uint32_t len)
{
	struct draft d = {.len = len, .pad = -len & 3};
	uint8_t service = hca_qp_type(qp) == IBV_QPT_UD ? IBT_UD : ibt_service(qp);
	uint32_t deth = service == IBT_UD ? DETH_LEN : 0;

	bth_put(d.hdr, service | op, false, 0, PKEY_DEFAULT, hca_qpn(qp), true, psn);
	if (deth)
		put_be32(d.hdr + BTH_LEN, SIM_QKEY);
	d.hdr_len = BTH_LEN + deth + ibt_op_table[op].ext_len;
	return d;
}

static uint8_t *ext_of(struct draft *d)
{
	return d->hdr + BTH_LEN + ((d->hdr[0] & IBT_SERVICE_MASK) == IBT_UD ? DETH_LEN : 0);
}

/* ---- what to put into fields ---- */
static uint32_t draw_len(struct attacker *a, uint32_t mtu)
{
	const uint32_t likely[] = {mtu, 0, 8, mtu - 1, mtu + 1, mtu + 4, 1, 2 * mtu, PAYLOAD_MAX};
	uint32_t len = one_in(a, 4) ? (uint32_t)pick(a, mtu + 1) : CHOOSE_FROM(a->choices, likely);

	return len < PAYLOAD_MAX ? len : PAYLOAD_MAX;
}

static uint32_t near(struct attacker *a, uint32_t psn)
{
	switch (pick(a, 8)) {
	case 5:
		return psn_add(psn, (uint32_t)pick(a, 16));
	case 6:
		return psn_add(psn, PSN_MASK - (uint32_t)pick(a, 64));
	case 7:
		return (uint32_t)pick(a, PSN_MASK + 1ull);
	default:
		return psn;
	}
}

/* Where an acknowledge may hurt: the ends of what is in flight, and just outside. */
static uint32_t response_psn(struct attacker *a, struct hca_qp *qp)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;
	const uint32_t edges[] = {
		r->una, psn_add(r->sent, PSN_MASK), psn_add(r->high, PSN_MASK), r->sent, r->high, r->psn};
	uint32_t flight = (uint32_t)psn_diff(r->high, r->una);

	if (one_in(a, 3) && flight && flight < 4096)
		return psn_add(r->una, (uint32_t)pick(a, flight));
	return near(a, CHOOSE_FROM(a->choices, edges));
}

static const struct attacker_key *draw_key(struct attacker *a)
{
	static const struct attacker_key none = {.va = 0x1000, .len = 4096};

	return a->keys ? &a->key[pick(a, a->keys)] : &none;
}

/* An address, a length and a key: right, just beside, or far off. */
static void draw_target(struct attacker *a, uint64_t *va, uint32_t *rkey, uint32_t *len)
{
	const struct attacker_key *k = draw_key(a);
	const uint32_t lens[] = {*len, *len, *len, 0, k->len, k->len + 1, *len + 1, *len - 1, 0x80000000u,
		0x80000001u, 0xffffffffu};
	const uint64_t offs[] = {0, 0, 8, 3, k->len - *len, k->len - *len + 1, k->len, -1ull, -8ull,
		0ull - k->va, ~0ull - k->va};

	*len = CHOOSE_FROM(a->choices, lens);
	*va = k->va + CHOOSE_FROM(a->choices, offs);
	*rkey = one_in(a, 8) ? k->key ^ 1u << pick(a, 32) : k->key;
}

static void put_request_headers(struct attacker *a, struct draft *d, unsigned flags, uint32_t total)
{
	uint8_t *ext = ext_of(d);
	uint64_t va;
	uint32_t rkey;

	if (flags & OPF_RETH) {
		draw_target(a, &va, &rkey, &total);
		reth_put(ext, va, rkey, total);
		ext += RETH_LEN;
	}
	if (flags & OPF_ATOMICETH) {
		total = 8;
		draw_target(a, &va, &rkey, &total);
		atomiceth_put(ext, va, rkey, pick(a, 256), 0);
	}
	if (flags & OPF_IMM)
		put_be32(ext, 0x1234);
	if (flags & OPF_IETH)
		put_be32(ext, draw_key(a)->key);
}

/* Changes one field of a frame that was right. */
static void spoil(struct attacker *a, struct draft *d)
{
	uint64_t at;

	switch (pick(a, 7)) {
	case 0:
		d->hdr[0] = (uint8_t)pick(a, 256);
		break;
	case 1:
		d->pad = (unsigned)pick(a, 4);
		break;
	case 2:
		d->len = (uint32_t)pick(a, 1100);
		break;
	case 3:
		put_be24(d->hdr + 9, near(a, bth_psn(d->hdr)));
		break;
	case 4:
		d->hdr_len -=
			(uint32_t)pick(a, d->hdr_len - BTH_LEN + 1); /* headers it promises are missing */
		d->len = 0;
		break;
	default:
		at = pick(a, d->hdr_len);
		d->hdr[at] = (uint8_t)pick(a, 256);
	}
}

/* ---- moves ---- */
static void any_request(struct attacker *a, struct hca_qp *qp)
{
	uint8_t op = (uint8_t)pick(a, OP_COUNT);
	unsigned flags = ibt_op_table[op].flags;
	uint32_t len = flags & OPF_PAYLOAD || one_in(a, 16) ? draw_len(a, ibt_mtu(qp)) : 0;
	struct draft d = draft(qp, op, near(a, ibt_qp(qp)->resp.epsn), len);

	put_request_headers(a, &d, flags, len);
	if (flags & OPF_RESPONSE)
		a->responses++;
	emit(a, &d);
}

/* A message as it should be, of which at most a few frames are spoilt. */
static void message(struct attacker *a, struct hca_qp *qp)
{
	static const uint8_t rows[][4] = {
		/* first, middle, last, only */
		{OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST, OP_SEND_ONLY},
		{OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_WRITE_ONLY},
		{OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_IMM, OP_SEND_ONLY_IMM},
		{OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST_IMM, OP_WRITE_ONLY_IMM},
		{OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_INV, OP_SEND_ONLY_INV},
		{OP_READ_REQUEST, OP_READ_REQUEST, OP_READ_REQUEST, OP_READ_REQUEST},
		{OP_CMP_SWAP, OP_FETCH_ADD, OP_CMP_SWAP, OP_FETCH_ADD},
	};
	const uint8_t *row = CHOOSE_FROM(a->choices, rows);
	uint32_t n = 1 + (uint32_t)pick(a, MESSAGE_MAX), mtu = ibt_mtu(qp), tail = (uint32_t)pick(a, mtu + 1);
	uint32_t psn = ibt_qp(qp)->resp.epsn, total = (n - 1) * mtu + tail;

	for (uint32_t k = 0; k < n; k++) {
		bool first = !k, last = k + 1 == n;
		uint8_t op = row[first ? (last ? 3 : 0) : last ? 2 : 1];
		unsigned flags = ibt_op_table[op].flags;
		struct draft d =
			draft(qp, op, psn_add(psn, k), flags & OPF_PAYLOAD ? (last ? tail : mtu) : 0);

		put_request_headers(a, &d, flags, total);
		if (one_in(a, 12))
			spoil(a, &d);
		if (!one_in(a, 24))
			emit(a, &d);
	}
}

static void any_ack(struct attacker *a, struct hca_qp *qp)
{
	static const uint8_t types[] = {AETH_ACK, AETH_ACK, AETH_RNR, AETH_NAK, AETH_NAK, 0x40, 0x80};
	struct draft d = draft(qp, OP_ACK, response_psn(a, qp), 0);
	uint8_t syndrome = CHOOSE_FROM(a->choices, types);

	syndrome |= (uint8_t)(syndrome == AETH_NAK ? pick(a, 6) : pick(a, 32));
	aeth_put(ext_of(&d), syndrome, (uint32_t)pick(a, 65536));
	if (one_in(a, 10))
		spoil(a, &d);
	a->responses++;
	emit(a, &d);
}

static void any_response(struct attacker *a, struct hca_qp *qp)
{
	static const uint8_t ops[] = {
		OP_READ_RESP_FIRST, OP_READ_RESP_MIDDLE, OP_READ_RESP_LAST, OP_READ_RESP_ONLY, OP_ATOMIC_ACK};
	uint8_t op = CHOOSE_FROM(a->choices, ops);
	uint32_t psn = response_psn(a, qp), len = op == OP_ATOMIC_ACK ? 0 : draw_len(a, ibt_mtu(qp));
	struct draft d = draft(qp, op, psn, len);

	if (ibt_op_table[op].flags & OPF_AETH)
		aeth_put(ext_of(&d), (uint8_t)pick(a, 256), 7);
	a->responses++;
	emit(a, &d);
}

/* What the victim waits for: so that it goes on, and there is more to spoil. */
static void right_answer(struct attacker *a, struct hca_qp *qp)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;
	const struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);
	uint32_t mtu = ibt_mtu(qp), at = 0;
	uint8_t op = OP_ACK;
	struct draft d;

	if (qp->sq.tail == qp->sq.head || !w->started || r->una == r->sent)
		return;
	at = (uint32_t)psn_diff(r->una, w->psn) * mtu;
	if (w->opcode == IBV_WR_RDMA_READ && at < w->length)
		op = OP_READ_RESP_ONLY;
	else if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		op = OP_ATOMIC_ACK;
	d = draft(
		qp, op, r->una, op == OP_READ_RESP_ONLY ? (w->length - at < mtu ? w->length - at : mtu) : 0);
	aeth_put(ext_of(&d), AETH_ACK | AETH_CREDIT_NONE, 9);
	if (one_in(a, 16))
		spoil(a, &d);
	a->responses++;
	emit(a, &d);
}

static void echo(struct attacker *a, struct hca_qp *qp)
{
	static const uint8_t opcodes[] = {OPCODE_ECHO_REQUEST, OPCODE_ECHO_REPLY, OPCODE_INDEX, 0xc3, 0xff};
	struct hca_flow *f =
		hca_adapter_flow_find(qp->adapter, a->node->dev.port[0].gid[0].raw, qp->attr.dest_qp_num);
	const uint64_t sums[] = {f ? f->sent : 0, f ? f->sent + 1 : 1, f ? f->echoed : 0, ~0ull, 0};
	struct draft d = draft(qp, OP_ACK, 0, 0);

	hca_adapter_flow_put(qp->adapter, f);
	d.hdr[0] = CHOOSE_FROM(a->choices, opcodes);
	d.hdr_len = BTH_LEN + ECHO_LEN;
	put_be32(d.hdr + BTH_LEN, hca_qpn(qp));
	put_be32(d.hdr + BTH_LEN + 4, one_in(a, 4) ? hca_qpn(qp) : qp->attr.dest_qp_num);
	put_be64(d.hdr + BTH_LEN + 8, CHOOSE_FROM(a->choices, sums));
	if (one_in(a, 8))
		d.hdr_len -= 4 * (uint32_t)pick(a, 5);
	emit(a, &d);
}

static void noise(struct attacker *a, struct hca_qp *qp)
{
	struct draft d = draft(qp, OP_SEND_ONLY, 0, 0);

	d.hdr_len = BTH_LEN + (uint32_t)pick(a, FRAME_HDR_MAX - BTH_LEN + 1);
	for (uint32_t i = 0; i < d.hdr_len; i++) {
		if (i < 5 || i > 7)
			d.hdr[i] = (uint8_t)pick(a, 256);
	}
	d.pad = (unsigned)pick(a, 4);
	d.len = (uint32_t)pick(a, 1100);
	a->responses++; /* who knows */
	emit(a, &d);
}

/* The same frame over and over: RNR storms, endless NAKs, duplicates. */
static void storm(struct attacker *a, struct hca_qp *qp)
{
	static const uint8_t syndromes[] = {AETH_RNR | 1, AETH_NAK | NAK_SEQ, AETH_ACK, AETH_RNR | 14};
	const struct ibt_qp *s = ibt_qp(qp);
	unsigned n = 2 + (unsigned)pick(a, STORM);
	struct draft d;

	if (one_in(a, 2)) {
		d = draft(qp, OP_ACK, s->req.una, 0);
		aeth_put(ext_of(&d), CHOOSE_FROM(a->choices, syndromes), 1);
		a->responses += n;
	} else {
		static const uint8_t ops[] = {OP_READ_REQUEST, OP_FETCH_ADD, OP_SEND_ONLY, OP_WRITE_ONLY};
		uint8_t op = CHOOSE_FROM(a->choices, ops);
		uint32_t behind = (uint32_t)pick(a, 8);

		d = draft(qp, op, psn_add(s->resp.epsn, PSN_MASK + 1 - behind), 0);
		put_request_headers(a, &d, ibt_op_table[op].flags, ibt_mtu(qp));
	}
	while (n--)
		emit(a, &d);
}

void attacker_move(struct attacker *a)
{
	static void (*const moves[])(struct attacker *, struct hca_qp *) = {right_answer, message,
		right_answer, message, any_ack, any_ack, any_response, any_request, any_request, echo, noise,
		storm};
	struct hca_qp *qp = a->qp[pick(a, a->qps)];

	CHOOSE_FROM(a->choices, moves)(a, qp);
}
