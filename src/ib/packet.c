/* SPDX-License-Identifier: MIT */
/* Packets of requests: packet k is made from the request and k, the first time as any other. */
#include "ib/requester.h"

struct frame_out *ibt_frame(struct frame_batch *out, uint8_t hdr_len)
{
	struct frame_out *f = &out->frame[out->nframes++];

	f->hdr_len = hdr_len;
	f->pad = f->copy = f->own = f->by_ref = 0;
	f->cookie = 0;
	f->iov_first = (uint16_t)out->niov;
	f->iov_count = 0;
	f->payload_len = 0;
	return f;
}

uint32_t ibt_middles(struct hca_qp *qp, uint32_t k, uint32_t npkts, const struct frame_batch *out)
{
	uint32_t n = frame_batch_room(out, BTH_LEN + ibt_mtu(qp)), iovs = FRAME_BATCH_IOV - out->niov;

	if (!k || k + 1 >= npkts)
		return 0;
	if (n > npkts - 1 - k)
		n = npkts - 1 - k;
	return n < iovs ? n : iovs;
}

void ibt_put_middles(
	struct hca_qp *qp, uint8_t op, uint32_t psn, char *from, uint32_t n, struct frame_batch *out)
{
	uint32_t mtu = ibt_mtu(qp);

	for (uint32_t i = 0; i < n; i++, from += mtu) {
		struct frame_out *f = ibt_frame(out, BTH_LEN);

		f->iov_count = 1;
		f->payload_len = mtu;
		f->psn = psn_add(psn, i);
		out->iov[out->niov++] = (struct iovec){from, mtu};
		bth_put(f->hdr, ibt_service(qp) | op, false, 0, qp->path.pkey, qp->attr.dest_qp_num, false,
			f->psn);
		frame_batch_note(out, frame_len(f));
	}
}

const uint8_t ibt_only_op[] = {
	[IBV_WR_RDMA_WRITE] = OP_WRITE_ONLY,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = OP_WRITE_ONLY_IMM,
	[IBV_WR_SEND] = OP_SEND_ONLY,
	[IBV_WR_SEND_WITH_IMM] = OP_SEND_ONLY_IMM,
	[IBV_WR_SEND_WITH_INV] = OP_SEND_ONLY_INV,
};

/* Payload pointers for bytes [off, off + len); false: local protection error. */
static bool put_payload(struct hca_qp *qp, struct hca_send_wqe *w, uint32_t off, uint32_t len,
	struct frame_batch *out, struct frame_out *f)
{
	unsigned n;

	if (!hca_wqe_gather(qp, w, off, len, 0, out->iov + out->niov, FRAME_BATCH_IOV - out->niov, &n))
		return false;
	f->iov_count = (uint16_t)n;
	out->niov += n;
	f->payload_len = len;
	f->pad = (uint8_t)(-len & 3);
	return true;
}

/* Packet k of a SEND or WRITE; NULL: local protection error. */
struct frame_out *ibt_put_data(
	struct hca_qp *qp, struct hca_send_wqe *w, uint32_t k, bool ask, struct frame_batch *out)
{
	uint32_t mtu = ibt_mtu(qp), off = k * mtu, len = w->length - off < mtu ? w->length - off : mtu;
	uint32_t psn = psn_add(w->psn, k);
	struct frame_out *f = ibt_frame(out, 0);

	if (!put_payload(qp, w, off, len, out, f)) {
		out->nframes--;
		return NULL;
	}
	ibt_put_headers(qp, w, ibt_op_at(ibt_only_op[w->opcode], !k, k + 1 == w->npkts), psn, ask, f);
	if (qp->service.reliable)
		f->cookie = ibt_cookie(qp);
	f->psn = psn;
	/* Again: the program may be at this buffer already; a damaged copy would come again and again. */
	f->copy = psn_diff(psn, ibt_qp(qp)->req.high) < 0;
	return f;
}

/* A READ request for packets [k0, k1). */
void ibt_put_read(
	struct hca_qp *qp, const struct hca_send_wqe *w, uint32_t k0, uint32_t k1, struct frame_batch *out)
{
	uint32_t mtu = ibt_mtu(qp);
	struct frame_out *f = ibt_frame(out, BTH_LEN + RETH_LEN);

	bth_put(f->hdr, IBT_RC | OP_READ_REQUEST, false, 0, qp->path.pkey, qp->attr.dest_qp_num, true,
		psn_add(w->psn, k0));
	reth_put(f->hdr + BTH_LEN, w->remote.addr + (uint64_t)k0 * mtu, w->remote.rkey,
		(uint32_t)ibt_bytes_between(w, mtu, k0, k1));
}

void ibt_put_atomic(struct hca_qp *qp, const struct hca_send_wqe *w, struct frame_batch *out)
{
	bool cas = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct frame_out *f = ibt_frame(out, BTH_LEN + ATOMICETH_LEN);

	bth_put(f->hdr, IBT_RC | (cas ? OP_CMP_SWAP : OP_FETCH_ADD), false, 0, qp->path.pkey,
		qp->attr.dest_qp_num, true, w->psn);
	atomiceth_put(f->hdr + BTH_LEN, w->remote.addr, w->remote.rkey,
		cas ? w->remote.swap : w->remote.compare_add, cas ? w->remote.compare_add : 0);
}
