/* SPDX-License-Identifier: MIT */
/* A segment that is complete, and its CRC right where there is one: what it does. */
#include "iwarp/iwarp.h"

#include "hca/adapter.h"

#include <arpa/inet.h>

static int do_write(struct hca_qp *qp)
{
	struct iwarp_rx *r = &iwarp_qp(qp)->rx;

	r->written = r->in_write ? r->written + r->len : r->len;
	r->in_write = !r->seg.last;
	r->writes += r->seg.last;
	return ERR_NONE;
}

/* ---- messages that take a receive ---- */
static int deliver(struct hca_qp *qp, struct ibv_wc *wc)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	s->rx.msn[QN_SEND]++;
	s->rx.in_message = false;
	if (!hca_qp_complete_recv(qp, wc, s->rx.op->flags & ROF_SE, s->now))
		return IWARP_STOP; /* no room for it: the queue pair is in ERR by now */
	return ERR_NONE;
}

static int do_send(struct hca_qp *qp)
{
	struct iwarp_rx *r = &iwarp_qp(qp)->rx;
	struct ibv_wc wc = {.opcode = IBV_WC_RECV};

	r->off = (r->in_message ? r->off : 0) + r->len;
	r->message = r->seg.opcode;
	r->in_message = true;
	if (!r->seg.last)
		return ERR_NONE;
	wc.byte_len = r->off;
	if (r->op->flags & ROF_INV) {
		if (hca_key_invalidate(qp->adapter, qp->pd, r->seg.stag, hca_qpn(qp)))
			return ERR_RDMAP_CANNOT_INV;
		wc.invalidated_rkey = r->seg.stag;
		wc.wc_flags = IBV_WC_WITH_INV;
	}
	if (r->op->flags & ROF_IMM) {
		wc.imm_data = htonl(r->seg.stag);
		wc.wc_flags = IBV_WC_WITH_IMM;
	}
	return deliver(qp, &wc);
}

static int do_immediate(struct hca_qp *qp)
{
	struct iwarp_rx *r = &iwarp_qp(qp)->rx;
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = r->written, .wc_flags = IBV_WC_WITH_IMM};

	memcpy(&wc.imm_data, r->body, sizeof(wc.imm_data));
	r->written = 0;
	return deliver(qp, &wc);
}

/* ---- requests ---- */
static struct iwarp_answer *new_answer(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	s->rx.msn[QN_REQUEST]++;
	return &s->answer[s->answer_head++ % HCA_MAX_RD_ATOMIC];
}

static int do_read_request(struct hca_qp *qp)
{
	struct rdmap_read h = rdmap_read_get(iwarp_qp(qp)->rx.body);
	enum rdmap_error e =
		iwarp_check_key(qp, h.source_stag, h.source_to, h.size, IBV_ACCESS_REMOTE_READ, true);

	if (e)
		return e;
	if (h.sink_to + h.size < h.sink_to)
		return ERR_RDMAP_WRAP;
	*new_answer(qp) = (struct iwarp_answer){.sink_stag = h.sink_stag,
		.sink_to = h.sink_to,
		.stag = h.source_stag,
		.to = h.source_to,
		.size = h.size};
	return ERR_NONE;
}

static uint64_t atomic_result(const void *op, uint64_t original)
{
	return rdmap_atomic_result(op, original);
}

static int do_atomic_request(struct hca_qp *qp)
{
	struct rdmap_atomic a = rdmap_atomic_get(iwarp_qp(qp)->rx.body);
	enum rdmap_error e = iwarp_check_key(qp, a.stag, a.to, 8, IBV_ACCESS_REMOTE_ATOMIC, true);
	uint64_t *at, original;

	if (a.op != RDMAP_FETCH_ADD && a.op != RDMAP_CMP_SWAP)
		return ERR_RDMAP_OPCODE;
	if (e)
		return e;
	at = hca_qp_target(qp, a.stag, a.to, 8, IBV_ACCESS_REMOTE_ATOMIC);
	if ((a.to & 7) || ((uintptr_t)at & 7))
		return ERR_RDMAP_UNSPECIFIC;
	if (!hca_atomic(at, atomic_result, &a, &original))
		return ERR_RDMAP_BOUNDS;
	*new_answer(qp) = (struct iwarp_answer){.atomic = true, .id = a.id, .original = original};
	return ERR_NONE;
}

/* ---- responses ---- */
static void answered(struct hca_qp *qp, struct hca_send_wqe *w)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	w->started = WQE_DONE;
	s->tx.reads--;
	iwarp_settle(qp);
}

static int do_read_response(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct hca_send_wqe *w;
	uint32_t index;

	if (s->rx.rtr_read) {
		s->rx.rtr_read = false;
		s->tx.reads--;
		return ERR_NONE;
	}
	w = iwarp_oldest_asked(qp, &index);
	w->npkts += s->rx.len;
	if (s->rx.seg.last)
		answered(qp, w);
	return ERR_NONE;
}

static int do_atomic_response(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	uint64_t original = get_be64(s->rx.body + 4); /* a number in the program's own order */
	uint32_t index;
	struct hca_send_wqe *w = iwarp_oldest_asked(qp, &index);

	s->rx.msn[QN_ATOMIC_RESPONSE]++;
	if (get_be32(s->rx.body) != w->psn) {
		s->rx.request_status = IBV_WC_BAD_RESP_ERR;
		return ERR_RDMAP_UNSPECIFIC;
	}
	if (!hca_sge_scatter(qp, w->sge, w->nsge, 0, &original, sizeof(original))) {
		s->rx.request_status = IBV_WC_LOC_PROT_ERR;
		return ERR_RDMAP_LOCAL;
	}
	answered(qp, w);
	return ERR_NONE;
}

static int do_terminate(struct hca_qp *qp)
{
	struct iwarp_rx *r = &iwarp_qp(qp)->rx;
	struct rdmap_term t;

	if (!rdmap_term_get(r->body, r->len, &t))
		t = (struct rdmap_term){.layer = 0xf}; /* it ends all the same */
	iwarp_terminated(qp, &t);
	return IWARP_STOP;
}

int iwarp_deliver(struct hca_qp *qp)
{
	static int (*const act[RDMAP_OPCODES])(struct hca_qp *) = {
		[RDMAP_WRITE] = do_write,
		[RDMAP_READ_REQUEST] = do_read_request,
		[RDMAP_READ_RESPONSE] = do_read_response,
		[RDMAP_SEND] = do_send,
		[RDMAP_SEND_INV] = do_send,
		[RDMAP_SEND_SE] = do_send,
		[RDMAP_SEND_SE_INV] = do_send,
		[RDMAP_TERMINATE] = do_terminate,
		[RDMAP_IMMEDIATE] = do_immediate,
		[RDMAP_IMMEDIATE_SE] = do_immediate,
		[RDMAP_ATOMIC_REQUEST] = do_atomic_request,
		[RDMAP_ATOMIC_RESPONSE] = do_atomic_response,
		[RDMAP_SEND_IMM] = do_send,
		[RDMAP_SEND_SE_IMM] = do_send,
	};

	return act[iwarp_qp(qp)->rx.seg.opcode](qp);
}
