/* SPDX-License-Identifier: MIT */
/*
 * The usual case between two processes of one host, beside the slow path: a SEND or WRITE of one packet, or
 * of one frame by reference (by_reference.c), in order, nothing wrong, nothing pending. It is numbered,
 * charged and checked as any other, so that each of them may be followed by one of the slow path; but it
 * takes no clock, and nothing is said back: the way itself tells what was executed (ibt.h).
 * Everything else is left as it is, for the slow path to find and to find words for.
 *
 * The spec's timer runs all the same, but is not set anew for each: see ibt_timer().
 */
#include "ib/execute.h"

#include "hca/flow.h"

/* ---- requests ---- */
/* All that was sent was sent once, and nothing holds back what follows. */
static bool runs_smoothly(struct hca_qp *qp)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;
	const struct ibt_responder *p = &ibt_qp(qp)->resp;

	return r->sent == r->psn && r->high == r->psn && r->asked == r->acked && !r->failed &&
	       !r->rnr_until && !r->rec.cautious && !r->rec.probe_due && !p->ack_due && !p->ack_leaving;
}

static bool put_payload(struct hca_qp *qp, struct hca_send_wqe *w, struct frame_out *f, struct iovec *iov)
{
	unsigned n;

	if (w->length >= HCA_BY_REF_MIN && ibt_put_by_ref(qp, w, f, iov))
		return true;
	if (w->length > ibt_mtu(qp))
		return false;
	f->by_ref = 0;
	f->own = w->flags & IBV_SEND_INLINE;
	if (!hca_wqe_gather(qp, w, 0, w->length, 0, iov, HCA_MAX_SGE, &n))
		return false;
	f->iov_first = 0;
	f->iov_count = (uint16_t)n;
	f->payload_len = w->length;
	f->pad = (uint8_t)(-w->length & 3);
	f->copy = 0;
	return true;
}

enum ibt_fast ibt_request_fast(struct hca_qp *qp, struct frame_out *f, struct iovec *iov)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct hca_send_wqe *w = hca_sq_at(&qp->sq, r->next);

	if (r->next == qp->sq.head) /* but a response may have to be asked for again */
		return r->rec.probe_due || r->asked != r->acked ? FAST_DECLINE : FAST_IDLE;
	if (!qp->service.reliable || hca_qp_state(qp) != IBV_QPS_RTS || w->started ||
		!ibt_is_whole(ibt_only_op[w->opcode]) || !runs_smoothly(qp) || !ibt_may_start(qp, w) ||
		!put_payload(qp, w, f, iov))
		return FAST_DECLINE;
	if (!hca_qp_flow_take(
		    qp, qp->path.flow, w->by_ref ? IBT_BY_REF_COST : flow_cost(1, w->length), false)) {
		w->by_ref = false;
		return r->una == r->sent ? FAST_DECLINE : FAST_IDLE;
	}
	ibt_number(r, w, w->by_ref ? ibt_npkts(w->length, ibt_mtu(qp)) : 1);
	r->sent = r->high = r->psn;
	r->next++;
	ibt_put_headers(qp, w, ibt_only_op[w->opcode], w->psn, false, f);
	f->cookie = ibt_cookie(qp);
	f->psn = psn_add(w->psn, w->npkts - 1);
	return FAST_FRAME;
}

/* ---- what was executed ---- */
/* Only SENDs and WRITEs are on their way, each once. */
static bool only_data_out(struct hca_qp *qp)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;

	return !r->reads && r->sent == r->high && r->una == r->acked && r->asked == r->acked && !r->failed &&
	       !r->rnr_until && !r->rec.cautious && !r->rec.probe_flow && !r->rec.probe_due &&
	       !r->nak_unverified && hca_qp_state(qp) == IBV_QPS_RTS;
}

