/* SPDX-License-Identifier: MIT */
/*
 * Random work on random networks, all drawn from a seed: how many adapters and queue pairs, of which types,
 * with which limits; what the network does to packets; what is posted and when. model.c knows what must come
 * out.
 *
 *   sim_test [--seed N] [--seeds COUNT] [--trace]
 */
#include "model.h"

#include "base/random.h"
#include "ib/ibt.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS_MAX = 4000000, BURST = 16 };
#define TIME_MAX (100 * SIM_S) /* no seed needs a tenth of it */

const char *model_program;
static struct model model;
static uint64_t rng;
static bool trace;
static struct {
	unsigned long long requests, packets, retransmits;
} total;

/* ---- drawing: one draw per expression, since a compiler may evaluate operands in any order ---- */
static uint64_t draw(uint64_t below)
{
	return random_seeded(&rng) % below;
}

static uint64_t between(uint64_t from, uint64_t to)
{
	return from + draw(to - from + 1);
}

static bool one_in(unsigned n)
{
	return !draw(n);
}

/* What a network of this seed does; `calm` ones do nothing and must cost no retransmission. */
struct weather {
	struct sim_rules rules;
	bool calm;
	unsigned timeout; /* an exponent that suits the delays */
	uint64_t pause_max;
	uint64_t cut_at; /* when a node is cut off for good; 0: never */
};

static struct weather draw_weather(void)
{
	enum {
		CALM,
		PERFECT,
		LOSSY,
		DOUBLING,
		REORDERING,
		CORRUPTING,
		GHOSTS,
		BAD,
		WORSE,
		KINDS
	} kind = draw(KINDS);
	struct weather w = {.rules = {.mercy = 2}, .calm = kind == CALM};
	struct sim_rules *r = &w.rules;
	uint64_t round_trip;

	r->delay_min = between(0, 50) * SIM_US;
	r->delay_max = r->delay_min + (one_in(2) ? 0 : between(0, 50) * SIM_US);
	if (kind == LOSSY || kind >= BAD)
		r->loss = (uint32_t)draw(200000);
	if (kind == DOUBLING || kind >= GHOSTS)
		r->duplicate = (uint32_t)draw(one_in(4) ? 800000 : 200000);
	if (kind == REORDERING || kind >= GHOSTS)
		r->delayed = (uint32_t)draw(one_in(4) ? 500000 : 200000);
	if (kind == CORRUPTING || kind >= BAD)
		r->corrupt = (uint32_t)draw(100000);
	if (r->delayed || r->duplicate)
		r->late_max = between(0, 200) * SIM_US;
	round_trip = 2 * (r->delay_max + r->late_max) + 10 * SIM_US;
	while (ibt_timeout_ns(w.timeout) < round_trip)
		w.timeout++;
	if (!w.calm)
		w.timeout += (unsigned)draw(4) - 1u;
	/* Packets from long ago, when what they say was settled by others. */
	if (kind == GHOSTS)
		r->late_max = 3 * ibt_timeout_ns(w.timeout);
	/* All that can happen to one request together must stay below eight timeouts. */
	if (!w.calm && one_in(4)) {
		w.pause_max = ibt_timeout_ns(w.timeout) * 3 / 2;
		r->mercy = 1;
	}
	if (!w.calm && one_in(12))
		w.cut_at = between(1, 2000) * SIM_US;
	return w;
}

static uint32_t draw_length(const struct side *s)
{
	uint32_t mtu = 128u << s->opts.mtu, len;

	switch (draw(8)) {
	case 0:
		len = 0;
		break;
	case 1:
		len = (uint32_t)between(1, 8);
		break;
	case 2:
		len = (uint32_t)between(mtu - 3, mtu + 3);
		break;
	case 3:
		len = (uint32_t)between(1, 5) * mtu;
		break;
	case 4:
		len = (uint32_t)between(1, 5) * mtu;
		len += (uint32_t)between(0, 2) - 1;
		break;
	case 5:
		len = (uint32_t)between(0, s->max_msg);
		break;
	default:
		len = (uint32_t)between(1, mtu);
	}
	if (len > s->budget)
		len = (uint32_t)draw(64);
	return len < s->max_msg ? len : s->max_msg;
}

