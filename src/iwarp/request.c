/* SPDX-License-Identifier: MIT */
/*
 * The send queue, as segments. A message is never interrupted by another one (RFC 5041); between
 * messages, requests and answers take turns, so that neither side's bulk starves the other's.
 */
#include "base/asserts.h"
#include "iwarp/iwarp.h"

#include "hca/adapter.h"

#include <arpa/inet.h>

enum step { STEP_ON, STEP_STOP };

struct hca_send_wqe *iwarp_oldest_asked(struct hca_qp *qp, uint32_t *index)
{
	for (uint32_t i = qp->sq.tail; i != iwarp_qp(qp)->tx.next; i++) {
		struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);

		if (w->started == WQE_ASKED) {
			*index = i;
			return w;
		}
	}
	return NULL;
}

void iwarp_settle(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	while (qp->sq.tail != s->tx.next && hca_sq_at(&qp->sq, qp->sq.tail)->started == WQE_DONE)
		hca_qp_complete_send(qp, IBV_WC_SUCCESS, s->now);
	if (s->tx.failed && qp->sq.tail == s->tx.next) {
		enum ibv_wc_status status = s->tx.failed;

		s->tx.failed = IBV_WC_SUCCESS;
		hca_qp_fail_send(qp, status, s->now);
		return;
	}
	if (qp->sq.tail == s->tx.next && !s->tx.off)
		hca_qp_drained(qp);
}

/* ---- what a request is on the wire ---- */
struct wire_op {
	uint8_t opcode, solicited; /* of its message */
	bool offered;              /* by any iWARP peer; else by those of our kind */
};

static const struct wire_op wire_ops[] = {
	[IBV_WR_RDMA_WRITE] = {RDMAP_WRITE, RDMAP_WRITE, true},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {RDMAP_IMMEDIATE, RDMAP_IMMEDIATE_SE, false}, /* behind a Write */
	[IBV_WR_SEND] = {RDMAP_SEND, RDMAP_SEND_SE, true},
	[IBV_WR_SEND_WITH_IMM] = {RDMAP_SEND_IMM, RDMAP_SEND_SE_IMM, false},
	[IBV_WR_RDMA_READ] = {RDMAP_READ_REQUEST, RDMAP_READ_REQUEST, true},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {RDMAP_ATOMIC_REQUEST, RDMAP_ATOMIC_REQUEST, false},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {RDMAP_ATOMIC_REQUEST, RDMAP_ATOMIC_REQUEST, false},
	[IBV_WR_LOCAL_INV] = {0, 0, true},
	[IBV_WR_BIND_MW] = {0, 0, true},
	[IBV_WR_SEND_WITH_INV] = {RDMAP_SEND_INV, RDMAP_SEND_SE_INV, true},
};

bool iwarp_offers(struct hca_qp *qp, unsigned opcode)
{
	return opcode < sizeof(wire_ops) / sizeof(wire_ops[0]) &&
	       (wire_ops[opcode].offered || iwarp_qp(qp)->params.extended);
}

static uint8_t opcode_of(const struct hca_send_wqe *w)
{
	return w->flags & IBV_SEND_SOLICITED ? wire_ops[w->opcode].solicited : wire_ops[w->opcode].opcode;
}

static bool is_write(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* ---- beginning ---- */
/* Whether the request goes on; false: not now, or never (tx.failed). */
static bool start(struct hca_qp *qp, struct hca_send_wqe *w)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	if (hca_qp_state(qp) != IBV_QPS_RTS)
		return false; /* SQD: what has begun goes on, nothing begins */
	if ((w->flags & IBV_SEND_FENCE) && s->tx.reads)
		return false;
	if (hca_wqe_has_response(w) && s->params.ord && s->tx.reads >= s->params.ord)
		return false;
	s->tx.failed = hca_wqe_check(w, s->params.ord);
	if (!s->tx.failed && hca_wqe_is_local(w))
		s->tx.failed = hca_qp_do_local(qp, w);
	if (s->tx.failed)
		return false;
	w->started = WQE_SENDING;
	w->npkts = 0;
	w->psn = s->tx.msn[hca_wqe_has_response(w) ? QN_REQUEST : QN_SEND]; /* what number() will draw */
	s->tx.off = 0;
	return true;
}

