/* SPDX-License-Identifier: MIT */
/*
 * Requests of RC and UC send queues as packets.
 *
 * A READ is asked for in chunks, each a READ request of its own with PSNs inside the WQE's range: what may be
 * on its way to us is bounded by our own socket.
 */
#include "ib/ibt.h"

#include "hca/adapter.h"
#include "hca/flow.h"
#include "ib/echo.h"

#include <string.h>

enum step { STEP_ON, STEP_STOP, STEP_FULL };

static bool takes_receive(const struct hca_send_wqe *w)
{
	return w->opcode != IBV_WR_RDMA_WRITE && !hca_wqe_has_response(w) && !hca_wqe_is_local(w);
}

/* Bytes of packets [k0, k1) of a request. */
static uint64_t bytes_between(const struct hca_send_wqe *w, uint32_t mtu, uint32_t k0, uint32_t k1)
{
	uint64_t from = (uint64_t)k0 * mtu, to = (uint64_t)k1 * mtu;

	return (to < w->length ? to : w->length) - (from < w->length ? from : w->length);
}

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
	uint32_t window = qp->adapter->read_flow->limit;
	uint32_t share = qp->attr.max_rd_atomic < 2 ? window / 4 * 3 : window / 3;
	uint32_t most = qp->adapter->read_flow->least; /* fits also when loss has made the window small */
	uint32_t mtu = ibt_mtu(qp);

	r->psn = r->una = r->acked = r->sent = r->high = r->asked = qp->attr.sq_psn;
	r->next = qp->sq.tail;
	r->pkt = 0;
	r->retries = qp->attr.retry_cnt;
	r->rnr_retries = qp->attr.rnr_retry;
	r->chunk = in_pieces((share < most ? share : most) / flow_cost(1, mtu), mtu);
}

/* ---- what is in flight ---- */
/* READ requests that packets [k0, k1) of a READ touch: chunks start at multiples of r->chunk. */
static uint32_t chunks_between(const struct ibt_requester *r, uint32_t k0, uint32_t k1)
{
	return k1 > k0 ? (k1 - 1) / r->chunk - k0 / r->chunk + 1 : 0;
}

struct span {
	uint32_t k0, k1;
};

/* The packets of w among PSNs [from, to). */
static struct span span_of(const struct hca_send_wqe *w, uint32_t from, uint32_t to)
{
	int32_t a = psn_diff(from, w->psn), b = psn_diff(to, w->psn);
	struct span s = {a > 0 ? (uint32_t)a : 0, b > 0 ? (uint32_t)b : 0};

	if (s.k1 > w->npkts)
		s.k1 = w->npkts;
	return s;
}

/* Which flow a request is charged to: its own packets to the peer's, responses to ours. */
static struct hca_flow *flow_of(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	return hca_wqe_has_response(w) ? qp->adapter->read_flow : qp->path.flow;
}

/* A message by reference takes the room of one small packet: its first. */
static uint32_t cost_of(const struct hca_send_wqe *w, uint32_t mtu, struct span s)
{
	if (w->by_ref)
		return s.k0 ? 0 : IBT_BY_REF_COST;
	return flow_cost(s.k1 - s.k0, bytes_between(w, mtu, s.k0, s.k1));
}

/* The cost of PSNs [from, to), by whom they are charged to. */
struct charge {
	uint64_t data, responses;
};

static struct charge charge_of(struct hca_qp *qp, uint32_t from, uint32_t to)
{
	struct charge c = {0, 0};
	uint32_t mtu = ibt_mtu(qp);

	for (uint32_t i = qp->sq.tail; i != qp->sq.head; i++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);
		struct span s;

		if (!w->started || psn_diff(w->psn, to) >= 0)
			break;
		s = span_of(w, from, to);
		if (s.k1 > s.k0)
			*(hca_wqe_has_response(w) ? &c.responses : &c.data) += cost_of(w, mtu, s);
	}
	return c;
}

/* Does something to both flows with the cost of PSNs [from, to). */
static void each_flow(
	struct hca_qp *qp, uint32_t from, uint32_t to, void (*act)(struct hca_flow *f, uint32_t cost))
{
	struct charge c = charge_of(qp, from, to);