static enum ibv_wr_opcode draw_opcode(const struct side *s)
{
	static const enum ibv_wr_opcode rc[] = {IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_FETCH_AND_ADD};
	static const enum ibv_wr_opcode uc[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};

	if (s->opts.type == IBV_QPT_RC)
		return rc[draw(sizeof(rc) / sizeof(rc[0]))];
	return uc[draw(s->opts.type == IBV_QPT_UC ? 4 : 2)];
}

/* Cuts [addr, addr + len) into up to `max` entries, some of them empty. */
static int cut(struct ibv_sge *sge, unsigned max, const uint8_t *addr, uint32_t len, uint32_t lkey)
{
	unsigned n = (unsigned)between(len ? 1 : 0, max);

	for (unsigned i = 0; i < n; i++) {
		uint32_t part = i + 1 == n ? len : (uint32_t)between(0, len);

		sge[i] = (struct ibv_sge){(uintptr_t)addr, part, lkey};
		addr += part;
		len -= part;
	}
	return (int)n;
}

/* ---- posting sends ---- */
/* Whether a READ that may still be done again reads where w writes. */
static bool needs_fence(const struct side *s, const struct sim_wr *w)
{
	for (unsigned i = s->fenced; i < s->posted; i++) {
		const struct sim_wr *r = &s->wr[i];

		if (r->opcode == IBV_WR_RDMA_READ && r->in_target && r->offset < w->offset + w->len &&
			w->offset < r->offset + r->len)
			return true;
	}
	return false;
}

/* Draws where in the peer's target (or in its source) a request goes. */
static bool place(struct side *s, struct sim_wr *w)
{
	bool atomic = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	w->in_target = true;
	if (atomic) {
		w->len = 8;
		w->offset = draw(16) * 8;
		w->shared = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && one_in(2);
	} else if (w->opcode == IBV_WR_RDMA_READ && one_in(2)) {
		w->in_target = false;
		if (one_in(8) && s->budget > 200000) /* more than one request's worth: see ib/requester.c */
			w->len = (uint32_t)between(60000, 200000);
		w->offset = draw(SOURCE - w->len + 1);
	} else if (s->opts.type == IBV_QPT_UC) {
		if (s->unreliable_used + w->len > TARGET) {
			w->in_target = false;
			return false;
		}
		w->offset = s->unreliable_used;
		s->unreliable_used += w->len;
	} else {
		w->offset = one_in(3) ? draw(256) : draw(TARGET - w->len + 1);
		if (w->offset > TARGET - w->len)
			w->offset = 0;
	}
	return true;
}

static void fill_remote(
	struct side *s, const struct sim_wr *w, struct ibv_send_wr *wr, uint64_t *compare_add, uint64_t *swap)
{
	unsigned node = (unsigned)(s->peer->node - model.world.node);
	uint64_t addr = s->peer->target_iova + w->offset;
	uint32_t rkey = s->peer->target_mr->ibv.rkey;

	if (!w->in_target) {
		addr = (uintptr_t)model_source + w->offset;
		rkey = model.source_mr[node]->ibv.rkey;
	}
	if (w->shared) {
		addr = (uintptr_t)&model.counter[node];
		rkey = model.counter_mr[node]->ibv.rkey;
	}
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		*compare_add = w->shared ? 1 : random_seeded(&rng);
		*swap = random_seeded(&rng);
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && one_in(2))
			memcpy(compare_add, s->peer->model + w->offset, 8); /* it shall match */
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = *compare_add;
		wr->wr.atomic.swap = *swap;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey;
	}
}

/* A READ posted before, whose result this request may send on: behind a fence, before it is even there. */
static const struct sim_wr *earlier_read(const struct side *s)
{
	for (unsigned i = s->posted; s->opts.type == IBV_QPT_RC && i--;) {
		if (s->wr[i].opcode == IBV_WR_RDMA_READ && s->wr[i].len <= s->max_msg)
			return &s->wr[i];
	}
	return NULL;
}

