/* SPDX-License-Identifier: MIT */
/*
 * Requests of RC and UC send queues as packets.
 *
 * A READ is asked for in chunks, each a READ request of its own with PSNs inside the WQE's range: what may be
 * on its way to us is bounded by our own socket.
 */
#include "ib/requester.h"

#include "ib/echo.h"

/* A READ's responses leave in few pieces (frame.h) when those in the middle fill them; the ends are apart. */
static uint32_t in_pieces(uint32_t packets, uint32_t mtu)
{
	uint32_t run = FRAME_RUN_BYTES / (BTH_LEN + mtu + FRAME_TRAILER), ends = 3;

	return packets < run + ends ? packets : (packets - ends) / run * run + ends;
}

void ibt_requester_start(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	/* Several requests share the window; a single one may fill most of it. */
	uint32_t window = qp->adapter->read_flow->cap;
	uint32_t share = qp->attr.max_rd_atomic < 2 ? window / 4 * 3 : window / 3;
	uint32_t most = qp->adapter->read_flow->floor; /* fits also when loss has made the window small */
	uint32_t mtu = ibt_mtu(qp);

	r->psn = r->una = r->acked = r->sent = r->high = r->asked = qp->attr.sq_psn;
	r->next = qp->sq.tail;
	r->pkt = 0;
	r->retries = qp->attr.retry_cnt;
	r->rnr_retries = qp->attr.rnr_retry;
	r->chunk = in_pieces((share < most ? share : most) / flow_cost(1, mtu), mtu);
}

/* ---- sending, in order ---- */
/*
 * Takes from a window. With nothing of ours in flight, and when for a while nothing of others was released,
 * we may be let through where others are not; that ends when we are let through like them.
 */
static bool take(struct hca_qp *qp, struct hca_flow *f, uint32_t cost, bool small)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool stuck = r->rec.stuck && small && ibt_nothing_in_flight(qp),
	     ok = hca_qp_flow_take(qp, f, cost, stuck);

	if (ok && !stuck)
		r->rec.stuck = false;
	return ok;
}

static bool take_window(struct hca_qp *qp, uint32_t cost, uint64_t now, uint64_t *echo)
{
	if (qp->service.reliable)
		return take(qp, qp->path.flow, cost, true);
	return hca_qp_flow_take_unreliable(qp, qp->path.flow, cost, now, echo);
}

/* Packets up to here in this request have been sent. */
static void sent_to(struct hca_qp *qp, uint32_t pkt, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (psn_diff(r->sent, r->high) < 0)
		hca_qp_probe(qp, RETRANSMIT, .psn = r->sent);
	else
		ibt_time_packet(r, now);
	r->sent = psn_add(r->sent, pkt - r->pkt);
	r->pkt = pkt;
	if (psn_diff(r->sent, r->high) > 0)
		r->high = r->sent;
}

/* Whether enough was sent since an acknowledge was last asked for. */
static bool ask_now(struct hca_qp *qp, uint32_t cost)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool ask = !qp->path.shared && r->unasked + cost > FLOW_WINDOW / 4;

	r->unasked = ask ? 0 : r->unasked + cost;
	return ask;
}

/*
 * Packets in the middle of a request, as many as leave as one piece: one look at the key and at the window
 * for all. false: none, and each is to be looked at by itself.
 */
static bool send_middles(struct hca_qp *qp, struct hca_send_wqe *w, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t mtu = ibt_mtu(qp), cost = flow_cost(1, mtu), n = ibt_middles(qp, r->pkt, w->npkts, out);
	unsigned pieces, first = out->nframes;
	struct iovec all;

	if (n < 2 || !qp->service.reliable || r->sent != r->high || r->rec.cautious ||
		(w->flags & IBV_SEND_INLINE))
		return false;
	if (!hca_sge_gather(qp, w->sge, w->nsge, r->pkt * mtu, n * mtu, 0, &all, 1, &pieces) ||
		!take(qp, qp->path.flow, cost, true))
		return false;
	n = 1 + hca_flow_take_more(qp->path.flow, cost, n - 1);
	ibt_put_middles(qp, ibt_op_at(ibt_only_op[w->opcode], false, false), r->sent, all.iov_base, n, out);
	for (struct frame_out *f = &out->frame[first]; f < &out->frame[out->nframes]; f++) {
		f->cookie = ibt_cookie(qp);
		if (ask_now(qp, cost))
			bth_ask(f->hdr);
	}
	sent_to(qp, r->pkt + n, now);
	return true;
}