	if (c.data)
		act(qp->path.flow, (uint32_t)c.data);
	if (c.responses)
		act(qp->adapter->read_flow, (uint32_t)c.responses);
}

void ibt_release(struct hca_qp *qp, uint32_t from, uint32_t to)
{
	each_flow(qp, from, to, hca_flow_release);
}

void ibt_release_all(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	ibt_probe_forget(r);
	each_flow(qp, r->una, r->sent, hca_flow_cancel);
	r->una = r->acked = r->sent;
}

struct hca_send_wqe *ibt_wqe_at(struct hca_qp *qp, uint32_t psn)
{
	for (uint32_t i = qp->sq.tail; i != qp->sq.head; i++) {
		struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);

		if (!w->started)
			break;
		if (w->npkts && psn_diff(psn, w->psn) >= 0 && psn_diff(psn, w->psn) < (int32_t)w->npkts)
			return w;
	}
	return NULL;
}

static uint32_t count_reads(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t n = 0;

	for (uint32_t i = qp->sq.tail; i != qp->sq.head; i++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);
		struct span s;

		if (!w->started || psn_diff(w->psn, r->sent) >= 0)
			break;
		s = span_of(w, r->una, r->sent);
		if (hca_wqe_is_read(w))
			n += chunks_between(r, s.k0, s.k1);
		else if (hca_wqe_is_atomic(w))
			n += s.k1 - s.k0;
	}
	return n;
}

/* The place of a PSN in the queue: the first request that is not wholly before it. */
static void find_next(struct hca_qp *qp, uint32_t psn)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	r->pkt = 0;
	for (r->next = qp->sq.tail; r->next != qp->sq.head; r->next++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, r->next);

		if (!w->started)
			return;
		if (psn_diff(psn, w->psn) < (int32_t)w->npkts) {
			r->pkt = (uint32_t)psn_diff(psn, w->psn);
			return;
		}
	}
}

void ibt_move_to(struct hca_qp *qp, uint32_t psn)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (psn_diff(psn, r->sent) < 0) {
		each_flow(qp, psn, r->sent, hca_flow_cancel);
		r->rec.timing &= psn_diff(r->rec.timed_psn, psn) < 0; /* Karn: sent twice, it tells no time */
		r->failed = IBV_WC_SUCCESS;
	} else if (psn != r->sent) {
		each_flow(qp, r->sent, psn, hca_flow_charge);
	} else {
		return;
	}
	r->sent = psn;
	r->unasked = 0;
	find_next(qp, psn);
	r->reads = count_reads(qp);
	/* What goes again goes by packets. */
	for (uint32_t i = r->next; i != qp->sq.head && hca_sq_at(&qp->sq, i)->started; i++)
		hca_sq_at(&qp->sq, i)->by_ref = false;
}

/* ---- packets ---- */
struct frame_out *ibt_frame(struct frame_batch *out, uint8_t hdr_len)
{
	struct frame_out *f = &out->frame[out->nframes++];

	f->hdr_len = hdr_len;
	f->pad = f->copy = f->own = f->by_ref = 0;
	f->note = 0;
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

static bool nothing_in_flight(struct hca_qp *qp)
{
	return ibt_qp(qp)->req.una == ibt_qp(qp)->req.sent;
}

/*
 * Takes from a window. With nothing of ours in flight, and when for a while nothing of others was released,
 * we may be let through where others are not; that ends when we are let through like them.
 */
static bool take(struct hca_qp *qp, struct hca_flow *f, uint32_t cost, bool small)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool stuck = r->rec.stuck && small && nothing_in_flight(qp),
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

/* Packet k of a SEND or WRITE; NULL: local protection error. */
static struct frame_out *put_data(
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
		f->note = ibt_note(qp);
	f->psn = psn;
	/* Again: the program may be at this buffer already; a damaged copy would come again and again. */
	f->copy = psn_diff(psn, ibt_qp(qp)->req.high) < 0;
	return f;
}

/* A READ request for packets [k0, k1). */
static void put_read(
	struct hca_qp *qp, const struct hca_send_wqe *w, uint32_t k0, uint32_t k1, struct frame_batch *out)
{
	uint32_t mtu = ibt_mtu(qp);
	struct frame_out *f = ibt_frame(out, BTH_LEN + RETH_LEN);

