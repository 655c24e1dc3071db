/* SPDX-License-Identifier: MIT */
/*
 * What comes back to a requester: acknowledges, NAKs, read responses, atomic results. Each says how far the
 * peer is (executed()), moves the oldest open PSN (advance()), and ends in ibt_settle(), which completes what
 * is done. What does not come back is recovery.c's business.
 *
 * A READ's or atomic's response is put in its place whenever it comes, also behind one that is missing: what
 * was lost is asked for again by itself.
 */
#include "ib/ibt.h"

#include "hca/adapter.h"
#include "hca/flow.h"

#include <string.h>

/* ---- progress ---- */
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

	assert_locked(&qp->lock);
	ibt_complete_done(qp, now);
	if (r->failed && qp->sq.tail == r->next) {
		enum ibv_wc_status status = r->failed;

		r->failed = IBV_WC_SUCCESS;
		if (qp->service.reliable)
			ibt_release_all(qp); /* its first packets may be on their way */
		hca_qp_fail_send(qp, status, now);
		return;
	}
	if (hca_qp_state(qp) == IBV_QPS_SQD && drained(qp))
		hca_qp_drained(qp);
	if (qp->service.reliable)
		ibt_set_timers(qp, now, false);
	else
		qp->deadline = qp->waits_for ? hca_flow_echo_deadline(qp->waits_for) : 0;
}

/* The peer has executed everything before `to`. Whether that is news. */
static bool executed(struct hca_qp *qp, uint32_t to)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (psn_diff(to, r->acked) <= 0)
		return false;
	r->acked = to;
	if (psn_diff(to, r->sent) > 0)
		ibt_move_to(qp, to); /* we had gone back, but what we sent first has arrived after all */
	return true;
}

/* Responses of w that lie there from `una` on are done. */
static void take_responses(struct ibt_requester *r, const struct hca_send_wqe *w)
{
	uint32_t k = (uint32_t)psn_diff(r->una, w->psn);

	for (; k < w->npkts && ibt_got(r, r->una); k++) {
		ibt_got_flip(r, r->una);
		ibt_again_set(r, r->una, false);
		r->una = psn_add(r->una, 1);
		if ((k + 1) % r->chunk == 0 || k + 1 == w->npkts)
			r->reads -= r->reads ? 1 : 0;
	}
}

/* Moves `una` over what is done: responses that came, and the rest as far as the peer has executed it. */
static void advance(struct hca_qp *qp, bool news, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t from = r->una;

	for (uint32_t i = qp->sq.tail; r->una != r->acked && i != qp->sq.head; i++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);
		uint32_t end = psn_add(w->psn, w->npkts);

		if (ibt_is_done(r, w))
			continue;
		if (hca_wqe_has_response(w))
			take_responses(r, w);
		else
			r->una = psn_diff(end, r->acked) < 0 ? end : r->acked;
		if (r->una != end)
			break;
	}
	if (r->una != from)
		ibt_release(qp, from, r->una);
	if (psn_diff(r->asked, r->una) < 0)
		r->asked = r->una;
	if (r->una == r->sent)
		r->reads = 0; /* a chunk that was asked for in parts is counted once when it ends */
	if (news || r->una != from)
		ibt_progress(qp, now);
}

static void acknowledge(struct hca_qp *qp, uint32_t to, uint64_t now)
{
	bool news = executed(qp, to);

	advance(qp, news, now);
}

