/* SPDX-License-Identifier: MIT */
#include "model.h"

#include "base/random.h"
#include "wire/ibt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 24 * 1024 * 1024, GUARD_BYTE = 0xa5 };

uint8_t model_source[SOURCE];
static uint8_t arena[ARENA];
extern const char *model_program;

void model_fail(struct model *m, const struct side *s, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "seed %llu, at %.3f us", (unsigned long long)m->seed,
		(double)sim_now(&m->world) / 1000);
	if (s)
		fprintf(stderr, ", side %u (QP 0x%06x)", s->index, hca_qpn(s->qp));
	fprintf(stderr, ": ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nreplay: %s --seed %llu --trace\n", model_program, (unsigned long long)m->seed);
	exit(1);
}

/* ---- memory ---- */
void model_init_source(void)
{
	uint64_t state = 42;

	for (size_t i = 0; i < SOURCE; i += 8) {
		uint64_t v = random_seeded(&state);

		memcpy(model_source + i, &v, 8);
	}
}

void model_start_arena(struct model *m)
{
	m->arena_used = 0;
}

uint8_t *model_alloc(struct model *m, size_t len)
{
	uint8_t *p = arena + m->arena_used;

	len = (len + 15) & ~(size_t)15;
	if (len > ARENA - m->arena_used)
		return NULL;
	m->arena_used += len;
	return p;
}

void *model_arena(size_t *len)
{
	*len = ARENA;
	return arena;
}

static bool alloc_dest(struct model *m, struct sim_wr *w)
{
	uint8_t *p = model_alloc(m, w->len + 2 * GUARD);

	if (!p)
		return false;
	memset(p, GUARD_BYTE, w->len + 2 * GUARD);
	w->dest = p + GUARD;
	return true;
}

static bool guards_stand(const struct sim_wr *w)
{
	for (unsigned i = 0; i < GUARD; i++) {
		if (w->dest[-1 - (int)i] != GUARD_BYTE || w->dest[w->len + i] != GUARD_BYTE)
			return false;
	}
	return true;
}

/* ---- execution ---- */
bool model_execute(struct model *m, struct side *s, struct sim_wr *w, uint64_t compare_add, uint64_t swap)
{
	uint8_t *at = s->peer->model + w->offset;
	uint64_t v;

	switch (w->opcode) {
	case IBV_WR_RDMA_READ:
		w->bytes = w->in_target ? model_alloc(m, w->len) : model_source + w->offset;
		if (!w->bytes || !alloc_dest(m, w))
			return false;
		if (w->in_target)
			memcpy(w->bytes, at, w->len);
		return true;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (!alloc_dest(m, w))
			return false;
		if (w->shared) {
			m->counted[s->peer->node - m->world.node]++;
			return true;
		}
		memcpy(&w->original, at, 8);
		v = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? w->original + compare_add
		    : w->original == compare_add             ? swap
							     : w->original;
		memcpy(at, &v, 8);
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (s->opts.type == IBV_QPT_RC)
			memcpy(at, w->bytes, w->len);
		return true;
	default:
		return true;
	}
}

/* ---- completions of sends ---- */
static void check_counter(struct model *m, struct side *s, const struct sim_wr *w)
{
	unsigned node = (unsigned)(s->peer->node - m->world.node);
	uint64_t v;

	memcpy(&v, w->dest, 8);
	if (v >= m->counted[node])
		model_fail(m, s, "the common counter gave %llu, more than was ever added",
			(unsigned long long)v);
	if (m->counter_seen[node][v]++)
		model_fail(m, s, "the common counter gave %llu twice", (unsigned long long)v);
}

static void check_wr(struct model *m, struct side *s, unsigned i)
{
	const struct sim_wr *w = &s->wr[i];

	if (w->opcode == IBV_WR_RDMA_READ && memcmp(w->dest, w->bytes, w->len))
		model_fail(m, s, "READ %u brought wrong bytes", i);
	if (w->dest && !guards_stand(w))
		model_fail(m, s, "request %u wrote beyond its entries", i);
	if (w->shared) {
		check_counter(m, s, w);
	} else if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		uint64_t v;

		memcpy(&v, w->dest, 8);
		if (v != w->original)
			model_fail(m, s, "atomic %u returned 0x%llx, must be 0x%llx", i,
				(unsigned long long)v, (unsigned long long)w->original);
	}
}

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