static enum step send_data(struct hca_qp *qp, struct hca_send_wqe *w, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t len = (uint32_t)ibt_bytes_between(w, ibt_mtu(qp), r->pkt, r->pkt + 1),
		 cost = flow_cost(1, len);
	bool rc = qp->service.reliable, ask;
	uint64_t echo = 0;
	struct frame_out *f;

	/* A packet without acknowledge may need an echo behind it. */
	if (frame_batch_full(out, w->nsge + 1u) || (!rc && out->nframes + 2 > FRAME_BATCH_MAX) ||
		frame_batch_ends(out, BTH_LEN + len))
		return STEP_FULL;
	if (send_middles(qp, w, now, out))
		return STEP_ON;
	if (!take_window(qp, cost, now, &echo))
		return STEP_STOP;
	ask = rc && ask_now(qp, cost);
	f = ibt_put_data(qp, w, r->pkt, ask, out);
	if (!f) {
		if (rc)
			hca_flow_cancel(qp->path.flow, cost);
		r->failed = IBV_WC_LOC_PROT_ERR;
		return STEP_STOP;
	}
	frame_batch_note(out, frame_len(f));
	sent_to(qp, r->pkt + 1, now);
	if (echo)
		ibt_echo_ask(out, qp->path.pkey, hca_qpn(qp), qp->attr.dest_qp_num, echo);
	return STEP_ON;
}

static bool take_read_window(struct hca_qp *qp, const struct hca_send_wqe *w, uint32_t k0, uint32_t k1)
{
	uint32_t cost = flow_cost(k1 - k0, ibt_bytes_between(w, ibt_mtu(qp), k0, k1));

	return take(qp, qp->adapter->read_flow, cost, k1 - k0 == 1);
}

static enum step send_read(struct hca_qp *qp, struct hca_send_wqe *w, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t k0 = r->pkt, k1 = ibt_chunk_end(r, w, k0);

	if (r->reads >= qp->attr.max_rd_atomic)
		return STEP_STOP;
	if (frame_batch_full(out, 0))
		return STEP_FULL;
	if (r->rec.cautious || !take_read_window(qp, w, k0, k1)) {
		/* A single packet gets through more easily, and tells whether the peer lives. */
		k1 = k0 + 1;
		if (!ibt_nothing_in_flight(qp) || !take_read_window(qp, w, k0, k1))
			return STEP_STOP;
	}
	ibt_put_read(qp, w, k0, k1, out);
	r->reads++;
	r->unasked = 0;
	sent_to(qp, k1, now);
	return STEP_ON;
}

static enum step send_atomic(struct hca_qp *qp, struct hca_send_wqe *w, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (r->reads >= qp->attr.max_rd_atomic)
		return STEP_STOP;
	if (frame_batch_full(out, 0))
		return STEP_FULL;
	if (!take(qp, qp->adapter->read_flow, flow_cost(1, 8), true))
		return STEP_STOP;
	ibt_put_atomic(qp, w, out);
	r->reads++;
	r->unasked = 0;
	sent_to(qp, 1, now);
	return STEP_ON;
}

/* ---- requests ---- */
bool ibt_may_start(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (hca_qp_state(qp) != IBV_QPS_RTS)
		return false; /* SQD: what has begun goes on, nothing begins */
	if ((w->flags & IBV_SEND_FENCE) && r->reads)
		return false;
	if (qp->direct_min_len && r->una != r->psn && w->length >= qp->direct_min_len &&
		(w->opcode == IBV_WR_RDMA_WRITE || hca_wqe_is_read(w)))
		return false; /* once all before it is done, it is done elsewhere */
	/* Out of credits: one message at a time, whose acknowledge brings new ones (IBA 9.7.7.2.5). */
	if (ibt_takes_receive(w) && r->credits_used && r->credits <= 0 && r->una != r->psn)
		return false;
	return true;
}

