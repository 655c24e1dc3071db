/* SPDX-License-Identifier: MIT */
#include "model.h"

#include "base/random.h"
#include "seeds.h"
#include "trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 24 * 1024 * 1024, GUARD_BYTE = 0xa5 };

const struct sim_bad_kind sim_bads[BAD_COUNT] = {
#define X(name, text, status, recv, kills) {text, IBV_WC_##status, IBV_WC_##recv, kills},
	SIM_BADS(X)
#undef X
};

uint8_t model_source[SOURCE];
struct model_here model_here = {.node = -1};
static _Alignas(4096) uint8_t arena[ARENA]; /* whole pages: see channel_test.c */

void model_enter(void)
{
	if (model_here.enter)
		model_here.enter();
}

void model_leave(void)
{
	if (model_here.leave)
		model_here.leave();
}

void model_fail(struct model *m, const struct side *s, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fprintf(stderr, "seed %llu, at %.3f us", (unsigned long long)m->seed,
		(double)sim_now(&m->world) / 1000);
	if (s)
		fprintf(stderr, ", side %u (node %u, QP 0x%06x)", s->index, s->node_index, s->qpn);
	fprintf(stderr, ": ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nreplay: %s --seed %llu --trace\n", seeds.program, (unsigned long long)m->seed);
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

uint8_t *model_alloc(struct model *m, size_t len)
{
	uint8_t *p = arena + m->arena_used;

	len = (len + 15) & ~(size_t)15;
	if (len > ARENA - m->arena_used)
		model_fail(m, NULL, "the arena is too small");
	m->arena_used += len;
	return p;
}

uint8_t *model_note(struct model *m, size_t len)
{
	uint8_t *p = model_alloc(m, len);

	return model_here.notes ? model_here.notes + (p - arena) : p;
}

void *model_arena(size_t *len)
{
	*len = ARENA;
	return arena;
}

static void alloc_dest(struct model *m, struct sim_wr *w)
{
	uint8_t *p = model_alloc(m, w->len + 2 * GUARD);

	memset(p, GUARD_BYTE, w->len + 2 * GUARD);
	w->dest = p + GUARD;
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
static uint64_t atomic_result(const struct sim_wr *w, uint64_t original)
{
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return original + w->compare_add;
	return original == w->compare_add ? w->swap : original;
}

static void execute_atomic(struct model *m, struct side *s, struct sim_wr *w)
{
	uint8_t *at = s->peer->model + w->offset;
	uint64_t v;

	if (w->shared) {
		m->site[s->peer->node_index].counted++;
		return;
	}
	memcpy(&w->original, at, 8);
	v = atomic_result(w, w->original);
	memcpy(at, &v, 8);
}

void model_execute(struct model *m, struct side *s, struct sim_wr *w)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;

	if (read || model_is_atomic(w))
		alloc_dest(m, w);
	if (w->bad) {
		w->bytes = w->bytes ? w->bytes : w->dest;
		return;
	}
	if (read) {
		w->bytes = w->in_target ? model_note(m, w->len) : model_source + w->offset;
		if (w->in_target)
			memcpy(w->bytes, s->peer->model + w->offset, w->len);
	} else if (model_is_atomic(w)) {
		execute_atomic(m, s, w);
	} else if (model_is_write(w) && s->opts.type == IBV_QPT_RC) {
		memcpy(s->peer->model + w->offset, w->bytes, w->len);
	}
}

/* ---- what a request that succeeded has done ---- */
static void check_counter(struct model *m, struct side *s, const struct sim_wr *w)
{
	struct sim_site *site = &m->site[s->peer->node_index];
	uint64_t v;

	memcpy(&v, w->dest, 8);
	site->counted_surely++;
	if (v >= site->counted)
		model_fail(m, s, "the common counter gave %llu, more than was ever added",
			(unsigned long long)v);
	if (site->counter_seen[v]++)
		model_fail(m, s, "the common counter gave %llu twice", (unsigned long long)v);
}

static void check_window(struct side *s, const struct sim_wr *w)
{
	struct sim_window *own;

	if (!model_is_local(w)) {
		if (w->window >= 0 && w->opcode != IBV_WR_SEND_WITH_INV)
			s->peer->window[w->window].uses--;
		return;
	}
	own = &s->window[w->window];
	if (own->state == WINDOW_BINDING) {
		own->state = WINDOW_BOUND;
	} else {
		own->state = WINDOW_FREE;
		s->stale_rkey = own->rkey;
	}
}

static void check_wr(struct model *m, struct side *s, unsigned i)
{
	struct sim_wr *w = &s->wr[i];

	w->done = true;
	if (w->bad)
		model_fail(m, s, "request %u succeeded, but %s", i, sim_bads[w->bad].name);
	if (w->opcode == IBV_WR_RDMA_READ && memcmp(w->dest, w->bytes, w->len))
		model_fail(m, s, "READ %u brought wrong bytes", i);
	if (w->dest && !guards_stand(w))
		model_fail(m, s, "request %u wrote beyond its entries", i);
	if (w->shared) {
		check_counter(m, s, w);
	} else if (model_is_atomic(w)) {
		uint64_t v;

		memcpy(&v, w->dest, 8);
		if (v != w->original)
			model_fail(m, s, "atomic %u returned 0x%llx, must be 0x%llx", i,
				(unsigned long long)v, (unsigned long long)w->original);
	}
	check_window(s, w);
	s->succeeded = i + 1;
}

/* ---- excuses ---- */
static void poll_sends(struct model *m, unsigned node);

static bool has_reason(const struct side *s)
{
	return s->dead || s->told || s->killable;
}

/* Of real adapters one may be raising an event just now, and its state comes after it, under the same lock.
 */
static void let_settle(struct model *m, struct side *s)
{
	if (m->world.net || !s->qp || !model_is_ours(s))
		return;
	lock_take(&s->qp->lock);
	lock_drop(&s->qp->lock);
}

bool model_is_broken(struct model *m, struct side *s)
{
	let_settle(m, s);
	if (s->qp && (!model_is_ours(s) || hca_qp_state(s->qp) != IBV_QPS_ERR))
		return false;
	if (s->qp && !has_reason(s) && !m->world.net)
		poll_sends(m, s->node_index); /* real adapters do not stand still: the reason came just now */
	if (s->qp && !has_reason(s))
		model_fail(m, s, "the queue pair is in the error state, and nobody knows why");
	return true;
}

/* Whether nobody answers s: in a perfect network those whom s itself broke have still sent a NAK. */
static bool peer_is_gone(struct model *m, struct side *s)
{
	struct side *p = s->peer;

	if (s->cut || !p->qp)
		return true;
	if (!model_is_ours(p))
		return p->harmed; /* what it is in just now, only its own process knows */
	return model_is_broken(m, p) && (!m->calm || p->told || p->failed);
}

static bool excused_by_peer(
	struct model *m, struct side *s, const struct sim_wr *w, enum ibv_wc_status status)
{
	bool gone = w->in_target && w->len && !w->shared && !s->peer->target_mr;

	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		/* A READ that has to be asked for again finds its region gone, and no answer. */
		return peer_is_gone(m, s) || (gone && !m->calm && w->opcode == IBV_WR_RDMA_READ);
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return model_is_message(w) && s->opts.rnr_retry != 7 &&
		       s->qp->count->rnr_received > s->opts.rnr_retry;
	case IBV_WC_REM_ACCESS_ERR:
		return gone;
	case IBV_WC_REM_OP_ERR:
		return s->peer->rq->any_bad && model_is_message(w) && !model_is_write(w) && w->len;
	default:
		return false;
	}
}

