/* SPDX-License-Identifier: MIT */
/*
 * How a connection ends before its time. What an error means, for the receive in hand, for the program, and
 * for the request it is about when the peer tells us of it, is a row of a table.
 */
#include "iwarp/iwarp.h"

struct outcome {
	enum ibv_wc_status receive; /* met here: the receive in hand ends with it */
	enum ibv_event_type event;  /* when there is none */
	enum ibv_wc_status request; /* met by the peer: our request ends with it */
};

#define ACCESS                                                                                               \
	{                                                                                                    \
		IBV_WC_LOC_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR                        \
	}
#define INVALID                                                                                              \
	{                                                                                                    \
		IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR                         \
	}
#define BROKEN                                                                                               \
	{                                                                                                    \
		IBV_WC_FATAL_ERR, IBV_EVENT_QP_FATAL, IBV_WC_REM_ABORT_ERR                                   \
	}

static const struct outcome outcomes[RDMAP_ERROR_COUNT] = {
	[ERR_NONE] = {IBV_WC_GENERAL_ERR, IBV_EVENT_QP_FATAL, IBV_WC_REM_OP_ERR},
	[ERR_RDMAP_LOCAL] = {IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL, IBV_WC_REM_OP_ERR},
	[ERR_RDMAP_STAG] = ACCESS,
	[ERR_RDMAP_BOUNDS] = ACCESS,
	[ERR_RDMAP_ACCESS] = ACCESS,
	[ERR_RDMAP_STREAM] = ACCESS,
	[ERR_RDMAP_WRAP] = ACCESS,
	[ERR_RDMAP_CANNOT_INV] = ACCESS,
	[ERR_RDMAP_PROTECTION] = ACCESS,
	[ERR_RDMAP_RV] = INVALID,
	[ERR_RDMAP_OPCODE] = INVALID,
	[ERR_RDMAP_CATASTROPHIC] = {IBV_WC_FATAL_ERR, IBV_EVENT_QP_FATAL, IBV_WC_REM_OP_ERR},
	[ERR_RDMAP_GLOBAL] = {IBV_WC_FATAL_ERR, IBV_EVENT_QP_FATAL, IBV_WC_REM_OP_ERR},
	[ERR_RDMAP_OP_CANNOT_INV] = ACCESS,
	[ERR_RDMAP_UNSPECIFIC] = INVALID,
	[ERR_DDP_LOCAL] = {IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL, IBV_WC_REM_OP_ERR},
	[ERR_DDP_STAG] = ACCESS,
	[ERR_DDP_BOUNDS] = ACCESS,
	[ERR_DDP_STREAM] = ACCESS,
	[ERR_DDP_WRAP] = ACCESS,
	[ERR_DDP_TAGGED_DV] = INVALID,
	[ERR_DDP_QN] = INVALID,
	[ERR_DDP_NO_BUFFER] = {IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, IBV_WC_RNR_RETRY_EXC_ERR},
	[ERR_DDP_MSN] = INVALID,
	[ERR_DDP_MO] = INVALID,
	[ERR_DDP_TOO_LONG] = {IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR},
	[ERR_DDP_UNTAGGED_DV] = INVALID,
	[ERR_LLP_CLOSED] = BROKEN,
	[ERR_LLP_CRC] = BROKEN,
	[ERR_LLP_MARKER] = BROKEN,
	[ERR_LLP_FRAME] = BROKEN,
	[ERR_LLP_LOCAL] = BROKEN,
	[ERR_LLP_IRD] = BROKEN,
	[ERR_LLP_RTR] = BROKEN,
};

void iwarp_fail_request(struct hca_qp *qp, uint32_t index, enum ibv_wc_status status)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	/* Those before it: done, or, since nobody will answer them any more, flushed. */
	while (hca_qp_state(qp) != IBV_QPS_ERR && qp->sq.tail != index)
		hca_qp_complete_send(qp,
			hca_sq_at(&qp->sq, qp->sq.tail)->started == WQE_DONE ? IBV_WC_SUCCESS
									     : IBV_WC_WR_FLUSH_ERR,
			s->now);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_fail_send(qp, status, s->now);
}

/* ---- our word ---- */
/* What has come and is not done. */
static void quote(struct hca_qp *qp, struct rdmap_term *t)
{
	struct iwarp_rx *r = &iwarp_qp(qp)->rx;

	if (!r->in_hand)
		return;
	t->has_len = t->has_ddp = true;
	t->len = (uint16_t)(ddp_hdr_len(r->hdr[0]) + r->len);
	memcpy(t->ddp, r->hdr, sizeof(t->ddp));
	t->has_rdmap = r->seg.opcode == RDMAP_READ_REQUEST && !r->seg.tagged && r->whole;
	memcpy(t->rdmap, r->body, sizeof(t->rdmap));
}

