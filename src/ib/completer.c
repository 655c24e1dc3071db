/* SPDX-License-Identifier: MIT */
/*
 * What comes back to a requester: acknowledges, NAKs, read responses, atomic results; and the timer for what
 * does not come back. Each ends in ibt_settle(), which completes what is done.
 */
#include "ib/ibt.h"

#include "base/log.h"
#include "hca/adapter.h"
#include "hca/flow.h"

#include <string.h>

static struct hca_send_wqe *wqe_at_psn(struct hca_qp *qp, uint32_t psn)
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

static bool has_response(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* ---- progress ---- */
static void set_timer(struct hca_qp *qp, uint64_t now, bool restart)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint64_t timeout = ibt_timeout_ns(qp->attr.timeout);

	if (r->una == r->sent || !timeout)
		r->ack_by = 0;
	else if (restart || !r->ack_by)
		r->ack_by = now + timeout;
	qp->deadline = r->rnr_until ? r->rnr_until : r->ack_by;
}

static bool is_done(const struct ibt_requester *r, const struct hca_send_wqe *w)
{
	return w->started && psn_diff(r->una, psn_add(w->psn, w->npkts)) >= 0;
}

/* Nothing of the send queue is on the wire, and no request has begun. */
static bool drained(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	return qp->sq.tail == r->next && r->una == r->sent &&
	       (r->next == qp->sq.head || !hca_sq_at(&qp->sq, r->next)->started);
}

void ibt_settle(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	while (qp->sq.tail != r->next && is_done(r, hca_sq_at(&qp->sq, qp->sq.tail)))
		hca_qp_complete_send(qp, IBV_WC_SUCCESS, now);
	if (r->failed && qp->sq.tail == r->next) {
		enum ibv_wc_status status = r->failed;

		r->failed = IBV_WC_SUCCESS;
		if (hca_qp_type(qp) == IBV_QPT_RC) {
			ibt_release(qp, r->una, r->sent); /* its first packets may be on their way */
			r->una = r->sent;
		}
		hca_qp_fail_send(qp, status, now);
		return;
	}
	if (hca_qp_state(qp) == IBV_QPS_SQD && drained(qp) && !qp->sqd_drained_raised) {
		qp->sqd_drained_raised = true;
		if (qp->sqd_notify)
			hca_qp_raise(qp, IBV_EVENT_SQ_DRAINED);
	}
	if (hca_qp_type(qp) == IBV_QPT_RC)
		set_timer(qp, now, false);
	else
		qp->deadline = qp->waits_for ? hca_flow_echo_deadline(qp->waits_for) : 0;
}

/* Everything before `to` has arrived. */
static void advance(struct hca_qp *qp, uint32_t to, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t charged = psn_diff(to, r->sent) > 0 ? r->sent : to;

	if (psn_diff(to, r->una) <= 0)
		return;
	ibt_release(qp, r->una, charged);
	r->una = to;
	r->retries = qp->attr.retry_cnt;
	r->rnr_retries = qp->attr.rnr_retry;
	r->cautious = false;
	r->doubted = IBV_WC_SUCCESS;
	/* Acknowledged although we had gone back behind it: what we sent first has arrived after all. */
	if (psn_diff(to, r->sent) > 0) {
		struct hca_send_wqe *w;

		r->sent = to;
		while (r->next != qp->sq.head) {
			w = hca_sq_at(&qp->sq, r->next);
			if (!w->started || psn_diff(to, w->psn) < (int32_t)w->npkts)
				break;
			r->next++;
		}
		r->pkt = 0;
		if (r->next != qp->sq.head) {
			w = hca_sq_at(&qp->sq, r->next);
			if (w->started)
				r->pkt = (uint32_t)psn_diff(to, w->psn);
		}
	}
	if (r->una == r->sent)
		r->reads = 0; /* a chunk that was asked for in parts is counted once when it ends */
	set_timer(qp, now, true);
}

/* The first PSN from `una` on, below `to`, whose response has to come as a packet of its own; else `to`. */
static uint32_t first_response(struct hca_qp *qp, uint32_t to)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	for (uint32_t i = qp->sq.tail; i != qp->sq.head; i++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);

		if (!w->started || psn_diff(w->psn, to) >= 0)
			break;
		if (has_response(w) && !is_done(r, w))
			return psn_diff(r->una, w->psn) > 0 ? r->una : w->psn;
	}
	return to;
}

/* A response was lost, the peer is past it: ask again, once per hole. */
static void ask_again(struct hca_qp *qp, uint32_t psn, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (r->gap_asked && r->gap_psn == psn)
		return;
	r->gap_asked = true;
	r->gap_psn = psn;
	hca_flow_loss(qp->adapter->read_flow, now);
	ibt_rewind(qp, psn, now);
	set_timer(qp, now, true);
}

