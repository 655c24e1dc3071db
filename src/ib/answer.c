/* SPDX-License-Identifier: MIT */
/*
 * Answers to the peer's requests, in the order of the requests: read responses and atomic results first, then
 * one acknowledge for everything behind them. Acknowledges are thereby coalesced: one per round of the
 * engine, however many packets asked for one.
 *
 * Delayed ACKs: an acknowledge can be piggybacked on a request of our own. A program that answers at once
 * would otherwise cost two packets each way, and a packet through the stack is most of the latency. So when
 * the last acknowledges were followed by a request within DELAY_NS (base/streak.h), the next one is delayed
 * that long; when nothing follows, it leaves by itself and none is delayed for a while.
 */
#include "ib/ibt.h"

#include "base/guard.h"
#include "hca/adapter.h"

static uint8_t credits(struct hca_qp *qp)
{
	return qp->srq ? AETH_CREDIT_NONE : ibt_credit_encode(hca_rq_count(&qp->rq));
}

static void put_aeth_frame(struct hca_qp *qp, struct frame_batch *out, uint32_t psn, uint8_t syndrome)
{
	struct frame_out *f = ibt_frame(out, BTH_LEN + AETH_LEN);

	out->ack_first |= out->nframes == 1;
	bth_put(f->hdr, IBT_RC | OP_ACK, false, 0, qp->path.pkey, qp->attr.dest_qp_num, false, psn);
	aeth_put(f->hdr + BTH_LEN, syndrome, ibt_qp(qp)->resp.msn);
}

static uint32_t put_atomic(struct hca_qp *qp, struct frame_batch *out, const struct ibt_answer *a)
{
	struct frame_out *f = ibt_frame(out, BTH_LEN + AETH_LEN + ATOMICACK_LEN);

	bth_put(f->hdr, IBT_RC | OP_ATOMIC_ACK, false, 0, qp->path.pkey, qp->attr.dest_qp_num, false, a->psn);
	aeth_put(f->hdr + BTH_LEN, AETH_ACK | credits(qp), a->msn);
	put_be64(f->hdr + BTH_LEN + AETH_LEN, a->original);
	return 1;
}

enum { READ_COPY = 1024, DELAY_NS = 50 * 1000 };

void ibt_delay_ack(struct hca_qp *qp, uint64_t now)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	r->ack_asked_at = now;
	if (r->ack_due && qp->answer_at)
		return; /* one waits already, and not longer for this one */
	r->ack_due = true;
	qp->answer_at = !streak_bets(&r->piggyback) || r->nak_due || r->answer_tail != r->answer_head
				? 0
				: now + DELAY_NS;
}

/* A request of our own leaves: it carries the acknowledge, or could have. */
static void learn_piggyback(struct ibt_responder *r, uint64_t now)
{
	if (r->ack_asked_at && now - r->ack_asked_at < DELAY_NS)
		streak_hit(&r->piggyback);
	r->ack_asked_at = 0;
}

/* Bytes of a READ's next packet. */
static uint32_t read_len(struct hca_qp *qp, const struct ibt_answer *a)
{
	uint32_t mtu = ibt_mtu(qp), off = a->sent * mtu;

	return a->len - off < mtu ? a->len - off : mtu;
}

/*
 * Where the bytes of a READ lie; NULL: the region is gone, or the program has unmapped it. That is seen here,
 * where it can be told to who asked: the link would find it for a batch that has answers of others in it.
 */
static char *source(struct hca_qp *qp, const struct ibt_answer *a, uint32_t len)
{
	char *from = hca_qp_target(
		qp, a->rkey, a->va + (uint64_t)a->sent * ibt_mtu(qp), len, IBV_ACCESS_REMOTE_READ);

	return from && guard_readable(from, len) ? from : NULL;
}

/* One packet of a READ; false: its source is gone. */
static bool put_one(struct hca_qp *qp, struct frame_batch *out, const struct ibt_answer *a)
{
	uint32_t len = read_len(qp, a);
	uint8_t op = ibt_op_at(OP_READ_RESP_ONLY, !a->sent, a->sent + 1 == a->npkts);
	struct frame_out *f;
	char *from = len ? source(qp, a, len) : NULL;

	if (len && !from)
		return false;
	f = ibt_frame(out, (uint8_t)(BTH_LEN + ibt_op_table[op].ext_len));
	f->payload_len = len;
	f->pad = (uint8_t)(-len & 3);
	/* The program may be writing there, and what is sent must be what the ICRC was made of. A small
	 * payload is copied; a large one when a peer asked twice, which is what a torn packet looks like. */
	f->copy = len < READ_COPY || ibt_qp(qp)->resp.stage_reads;
	if (len) {
		out->iov[out->niov++] = (struct iovec){from, len};
		f->iov_count = 1;
	}
	bth_put(f->hdr, IBT_RC | op, false, f->pad, qp->path.pkey, qp->attr.dest_qp_num, false,
		psn_add(a->psn, a->sent));
	if (ibt_op_table[op].flags & OPF_AETH)
		aeth_put(f->hdr + BTH_LEN, AETH_ACK | credits(qp), a->msn);
	frame_batch_note(out, frame_len(f));
	return true;
}

