/* SPDX-License-Identifier: MIT */
/* Completions of receives: RC brings every message once and in order, UC and UD bring what the network lets.
 */
#include "model.h"

#include "trace.h"
#include "wire/ibt.h"

#include <string.h>

static bool flags_fit(const struct sim_wr *w, const struct ibv_wc *wc, bool ud)
{
	bool imm = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || w->opcode == IBV_WR_SEND_WITH_IMM;
	bool inv = w->opcode == IBV_WR_SEND_WITH_INV;
	bool grh = ud && !wc->slid; /* on Ethernet; by LID there is none */
	unsigned must = (imm ? IBV_WC_WITH_IMM : 0u) | (inv ? IBV_WC_WITH_INV : 0u) | (grh ? IBV_WC_GRH : 0u);

	if (wc->wc_flags != must)
		return false;
	return (!imm || wc->imm_data == w->imm) && (!inv || wc->invalidated_rkey == w->inv_key);
}

static bool fits(const struct side *s, const struct sim_wr *w, const struct ibv_wc *wc, const uint8_t *data)
{
	bool ud = s->opts.type == IBV_QPT_UD;
	uint32_t grh = ud ? GRH_LEN : 0;

	if (!model_is_message(w) || w->bad || wc->byte_len != w->len + grh)
		return false;
	if (wc->opcode != (model_is_write(w) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		return false;
	if (!flags_fit(w, wc, ud))
		return false;
	if (model_is_write(w))
		return s->opts.type == IBV_QPT_RC || !memcmp(s->target + w->offset, w->bytes, w->len);
	return !memcmp(data + grh, w->bytes, w->len);
}

/* RC: the next message and no other. */
static void reliable_message(struct model *m, struct side *s, const struct ibv_wc *wc, const uint8_t *data)
{
	struct side *p = s->peer;
	const struct sim_wr *w;

	while (s->received < p->posted && !model_is_message(&p->wr[s->received]))
		s->received++;
	if (s->received == p->posted)
		model_fail(m, s, "received a message that nobody sent");
	w = &p->wr[s->received];
	if (!fits(s, w, wc, data))
		model_fail(m, s, "received something else than request %u of side %u", s->received, p->index);
	if (w->opcode == IBV_WR_SEND_WITH_INV) {
		s->window[w->window].state = WINDOW_FREE;
		s->stale_rkey = w->inv_key;
	}
	s->received++;
}

/* UC, UD: any message that was sent; in order and once, unless the network itself doubles or reorders. */
static void unreliable_message(
	struct model *m, struct side *s, struct side *from, const struct ibv_wc *wc, const uint8_t *data)
{
	bool ud = s->opts.type == IBV_QPT_UD;
	unsigned *next = ud ? &s->got[from->index] : &s->received;

	for (unsigned i = m->ordered && !(ud && m->two_ways) ? *next : 0; i < from->posted; i++) {
		struct sim_wr *w = &from->wr[i];

		if (w->dqpn != s->qpn && w->dqpn != QP_MULTICAST)
			continue;
		if (w->copies[s->index] < (m->ordered ? 1 : 2) && fits(s, w, wc, data)) {
			w->copies[s->index]++;
			s->datagrams++;
			*next = i + 1;
			return;
		}
	}
	model_fail(m, s, "received a message that side %u did not send, or out of order, or once too often",
		from->index);
}

/* Whoever has or had that QP number. */
static struct side *sender(struct model *m, const struct side *s, uint32_t qpn)
{
	if (s->opts.type != IBV_QPT_UD)
		return s->peer->qp && qpn != s->peer->qpn ? NULL : s->peer;
	for (unsigned i = 0; i < m->nqps; i++) {
		if (m->qp[i].qpn == qpn)
			return m->qp[i].side;
	}
	return NULL;
}

static bool peer_posted_bad(const struct side *s, enum ibv_wc_status recv)
{
	for (unsigned i = s->peer->first; i < s->peer->posted; i++) {
		if (s->peer->wr[i].bad && sim_bads[s->peer->wr[i].bad].recv == recv)
			return true;
	}
	return false;
}

static bool error_excused(struct model *m, struct side *s, enum ibv_wc_status status, unsigned slot)
{
	if (status == IBV_WC_WR_FLUSH_ERR)
		return model_is_broken(m, s);
	if (s->recv_failed || !s->killable)
		return false;
	switch (status) {
	case IBV_WC_LOC_ACCESS_ERR:
		return !s->target_mr || peer_posted_bad(s, status);
	case IBV_WC_LOC_LEN_ERR:
		return peer_posted_bad(s, status);
	case IBV_WC_LOC_PROT_ERR:
		return s->rq->bad[slot];
	default:
		return false;
	}
}

/* It is a receive that was posted, and it is its turn. */
static unsigned check_slot(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	struct sim_rq *rq = s->rq;
	unsigned slot = wc->wr_id & 0xff;

	if (slot >= rq->slots || !rq->busy[slot])
		model_fail(m, s, "a receive completed that was not posted");
	if (!rq->srq && wc->wr_id >> 8 != rq->done)
		model_fail(m, s, "receives completed out of order");
	rq->done++;
	rq->busy[slot] = false;
	return slot;
}

void model_recv_done(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	unsigned slot = check_slot(m, s, wc);
	struct side *from;

	trace_wc(m, s, wc, false);
	if (wc->status != IBV_WC_SUCCESS) {
		if (!error_excused(m, s, wc->status, slot))
			model_fail(m, s, "a receive ended with %s", ibv_wc_status_str(wc->status));
		s->recv_failed |= wc->status != IBV_WC_WR_FLUSH_ERR;
		return;
	}
	from = sender(m, s, wc->src_qp);
	if (!from)
		model_fail(m, s, "a message from QP 0x%06x", wc->src_qp);
	if (s->rq->bad[slot] && wc->opcode == IBV_WC_RECV && wc->byte_len)
		model_fail(m, s, "%u bytes went through an unknown key", wc->byte_len);
	if (s->opts.type == IBV_QPT_RC)
		reliable_message(m, s, wc, s->rq->mem[slot]);
	else
		unreliable_message(m, s, from, wc, s->rq->mem[slot]);
}
