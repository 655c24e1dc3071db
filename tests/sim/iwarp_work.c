/* SPDX-License-Identifier: MIT */
#include "iwarp_work.h"

#include "seeds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct iwarp_work_total iwarp_work_total;

void iwarp_work_fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "seed %llu: ", (unsigned long long)seeds.now);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nreplay: %s --seed %llu\n", seeds.program, (unsigned long long)seeds.now);
	exit(1);
}

static bool is_message(const struct op *o)
{
	return o->opcode == IBV_WR_SEND || o->opcode == IBV_WR_SEND_WITH_IMM ||
	       o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_write(const struct op *o)
{
	return o->opcode == IBV_WR_RDMA_WRITE || o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(const struct op *o)
{
	return o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* ---- execution ---- */
/* What the first n bytes of op leave in a target. */
static void execute(struct player *pl, struct op *o, uint8_t *target, uint32_t n)
{
	uint64_t v;

	if (is_write(o)) {
		memcpy(target + o->to, pl->mem + o->from, n);
	} else if (is_atomic(o) && n) {
		memcpy(&v, target + o->to, 8);
		o->original = v;
		if (o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			v += o->compare_add;
		else if (v == o->compare_add)
			v = o->swap;
		memcpy(target + o->to, &v, 8);
	}
}

/* Some prefix of what the peer posted explains what is in this side's target. */
static void check_prefix(struct player *pl)
{
	uint8_t m[TARGET];
	struct player *from = pl->peer;

	memcpy(m, pl->base, TARGET);
	for (unsigned i = 0; i < from->posted; i++) {
		struct op *o = &from->op[i];
		uint32_t n = 0;

		if (!memcmp(m, pl->mem, TARGET))
			return;
		if (o->wrong || !(is_write(o) || is_atomic(o)))
			continue;
		if (is_write(o)) {
			while (n < o->len && pl->mem[o->to + n] == from->mem[o->from + n])
				n++;
			execute(from, o, m, n);
			if (!memcmp(m, pl->mem, TARGET))
				return;
		}
		execute(from, o, m, o->len);
	}
	if (memcmp(m, pl->mem, TARGET))
		iwarp_work_fail("a target holds what no prefix of its peer's requests would have left");
}

/* ---- work ---- */
static const enum ibv_wr_opcode kinds[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD};

static uint32_t draw_len(struct iwarp_work *w, uint32_t most)
{
	static const uint32_t edges[] = {0, 1, 2, 3, 4, 94, 96, 98, 110, 512, 1024};

	if (choose(w->c, 3) == 0)
		return edges[choose(w->c, sizeof(edges) / sizeof(edges[0]))];
	return (uint32_t)choose(w->c, choose(w->c, 3) ? 2000 : most + 1);
}

static void draw_op(struct iwarp_work *w, struct player *pl, struct op *o)
{
	bool extended = pl->extended;

	*o = (struct op){.opcode = kinds[choose(w->c, extended ? 7 : 3)],
		.signaled = choose(w->c, 4),
		.imm = (uint32_t)choose(w->c, 1u << 31)};
	o->len = draw_len(w, is_message(o) && !is_write(o) ? SLOT : 40000);
	o->from = (uint32_t)(SOURCE + choose(w->c, SOURCE_LEN - 40000));
	o->to = (uint32_t)choose(w->c, TARGET - o->len + 1);
	if (is_atomic(o)) {
		o->len = 8;
		o->to = (uint32_t)choose(w->c, TARGET / 8) * 8;
		o->compare_add = choose(w->c, 2);
		o->swap = choose(w->c, 1u << 31);
		if (choose(w->c, 2))
			memcpy(&o->compare_add, pl->peer->model + o->to, 8);
	}
	if (is_atomic(o) || o->opcode == IBV_WR_RDMA_READ) {
		o->from = pl->sink;
		pl->sink += (o->len + 15) & ~7u;
		if (o->opcode == IBV_WR_RDMA_READ && choose(w->c, 2))
			o->to = (uint32_t)(SOURCE +
					   choose(w->c, SOURCE_LEN - o->len)); /* which nobody changes */
	}
}

void iwarp_work_post(struct iwarp_work *w, struct player *pl)
{
	struct op *o = &pl->op[pl->posted];
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = {.wr_id = pl->posted, .sg_list = sge}, *bad;
	uint32_t lkey = pl->mr->ibv.lkey, rkey = pl->peer->mr->ibv.rkey, cut;
	uint64_t remote;

	draw_op(w, pl, o);
	if (pl->sink + 50000 > WORK_MEM)
		return;
	if (w->wrong && !w->broken && pl->posted >= w->when % OPS && pl == &w->player[w->when & 1] &&
		!is_atomic(o) && o->opcode != IBV_WR_SEND && o->opcode != IBV_WR_SEND_WITH_IMM && o->len) {
		w->broken = o->wrong = true;
		rkey ^= 0x5555;
	}
	remote = pl->peer->iova + o->to;
	wr.opcode = o->opcode;
	wr.imm_data = o->imm;
	wr.send_flags = (o->signaled ? IBV_SEND_SIGNALED : 0) | (choose(w->c, 2) ? IBV_SEND_SOLICITED : 0);
	cut = is_atomic(o) ? 8 : (uint32_t)choose(w->c, o->len + 1);
	sge[0] = (struct ibv_sge){pl->iova + o->from, cut, lkey};
	sge[1] = (struct ibv_sge){pl->iova + o->from + cut, o->len - cut, lkey};
	wr.num_sge = is_atomic(o) ? 1 : 2;
	if (is_atomic(o)) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = o->compare_add;
		wr.wr.atomic.swap = o->swap;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	if (!o->wrong && o->opcode == IBV_WR_RDMA_READ) {
		uint8_t *from = o->to < TARGET ? pl->peer->model + o->to : pl->peer->mem + o->to;

		o->expect = malloc(o->len + 1);
		memcpy(o->expect, from, o->len);
		pl->fence |= o->to < TARGET;
	}
	if ((is_write(o) || is_atomic(o)) && pl->fence) {
		wr.send_flags |= IBV_SEND_FENCE;
		pl->fence = false;
	}
	if ((is_write(o) || is_atomic(o)) && !o->wrong)
		execute(pl, o, pl->peer->model, o->len);
	pl->posted++;
	iwarp_work_total.requests++;
	if (hca_qp_post_send(pl->qp, &wr, &bad))
		iwarp_work_fail("a request is not taken");
}

void iwarp_work_post_recv(struct iwarp_work *w, struct player *pl)
{
	uint32_t at = RECEIVES + (uint32_t)(pl->recv_posted % SLOTS) * SLOT,
		 cut = (uint32_t)choose(w->c, SLOT);
	uint32_t lkey = pl->mr->ibv.lkey;
	struct ibv_sge sge[2] = {{pl->iova + at, cut, lkey}, {pl->iova + at + cut, SLOT - cut, lkey}};
	struct ibv_recv_wr wr = {.wr_id = 1000 + pl->recv_posted, .sg_list = sge, .num_sge = 2}, *bad;

	if (pl->recv_posted - pl->recv_done == SLOTS)
		return;
	pl->recv_posted++;
	if (hca_qp_post_recv(pl->qp, &wr, &bad))
		iwarp_work_fail("a receive is not taken");
}

/* ---- completions ---- */
static void check_send(struct iwarp_work *w, struct player *pl, const struct ibv_wc *wc)
{
	struct op *o;

	for (; pl->done < wc->wr_id; pl->done++) {
		if (pl->op[pl->done].signaled)
			iwarp_work_fail("request %u was not reported", pl->done);
	}
	if (pl->done != wc->wr_id || wc->wr_id >= pl->posted)
		iwarp_work_fail("request %llu is reported out of order", (unsigned long long)wc->wr_id);
	o = &pl->op[pl->done++];
	if (wc->status && !w->broken)
		iwarp_work_fail(
			"request %llu ends with status %d", (unsigned long long)wc->wr_id, wc->status);
	if (wc->status && wc->status != IBV_WC_WR_FLUSH_ERR &&
		!(o->wrong && wc->status == IBV_WC_REM_ACCESS_ERR))
		iwarp_work_fail("request %llu ends with status %d, which has no excuse",
			(unsigned long long)wc->wr_id, wc->status);
	if (!w->lenient && o->wrong && o->opcode == IBV_WR_RDMA_READ && wc->status != IBV_WC_REM_ACCESS_ERR)
		iwarp_work_fail(
			"READ %llu was refused, and ends with %d", (unsigned long long)wc->wr_id, wc->status);
	if (wc->status)
		return;
	if (o->opcode == IBV_WR_RDMA_READ && (o->wrong || memcmp(o->expect, pl->mem + o->from, o->len)))
		iwarp_work_fail("READ %llu brought something else", (unsigned long long)wc->wr_id);
	if (is_atomic(o) && memcmp(&o->original, pl->mem + o->from, 8))
		iwarp_work_fail("atomic %llu brought something else", (unsigned long long)wc->wr_id);
}

static void check_recv(struct iwarp_work *w, struct player *pl, const struct ibv_wc *wc)
{
	struct player *from = pl->peer;
	struct op *o;
	uint32_t at = RECEIVES + (uint32_t)(pl->recv_done % SLOTS) * SLOT;

	if (wc->wr_id != 1000 + pl->recv_done++)
		iwarp_work_fail("a receive is reported out of order");
	if (wc->status) {
		if (!w->broken)
			iwarp_work_fail("a receive ends with status %d", wc->status);
		return;
	}
	while (pl->received < from->posted && !is_message(&from->op[pl->received]))
		pl->received++;
	if (pl->received == from->posted)
		iwarp_work_fail("a message nobody sent");
	o = &from->op[pl->received++];
	if (o->wrong || wc->byte_len != o->len ||
		wc->opcode != (is_write(o) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		iwarp_work_fail("a message of %u bytes instead of %u", wc->byte_len, o->len);
	if (o->opcode != IBV_WR_SEND && (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->imm_data != o->imm))
		iwarp_work_fail("other immediate data");
	if (!is_write(o) && memcmp(pl->mem + at, from->mem + o->from, o->len))
		iwarp_work_fail("a message of other content");
}

void iwarp_work_poll(struct iwarp_work *w, struct player *pl)
{
	struct ibv_wc wc;

	while (hca_cq_take(pl->cq, &wc, 1)) {
		sim_note_wc(&wc);
		if (wc.wr_id >= 1000)
			check_recv(w, pl, &wc);
		else
			check_send(w, pl, &wc);
	}
}

/* ---- the whole of it ---- */
void iwarp_work_init(struct iwarp_work *w)
{
	for (unsigned i = 0; i < 2; i++) {
		struct player *pl = &w->player[i];

		pl->peer = &w->player[!i];
		pl->sink = SINKS;
		memcpy(pl->base, pl->mem, TARGET);
		memcpy(pl->model, pl->mem, TARGET);
	}
}

void iwarp_work_fini(struct iwarp_work *w)
{
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < w->player[i].posted; k++)
			free(w->player[i].op[k].expect);
	}
}

bool iwarp_work_done(struct iwarp_work *w)
{
	for (unsigned i = 0; i < 2; i++) {
		struct player *pl = &w->player[i];

		if (pl->posted < pl->todo || sim_requests_of(pl->qp))
			return false;
		for (unsigned k = pl->peer->received; k < pl->posted; k++) {
			if (is_message(&pl->op[k]))
				return false;
		}
	}
	return true;
}

void iwarp_work_check_end(struct iwarp_work *w)
{
	for (unsigned i = 0; i < 2; i++) {
		struct player *pl = &w->player[i];

		if (pl->qp) {
			iwarp_work_poll(w, pl);
			if (w->broken && hca_qp_state(pl->qp) != IBV_QPS_ERR)
				iwarp_work_fail(
					"side %u is in state %d after trouble", i, hca_qp_state(pl->qp));
			if (sim_requests_of(pl->qp))
				iwarp_work_fail("side %u has requests that never end", i);
		}
		if (w->broken)
			check_prefix(pl);
		else if (memcmp(pl->mem, pl->model, TARGET))
			iwarp_work_fail("the target of side %u is not what it must be", i);
	}
}