static void step_over(struct iwarp_qp *s)
{
	s->tx.next++;
	s->tx.off = 0;
	s->tx.answer_turn = true;
}

/* ---- segments ---- */
static bool add(struct hca_qp *qp, struct iwarp_fpdu *f)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_that(!s->tx.in_answer);
	f->source = SOURCE_REQUEST;
	f->index = s->tx.next;
	if (iwarp_writer_add(&s->writer, f, false))
		return true;
	s->tx.failed = IBV_WC_LOC_PROT_ERR;
	return false;
}

/* The number of the message this request is to that queue: drawn with its first segment. */
static uint32_t number(struct iwarp_qp *s, struct hca_send_wqe *w, uint32_t qn, bool first)
{
	if (first)
		w->psn = s->tx.msn[qn]++;
	return w->psn;
}

/* READ and atomic requests. READ responses are told apart by an STag that is the request's number and means
 * nothing else. */
static enum step build_ask(struct hca_qp *qp, struct hca_send_wqe *w)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	uint32_t msn = number(s, w, QN_REQUEST, true);
	struct iwarp_fpdu f;

	iwarp_fpdu_begin(
		&f, &(struct ddp_seg){.opcode = opcode_of(w), .last = true, .qn = QN_REQUEST, .msn = msn});
	if (w->opcode == IBV_WR_RDMA_READ) {
		rdmap_read_put(f.hdr + f.hdr_len, &(struct rdmap_read){.sink_stag = msn,
							  .size = w->length,
							  .source_stag = w->remote.rkey,
							  .source_to = w->remote.addr});
		f.hdr_len += RDMAP_READ_LEN;
	} else {
		bool cas = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

		rdmap_atomic_put(f.hdr + f.hdr_len,
			&(struct rdmap_atomic){.op = cas ? RDMAP_CMP_SWAP : RDMAP_FETCH_ADD,
				.id = msn,
				.stag = w->remote.rkey,
				.to = w->remote.addr,
				.data = cas ? w->remote.swap : w->remote.compare_add,
				.data_mask = cas ? UINT64_MAX : 0,
				.compare = cas ? w->remote.compare_add : 0,
				.compare_mask = cas ? UINT64_MAX : 0});
		f.hdr_len += RDMAP_ATOMIC_LEN;
	}
	if (!add(qp, &f))
		return STEP_STOP;
	w->started = WQE_ASKED;
	s->tx.reads++;
	step_over(s);
	return STEP_ON;
}

/* RFC 7306: a Write, then its immediate data in a message of its own. */
static enum step build_immediate(struct hca_qp *qp, struct hca_send_wqe *w)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	uint32_t msn = number(s, w, QN_SEND, true);
	struct iwarp_fpdu f;

	iwarp_fpdu_begin(
		&f, &(struct ddp_seg){.opcode = opcode_of(w), .last = true, .qn = QN_SEND, .msn = msn});
	memset(f.hdr + f.hdr_len, 0, RDMAP_IMMEDIATE_LEN);
	memcpy(f.hdr + f.hdr_len, &w->imm, sizeof(w->imm));
	f.hdr_len += RDMAP_IMMEDIATE_LEN;
	f.last = true;
	if (!add(qp, &f))
		return STEP_STOP;
	step_over(s);
	return STEP_ON;
}

static struct ddp_seg data_seg(struct iwarp_qp *s, struct hca_send_wqe *w, bool last)
{
	uint32_t off = s->tx.off;

