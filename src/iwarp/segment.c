/* SPDX-License-Identifier: MIT */
/*
 * A segment that begins. Each check is a small function that returns why the connection must end; they run in
 * the order of RFC 5041 and RFC 5040 until one has something to say. Then its payload
 * is placed where it belongs.
 */
#include "iwarp/iwarp.h"

#include "hca/adapter.h"

static struct iwarp_rx *rx(struct hca_qp *qp)
{
	return &iwarp_qp(qp)->rx;
}

/* ---- keys ---- */
/* Only to say why: the data path asks hca_qp_target(). */
static enum rdmap_error explain(struct hca_qp *qp, uint32_t stag, uint64_t to, uint32_t len, bool rdmap)
{
	const struct hca_key *k = idmap_get(&qp->adapter->keys, stag);

	if (!k || k->key != stag)
		return rdmap ? ERR_RDMAP_STAG : ERR_DDP_STAG;
	if (k->pd != qp->pd || (k->kind == KEY_MW2 && k->qpn != hca_qpn(qp)))
		return rdmap ? ERR_RDMAP_STREAM : ERR_DDP_STREAM;
	if (to + len < to)
		return rdmap ? ERR_RDMAP_WRAP : ERR_DDP_WRAP;
	if (to < k->iova || to - k->iova > k->length || len > k->length - (to - k->iova))
		return rdmap ? ERR_RDMAP_BOUNDS : ERR_DDP_BOUNDS;
	return ERR_RDMAP_ACCESS;
}

enum rdmap_error iwarp_check_key(
	struct hca_qp *qp, uint32_t stag, uint64_t to, uint32_t len, unsigned access, bool rdmap)
{
	if (!len)
		return ERR_NONE; /* touches nothing, and may say "ready" (RFC 6581) */
	if (!hca_qp_allows(qp, access))
		return ERR_RDMAP_ACCESS;
	if (hca_qp_target(qp, stag, to, len, access))
		return ERR_NONE;
	return explain(qp, stag, to, len, rdmap);
}

/* ---- the checks, in order ---- */
static int check_version(struct hca_qp *qp)
{
	const struct ddp_seg *g = &rx(qp)->seg;

	if (g->dv != DDP_VERSION)
		return g->tagged ? ERR_DDP_TAGGED_DV : ERR_DDP_UNTAGGED_DV;
	return g->rv == RDMAP_VERSION ? ERR_NONE : ERR_RDMAP_RV;
}

static int check_opcode(struct hca_qp *qp)
{
	const struct rdmap_op *op = rx(qp)->op;

	if (!op->name || ((op->flags & ROF_EXT) && !iwarp_qp(qp)->params.extended))
		return ERR_RDMAP_OPCODE;
	return rx(qp)->seg.tagged == !!(op->flags & ROF_TAGGED) ? ERR_NONE : ERR_RDMAP_OPCODE;
}

static int check_queue(struct hca_qp *qp)
{
	struct iwarp_rx *r = rx(qp);
	uint32_t mo = r->op->qn == QN_SEND && r->in_message ? r->off : 0;

	if (r->seg.tagged)
		return ERR_NONE;
	if (r->seg.qn >= QN_COUNT || r->seg.qn != r->op->qn)
		return ERR_DDP_QN;
	if (r->seg.msn != r->msn[r->seg.qn])
		return ERR_DDP_MSN;
	if (r->seg.mo != mo)
		return ERR_DDP_MO;
	return r->seg.qn == QN_SEND && r->in_message && r->message != r->seg.opcode ? ERR_RDMAP_OPCODE
										    : ERR_NONE;
}

static int check_length(struct hca_qp *qp)
{
	struct iwarp_rx *r = rx(qp);

	if (r->op->flags & ROF_DATA)
		return r->seg.last || r->len ? ERR_NONE : ERR_RDMAP_UNSPECIFIC;
	if (r->len > r->op->len)
		return ERR_DDP_TOO_LONG;
	if (!r->seg.last || (r->len < r->op->len && !(r->op->flags & ROF_VARIES)))
		return ERR_RDMAP_UNSPECIFIC;
	return ERR_NONE;
}

static int check_receive(struct hca_qp *qp)
{
	struct iwarp_rx *r = rx(qp);

	if (!(r->op->flags & ROF_RECV))
		return ERR_NONE;
	if (!(r->op->flags & ROF_DATA) && r->in_write)
		return ERR_RDMAP_UNSPECIFIC; /* the data of a Write that has not ended */
	if (!qp->recv.valid && !hca_qp_take_recv(qp))
		return IWARP_WAIT;
	if (r->op->flags & ROF_DATA)
		return r->len > qp->recv.length - (r->in_message ? r->off : 0) ? ERR_DDP_TOO_LONG : ERR_NONE;
	return ERR_NONE;
}

static int check_write(struct hca_qp *qp)
{
	struct iwarp_rx *r = rx(qp);

	if (r->seg.opcode != RDMAP_WRITE)
		return ERR_NONE;
	return iwarp_check_key(qp, r->seg.stag, r->seg.to, r->len, IBV_ACCESS_REMOTE_WRITE, false);
}

