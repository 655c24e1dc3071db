/* SPDX-License-Identifier: MIT */
/* Completions of a queue pair, and the one door of its state: the state ERR flushes what is left. */
#include "hca/qp_parts.h"

#include "base/asserts.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/provider.h"

void hca_qp_raise(struct hca_qp *qp, enum ibv_event_type event)
{
	hca_async_raise(qp->ctx, event, &qp->ex.qp_base);
}

void hca_qp_drained(struct hca_qp *qp)
{
	if (hca_qp_state(qp) != IBV_QPS_SQD || qp->sqd_drained_raised)
		return;
	qp->sqd_drained_raised = true;
	if (qp->sqd_notify)
		hca_qp_raise(qp, IBV_EVENT_SQ_DRAINED);
}

static enum ibv_wc_opcode wc_opcode(uint8_t wr_opcode)
{
	switch (wr_opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

/*
 * A completion found no room. What a program does not learn of must not go on: the QP that lost it ends, as
 * with cards; others on the same CQ go on while theirs fit.
 */
void hca_qp_completion_lost(struct hca_qp *qp)
{
	if (hca_qp_state(qp) == IBV_QPS_ERR)
		return;
	hca_qp_raise(qp, IBV_EVENT_QP_FATAL);
	hca_qp_set_state(qp, IBV_QPS_ERR);
}

static void __attribute__((cold, noinline))
tell_done(const struct hca_qp *qp, const struct hca_send_wqe *w, enum ibv_wc_status status)
{
	PROBE(WR_DONE, .qpn = hca_qpn(qp), .wr_id = w->wr_id, .opcode = w->opcode, .status = status,
		.wqe = w);
}

void hca_qp_complete_send(struct hca_qp *qp, enum ibv_wc_status status, uint64_t now)
{
	const struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);
	bool told = true;

	assert_locked(&qp->lock);
	if (probe_is_on(WR_DONE))
		tell_done(qp, w, status);
	if (status != IBV_WC_SUCCESS || qp->sig_all || (w->flags & IBV_SEND_SIGNALED)) {
		struct ibv_wc wc = {
			.wr_id = w->wr_id,
			.status = status,
			.opcode = wc_opcode(w->opcode),
			.byte_len = w->length,
			.qp_num = hca_qpn(qp),
		};

		told = hca_cq_push(qp->send_cq, &wc, false, now);
	}
	/* Posters look without the lock how much room there is. */
	__atomic_store_n(&qp->sq.tail, qp->sq.tail + 1, __ATOMIC_RELEASE);
	if (!told)
		hca_qp_completion_lost(qp);
}

bool hca_qp_take_recv(struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	return qp->srq ? hca_srq_take(qp->srq, &qp->recv) : hca_rq_take(&qp->rq, &qp->recv);
}

bool hca_qp_complete_recv(struct hca_qp *qp, struct ibv_wc *wc, bool solicited, uint64_t now)
{
	struct ibv_wc *to = hca_qp_recv_wc(qp);

	if (!to)
		return false;
	wc->wr_id = qp->recv.wr_id;
	wc->qp_num = hca_qpn(qp);
	*to = *wc;
	hca_cq_put(qp->recv_cq, solicited, now);
	return true;
}

static void flush_recv(struct hca_qp *qp, uint64_t now)
{
	struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	if (qp->recv.valid)
		hca_qp_complete_recv(qp, &wc, false, now);
	while (!qp->srq && hca_rq_take(&qp->rq, &qp->recv))
		hca_qp_complete_recv(qp, &wc, false, now);
	if (qp->srq && !qp->last_wqe_raised) {
		qp->last_wqe_raised = true;
		hca_qp_raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

static void flush(struct hca_qp *qp, uint64_t now)
{
	while (qp->sq.tail != qp->sq.head)
		hca_qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR, now);
	flush_recv(qp, now);
}

void hca_qp_set_state(struct hca_qp *qp, enum ibv_qp_state to)
{
	enum ibv_qp_state from = hca_qp_state(qp);

	assert_locked(&qp->lock);
	assert_that(hca_qp_has_arrow(from, to));
	PROBE(QP_STATE, .qpn = hca_qpn(qp), .from = from, .to = to);
	__atomic_store_n(&qp->ex.qp_base.state, to, __ATOMIC_RELAXED);
	qp->attr.qp_state = to;
	if (to == IBV_QPS_SQD)
		qp->sqd_drained_raised = false;
	if (to == IBV_QPS_ERR) {
		qp->provider->ops.abort(qp);
		if (qp->dev_provider != qp->provider)
			qp->dev_provider->ops.abort(qp);
		if (from != IBV_QPS_ERR)
			qp->dev_provider->ops.failed(qp);
		qp->deadline = 0;
		hca_qp_leave_flow(qp);
		hca_engine_window_freed(&qp->adapter->engine);
		hca_export_qp(qp->adapter, qp);
		flush(qp, hca_engine_now(&qp->adapter->engine));
	}
}

enum ibv_wc_status hca_qp_do_local(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	int err;

	assert_locked(&qp->lock);
	if (w->opcode == IBV_WR_BIND_MW)
		err = hca_mw_bind(qp->adapter, &w->bind, hca_qpn(qp));
	else
		err = hca_key_invalidate(qp->adapter, qp->pd, w->imm, hca_qpn(qp));
	return err ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS;
}

void hca_qp_fail_send(struct hca_qp *qp, enum ibv_wc_status status, uint64_t now)
{
	assert_locked(&qp->lock);
	hca_qp_complete_send(qp, status, now);
	if (hca_qp_state(qp) == IBV_QPS_ERR)
		return; /* the completion was lost */
	if (qp->service.reliable) {
		hca_qp_set_state(qp, IBV_QPS_ERR);
		return;
	}
	hca_qp_set_state(qp, IBV_QPS_SQE);
	while (qp->sq.tail != qp->sq.head)
		hca_qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR, now);
}

void hca_qp_fail_recv(struct hca_qp *qp, enum ibv_wc_status status, enum ibv_event_type event, uint64_t now)
{
	struct ibv_wc wc = {.status = status, .opcode = IBV_WC_RECV};

	assert_locked(&qp->lock);
	if (qp->recv.valid)
		hca_qp_complete_recv(qp, &wc, true, now);
	/* IBA 11.6.3: affiliated events are for errors that no completion reports. */
	else
		hca_qp_raise(qp, event);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_set_state(qp, IBV_QPS_ERR);
}