/*
 * A response was lost, and the peer refused a later request before it could be asked for again: what it would
 * have said, nobody knows any more. The reason follows with the request it belongs to.
 */
static bool is_skipped(struct model *m, struct side *s, const struct sim_wr *w, enum ibv_wc_status status)
{
	bool has_response = w->opcode == IBV_WR_RDMA_READ || model_is_atomic(w);

	return status == IBV_WC_WR_FLUSH_ERR && !s->dead && !m->calm && s->opts.type == IBV_QPT_RC &&
	       (s->skipped || has_response);
}

/* One request ends for a reason, all behind it are flushed, signaled or not. */
static void check_error(struct model *m, struct side *s, unsigned i, enum ibv_wc_status status)
{
	const struct sim_wr *w = &s->wr[i];
	bool rc = s->opts.type == IBV_QPT_RC;

	if (is_skipped(m, s, w, status)) {
		s->skipped = s->harmed = s->peer->harmed = true;
	} else if (s->dead || status == IBV_WC_WR_FLUSH_ERR) {
		if (status != IBV_WC_WR_FLUSH_ERR || (!s->dead && !s->told && !s->killable))
			model_fail(m, s, "request %u ended with %s", i, ibv_wc_status_str(status));
	} else if (w->bad ? status == sim_bads[w->bad].status : false) {
		s->failed = true;
	} else if (rc && excused_by_peer(m, s, w, status)) {
		s->failed = true;
	} else {
		model_fail(m, s, "request %u ended with %s", i, ibv_wc_status_str(status));
	}
	s->dead = !s->skipped || s->failed;
	s->harmed = s->peer->harmed = true;
	if (w->window >= 0 && !model_is_local(w) && w->opcode != IBV_WR_SEND_WITH_INV)
		s->peer->window[w->window].uses--;
}