static bool draw_wr(struct side *s, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	unsigned node = (unsigned)(s->node - model.world.node);
	struct sim_wr *w = &s->wr[s->posted];
	uint64_t compare_add = 0, swap = 0;
	const struct sim_wr *read = one_in(6) ? earlier_read(s) : NULL;
	bool outgoing;

	memset(w, 0, sizeof(*w));
	memset(wr, 0, sizeof(*wr));
	w->opcode = wr->opcode = draw_opcode(s);
	outgoing = w->opcode != IBV_WR_RDMA_READ && w->opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
		   w->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
	w->len = draw_length(s);
	w->imm = wr->imm_data = (uint32_t)random_seeded(&rng);
	w->signaled = s->opts.sig_all || one_in(2) || s->posted + 1 == s->todo;
	if (outgoing && read)
		w->len = read->len;
	if (w->opcode != IBV_WR_SEND && w->opcode != IBV_WR_SEND_WITH_IMM && !place(s, w))
		w->opcode = wr->opcode = IBV_WR_SEND; /* the target is used up */
	if (w->signaled)
		wr->send_flags |= IBV_SEND_SIGNALED;
	if (one_in(8) || (outgoing && read) || (w->in_target && !w->shared && needs_fence(s, w)))
		wr->send_flags |= IBV_SEND_FENCE;
	if (outgoing) {
		w->bytes = read ? read->bytes : model_source + draw(SOURCE - w->len + 1);
		if (!read && w->len <= s->qp->cap.max_inline_data && one_in(2))
			wr->send_flags |= IBV_SEND_INLINE;
	}
	if (w->in_target || !outgoing)
		fill_remote(s, w, wr, &compare_add, &swap);
	if (!model_execute(&model, s, w, compare_add, swap))
		return false;
	wr->wr_id = s->posted;
	wr->sg_list = sge;
	if (outgoing && !read)
		wr->num_sge = cut(sge, s->opts.sge, w->bytes, w->len, model.source_mr[node]->ibv.lkey);
	else
		wr->num_sge = cut(sge, s->opts.sge, outgoing ? read->dest : w->dest, w->len,
			model.arena_mr[node]->ibv.lkey);
	if (s->opts.type == IBV_QPT_UD) {
		wr->wr.ud.ah = &s->ah->ibv;
		wr->wr.ud.remote_qpn = hca_qpn(s->peer->qp);
		wr->wr.ud.remote_qkey = SIM_QKEY;
	}
	return true;
}

static void trace_post(const struct side *s, const struct ibv_send_wr *wr)
{
	const struct sim_wr *w = &s->wr[wr->wr_id];

	printf("%12.3f us  side %u, QP 0x%06x: request %u, opcode %d, %u bytes, %d entries%s%s%s\n",
		(double)sim_now(&model.world) / 1000, s->index, hca_qpn(s->qp), (unsigned)wr->wr_id,
		wr->opcode, w->len, wr->num_sge, wr->send_flags & IBV_SEND_FENCE ? ", fence" : "",
		wr->send_flags & IBV_SEND_INLINE ? ", inline" : "", w->signaled ? "" : ", unsignaled");
}

/* Posts a few requests in one call. */
static void post_sends(struct side *s)
{
	unsigned room = s->opts.send_wr - (s->qp->sq.head - s->qp->sq.tail),
		 n = (unsigned)between(1, one_in(4) ? BURST : 4), k = 0;
	struct ibv_send_wr wr[BURST], *bad;
	struct ibv_sge sge[BURST][8];

	for (; k < n && k < room && s->posted < s->todo; k++) {
		if (!draw_wr(s, &wr[k], sge[k]))
			model_fail(&model, s, "the arena is too small");
		if (wr[k].send_flags & IBV_SEND_FENCE)
			s->fenced = s->posted;
		s->budget -= s->wr[s->posted].len < s->budget ? s->wr[s->posted].len : s->budget;
		s->posted++;
		if (k)
			wr[k - 1].next = &wr[k];
		if (trace)
			trace_post(s, &wr[k]);
	}
	if (k && hca_qp_post_send(s->qp, wr, &bad))
		model_fail(&model, s, "posting request %u failed", (unsigned)bad->wr_id);
}