void ibt_acknowledge(struct hca_qp *qp, uint32_t to, uint64_t now)
{
	acknowledge(qp, to, now);
	ibt_settle(qp, now);
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

void ibt_fail_at(struct hca_qp *qp, uint32_t psn, enum ibv_wc_status status, uint64_t now)
{
	acknowledge(qp, psn, now);
	ibt_settle(qp, now);
	if (hca_qp_state(qp) == IBV_QPS_ERR || qp->sq.tail == qp->sq.head)
		return;
	ibt_release_all(qp);
	flush_before(qp, psn, now);
	PROBE(WR_FAILED, .qpn = hca_qpn(qp), .status = status);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_fail_send(qp, status, now);
}

static void rnr(struct hca_qp *qp, uint32_t psn, unsigned code, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	hca_qp_probe(qp, RNR_RX, .psn = psn, .code = code);
	r->retries = qp->attr.retry_cnt; /* the peer answers: what was lost before does not add up for ever */
	if (qp->attr.rnr_retry != 7) {
		if (!r->rnr_retries) {
			ibt_fail_at(qp, psn, IBV_WC_RNR_RETRY_EXC_ERR, now);
			return;
		}
		r->rnr_retries--;
	}
	ibt_move_to(qp, psn);
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
	hca_qp_probe(qp, NAK_RX, .psn = psn, .code = code);
	if (code == NAK_SEQ) {
		ibt_sequence_nak(qp, psn, now);
	} else if (code <= NAK_INV_RD) {
		ibt_fail_at(qp, psn, nak_status(code), now);
	} else {
		hca_qp_probe(qp, DROP, .why = "a NAK with a reserved code");
	}
}

/* ---- NAKs that may be forged ----
 * A NAK ends the connection on the word of one packet, and a forger only has to hit the PSNs in flight. But a
 * NAK also says how many requests the peer has done (the MSN), which cannot be fewer than it said before, nor
 * more than we asked for. One that says otherwise is not acted on: a live peer acknowledges what it received,
 * and the NAK is forgotten. Where nothing is heard until the timer gives up, the request fails with what the
 * NAK said, so that a peer which counts in another way is only believed later.
 */
static bool is_plausible(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	return (p->op->flags & OPF_AETH) &&
	       ((aeth_msn(p->ext) - r->msn) & PSN_MASK) <= (uint32_t)psn_diff(r->high, r->una);
}

/* Whether to wait for more than this packet before the request fails. */
static bool defer_nak(struct hca_qp *qp, const struct ibt_packet *p, enum ibv_wc_status status)
{
	if (p->local || is_plausible(qp, p) || !ibt_timeout_ns(qp->attr.timeout))
		return false;
	PROBE(NAK_UNVERIFIED, .qpn = hca_qpn(qp), .psn = p->psn);
	ibt_qp(qp)->req.nak_unverified = status;
	ibt_qp(qp)->req.nak_unverified_psn = p->psn;
	hca_qp_probe(qp, STALE_RESPONSE, .psn = p->psn);
	return true;
}

/* What an acknowledge packet would end the connection with; IBV_WC_SUCCESS: it would not. */
static enum ibv_wc_status fatal_status(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	unsigned syndrome = aeth_syndrome(p->ext), code = syndrome & AETH_VALUE_MASK;

	if ((syndrome & AETH_TYPE_MASK) == AETH_RNR)
		return qp->attr.rnr_retry == 7 || r->rnr_retries ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR;
	if ((syndrome & AETH_TYPE_MASK) != AETH_NAK || code > NAK_INV_RD || code == NAK_SEQ)
		return IBV_WC_SUCCESS; /* a sequence NAK ends nothing: see recovery.c */
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
		/* A second one while we wait is about a copy of what the first was about. */
		if (ibt_qp(qp)->req.acked == p->psn && !ibt_qp(qp)->req.rnr_until)
			rnr(qp, p->psn, value, now);
		break;
	case AETH_NAK:
		acknowledge(qp, p->psn, now);
		nak(qp, p->psn, value, now);
		break;
	default:
		hca_qp_probe(qp, DROP, .why = "an acknowledge with a reserved syndrome");
	}
}

/* What a response brings goes into the request's own buffers. */
static enum ibv_wc_status place(struct hca_qp *qp, struct hca_send_wqe *w, const struct ibt_packet *p)
{
	uint32_t mtu = ibt_mtu(qp), off = (uint32_t)psn_diff(p->psn, w->psn) * mtu, len = p->len;
	const void *from = p->payload;
	uint64_t original;

	if (hca_wqe_is_atomic(w)) {
		original = get_be64(p->ext + AETH_LEN); /* a number in the program's own order */
		from = &original;
		len = sizeof(original);
	} else if (len != (w->length - off < mtu ? w->length - off : mtu)) {
		return IBV_WC_BAD_RESP_ERR;
	}
	return hca_sge_scatter(qp, w->sge, w->nsge, off, from, len) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

static bool fits(const struct hca_send_wqe *w, const struct ibt_packet *p)
{
	return w && (p->op->flags & OPF_READ ? hca_wqe_is_read(w) : hca_wqe_is_atomic(w));
}

static void got_response(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct hca_send_wqe *w = ibt_wqe_at(qp, p->psn);
	enum ibv_wc_status status;
	bool news;

	if (!fits(w, p) || psn_diff(p->psn, r->una) >= IBT_AHEAD) {
		hca_qp_probe(qp, DROP, .why = "a response to what was not asked there, or too far ahead");
		return;
	}
	if (ibt_got(r, p->psn)) {
		hca_qp_probe(qp, STALE_RESPONSE, .psn = p->psn);
		return;
	}
	status = place(qp, w, p);
	if (status == IBV_WC_BAD_RESP_ERR && defer_nak(qp, p, status))
		return;
	if (status != IBV_WC_SUCCESS) {
		ibt_fail_at(qp, p->psn, status, now);
		return;
	}
	news = executed(qp, psn_add(p->psn, 1));
	ibt_got_flip(r, p->psn);
	if (ibt_again(r, p->psn))
		r->asked = r->una; /* more may be missing behind it, which has waited for this */
	advance(qp, news, now);
}

void ibt_complete(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool answer = ibt_answers_probe(r, p);
	enum ibv_wc_status end;

	/* Acknowledges of the past are late duplicates, of the future nonsense (IBA 9.7.6.1: "ghost"). */
	if (psn_diff(p->psn, r->una) < 0 || psn_diff(p->psn, r->high) >= 0) {
		hca_qp_probe(qp, STALE_RESPONSE, .psn = p->psn);
		return;
	}
	if (p->op == &ibt_op_table[OP_ACK]) {
		end = fatal_status(qp, p);
		if (end && defer_nak(qp, p, end))
			return;
		got_ack(qp, p, now);
	} else {
		got_response(qp, p, now);
	}
	/* Never back: a response that comes late says what was true before. */
	if ((p->op->flags & OPF_AETH) && !r->nak_unverified && psn_diff(aeth_msn(p->ext), r->msn) > 0)
		r->msn = aeth_msn(p->ext);
	if (hca_qp_state(qp) == IBV_QPS_ERR)
		return;
	if (answer)
		ibt_probe_answered(qp, now);
	ibt_settle(qp, now);
}