/* ---- completions of sends ---- */
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
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

/* What the completion itself says. */
static void check_wc(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	const struct sim_wr *w = &s->wr[wc->wr_id];

	if (s->drained)
		model_fail(m, s, "request %u completed while the send queue is drained", (unsigned)wc->wr_id);
	if (!w->signaled)
		model_fail(m, s, "request %u asked for no completion", (unsigned)wc->wr_id);
	if (wc->opcode != wc_opcode(w->opcode))
		model_fail(m, s, "request %u completed as operation %d", (unsigned)wc->wr_id, wc->opcode);
	if ((w->opcode == IBV_WR_RDMA_READ || model_is_atomic(w)) && wc->byte_len != w->len)
		model_fail(m, s, "request %u brought %u bytes", (unsigned)wc->wr_id, wc->byte_len);
}

static void send_done(struct model *m, struct side *s, const struct ibv_wc *wc)
{
	trace_wc(m, s, wc, true);
	if (wc->wr_id < s->completed || wc->wr_id >= s->posted)
		model_fail(m, s, "request %u completed again or out of order, %u is next",
			(unsigned)wc->wr_id, s->completed);
	if (s->dead && wc->wr_id != s->completed)
		model_fail(m, s, "request %u ended, %u was next", (unsigned)wc->wr_id, s->completed);
	/* Those before it that asked for no completion are done too. */
	for (; s->completed < wc->wr_id; s->completed++) {
		if (s->wr[s->completed].signaled)
			model_fail(m, s, "request %u completed before %u", (unsigned)wc->wr_id, s->completed);
		check_wr(m, s, s->completed);
	}
	if (wc->status != IBV_WC_SUCCESS || s->dead) {
		check_error(m, s, s->completed++, wc->status);
		return;
	}
	check_wc(m, s, wc);
	check_wr(m, s, s->completed++);
}

/* ---- events ---- */
static struct side *side_of_qp(struct model *m, const struct ibv_qp *qp)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		if (model_is_ours(&m->side[i]) && m->side[i].qp && &m->side[i].qp->ex.qp_base == qp)
			return &m->side[i];
	}
	model_fail(m, NULL, "an event of a QP that is not there");
}