static bool start(struct hca_qp *qp, struct hca_send_wqe *w)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (!ibt_may_start(qp, w))
		return false;
	r->failed = hca_wqe_check(w, qp->attr.max_rd_atomic);
	if (!r->failed && hca_wqe_is_local(w))
		r->failed = hca_qp_do_local(qp, w);
	if (r->failed)
		return false;
	ibt_number(r, w, hca_wqe_is_local(w) ? 0 : ibt_npkts(w->length, ibt_mtu(qp)));
	return true;
}

/* To the next request. Sending again, it has its numbers already, or, without packets, is done already. */
static void step_over(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	const struct hca_send_wqe *n;

	r->pkt = 0;
	while (++r->next != qp->sq.head) {
		n = hca_sq_at(&qp->sq, r->next);
		if (n->started)
			r->pkt = (uint32_t)psn_diff(r->sent, n->psn);
		if (!n->started || n->npkts)
			return;
	}
}

static enum step send_next(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct hca_send_wqe *w = hca_sq_at(&qp->sq, r->next);
	enum step step = STEP_ON;

	if (!w->started && r->una != r->psn &&
		(uint32_t)psn_diff(r->psn, r->una) + ibt_npkts(w->length, ibt_mtu(qp)) > IBT_PSNS_OUT)
		return STEP_STOP;
	if (!w->started && qp->path.returns && r->una != r->psn)
		return STEP_STOP; /* once all before it is done, it goes another way */
	if (!w->started && !start(qp, w))
		return STEP_STOP;
	if (r->rec.cautious && !ibt_nothing_in_flight(qp))
		return STEP_STOP; /* after a timeout: one packet, until the peer answers */
	if (w->npkts && r->pkt < w->npkts) {
		if (hca_wqe_is_read(w))
			step = send_read(qp, w, now, out);
		else if (hca_wqe_is_atomic(w))
			step = send_atomic(qp, w, now, out);
		else
			step = send_data(qp, w, now, out);
	}
	if (r->pkt >= w->npkts)
		step_over(qp);
	return step;
}

/* The last data packet of a burst asks for an acknowledge: nothing else may come to ask later. */
static void ask_for_ack(struct ibt_requester *r, struct frame_batch *out)
{
	for (unsigned i = out->nframes; i--;) {
		if (bth_opcode(out->frame[i].hdr) != (IBT_RC | OP_ACK)) {
			bth_ask(out->frame[i].hdr);
			r->unasked = 0;
			return;
		}
	}
}

/* UC has no acknowledges: a request is done when its last packet has left. */
static void finish_unreliable(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	r->una = r->sent;
	while (qp->sq.tail != r->next)
		hca_qp_complete_send(qp, IBV_WC_SUCCESS, now);
}

bool ibt_request(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool rc = qp->service.reliable;
	/* The channel confirms what was executed: only what is sent again asks for an acknowledge. */
	bool ask = !qp->path.shared || r->sent != r->high || r->rec.probe_due || r->asked != r->acked;
	enum step step = STEP_ON;

	assert_locked(&qp->lock);
	if (hca_qp_state(qp) != IBV_QPS_RTS && hca_qp_state(qp) != IBV_QPS_SQD)
		return false;
	if (!rc)
		finish_unreliable(qp, now);
	hca_path_address(&qp->path, out);
	if (rc && r->next != qp->sq.head)
		ibt_flush_ack(qp, now, out);
	if (rc && r->asked != r->acked)
		step = ibt_send_missing(qp, out);
	if (rc && r->rec.probe_due && step == STEP_ON)
		step = ibt_send_probe(qp, out);
	while (step == STEP_ON && r->next != qp->sq.head && !r->failed && !r->rnr_until)
		step = send_next(qp, now, out);
	if (out->nframes && rc && ask)
		ask_for_ack(r, out);
	if (rc || !out->nframes)
		ibt_settle(qp, now);
	return rc ? step == STEP_FULL : out->nframes > 0;
}
