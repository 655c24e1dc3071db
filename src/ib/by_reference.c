/* SPDX-License-Identifier: MIT */
/*
 * Messages whose bytes do not travel: on one host the sender says where they lie (base/frame.h: by
 * reference), and the receiver fetches them, straight to where they belong. One frame stands for all packets
 * of the message, and has all their PSNs; so whatever goes before or comes after may go by packets, and so
 * may the message itself, should it have to be sent again.
 *
 * Where all is as usual the receiver executes it at once. Where not (no receive, one that is too short, a
 * missing right, the first message in RTR) it makes the packets and hands them to the responder one by one,
 * until one is refused: the peer hears what it would have heard over the wire.
 */
#include "ib/ibt.h"

#include <string.h>

enum {
	BY_REF_MAX = 4 << 20, /* longer ones would keep the receiver from everything else for too long */
	/* Looks, of which a message takes one or two: a peer that could not fetch, or had no room, just then
	 * is asked again soon enough, and one that never can seldom enough. */
	BY_REF_PAUSE = 1024,
};

_Static_assert(sizeof(struct frame_ref) == sizeof(struct ibv_sge) &&
		       offsetof(struct frame_ref, len) == offsetof(struct ibv_sge, length) &&
		       offsetof(struct frame_ref, key) == offsetof(struct ibv_sge, lkey),
	"a list of entries is a list of places");

/* ---- sending ---- */
/* One that would have gone by reference goes by packets instead. */
static bool pauses(struct ibt_requester *r)
{
	return r->by_ref_pause && r->by_ref_pause--;
}

static bool may_go(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	/* Charged by itself and not by bytes: nothing before it may be open (charge_of). */
	return w->length <= BY_REF_MAX && w->nsge <= FRAME_REFS && !r->reads &&
	       w->opcode != IBV_WR_SEND_WITH_INV &&
	       (uint32_t)psn_diff(r->psn, r->una) + ibt_npkts(w->length, ibt_mtu(qp)) <= IBT_PSNS_OUT &&
	       hca_sge_goes_by_ref(qp, w) && !pauses(r);
}

bool ibt_put_by_ref(struct hca_qp *qp, struct hca_send_wqe *w, struct frame_out *f, struct iovec *iov)
{
	if (!may_go(qp, w))
		return false;
	iov[0] = (struct iovec){w->sge, w->nsge * sizeof(w->sge[0])};
	f->own = 1;
	f->by_ref = frame_by_ref(qp->attr.path_mtu, qp->generation);
	f->iov_first = 0;
	f->iov_count = 1;
	f->payload_len = (uint32_t)iov[0].iov_len;
	f->pad = f->copy = 0;
	w->by_ref = true;
	return true;
}

void ibt_by_ref_failed(struct hca_qp *qp)
{
	ibt_qp(qp)->req.by_ref_pause = BY_REF_PAUSE;
	ibt_move_to(qp, ibt_qp(qp)->req.acked);
}

void ibt_by_ref_refused(struct hca_qp *qp, uint32_t psn)
{
	const struct hca_send_wqe *w = ibt_wqe_at(qp, psn);

	if (w && w->by_ref)
		ibt_qp(qp)->req.by_ref_pause = BY_REF_PAUSE;
}

/* ---- receiving ---- */
struct message {
	const struct frame_in *in;
	const struct ibt_op_info *op; /* of the ONLY packet */
	uint32_t len, npkts, mtu;     /* as its sender cuts it */
	ibt_fetch_fn *fetch;
	void *arg;
};

static bool take_apart(struct message *m, const struct frame_in *in)
{
	static const uint8_t known[] = {OP_SEND_ONLY, OP_SEND_ONLY_IMM, OP_WRITE_ONLY, OP_WRITE_ONLY_IMM};
	uint8_t opcode = bth_opcode(in->bytes), mtu = in->by_ref & FRAME_BY_REF_MTU;

	if ((opcode & IBT_SERVICE_MASK) != IBT_RC || !mtu || mtu > IBV_MTU_4096 || in->ref_len > BY_REF_MAX ||
		!memchr(known, opcode & 0x1f, sizeof(known)))
		return false;
	m->in = in;
	m->op = &ibt_op_table[opcode & 0x1f];
	m->len = (uint32_t)in->ref_len;
	m->mtu = 128u << mtu;
	m->npkts = ibt_npkts(m->len, m->mtu);
	return in->head_len == (uint32_t)BTH_LEN + m->op->ext_len;
}

/* Where a WRITE goes: the whole of it, or NULL. */
static void *target(struct hca_qp *qp, const struct message *m)
{
	struct reth h = reth_get(m->in->bytes + BTH_LEN);

	if (h.len != m->len || !hca_qp_allows(qp, IBV_ACCESS_REMOTE_WRITE))
		return NULL;
	return hca_qp_target(qp, h.rkey, h.va, m->len, IBV_ACCESS_REMOTE_WRITE);
}

