/* SPDX-License-Identifier: MIT */
/* Sending again, out of order: the probe (recovery.c), and responses that were lost. */
#include "ib/requester.h"

#include <string.h>

/* A packet whose loss is only suspected: one, and the peer says where it is (recovery.c). */
enum step ibt_send_probe(struct hca_qp *qp, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct hca_send_wqe *w = ibt_wqe_at(qp, r->una);
	uint32_t k, cost;

	if (!w || ibt_nothing_in_flight(qp) || r->rnr_until) {
		r->rec.probe_due = false;
		return STEP_ON;
	}
	if (frame_batch_full(out, w->nsge + 1u))
		return STEP_FULL;
	ibt_probe_forget(r);
	k = (uint32_t)psn_diff(r->una, w->psn);
	cost = flow_cost(1, ibt_bytes_between(w, ibt_mtu(qp), k, k + 1));
	/* Without asking: a single packet, and the timer that ends the connection is running. */
	hca_flow_charge(ibt_flow_of(qp, w), cost);
	r->rec.probe_due = false;
	r->rec.probe_flow = ibt_flow_of(qp, w);
	r->rec.probe_cost = cost;
	r->rec.probe_psn = r->una;
	r->rec.timing &= psn_diff(r->rec.timed_psn, r->una) > 0;
	if (hca_wqe_is_read(w))
		ibt_put_read(qp, w, k, k + 1, out);
	else if (hca_wqe_is_atomic(w))
		ibt_put_atomic(qp, w, out);
	else if (!ibt_put_data(qp, w, k, true, out))
		return STEP_ON; /* its memory is gone: the timer goes back there and says so */
	hca_qp_probe(qp, LOSS_PROBE, .psn = r->una);
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
	uint32_t known = (uint32_t)psn_diff(r->acked, w->psn), limit = ibt_chunk_end(r, w, k);
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
		ibt_put_read(qp, w, first, end, out);
	else
		ibt_put_atomic(qp, w, out);
	for (uint32_t k = first; k < end; k++)
		ibt_again_set(r, psn_add(w->psn, k), true);
	hca_qp_probe(qp, RETRANSMIT, .psn = psn_add(w->psn, first));
	hca_flow_loss(qp->adapter->read_flow);
}

/*
 * Responses that were lost, since the peer is past them: asks for these again, and for nothing else. Of a
 * chunk only for those that are missing first, and for the next when they have come: Linux's rxe answers no
 * part of a READ request that begins before a part which it has answered since.
 */
enum step ibt_send_missing(struct hca_qp *qp, struct frame_batch *out)
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
		r->asked = psn_add(w->psn, hca_wqe_has_response(w) ? ibt_chunk_end(r, w, k) : w->npkts);
	}
	if (psn_diff(r->asked, r->acked) > 0)
		r->asked = r->acked;
	return STEP_ON;
}