/* Acknowledges up to but not including `to`, as far as no response is missing. */
static void acknowledge(struct hca_qp *qp, uint32_t to, uint64_t now)
{
	uint32_t hole = first_response(qp, to);

	advance(qp, hole, now);
	if (hole != to)
		ask_again(qp, hole, now);
}

/* ---- failures ---- */
/*
 * Requests before the one that failed whose responses were lost: the peer is in ERR, and will not say what it
 * knew. They are flushed, so that the reason stays with the request it belongs to.
 */
static void flush_before(struct hca_qp *qp, uint32_t psn, uint64_t now)
{
	while (hca_qp_state(qp) != IBV_QPS_ERR && qp->sq.tail + 1 != qp->sq.head) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);

		if (!w->started || psn_diff(psn, psn_add(w->psn, w->npkts)) < 0)
			break;
		hca_qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR, now);
	}
}

static void fail_at(struct hca_qp *qp, uint32_t psn, enum ibv_wc_status status, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	advance(qp, first_response(qp, psn), now);
	ibt_settle(qp, now);
	if (hca_qp_state(qp) == IBV_QPS_ERR || qp->sq.tail == qp->sq.head)
		return;
	ibt_release(qp, r->una, r->sent);
	r->una = r->sent;
	flush_before(qp, psn, now);
	log_debug("QP 0x%06x: request failed, status %d", hca_qpn(qp), status);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_fail_send(qp, status, now);
}

static void go_back(struct hca_qp *qp, uint32_t psn, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (!r->retries) {
		fail_at(qp, psn, r->doubted ? r->doubted : IBV_WC_RETRY_EXC_ERR, now);
		return;
	}
	r->retries--;
	r->gap_asked = false;
	ibt_rewind(qp, psn, now);
	set_timer(qp, now, true);
}

static void rnr(struct hca_qp *qp, uint32_t psn, unsigned code, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	qp->count->rnr_received++;
	r->retries = qp->attr.retry_cnt; /* the peer answers: what was lost before does not add up for ever */
	if (qp->attr.rnr_retry != 7) {
		if (!r->rnr_retries) {
			fail_at(qp, psn, IBV_WC_RNR_RETRY_EXC_ERR, now);
			return;
		}
		r->rnr_retries--;
	}
	ibt_rewind(qp, psn, now);
	r->ack_by = 0;
	r->rnr_until = now + ibt_rnr_ns(code);
}

static enum ibv_wc_status nak_status(unsigned code)
{
	switch (code) {
	case NAK_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case NAK_OP:
		return IBV_WC_REM_OP_ERR;
	default:
		return IBV_WC_REM_INV_REQ_ERR;
	}
}

static void nak(struct hca_qp *qp, uint32_t psn, unsigned code, uint64_t now)
{
	qp->count->naks_received++;
	if (code == NAK_SEQ) {
		hca_flow_loss(qp->flow, now);
		if (ibt_qp(qp)->req.una == psn)
			go_back(qp, psn, now);
	} else if (code <= NAK_INV_RD) {
		fail_at(qp, psn, nak_status(code), now);
	} else {
		qp->count->dropped++; /* reserved code */
	}
}

/* ---- doubt ----
 * A NAK ends the connection on the word of one packet, and a forger only has to hit the PSNs in flight. But a
 * NAK also says how many requests the peer has done (the MSN), which cannot be fewer than it said before, nor
 * more than we asked for. One that says otherwise is not acted on: a live peer acknowledges what it received,
 * and that ends the doubt. Where nothing is heard until the timer gives up, the request fails with what the
 * NAK said, so that a peer which counts in another way is only believed later.
 */
static bool is_plausible(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	return (p->op->flags & OPF_AETH) &&
	       ((aeth_msn(p->ext) - r->msn) & PSN_MASK) <= (uint32_t)psn_diff(r->high, r->una);
}

/* Whether to wait for more than this packet before the request fails. */
static bool doubt(struct hca_qp *qp, const struct ibt_packet *p, enum ibv_wc_status status)
{
	if (is_plausible(qp, p) || !ibt_timeout_ns(qp->attr.timeout))
		return false;
	log_debug("QP 0x%06x: a NAK with an impossible MSN is not believed", hca_qpn(qp));
	ibt_qp(qp)->req.doubted = status;
	qp->count->stale_responses++;
	return true;
}

/* What an acknowledge packet would end the connection with; IBV_WC_SUCCESS: it would not. */
static enum ibv_wc_status last_word(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	unsigned syndrome = aeth_syndrome(p->ext), code = syndrome & AETH_VALUE_MASK;

	if ((syndrome & AETH_TYPE_MASK) == AETH_RNR)
		return qp->attr.rnr_retry == 7 || r->rnr_retries ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR;
	if ((syndrome & AETH_TYPE_MASK) != AETH_NAK || code > NAK_INV_RD)
		return IBV_WC_SUCCESS;
	if (code == NAK_SEQ)
		return r->retries ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
	return nak_status(code);
}