/* Where the bytes go; false: not as usual. */
static bool find_place(struct hca_qp *qp, const struct message *m, struct iovec *to, unsigned *n)
{
	bool write = m->op->flags & OPF_WRITE;

	if (!write || (m->op->flags & OPF_IMM)) {
		if (hca_cq_full(qp->recv_cq) || (!qp->recv.valid && !hca_qp_take_recv(qp)))
			return false;
	}
	if (!write)
		return m->len <= qp->recv.length && hca_sge_gather(qp, qp->recv.sge, qp->recv.nsge, 0, m->len,
							    IBV_ACCESS_LOCAL_WRITE, to, HCA_MAX_SGE, n);
	to[0] = (struct iovec){target(qp, m), m->len};
	*n = 1;
	return to[0].iov_base;
}

static void report(struct hca_qp *qp, const struct message *m, uint64_t now)
{
	bool write = m->op->flags & OPF_WRITE;
	struct ibv_wc wc = {.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = m->len,
		.src_qp = qp->attr.dest_qp_num};

	if (m->op->flags & OPF_IMM) {
		memcpy(&wc.imm_data, m->in->bytes + BTH_LEN + (write ? RETH_LEN : 0), IMM_LEN);
		wc.wc_flags = IBV_WC_WITH_IMM;
	} else if (write) {
		return;
	}
	hca_qp_complete_recv(qp, &wc, bth_solicited(m->in->bytes), now);
}

/* What it leaves of a receive it took is in qp->recv, as if the responder had taken it. */
static bool execute(struct hca_qp *qp, const struct message *m, uint64_t now)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	struct iovec to[HCA_MAX_SGE];
	unsigned n;

	if (!m->len || m->mtu != ibt_mtu(qp) || !ibt_is_next(qp, m->in) || r->in_message ||
		!find_place(qp, m, to, &n) || !m->fetch(m->arg, 0, to, n, m->len))
		return false;
	r->epsn = psn_add(r->epsn, m->npkts - 1);
	ibt_took(r);
	r->msn = (r->msn + 1) & PSN_MASK;
	qp->count->rx_packets += m->npkts;
	qp->count->rx_bytes += m->npkts * BTH_LEN + m->op->ext_len + (uint64_t)m->len;
	report(qp, m, now);
	return true;
}

/* ---- packet by packet ---- */
static void put_headers(const struct message *m, uint32_t k, uint32_t len, uint8_t *hdr, struct frame_in *p)
{
	uint8_t op = ibt_op_at(bth_opcode(m->in->bytes) & 0x1f, !k, k + 1 == m->npkts);
	const uint8_t *b = m->in->bytes, *reth = b + BTH_LEN,
		      *imm = b + m->in->head_len - IMM_LEN; /* the last of the headers, if it is there */
	uint8_t *ext = hdr + BTH_LEN, pad = (uint8_t)(-len & 3);

	bth_put(hdr, IBT_RC | op, (ibt_op_table[op].flags & OPF_END) && bth_solicited(b), pad, bth_pkey(b),
		bth_dqpn(b), false, psn_add(bth_psn(b), k));
	if (ibt_op_table[op].flags & OPF_RETH) {
		memcpy(ext, reth, RETH_LEN);
		ext += RETH_LEN;
	}
	if (ibt_op_table[op].flags & OPF_IMM) {
		memcpy(ext, imm, IMM_LEN);
		ext += IMM_LEN;
	}
	p->bytes = hdr;
	p->head_len = (uint32_t)(ext - hdr);
	p->len = p->head_len + len + pad;
	p->by_ref = 0;
}

static bool by_packets(struct hca_qp *qp, const struct message *m, uint64_t now)
{
	uint8_t hdr[FRAME_HDR_MAX], payload[4096];
	struct frame_in p = *m->in;

	p.payload_ext = payload;
	for (uint32_t k = 0; k < m->npkts; k++) {
		uint32_t off = k * m->mtu, len = m->len - off < m->mtu ? m->len - off : m->mtu;
		struct iovec to = {payload, len};

		put_headers(m, k, len, hdr, &p);
		if (len && !m->fetch(m->arg, off, &to, 1, len)) {
			if (ibt_is_next(qp, &p))
				ibt_respond_lost(qp);
			return false;
		}
		qp->count->rx_packets++;
		qp->count->rx_bytes += p.len;
		if (!ibt_receive(qp, &p, now))
			return false;
	}
	return true;
}

bool ibt_receive_by_ref(
	struct hca_qp *qp, const struct frame_in *in, ibt_fetch_fn *fetch, void *arg, uint64_t now)
{
	struct message m = {.fetch = fetch, .arg = arg};

	if (!qp->service.reliable || !take_apart(&m, in)) {
		qp->count->dropped++;
		return false;
	}
	return execute(qp, &m, now) || by_packets(qp, &m, now);
}