/* What ibt_release() gives back: mostly that of one request, the oldest. */
static void release(struct hca_qp *qp, uint32_t to)
{
	const struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);
	uint32_t una = ibt_qp(qp)->req.una;

	if (w->psn == una && w->npkts == 1 && to == psn_add(una, 1))
		hca_flow_release(qp->path.flow, w->by_ref ? IBT_BY_REF_COST : flow_cost(1, w->length));
	else
		ibt_release(qp, una, to);
}

/* The peer took it and did not execute it: it says why, or says nothing and is asked before long. */
static bool refused(struct hca_qp *qp, uint64_t now)
{
	if (now && hca_qp_state(qp) == IBV_QPS_RTS)
		ibt_set_timers(qp, now, false);
	return now;
}

/*
 * The responses of READs before it are still on their way: they are not lost, as they would be if a packet's
 * acknowledge had come before them, and are not asked for again.
 */
static void executed_behind_reads(struct hca_qp *qp, uint32_t to, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool nothing_missing = r->asked == r->acked;

	ibt_acknowledge(qp, to, now);
	if (nothing_missing)
		r->asked = r->acked;
}

/*
 * What lies in a ring is decided in its order. So a probe that was executed tells what its acknowledge would,
 * which is old by then: what was sent before it and is still open was refused.
 */
static bool executed_slowly(struct hca_qp *qp, uint32_t psn, uint64_t now)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;
	bool probe = r->rec.probe_flow && psn == r->rec.probe_psn && psn == r->una;

	executed_behind_reads(qp, psn_add(psn, 1), now);
	if (probe && hca_qp_state(qp) == IBV_QPS_RTS) {
		ibt_probe_answered(qp, now);
		ibt_settle(qp, now);
	}
	return true;
}

bool ibt_executed(struct hca_qp *qp, uint32_t cookie, uint32_t psn, bool done, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t to = psn_add(psn, 1);

	/* Of before a reset, or not of what is on its way: said before, in another way. */
	if (cookie != ibt_cookie(qp) || psn_diff(to, r->una) <= 0 || psn_diff(to, r->high) > 0)
		return true;
	if (!done)
		return refused(qp, now);
	if (!only_data_out(qp))
		return now ? executed_slowly(qp, psn, now) : false;
	release(qp, to);
	r->una = r->acked = r->asked = to;
	r->retries = qp->attr.retry_cnt;
	r->rnr_retries = qp->attr.rnr_retry;
	r->rec.timing = false;
	r->rec.probes = 0;
	r->rec.moved = true;
	ibt_complete_done(qp, now);
	return true;
}

/* ---- receiving ---- */
/* In RTR the first request raises an event: not here. */
static bool takes_requests(const struct hca_qp *qp)
{
	return hca_qp_state(qp) == IBV_QPS_RTS || (hca_qp_state(qp) == IBV_QPS_RTR && qp->comm_est_raised);
}

/* A full member of our partition matches whatever we are; a limited one is left to the slow path. */
bool ibt_is_next(struct hca_qp *qp, const struct frame_in *in, uint32_t psn)
{
	const struct ibt_responder *r = &ibt_qp(qp)->resp;
	const uint8_t *b = in->bytes;

	return qp->service.reliable && takes_requests(qp) && psn == r->epsn && !bth_tver(b) &&
	       !bth_ackreq(b) && bth_pkey(b) == (qp->path.pkey | PKEY_FULL) && !r->nak_sent && !r->nak_due &&
	       !r->gap && gid_same(in->sgid, qp->path.dest.dgid) && gid_same(in->dgid, qp->path.dest.sgid);
}

bool ibt_receive_fast(struct hca_qp *qp, const struct frame_in *in)
{
	struct ibt_packet p = {.opcode = bth_opcode(in->bytes)};

	if (!ibt_is_whole(p.opcode) || !ibt_is_next(qp, in, bth_psn(in->bytes)) ||
		ibt_qp(qp)->resp.in_message)
		return false;
	p.op = &ibt_op_table[p.opcode & 0x1f];
	return ibt_parse(in, BTH_LEN, &p) && p.len <= ibt_mtu(qp) &&
	       ibt_execute_whole(qp, &p, 1, NULL, NULL, 0);
}