/* Packets in the middle of a READ, with one look at the key for all; 0: each is to be looked at by itself. */
static uint32_t put_middles(struct hca_qp *qp, struct frame_batch *out, const struct ibt_answer *a)
{
	uint32_t mtu = ibt_mtu(qp), n = ibt_middles(qp, a->sent, a->npkts, out);
	char *from;

	if (n < 2 || mtu < READ_COPY || ibt_qp(qp)->resp.stage_reads)
		return 0;
	from = source(qp, a, n * mtu);
	if (!from)
		return 0;
	ibt_put_middles(qp, OP_READ_RESP_MIDDLE, psn_add(a->psn, a->sent), from, n, out);
	return n;
}

/* The next packets of a READ: how many; 0: its source is gone. */
static uint32_t put_read(struct hca_qp *qp, struct frame_batch *out, const struct ibt_answer *a)
{
	uint32_t n = put_middles(qp, out, a);

	return n ? n : put_one(qp, out, a);
}

/* Deregistered between request and answer, or unmapped (IBA: remote access error). */
static void read_failed(struct hca_qp *qp, struct ibt_responder *r, const struct ibt_answer *a, uint64_t now)
{
	r->nak_due = true;
	r->nak_psn = psn_add(a->psn, a->sent);
	r->nak_syndrome = AETH_NAK | NAK_ACCESS;
	r->answer_tail = r->answer_head;
	hca_qp_probe(qp, NAK_TX, .psn = r->nak_psn, .syndrome = r->nak_syndrome);
	hca_qp_fail_recv(qp, IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, now);
}

bool ibt_respond(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	assert_locked(&qp->lock);
	hca_path_address(&qp->path, out);
	/* What was asked before the request that failed is still answered, in front of its NAK. */
	if (hca_qp_state(qp) == IBV_QPS_ERR && !r->nak_due)
		r->answer_tail = r->answer_head;
	while (r->answer_tail != r->answer_head) {
		struct ibt_answer *a = &r->answer[r->answer_tail % IBT_ANSWERS];
		uint32_t n;

		if (frame_batch_full(out, 1) ||
			(a->kind == ANSWER_READ && frame_batch_ends(out, BTH_LEN + read_len(qp, a))))
			return true;
		n = a->kind == ANSWER_ATOMIC ? put_atomic(qp, out, a) : put_read(qp, out, a);
		if (!n) {
			if (!a->first_time) {
				r->answer_tail++; /* as if it had come a moment later: see duplicate_read */
				continue;
			}
			read_failed(qp, r, a, now);
			break;
		}
		out->wanted = true;
		a->sent += n;
		if (a->sent == a->npkts)
			r->answer_tail++;
	}
	if (frame_batch_full(out, 0))
		return true;
	if (r->nak_due)
		put_aeth_frame(qp, out, r->nak_psn, r->nak_syndrome);
	else if (r->ack_due && hca_qp_state(qp) != IBV_QPS_ERR)
		put_aeth_frame(qp, out, r->ack_psn, AETH_ACK | credits(qp));
	if (r->ack_due && qp->answer_at && now >= qp->answer_at)
		streak_lose(&r->piggyback);
	qp->answer_at = 0;
	r->ack_leaving = r->ack_due && !r->nak_due;
	r->nak_due = r->ack_due = false;
	return false;
}

/*
 * A card acknowledges a SEND before its program can answer it, and programs count on the order: the
 * completion of their own SEND comes before the reply. Here the program may be quicker than who drives; and
 * packets of two threads may change places on their way, in the queues of two CPUs or where one of them is
 * handed from process to process. So an acknowledge that is just leaving by another thread goes once more
 * with the request, and one that has left already with the first request behind it, unless we are in the
 * middle of sending: that is no reply. The second is ignored.
 */
static bool ack_goes_along(struct hca_qp *qp)
{
	const struct ibt_responder *r = &ibt_qp(qp)->resp;
	const struct ibt_requester *req = &ibt_qp(qp)->req;

	return r->ack_due || r->ack_leaving || (r->ack_asked_at && req->una == req->sent);
}

void ibt_flush_ack(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	bool goes = ack_goes_along(qp);

	learn_piggyback(r, now);
	if (!goes || r->nak_due || r->answer_tail != r->answer_head)
		return;
	put_aeth_frame(qp, out, r->ack_psn, AETH_ACK | credits(qp));
	r->ack_due = r->ack_leaving = false;
	qp->answer_at = 0;
}