/* ---- packets ---- */
static void update_credits(struct hca_qp *qp, uint8_t syndrome)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t n = ibt_credit_decode(syndrome & AETH_VALUE_MASK);

	r->credits_used = n != UINT32_MAX;
	if (r->credits_used)
		r->credits = (int32_t)n - (int32_t)(r->next - qp->sq.tail) - (r->pkt ? 1 : 0);
}

static void got_ack(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	uint8_t syndrome = aeth_syndrome(p->ext);
	unsigned value = syndrome & AETH_VALUE_MASK;

	switch (syndrome & AETH_TYPE_MASK) {
	case AETH_ACK:
		acknowledge(qp, psn_add(p->psn, 1), now);
		ibt_settle(qp, now);
		update_credits(qp, syndrome);
		break;
	case AETH_RNR:
		acknowledge(qp, p->psn, now);
		if (ibt_qp(qp)->req.una == p->psn)
			rnr(qp, p->psn, value, now);
		break;
	case AETH_NAK:
		acknowledge(qp, p->psn, now);
		nak(qp, p->psn, value, now);
		break;
	default:
		qp->count->dropped++;
	}
}

static void got_read(struct hca_qp *qp, struct hca_send_wqe *w, const struct ibt_packet *p, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t mtu = ibt_mtu(qp), k = (uint32_t)psn_diff(p->psn, w->psn), off = k * mtu;
	uint32_t want = w->length - off < mtu ? w->length - off : mtu;

	if (p->len != want) {
		if (!doubt(qp, p, IBV_WC_BAD_RESP_ERR))
			fail_at(qp, p->psn, IBV_WC_BAD_RESP_ERR, now);
		return;
	}
	if (!hca_sge_scatter(qp, w->sge, w->nsge, off, p->payload, p->len)) {
		fail_at(qp, p->psn, IBV_WC_LOC_PROT_ERR, now);
		return;
	}
	if ((k + 1) % r->chunk == 0 || k + 1 == w->npkts)
		r->reads -= r->reads ? 1 : 0;
	r->gap_asked = false;
	advance(qp, psn_add(p->psn, 1), now);
}

static void got_atomic(struct hca_qp *qp, struct hca_send_wqe *w, const struct ibt_packet *p, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint64_t original =
		get_be64(p->ext + AETH_LEN); /* the result is a number in the program's own order */

	if (!hca_sge_scatter(qp, w->sge, w->nsge, 0, &original, sizeof(original))) {
		fail_at(qp, p->psn, IBV_WC_LOC_PROT_ERR, now);
		return;
	}
	r->reads -= r->reads ? 1 : 0;
	advance(qp, psn_add(p->psn, 1), now);
}

static void got_response(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct hca_send_wqe *w;

	acknowledge(qp, p->psn, now); /* it acknowledges what came before it */
	if (r->una != p->psn)
		return; /* a hole before it: asked for again, with this one */
	w = wqe_at_psn(qp, p->psn);
	if (w && (p->op->flags & OPF_READ) && w->opcode == IBV_WR_RDMA_READ)
		got_read(qp, w, p, now);
	else if (w && (p->op->flags & OPF_ATOMIC) && has_response(w) && w->opcode != IBV_WR_RDMA_READ)
		got_atomic(qp, w, p, now);
	else
		qp->count->dropped++; /* not what we asked for there */
}

void ibt_complete(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	enum ibv_wc_status end;

	/* Acknowledges of the past are late duplicates, of the future nonsense (IBA 9.7.6.1: "ghost"). */
	if (psn_diff(p->psn, r->una) < 0 || psn_diff(p->psn, r->high) >= 0) {
		qp->count->stale_responses++;
		return;
	}
	if (p->op == &ibt_op_table[OP_ACK]) {
		end = last_word(qp, p);
		if (end && doubt(qp, p, end))
			return;
		got_ack(qp, p, now);
	} else {
		got_response(qp, p, now);
	}
	if ((p->op->flags & OPF_AETH) && !r->doubted)
		r->msn = aeth_msn(p->ext);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		ibt_settle(qp, now);
}

void ibt_timer(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (hca_qp_type(qp) != IBV_QPT_RC) {
		if (qp->waits_for && hca_flow_echo_timeout(qp->waits_for, now))
			qp->adapter->count->echo_timeouts++;
		return;
	}
	if (r->rnr_until && now >= r->rnr_until) {
		r->rnr_until = 0; /* request() goes on from where the rewind put it */
	} else if (r->ack_by && now >= r->ack_by) {
		qp->count->timeouts++;
		hca_flow_loss(qp->flow, now);
		r->cautious = true;
		go_back(qp, r->una, now);
	}
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		set_timer(qp, now, false);
}
