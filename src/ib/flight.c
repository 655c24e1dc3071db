/* SPDX-License-Identifier: MIT */
/*
 * What of the send queue is in flight, and what that is charged to the flows: followed from the requests each
 * time and not kept, so that going back, or ahead, is a question of PSNs alone.
 */
#include "ib/requester.h"

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

/* A message by reference takes the room of one small packet: its first. */
static uint32_t cost_of(const struct hca_send_wqe *w, uint32_t mtu, struct span s)
{
	if (w->by_ref)
		return s.k0 ? 0 : IBT_BY_REF_COST;
	return flow_cost(s.k1 - s.k0, ibt_bytes_between(w, mtu, s.k0, s.k1));
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