/* The peer is gone: one request ends for that reason, all behind it are flushed, signaled or not. */
static void check_error(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	enum ibv_wc_status must = s->dead ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR;

	if (!s->doomed || s->opts.type != IBV_QPT_RC || wc->status != must)
		model_fail(
			m, s, "request %u ended with %s", (unsigned)wc->wr_id, ibv_wc_status_str(wc->status));
	if (s->dead && wc->wr_id != s->completed)
		model_fail(m, s, "request %u flushed, %u was next", (unsigned)wc->wr_id, s->completed);
	s->dead = true;
}

void model_send_done(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	if (wc->wr_id < s->completed || wc->wr_id >= s->posted)
		model_fail(m, s, "request %u completed again or out of order, %u is next",
			(unsigned)wc->wr_id, s->completed);
	if (wc->status != IBV_WC_SUCCESS || s->dead)
		check_error(m, s, wc);
	/* Those before it that asked for no completion are done too. */
	for (; s->completed < wc->wr_id; s->completed++) {
		if (s->wr[s->completed].signaled)
			model_fail(m, s, "request %u completed before %u", (unsigned)wc->wr_id, s->completed);
		check_wr(m, s, s->completed);
	}
	if (wc->status != IBV_WC_SUCCESS) {
		s->completed++;
		return;
	}
	if (!s->wr[s->completed].signaled)
		model_fail(m, s, "request %u asked for no completion", s->completed);
	if (wc->opcode != wc_opcode(s->wr[s->completed].opcode))
		model_fail(m, s, "request %u completed as operation %d", s->completed, wc->opcode);
	check_wr(m, s, s->completed++);
}