	if (is_write(w))
		return (struct ddp_seg){.tagged = true,
			.last = last,
			.opcode = RDMAP_WRITE,
			.stag = w->remote.rkey,
			.to = w->remote.addr + off};
	return (struct ddp_seg){.last = last,
		.opcode = opcode_of(w),
		.stag = w->opcode == IBV_WR_SEND_WITH_IMM   ? ntohl(w->imm)
			: w->opcode == IBV_WR_SEND_WITH_INV ? w->imm
							    : 0,
		.qn = QN_SEND,
		.msn = number(s, w, QN_SEND, !off),
		.mo = off};
}

/* off is beyond the length once a Write waits for its immediate data: there it stands at length + 1. */
static enum step build_data(struct hca_qp *qp, struct hca_send_wqe *w)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	uint32_t most = iwarp_writer_most(&s->writer, is_write(w)), len = w->length - s->tx.off;
	bool last = len <= most, more = last && w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ddp_seg seg = data_seg(s, w, last);
	struct iwarp_fpdu f;

	iwarp_fpdu_begin(&f, &seg);
	f.off = s->tx.off;
	f.len = last ? len : most;
	f.last = last && !more;
	if (!add(qp, &f))
		return STEP_STOP;
	s->tx.off += f.len + more;
	if (f.last)
		step_over(s);
	return STEP_ON;
}

static enum step build_request(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct hca_send_wqe *w = hca_sq_at(&qp->sq, s->tx.next);
	uint32_t most = iwarp_writer_most(&s->writer, true);

	if (!iwarp_writer_has_room(&s->writer, w->length < most ? w->length : most, false))
		return STEP_STOP;
	if (w->started == WQE_NEW && !start(qp, w))
		return STEP_STOP;
	if (hca_wqe_is_local(w)) {
		w->started = WQE_DONE;
		step_over(s);
		return STEP_ON;
	}
	if (hca_wqe_has_response(w))
		return build_ask(qp, w);
	if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && s->tx.off > w->length)
		return build_immediate(qp, w);
	return build_data(qp, w);
}

/* The initiator's first FPDU in peer-to-peer mode (RFC 6581). */
static void build_rtr(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct iwarp_fpdu f = {.hdr_len = MPA_HDR_LEN, .last = true};

	if (s->tx.rtr_due == MPA_RTR_WRITE) {
		iwarp_fpdu_begin(&f,
			&(struct ddp_seg){.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 1});
	} else if (s->tx.rtr_due == MPA_RTR_READ) {
		uint32_t msn = s->tx.msn[QN_REQUEST]++;

		iwarp_fpdu_begin(&f,
			&(struct ddp_seg){
				.last = true, .opcode = RDMAP_READ_REQUEST, .qn = QN_REQUEST, .msn = msn});
		rdmap_read_put(f.hdr + f.hdr_len, &(struct rdmap_read){.sink_stag = msn, .source_stag = 1});
		f.hdr_len += RDMAP_READ_LEN;
		s->rx.rtr_read = true;
		s->tx.reads++;
	}
	iwarp_writer_add(&s->writer, &f, false);
	s->tx.rtr_due = 0;
}

static bool may_request(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	return s->tx.next != qp->sq.head && !s->tx.failed &&
	       (hca_qp_state(qp) == IBV_QPS_RTS || hca_qp_state(qp) == IBV_QPS_SQD);
}

void iwarp_build(struct hca_qp *qp, bool driving)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	bool requests = true, answers = driving;

	if (s->life != IWARP_OPEN || s->tx.held)
		return;
	if (s->tx.rtr_due)
		build_rtr(qp);
	while (s->life == IWARP_OPEN) {
		bool ask = requests && may_request(qp) && !s->tx.in_answer;
		bool answer = answers && iwarp_answer_owed(s) && !s->tx.off;

		if (answer && (s->tx.answer_turn || !ask))
			answers = iwarp_answer_build(qp);
		else if (ask)
			requests = build_request(qp) == STEP_ON;
		else
			break;
	}
	if (s->life == IWARP_OPEN)
		iwarp_settle(qp);
}