/* ---- posting receives ---- */
static void post_recv(struct side *s)
{
	struct sim_rq *rq = s->rq;
	struct ibv_sge sge[HCA_MAX_SGE];
	struct ibv_recv_wr wr = {.sg_list = sge}, *bad;
	unsigned slot = 0;

	while (slot < rq->slots && rq->busy[slot])
		slot++;
	if (slot == rq->slots)
		return;
	rq->busy[slot] = true;
	wr.wr_id = rq->posted++ << 8 | slot;
	wr.num_sge = cut(sge, rq->sge, rq->mem[slot], rq->slot_size, rq->lkey);
	if (rq->srq ? hca_rq_post(&rq->srq->rq, &wr) : hca_qp_post_recv(s->qp, &wr, &bad))
		model_fail(&model, s, "posting a receive failed");
}

/* ---- building ---- */
static void rq_init(struct sim_rq *rq, struct sim_node *n, unsigned slots, uint32_t size)
{
	rq->node = n;
	rq->slots = slots;
	rq->slot_size = size;
	rq->sge = (unsigned)between(1, 4);
	rq->lkey = model.arena_mr[n - model.world.node]->ibv.lkey;
	rq->posted = rq->done = 0;
	memset(rq->busy, 0, sizeof(rq->busy));
	for (unsigned i = 0; i < slots; i++) {
		rq->mem[i] = model_alloc(&model, size);
		if (!rq->mem[i])
			model_fail(&model, NULL, "the arena is too small");
	}
}

static void node_init(unsigned i, bool with_srq)
{
	struct sim_node *n = &model.world.node[i];
	size_t len;
	void *arena = model_arena(&len);

	model.send_cq[i] = sim_cq(n, MAX_SIDES * MAX_WRS);
	model.recv_cq[i] = sim_cq(n, MAX_SIDES * MAX_WRS);
	model.arena_mr[i] = sim_mr(n, arena, len, (uintptr_t)arena);
	model.source_mr[i] = sim_mr(n, model_source, SOURCE, (uintptr_t)model_source);
	model.counter[i] = model.counted[i] = 0;
	model.counter_mr[i] = sim_mr(n, &model.counter[i], 8, (uintptr_t)&model.counter[i]);
	model.counter_seen[i] = model_alloc(&model, MAX_SIDES * MAX_WRS);
	memset(model.counter_seen[i], 0, MAX_SIDES * MAX_WRS);
	memset(&model.srq[i], 0, sizeof(model.srq[i]));
	if (with_srq) {
		struct ibv_srq_init_attr attr = {.attr = {.max_wr = MAX_SLOTS, .max_sge = 4}};

		rq_init(&model.srq[i], n, (unsigned)between(2, 8), TARGET + GRH_LEN);
		model.srq[i].srq = hca_srq_create(n->ctx, &n->pd->ibv, &attr);
	}
}

static void node_fini(unsigned i)
{
	if (model.srq[i].srq)
		hca_srq_destroy(model.srq[i].srq);
	hca_mr_dereg(model.counter_mr[i]);
	hca_mr_dereg(model.source_mr[i]);
	hca_mr_dereg(model.arena_mr[i]);
	hca_cq_destroy(model.send_cq[i]);
	hca_cq_destroy(model.recv_cq[i]);
}

/* A UC queue keeps the receive of a message whose end was lost: there must be more than all of them can keep.
 */
static bool may_share(unsigned node, enum ibv_qp_type type)
{
	return type != IBV_QPT_UC || model.srq[node].slots > 2 * model.pairs;
}