/* A response must be the next part of what the oldest request asked for. */
static int check_response(struct hca_qp *qp)
{
	struct iwarp_rx *r = rx(qp);
	struct hca_send_wqe *w;
	uint32_t index;

	if (r->seg.opcode != RDMAP_READ_RESPONSE && r->seg.opcode != RDMAP_ATOMIC_RESPONSE)
		return ERR_NONE;
	if (r->rtr_read)
		return r->seg.opcode == RDMAP_READ_RESPONSE && !r->len && r->seg.last ? ERR_NONE
										      : ERR_DDP_BOUNDS;
	w = iwarp_oldest_asked(qp, &index);
	if (!w)
		return r->seg.tagged ? ERR_DDP_STAG : ERR_RDMAP_OPCODE;
	r->request_status = IBV_WC_BAD_RESP_ERR;
	if (hca_wqe_is_atomic(w) != (r->seg.opcode == RDMAP_ATOMIC_RESPONSE))
		return ERR_RDMAP_OPCODE;
	if (r->seg.tagged) {
		if (r->seg.stag != w->psn)
			return ERR_DDP_STAG;
		if (r->seg.to != w->npkts || r->len > w->length - w->npkts ||
			r->seg.last != (r->len == w->length - w->npkts))
			return ERR_DDP_BOUNDS;
	}
	r->request_status = IBV_WC_SUCCESS;
	return ERR_NONE;
}

/* It counts until the response has arrived, we until it has left: who keeps to the depth never meets this. */
static int check_depth(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	bool rtr = s->params.rtr == MPA_RTR_READ && !s->rx.got_any;

	if (s->rx.op->qn != QN_REQUEST || s->rx.seg.tagged || rtr)
		return ERR_NONE;
	return s->answer_head - s->answer_tail < s->params.ird ? ERR_NONE : ERR_DDP_NO_BUFFER;
}

static int begin(void *arg, const struct ddp_seg *seg, const uint8_t *hdr, uint32_t len)
{
	static int (*const checks[])(struct hca_qp *) = {check_version, check_opcode, check_queue,
		check_length, check_receive, check_write, check_response, check_depth};
	struct hca_qp *qp = arg;
	struct iwarp_rx *r = rx(qp);
	int v = IWARP_GO;

	r->seg = *seg;
	r->op = &rdmap_ops[seg->opcode];
	r->len = len;
	r->request_status = IBV_WC_SUCCESS;
	r->in_hand = true;
	r->whole = false;
	memcpy(r->hdr, hdr, ddp_hdr_len(hdr[0]));
	for (unsigned i = 0; i < sizeof(checks) / sizeof(checks[0]) && !v; i++)
		v = checks[i](qp);
	return v;
}

/* ---- places ---- */
static int local_fault(struct hca_qp *qp)
{
	if (rx(qp)->seg.opcode == RDMAP_READ_RESPONSE)
		rx(qp)->request_status = IBV_WC_LOC_PROT_ERR;
	return ERR_RDMAP_LOCAL;
}

static int fault(void *arg)
{
	struct hca_qp *qp = arg;

	/* Registered, but unmapped since. */
	return rx(qp)->seg.opcode == RDMAP_WRITE ? ERR_DDP_BOUNDS : local_fault(qp);
}

static int place(void *arg, uint32_t off, uint32_t len, struct iovec *iov, unsigned max, unsigned *n)
{
	struct hca_qp *qp = arg;
	struct iwarp_rx *r = rx(qp);
	struct hca_send_wqe *w;
	uint32_t index;
	bool ok = false;

	*n = 1;
	if (r->seg.opcode == RDMAP_WRITE) {
		iov[0] = (struct iovec){
			hca_qp_target(qp, r->seg.stag, r->seg.to + off, len, IBV_ACCESS_REMOTE_WRITE), len};
		return iov[0].iov_base ? ERR_NONE : explain(qp, r->seg.stag, r->seg.to + off, len, false);
	}
	if (!(r->op->flags & ROF_DATA)) {
		iov[0] = (struct iovec){r->body + off, len};
		return ERR_NONE;
	}
	if (r->op->flags & ROF_RECV) {
		ok = hca_sge_gather(qp, qp->recv.sge, qp->recv.nsge, (r->in_message ? r->off : 0) + off, len,
			IBV_ACCESS_LOCAL_WRITE, iov, max, n);
	} else {
		w = iwarp_oldest_asked(qp, &index);
		ok = w && hca_sge_gather(qp, w->sge, w->nsge, w->npkts + off, len, IBV_ACCESS_LOCAL_WRITE,
				  iov, max, n);
	}
	return ok ? ERR_NONE : local_fault(qp);
}

/* ---- the end ---- */
static void note_first(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	s->rx.got_any = true;
	s->tx.held = false;
}

static int end(void *arg)
{
	struct hca_qp *qp = arg;
	int v;

	rx(qp)->whole = true;
	v = iwarp_deliver(qp);
	if (v)
		return v;
	rx(qp)->in_hand = false;
	if (!rx(qp)->got_any)
		note_first(qp);
	return iwarp_qp(qp)->life == IWARP_OPEN ? IWARP_GO : IWARP_STOP;
}

/* An FPDU of no bytes says "ready to receive", once, and nothing else. */
static int empty(void *arg)
{
	struct hca_qp *qp = arg;
	struct iwarp_qp *s = iwarp_qp(qp);

	if (s->params.initiator || s->params.rtr != MPA_RTR_ZERO || s->rx.got_any)
		return ERR_LLP_MARKER;
	note_first(qp);
	return IWARP_GO;
}

const struct iwarp_reader_ops iwarp_segment_ops = {
	.begin = begin, .empty = empty, .place = place, .fault = fault, .end = end};