	bth_put(f->hdr, IBT_RC | OP_READ_REQUEST, false, 0, qp->path.pkey, qp->attr.dest_qp_num, true,
		psn_add(w->psn, k0));
	reth_put(f->hdr + BTH_LEN, w->remote.addr + (uint64_t)k0 * mtu, w->remote.rkey,
		(uint32_t)bytes_between(w, mtu, k0, k1));
}

static void put_atomic(struct hca_qp *qp, const struct hca_send_wqe *w, struct frame_batch *out)
{
	bool cas = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct frame_out *f = ibt_frame(out, BTH_LEN + ATOMICETH_LEN);

	bth_put(f->hdr, IBT_RC | (cas ? OP_CMP_SWAP : OP_FETCH_ADD), false, 0, qp->path.pkey,
		qp->attr.dest_qp_num, true, w->psn);
	atomiceth_put(f->hdr + BTH_LEN, w->remote.addr, w->remote.rkey,
		cas ? w->remote.swap : w->remote.compare_add, cas ? w->remote.compare_add : 0);
}

/* ---- sending, in order ---- */
/* Packets up to here in this request have been sent. */
static void sent_to(struct hca_qp *qp, uint32_t pkt, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (psn_diff(r->sent, r->high) < 0)
		qp->count->retransmits++;
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
		f->note = ibt_note(qp);
		if (ask_now(qp, cost))
			bth_ask(f->hdr);
	}
	sent_to(qp, r->pkt + n, now);
	return true;
}

static enum step send_data(struct hca_qp *qp, struct hca_send_wqe *w, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t len = (uint32_t)bytes_between(w, ibt_mtu(qp), r->pkt, r->pkt + 1), cost = flow_cost(1, len);
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
	f = put_data(qp, w, r->pkt, ask, out);
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
	uint32_t cost = flow_cost(k1 - k0, bytes_between(w, ibt_mtu(qp), k0, k1));

	return take(qp, qp->adapter->read_flow, cost, k1 - k0 == 1);
}

/* The end of the chunk that packet k is in. */
static uint32_t chunk_end(const struct ibt_requester *r, const struct hca_send_wqe *w, uint32_t k)
{
	uint32_t end = (k / r->chunk + 1) * r->chunk;

	return end < w->npkts ? end : w->npkts;
}

static enum step send_read(struct hca_qp *qp, struct hca_send_wqe *w, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t k0 = r->pkt, k1 = chunk_end(r, w, k0);

	if (r->reads >= qp->attr.max_rd_atomic)
		return STEP_STOP;
	if (frame_batch_full(out, 0))
		return STEP_FULL;
	if (r->rec.cautious || !take_read_window(qp, w, k0, k1)) {
		/* A single packet gets through more easily, and tells whether the peer lives. */
		k1 = k0 + 1;
		if (!nothing_in_flight(qp) || !take_read_window(qp, w, k0, k1))
			return STEP_STOP;
	}
	put_read(qp, w, k0, k1, out);
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
	put_atomic(qp, w, out);
	r->reads++;
	r->unasked = 0;
	sent_to(qp, 1, now);
	return STEP_ON;
}

/* ---- sending again, out of order ---- */
/* A packet whose loss is only suspected: one, and the peer says where it is (recovery.c). */
static enum step send_probe(struct hca_qp *qp, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct hca_send_wqe *w = ibt_wqe_at(qp, r->una);
	uint32_t k, cost;

	if (!w || nothing_in_flight(qp) || r->rnr_until) {
		r->rec.probe_due = false;
		return STEP_ON;
	}
	if (frame_batch_full(out, w->nsge + 1u))
		return STEP_FULL;
	ibt_probe_forget(r);
	k = (uint32_t)psn_diff(r->una, w->psn);
	cost = flow_cost(1, bytes_between(w, ibt_mtu(qp), k, k + 1));
	/* Without asking: a single packet, and the timer that ends the connection is running. */
	hca_flow_charge(flow_of(qp, w), cost);
	r->rec.probe_due = false;
	r->rec.probe_flow = flow_of(qp, w);
	r->rec.probe_cost = cost;
	r->rec.probe_psn = r->una;
	r->rec.timing &= psn_diff(r->rec.timed_psn, r->una) > 0;
	if (hca_wqe_is_read(w))
		put_read(qp, w, k, k + 1, out);
	else if (hca_wqe_is_atomic(w))
		put_atomic(qp, w, out);
	else if (!put_data(qp, w, k, true, out))
		return STEP_ON; /* its memory is gone: the timer goes back there and says so */
	qp->count->probes++;
	return STEP_ON;
}