/* A READ that was taken before. It is no longer there, but all that its headers said is. */
static void quote_answer(struct hca_qp *qp, uint32_t index, struct rdmap_term *t)
{
	const struct iwarp_qp *s = iwarp_qp(qp);
	const struct iwarp_answer *a = &s->answer[index % HCA_MAX_RD_ATOMIC];
	uint32_t hdr = ddp_put(t->ddp, &(struct ddp_seg){.last = true,
					       .opcode = RDMAP_READ_REQUEST,
					       .qn = QN_REQUEST,
					       .msn = s->rx.msn[QN_REQUEST] - (s->answer_head - index)});

	rdmap_read_put(t->rdmap, &(struct rdmap_read){.sink_stag = a->sink_stag,
					 .sink_to = a->sink_to,
					 .size = a->size,
					 .source_stag = a->stag,
					 .source_to = a->to});
	t->has_len = t->has_ddp = t->has_rdmap = true;
	t->len = (uint16_t)(hdr + RDMAP_READ_LEN);
}

static void say(struct hca_qp *qp, const struct rdmap_term *t)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct iwarp_fpdu f;

	iwarp_fpdu_begin(
		&f, &(struct ddp_seg){.last = true, .opcode = RDMAP_TERMINATE, .qn = QN_TERMINATE, .msn = 1});
	f.hdr_len += (uint8_t)rdmap_term_put(f.hdr + f.hdr_len, t);
	if (iwarp_writer_has_room(&s->writer, 0, false))
		iwarp_writer_add(&s->writer, &f, false);
}

static void end(struct hca_qp *qp, enum rdmap_error error, struct rdmap_term *t)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	const struct rdmap_error_info *e = &rdmap_errors[error];
	uint32_t index;

	t->layer = e->layer;
	t->type = e->type;
	t->code = e->code;
	hca_qp_probe(qp, NAK_TX, .syndrome = e->code);
	if (s->rx.request_status && iwarp_oldest_asked(qp, &index))
		iwarp_fail_request(qp, index, s->rx.request_status);
	else
		hca_qp_fail_recv(qp, outcomes[error].receive, outcomes[error].event, s->now);
	/* In ERR by now, and nothing is left of what had not begun to leave. */
	if (s->life == IWARP_ENDING)
		say(qp, t);
}

void iwarp_end(struct hca_qp *qp, enum rdmap_error error)
{
	const struct iwarp_rx *r = &iwarp_qp(qp)->rx;
	struct rdmap_term t = {0};

	if (iwarp_qp(qp)->life != IWARP_OPEN)
		return;
	PROBE(TERMINATE_TX, .qpn = hca_qpn(qp), .message = r->in_hand && r->op->name ? r->op->name : "stream",
		.error = rdmap_errors[error].text);
	if (rdmap_errors[error].layer != 2)
		quote(qp, &t);
	end(qp, error, &t);
}

void iwarp_end_answer(struct hca_qp *qp, uint32_t index)
{
	struct rdmap_term t = {0};

	if (iwarp_qp(qp)->life != IWARP_OPEN)
		return;
	PROBE(TERMINATE_TX, .qpn = hca_qpn(qp), .message = "READ answer", .error = "its source is gone");
	quote_answer(qp, index, &t);
	end(qp, ERR_RDMAP_STAG, &t);
}

/* ---- the peer's ---- */
static bool is_about(struct hca_send_wqe *w, const struct ddp_seg *g)
{
	bool read = hca_wqe_has_response(w);

	if (w->started == WQE_NEW)
		return false;
	if (g->tagged)
		return (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) &&
		       g->stag == w->remote.rkey && g->to - w->remote.addr <= w->length;
	if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_BIND_MW || w->opcode == IBV_WR_LOCAL_INV)
		return false;
	return g->msn == w->psn && g->qn == (read ? QN_REQUEST : QN_SEND);
}

static bool find_blamed(struct hca_qp *qp, const struct rdmap_term *t, uint32_t *index)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct ddp_seg g;

	if (!t->has_ddp)
		return false;
	g = ddp_get(t->ddp);
	/* siw does not quote a READ's number, but the request itself has it, too: build_ask(). */
	if (t->has_rdmap && !g.tagged && g.opcode == RDMAP_READ_REQUEST)
		g.msn = rdmap_read_get(t->rdmap).sink_stag;
	/* The request that is going out has numbers, too. */
	for (*index = qp->sq.tail; *index != s->tx.next + (s->tx.off ? 1 : 0); ++*index) {
		if (is_about(hca_sq_at(&qp->sq, *index), &g))
			return true;
	}
	return false;
}

void iwarp_terminated(struct hca_qp *qp, const struct rdmap_term *t)
{
	enum rdmap_error e = rdmap_term_error(t);
	uint32_t index;

	PROBE(TERMINATE_RX, .qpn = hca_qpn(qp), .error = rdmap_errors[e].text, .layer = t->layer,
		.type = t->type, .code = t->code);
	hca_qp_probe(qp, NAK_RX, .code = t->code);
	if (find_blamed(qp, t, &index)) {
		iwarp_fail_request(qp, index, outcomes[e].request);
		return;
	}
	/* About something that is done here: the program hears of it by an event. */
	hca_qp_raise(qp,
		outcomes[e].request == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_FATAL);
	hca_qp_set_state(qp, IBV_QPS_ERR);
}