static void side_init(struct side *s, unsigned node, const struct weather *weather, enum ibv_qp_type type,
	enum ibv_mtu mtu, uint32_t max_msg)
{
	memset(s, 0, sizeof(*s));
	s->index = (unsigned)(s - model.side);
	s->node = &model.world.node[node];
	s->strict = !weather->rules.duplicate && !weather->rules.delayed;
	s->max_msg = max_msg;
	s->budget = one_in(8) ? 1000000 : 100000;
	s->todo = (unsigned)between(1, one_in(3) ? MAX_WRS : MAX_WRS / 8);
	s->opts = sim_qp_opts(model.send_cq[node]);
	s->opts.recv_cq = model.recv_cq[node];
	s->opts.type = type;
	s->opts.mtu = mtu;
	s->opts.timeout = weather->timeout;
	s->opts.recv_wr = MAX_SLOTS;
	s->opts.srq = one_in(3) && may_share(node, type) ? model.srq[node].srq : NULL;
	s->opts.send_wr = (unsigned)between(1, 40);
	s->opts.sge = (unsigned)between(1, 5);
	s->opts.inline_data = (unsigned)draw(300);
	s->opts.sig_all = one_in(2);
	s->opts.rd_atomic = (unsigned)(one_in(3) ? 16 : between(1, 16));
	s->opts.rnr_timer = (unsigned)between(1, 12);
	s->opts.psn = (uint32_t)(one_in(3) ? PSN_MASK - draw(200) : draw(PSN_MASK + 1));
	s->qp = sim_qp(s->node, &s->opts);
	if (s->opts.srq) {
		s->rq = &model.srq[node];
	} else {
		s->rq = &s->own_rq;
		rq_init(s->rq, s->node, (unsigned)between(1, max_msg > 8192 ? 4 : MAX_SLOTS),
			max_msg + GRH_LEN);
		s->rq->sge = s->rq->sge < s->opts.sge ? s->rq->sge : s->opts.sge;
	}
	s->target = model_alloc(&model, TARGET);
	s->model = model_alloc(&model, TARGET);
	s->target_iova = one_in(2) ? (uintptr_t)s->target : draw(1ull << 40) * 4096;
	memcpy(s->target, model_source + draw(SOURCE - TARGET), TARGET);
	memcpy(s->model, s->target, TARGET);
	s->target_mr = sim_mr(s->node, s->target, TARGET, s->target_iova);
	s->next_post = draw(100 * SIM_US);
	s->next_recv = draw(100 * SIM_US);
}

static void pair_init(const struct weather *weather)
{
	struct side *a = &model.side[model.nsides], *b = a + 1;
	enum ibv_qp_type type = one_in(5) ? IBV_QPT_UC : one_in(5) ? IBV_QPT_UD : IBV_QPT_RC;
	enum ibv_mtu mtu = (enum ibv_mtu)between(IBV_MTU_256, IBV_MTU_4096);
	unsigned from = (unsigned)draw(model.world.nodes);
	unsigned to =
		one_in(10) ? from : (from + 1 + (unsigned)draw(model.world.nodes - 1)) % model.world.nodes;
	uint32_t max_msg = type == IBV_QPT_UD ? 4096 : one_in(4) ? 65536 : (128u << mtu) * 4;

	side_init(a, from, weather, type, mtu, max_msg);
	side_init(b, to, weather, type, mtu, max_msg);
	a->peer = b;
	b->peer = a;
	if (type == IBV_QPT_UD) {
		a->ah = sim_ah(a->node, b->node);
		b->ah = sim_ah(b->node, a->node);
	}
	sim_connect(a->qp, &a->opts, b->qp, &b->opts);
	sim_connect(b->qp, &b->opts, a->qp, &a->opts);
	model.nsides += 2;
}

static void side_fini(struct side *s)
{
	total.requests += s->posted;
	total.packets += s->qp->count->tx_packets;
	total.retransmits += s->qp->count->retransmits;
	hca_qp_destroy(s->qp);
	hca_mr_dereg(s->target_mr);
	if (s->ah)
		sim_ah_free(s->ah);
}

/* ---- running ---- */
static struct side *side_of(unsigned node, uint32_t qpn)
{
	for (unsigned i = 0; i < model.nsides; i++) {
		if (model.side[i].node == &model.world.node[node] && hca_qpn(model.side[i].qp) == qpn)
			return &model.side[i];
	}
	model_fail(&model, NULL, "a completion of a QP that is not there, 0x%06x", qpn);
}