void ibt_ask_again(struct ibt_requester *r)
{
	r->asked = r->una;
	memset(r->again, 0, sizeof(r->again));
}

/* The run of responses [first, end) that is missing first in the chunk of packet k; false: none. */
static bool missing_in_chunk(const struct ibt_requester *r, const struct hca_send_wqe *w, uint32_t k,
	uint32_t *first, uint32_t *end)
{
	uint32_t known = (uint32_t)psn_diff(r->acked, w->psn), limit = chunk_end(r, w, k);
	int32_t done = psn_diff(r->una, w->psn);

	if (limit > known)
		limit = known;
	k -= k % r->chunk;
	if (done > (int32_t)k)
		k = (uint32_t)done;
	while (k < limit && ibt_got(r, psn_add(w->psn, k)))
		k++;
	*first = k;
	while (k < limit && !ibt_got(r, psn_add(w->psn, k)))
		k++;
	*end = k;
	return *first < *end;
}

static void ask(struct hca_qp *qp, const struct hca_send_wqe *w, uint32_t first, uint32_t end,
	struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (hca_wqe_is_read(w))
		put_read(qp, w, first, end, out);
	else
		put_atomic(qp, w, out);
	for (uint32_t k = first; k < end; k++)
		ibt_again_set(r, psn_add(w->psn, k), true);
	qp->count->retransmits++;
	hca_flow_loss(qp->adapter->read_flow);
}

/*
 * Responses that were lost, since the peer is past them: asks for these again, and for nothing else. Of a
 * chunk only for those that are missing first, and for the next when they have come: Linux's rxe answers no
 * part of a READ request that begins before a part which it has answered since.
 */
static enum step send_missing(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	while (psn_diff(r->asked, r->acked) < 0) {
		const struct hca_send_wqe *w = ibt_wqe_at(qp, r->asked);
		uint32_t k, first, end;

		if (!w)
			break;
		k = (uint32_t)psn_diff(r->asked, w->psn);
		if (hca_wqe_has_response(w) && missing_in_chunk(r, w, k, &first, &end) &&
			!ibt_again(r, psn_add(w->psn, first))) {
			if (frame_batch_full(out, 0))
				return STEP_FULL;
			ask(qp, w, first, end, out);
		}
		r->asked = psn_add(w->psn, hca_wqe_has_response(w) ? chunk_end(r, w, k) : w->npkts);
	}
	if (psn_diff(r->asked, r->acked) > 0)
		r->asked = r->acked;
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
	if (takes_receive(w) && r->credits_used && r->credits <= 0 && r->una != r->psn)
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
	w->psn = r->psn;
	w->npkts = hca_wqe_is_local(w) ? 0 : ibt_npkts(w->length, ibt_mtu(qp));
	w->started = 1;
	r->psn = psn_add(r->psn, w->npkts);
	r->pkt = 0;
	if (takes_receive(w))
		r->credits--;
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
	if (!w->started && !start(qp, w))
		return STEP_STOP;
	if (r->rec.cautious && !nothing_in_flight(qp))
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
	/* By memory it is told what was executed, but not what was before. */
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
		step = send_missing(qp, now, out);
	if (rc && r->rec.probe_due && step == STEP_ON)
		step = send_probe(qp, out);
	while (step == STEP_ON && r->next != qp->sq.head && !r->failed && !r->rnr_until)
		step = send_next(qp, now, out);
	if (out->nframes && rc && ask)
		ask_for_ack(r, out);
	if (rc || !out->nframes)
		ibt_settle(qp, now);
	return rc ? step == STEP_FULL : out->nframes > 0;
}