static void event(struct model *m, const struct ibv_async_event *ev)
{
	struct side *s;

	if (ev->event_type == IBV_EVENT_CQ_ERR)
		model_fail(m, NULL, "a completion queue overflowed");
	s = side_of_qp(m, ev->element.qp);
	trace_event(m, s, ev);
	switch (ev->event_type) {
	case IBV_EVENT_SQ_DRAINED:
		if (!s->stopped || !s->notify || s->drained)
			model_fail(m, s, "told that its send queue is drained");
		s->drained = true;
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if (!s->rq->srq || !model_is_broken(m, s) || s->last_wqe)
			model_fail(m, s, "told that it had its last receive");
		s->last_wqe = true;
		break;
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_REQ_ERR:
		if (!s->killable || s->recv_failed || !model_is_broken(m, s))
			model_fail(m, s, "told of a fault of its peer");
		s->recv_failed = true; /* one or the other, once */
		break;
	default:
		model_fail(m, s, "event %d", ev->event_type);
	}
}

/* ---- polling ---- */
static struct side *side_of(struct model *m, unsigned node, uint32_t qpn)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		if (s->qp && s->node_index == node && s->qpn == qpn)
			return s;
	}
	model_fail(m, NULL, "a completion of a QP that is not there, 0x%06x", qpn);
}

static void poll_sends(struct model *m, unsigned node)
{
	struct ibv_wc wc;

	while (hca_cq_take(m->site[node].send_cq, &wc, 1)) {
		sim_note_wc(&wc);
		send_done(m, side_of(m, node, wc.qp_num), &wc);
	}
}

static void poll_node(struct model *m, unsigned i)
{
	struct hca_context *ctx = m->world.node[i].ctx;
	struct ibv_async_event ev;
	struct ibv_wc wc;

	poll_sends(m, i);
	while (hca_cq_take(m->site[i].recv_cq, &wc, 1)) {
		sim_note_wc(&wc);
		model_recv_done(m, side_of(m, i, wc.qp_num), &wc);
	}
	while (!list_empty(&ctx->async.events) && !hca_async_get(ctx, &ev)) {
		event(m, &ev);
		hca_async_ack(&ev);
	}
}

void model_poll(struct model *m)
{
	for (unsigned i = 0; i < m->world.nodes; i++) {
		if (m->world.node[i].up && (model_here.node < 0 || model_here.node == (int)i))
			poll_node(m, i);
	}
}

/* In the error state nothing waits, sends or receives, and users of a shared queue are told. */
static void check_flushed(struct model *m, struct side *s)
{
	if (sim_requests_of(s->qp))
		model_fail(m, s, "requests were not flushed");
	if (!s->rq->srq && s->rq->done != s->rq->posted)
		model_fail(m, s, "%u receives were not flushed", (unsigned)(s->rq->posted - s->rq->done));
	if (s->rq->srq && !s->last_wqe)
		model_fail(m, s, "was not told that it had its last receive");
}

void model_settle(struct model *m, struct side *s)
{
	unsigned waiting = sim_requests_of(s->qp);

	for (; !s->dead && s->completed < s->posted - waiting; s->completed++) {
		if (s->wr[s->completed].signaled)
			model_fail(m, s, "request %u left the queue without its completion", s->completed);
		check_wr(m, s, s->completed);
	}
	if (hca_qp_state(s->qp) == IBV_QPS_ERR)
		check_flushed(m, s);
}

bool model_side_done(struct model *m, struct side *s)
{
	struct conn *c = model_conn(m, s);

	if (c->over)
		return !s->qp || (s->posted == s->todo && s->completed == s->posted);
	if (s->posted < s->todo || s->completed < s->posted || s->stopped)
		return false;
	if (s->opts.type != IBV_QPT_RC || s->cut)
		return true;
	for (unsigned i = s->peer->received; i < s->posted; i++) {
		if (model_is_message(&s->wr[i]))
			return false;
	}
	return true;
}