static void poll_all(void)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < model.world.nodes; i++) {
		while (hca_cq_take(model.send_cq[i], &wc, 1))
			model_send_done(&model, side_of(i, wc.qp_num), &wc);
		while (hca_cq_take(model.recv_cq[i], &wc, 1))
			model_recv_done(&model, side_of(i, wc.qp_num), &wc);
	}
}

struct pauses {
	uint64_t max, next, cut_at;
	unsigned node;
	bool on;
};

static void cut_off(unsigned node)
{
	struct sim_node *n = &model.world.node[node];

	if (trace)
		printf("%12.3f us  node %u is cut off\n", (double)sim_now(&model.world) / 1000, node);
	sim_port_cut(model.world.net, node, true);
	model.cut = true;
	for (unsigned i = 0; i < model.nsides; i++) {
		struct side *s = &model.side[i];

		s->doomed |= s->node == n || s->peer->node == n;
	}
}

/* Does what is due and returns when something is due next. */
static uint64_t act(struct pauses *p)
{
	uint64_t now = sim_now(&model.world), next = UINT64_MAX;

	for (unsigned i = 0; i < model.nsides; i++) {
		struct side *s = &model.side[i];

		if (s->posted < s->todo && s->next_post <= now) {
			post_sends(s);
			s->next_post = now + between(1, one_in(4) ? 500 : 20) * SIM_US;
		}
		if (!model_side_done(s->peer) && s->next_recv <= now) {
			for (unsigned n = (unsigned)draw(6); n--;)
				post_recv(s);
			s->next_recv = now + between(1, one_in(4) ? 500 : 50) * SIM_US;
		}
		if (s->posted < s->todo && s->next_post < next)
			next = s->next_post;
		if (!model_side_done(s->peer) && s->next_recv < next)
			next = s->next_recv;
	}
	if (p->max && p->next <= now) {
		p->on = !p->on;
		if (p->on)
			p->node = (unsigned)draw(model.world.nodes);
		sim_port_pause(model.world.net, p->node, p->on);
		p->next = now + (p->on ? between(1, p->max) : between(p->max * 2, p->max * 10));
	}
	if (p->max && p->next < next)
		next = p->next;
	if (p->cut_at && p->cut_at <= now) {
		p->cut_at = 0;
		cut_off((unsigned)draw(model.world.nodes));
	}
	return p->cut_at && p->cut_at < next ? p->cut_at : next;
}

static bool all_done(void)
{
	for (unsigned i = 0; i < model.nsides; i++) {
		if (!model_side_done(&model.side[i]))
			return false;
	}
	return true;
}

static void say_side(const struct side *s)
{
	const struct hca_flow *f = list_empty(&s->qp->flow_node) ? NULL : s->qp->waits_for;

	fprintf(stderr, "side %u: posted %u of %u, completed %u, received %u, timer at %llu ns", s->index,
		s->posted, s->todo, s->completed, s->received, (unsigned long long)s->qp->deadline);
	if (f)
		fprintf(stderr, "; waits for %s: window %u, in flight %u + %u, echo %s",
			f == s->node->adapter.read_flow ? "its own flow" : "a flow", f->window, f->in_flight,
			(unsigned)(f->sent - f->echoed), f->echo_asked ? "asked" : "not asked");
	fputc('\n', stderr);
}

static void say_stuck(const char *why)
{
	for (unsigned i = 0; i < model.nsides; i++) {
		if (!model_side_done(&model.side[i]))
			say_side(&model.side[i]);
	}
	model_fail(&model, NULL, "stuck: %s", why);
}

static void run(const struct weather *weather)
{
	struct pauses pauses = {
		.max = weather->pause_max, .next = weather->pause_max, .cut_at = weather->cut_at};
	uint64_t next = 0;
	unsigned steps = 0;

	while (!all_done()) {
		bool moved = sim_step(&model.world, next);

		if (!moved && next == UINT64_MAX)
			say_stuck("nothing is on its way and no timer is set");
		if (++steps > STEPS_MAX || sim_now(&model.world) > TIME_MAX)
			say_stuck("it takes too long");
		poll_all();
		if (sim_now(&model.world) >= next || next == UINT64_MAX || moved)
			next = act(&pauses);
		if (steps % 64 == 0)
			model_check_flows(&model);
	}
	for (unsigned i = 0; i < model.world.nodes; i++)
		sim_port_pause(model.world.net, i, false);
	for (steps = 0; sim_step(&model.world, UINT64_MAX);) {
		if (++steps > STEPS_MAX)
			say_stuck("it does not come to rest");
	}
	poll_all();
	model_check_end(&model);
}