/* ---- completions of receives ---- */
static bool fits(const struct side *s, const struct sim_wr *w, const struct ibv_wc *wc, const uint8_t *data)
{
	bool is_write = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool imm = is_write || w->opcode == IBV_WR_SEND_WITH_IMM;
	uint32_t grh = s->opts.type == IBV_QPT_UD ? GRH_LEN : 0;

	if (!model_is_message(w) || wc->byte_len != w->len + grh)
		return false;
	if (wc->opcode != (is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		return false;
	if (imm != !!(wc->wc_flags & IBV_WC_WITH_IMM) || (imm && wc->imm_data != w->imm))
		return false;
	if (is_write)
		return s->opts.type == IBV_QPT_RC || !memcmp(s->target + w->offset, w->bytes, w->len);
	return !memcmp(data + grh, w->bytes, w->len);
}

/* RC: the next message and no other. */
static void reliable_message(struct model *m, struct side *s, const struct ibv_wc *wc, const uint8_t *data)
{
	while (s->received < s->peer->posted && !model_is_message(&s->peer->wr[s->received]))
		s->received++;
	if (s->received == s->peer->posted)
		model_fail(m, s, "received a message that nobody sent");
	if (!fits(s, &s->peer->wr[s->received], wc, data))
		model_fail(m, s, "received something else than request %u of side %u", s->received,
			s->peer->index);
	s->received++;
}

/* UC, UD: any message that was sent; in order and once, unless the network itself doubles and reorders. */
static void unreliable_message(struct model *m, struct side *s, const struct ibv_wc *wc, const uint8_t *data)
{
	for (unsigned i = s->peer->strict ? s->received : 0; i < s->peer->posted; i++) {
		struct sim_wr *w = &s->peer->wr[i];

		if (w->copies < (s->peer->strict ? 1 : 2) && fits(s, w, wc, data)) {
			w->copies++;
			s->received = i + 1;
			return;
		}
	}
	model_fail(m, s, "received a message that was not sent, or out of order, or once too often");
}

void model_recv_done(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	struct sim_rq *rq = s->rq;
	unsigned slot = wc->wr_id & 0xff;

	if (wc->status != IBV_WC_SUCCESS && (!s->dead || wc->status != IBV_WC_WR_FLUSH_ERR))
		model_fail(m, s, "a receive ended with %s", ibv_wc_status_str(wc->status));
	if (slot >= rq->slots || !rq->busy[slot])
		model_fail(m, s, "a receive completed that was not posted");
	if (!rq->srq && wc->wr_id >> 8 != rq->done)
		model_fail(m, s, "receives completed out of order");
	if (wc->status != IBV_WC_SUCCESS) {
		rq->done++;
		rq->busy[slot] = false;
		return;
	}
	if (wc->src_qp != hca_qpn(s->peer->qp))
		model_fail(m, s, "a message from QP 0x%06x", wc->src_qp);
	rq->done++;
	rq->busy[slot] = false;
	if (s->opts.type == IBV_QPT_RC)
		reliable_message(m, s, wc, rq->mem[slot]);
	else
		unreliable_message(m, s, wc, rq->mem[slot]);
}

bool model_side_done(const struct side *s)
{
	if (s->posted < s->todo || s->completed < s->posted)
		return false;
	if (s->opts.type != IBV_QPT_RC || s->doomed)
		return true;
	for (unsigned i = s->peer->received; i < s->posted; i++) {
		if (model_is_message(&s->wr[i]))
			return false;
	}
	return true;
}

/* ---- the end ---- */
/* Of a WRITE over UC, any packet may be missing, but no byte may be neither old nor new. */
static void check_unreliable_write(struct model *m, struct side *s, unsigned i)
{
	const struct sim_wr *w = &s->wr[i];
	uint32_t mtu = 128u << s->opts.mtu;

	for (uint32_t off = 0; off < w->len; off += mtu) {
		uint32_t n = w->len - off < mtu ? w->len - off : mtu;
		uint8_t *at = s->peer->target + w->offset + off;

		if (memcmp(at, w->bytes + off, n) && memcmp(at, s->peer->model + w->offset + off, n))
			model_fail(m, s, "packet %u of WRITE %u is damaged in the target", off / mtu, i);
		memcpy(at, s->peer->model + w->offset + off, n);
	}
}

void model_check_end(struct model *m)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		for (unsigned k = 0; s->opts.type == IBV_QPT_UC && k < s->posted; k++) {
			if (s->wr[k].opcode == IBV_WR_RDMA_WRITE ||
				s->wr[k].opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
				check_unreliable_write(m, s, k);
		}
	}
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		for (uint32_t k = 0; !s->doomed && memcmp(s->target, s->model, TARGET) && k < TARGET; k++) {
			if (s->target[k] != s->model[k])
				model_fail(m, s, "the target's byte %u is 0x%02x, must be 0x%02x", k,
					s->target[k], s->model[k]);
		}
		if (s->qp->deadline)
			model_fail(m, s, "a timer is left when all is done");
	}
	for (unsigned i = 0; i < m->world.nodes; i++) {
		if (m->counter[i] > m->counted[i] || (m->counter[i] < m->counted[i] && !m->cut))
			model_fail(m, NULL, "the common counter of node %u is %llu after %llu additions", i,
				(unsigned long long)m->counter[i], (unsigned long long)m->counted[i]);
	}
	model_check_flows(m);
}

static void check_flow(struct model *m, const struct sim_node *n, const struct hca_flow *f, bool reads)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < m->nsides; i++) {
		if (m->side[i].node == n && (reads || m->side[i].qp->flow == f))
			sum += sim_qp_in_flight(m->side[i].qp, reads);
	}
	if (sum != f->in_flight)
		model_fail(m, NULL, "node %u: %llu is in flight%s but %u is charged",
			(unsigned)(n - m->world.node), (unsigned long long)sum, reads ? " to itself" : "",
			f->in_flight);
}

void model_check_flows(struct model *m)
{
	for (unsigned i = 0; i < m->world.nodes; i++) {
		const struct hca_adapter *a = &m->world.node[i].adapter;

		check_flow(m, &m->world.node[i], a->read_flow, true);
		for (unsigned k = 0; k < sizeof(a->flows) / sizeof(a->flows[0]); k++) {
			for (const struct hca_flow *f = a->flows[k]; f; f = f->next)
				check_flow(m, &m->world.node[i], f, false);
		}
	}
}