/* A network that does no harm costs no packet. */
static void check_calm(void)
{
	for (unsigned i = 0; i < model.nsides; i++) {
		const struct hca_qp_counters *c = model.side[i].qp->count;

		if (c->timeouts || c->naks_sent || (c->retransmits && !c->rnr_received))
			model_fail(&model, &model.side[i],
				"%llu timeouts, %llu NAKs, %llu packets sent again in a perfect network",
				(unsigned long long)c->timeouts, (unsigned long long)c->naks_sent,
				(unsigned long long)c->retransmits);
	}
}

static void run_seed(uint64_t seed)
{
	struct weather weather;
	unsigned nodes;

	rng = seed * 0x9e3779b97f4a7c15ull + 1;
	model.seed = seed;
	model.nsides = 0;
	model.cut = false;
	model_start_arena(&model);
	weather = draw_weather();
	nodes = one_in(3) ? (unsigned)between(2, SIM_NODES) : 2;
	model.pairs = one_in(3) ? (unsigned)between(1, MAX_SIDES / 2) : (unsigned)between(1, 3);
	sim_world_init(&model.world, nodes, seed, one_in(3));
	sim_rules_set(model.world.net, &weather.rules);
	if (trace) {
		const struct sim_rules *r = &weather.rules;

		printf("seed %llu: %u nodes, %u pairs, loss %.1f%%, duplicates %.1f%%, delayed %.1f%%, "
		       "corrupted %.1f%%, "
		       "delay %u to %u us, late %u us, ACK timeout %u us\n",
			(unsigned long long)seed, nodes, model.pairs, r->loss / 1e4, r->duplicate / 1e4,
			r->delayed / 1e4, r->corrupt / 1e4, (unsigned)(r->delay_min / 1000),
			(unsigned)(r->delay_max / 1000), (unsigned)(r->late_max / 1000),
			(unsigned)(ibt_timeout_ns(weather.timeout) / 1000));
		sim_trace_set(model.world.net, sim_trace_print, stdout);
	}
	for (unsigned i = 0; i < nodes; i++)
		node_init(i, one_in(2));
	for (unsigned i = 0; i < model.pairs; i++)
		pair_init(&weather);
	run(&weather);
	if (weather.calm)
		check_calm();
	for (unsigned i = 0; i < model.nsides; i++)
		side_fini(&model.side[i]);
	for (unsigned i = 0; i < nodes; i++)
		node_fini(i);
	sim_world_fini(&model.world);
}

/* A crash names its seed too. */
static void on_crash(int sig)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "seed %llu: signal %d\nreplay: %s --seed %llu --trace\n",
		(unsigned long long)model.seed, sig, model_program, (unsigned long long)model.seed);

	if (write(2, line, (size_t)n) < 0)
		_exit(2);
	signal(sig, SIG_DFL);
	raise(sig);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
		{"seeds", required_argument, NULL, 'n'}, {"trace", no_argument, NULL, 't'}, {0}};
	unsigned long long first = 1, count = 1;
	int c;

	model_program = argv[0];
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's') {
			first = strtoull(optarg, NULL, 0);
		} else if (c == 'n') {
			count = strtoull(optarg, NULL, 0);
		} else if (c == 't') {
			trace = true;
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--seeds COUNT] [--trace]\n", argv[0]);
			return 2;
		}
	}
	signal(SIGABRT, on_crash);
	signal(SIGSEGV, on_crash);
	model_init_source();
	for (unsigned long long i = 0; i < count; i++)
		run_seed(first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu packets, %llu of them sent again\n",
		count, first, total.requests, total.packets, total.retransmits);
	return 0;
}
