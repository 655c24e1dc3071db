/* SPDX-License-Identifier: MIT */
#include "life.h"

#include "draw.h"
#include "trace.h"
#include "wire/ibt.h"

#include <string.h>

struct life_total life_total;
bool life_connected;

/* ---- what a node has ---- */
static void rq_init(struct model *m, struct sim_rq *rq, unsigned slots, uint32_t size)
{
	memset(rq, 0, sizeof(*rq));
	rq->slots = slots;
	rq->slot_size = size;
	rq->sge = (unsigned)between(1, 4);
	for (unsigned i = 0; i < slots; i++)
		rq->mem[i] = model_alloc(m, size);
}

static void rq_clear(struct sim_rq *rq, uint32_t lkey)
{
	rq->lkey = lkey;
	rq->posted = rq->done = 0;
	rq->any_bad = false;
	memset(rq->busy, 0, sizeof(rq->busy));
	memset(rq->bad, 0, sizeof(rq->bad));
}

static struct hca_mr *must_reg(
	struct model *m, struct sim_node *n, void *addr, size_t len, uint64_t iova, unsigned access)
{
	struct hca_mr *mr = hca_mr_reg(n->pd, addr, len, iova, access);

	if (!mr)
		model_fail(m, NULL, "cannot register memory");
	return mr;
}

void life_site_open(struct model *m, unsigned i)
{
	struct sim_node *n = &m->world.node[i];
	struct sim_site *site = &m->site[i];
	size_t len;
	void *arena = model_arena(&len);

	site->send_cq = sim_cq(n, MAX_SIDES * MAX_WRS);
	site->recv_cq = sim_cq(n, MAX_SIDES * MAX_WRS);
	site->arena_mr = must_reg(m, n, arena, len, (uintptr_t)arena, IBV_ACCESS_LOCAL_WRITE);
	site->send_mr = must_reg(m, n, model_source, SOURCE, (uintptr_t)model_source, 0);
	site->source_mr = must_reg(m, n, model_source, SOURCE, MODEL_SOURCE_IOVA, IBV_ACCESS_REMOTE_READ);
	site->counter_mr = sim_mr(n, &site->counter, 8, MODEL_COUNTER_IOVA);
	site->source_rkey = site->source_mr->ibv.rkey;
	site->counter_rkey = site->counter_mr->ibv.rkey;
	for (unsigned k = 0; k < m->world.nodes; k++)
		site->ah[k] = sim_ah(n, &m->world.node[k]);
	for (unsigned k = 0; m->world.net && k < GROUPS; k++)
		site->group_ah[k] = sim_ah_to_gid(n, m->group[k]);
	if (site->with_srq) {
		struct ibv_srq_init_attr attr = {.attr = {.max_wr = MAX_SLOTS, .max_sge = 4}};

		rq_clear(&site->srq, site->arena_mr->ibv.lkey);
		site->srq.srq = hca_srq_create(n->ctx, &n->pd->ibv, &attr);
	}
}

void life_site_close(struct model *m, unsigned i)
{
	struct sim_site *site = &m->site[i];

	if (site->srq.srq)
		hca_srq_destroy(site->srq.srq);
	for (unsigned k = 0; k < m->world.nodes; k++)
		sim_ah_free(site->ah[k]);
	for (unsigned k = 0; k < GROUPS; k++)
		sim_ah_free(site->group_ah[k]);
	hca_mr_dereg(site->counter_mr);
	hca_mr_dereg(site->source_mr);
	hca_mr_dereg(site->send_mr);
	hca_mr_dereg(site->arena_mr);
	hca_cq_destroy(site->send_cq);
	hca_cq_destroy(site->recv_cq);
	site->send_cq = site->recv_cq = NULL;
}

void life_site_init(struct model *m, unsigned i)
{
	struct sim_site *site = &m->site[i];

	memset(site, 0, sizeof(*site));
	site->counter_seen = model_note(m, MAX_SIDES * MAX_WRS);
	memset(site->counter_seen, 0, MAX_SIDES * MAX_WRS);
	site->with_srq = one_in(2);
	if (site->with_srq)
		rq_init(m, &site->srq, (unsigned)between(2, 8), TARGET + GRH_LEN);
}

/* ---- sides ---- */
static void draw_options(struct side *s, const struct weather *w)
{
	struct sim_qp_opts *o = &s->opts;

	o->timeout = w->timeout;
	o->recv_wr = MAX_SLOTS;
	o->send_wr = (unsigned)between(1, 40);
	o->sge = (unsigned)between(1, 5);
	o->inline_data = (unsigned)draw(300);
	o->sig_all = one_in(2);
	o->rd_atomic = (unsigned)(one_in(3) ? 16 : between(1, 16));
	o->rnr_timer = (unsigned)between(1, 12);
	if (w->naughty && one_in(4))
		o->rnr_retry = (unsigned)draw(7);
	if (w->calm)
		o->retry = (unsigned)draw(8); /* elsewhere all are needed: see sim_rules.mercy */
}

/* Of one life. */
static void draw_faults(const struct model *m, struct side *s)
{
	s->bad_at = MAX_WRS;
	s->bad_recv = false;
	if (!m->naughty)
		return;
	if (one_in(3))
		s->bad_at = s->posted + (unsigned)draw(s->todo - s->posted + 1);
	s->bad_recv = s->opts.type == IBV_QPT_RC && one_in(8);
}

/*
 * A queue pair may keep the receive of a message whose end does not come: there must be more than all who
 * share the queue can keep.
 */
static struct sim_rq *may_share(struct model *m, unsigned node)
{
	struct sim_rq *rq = &m->site[node].srq;

	return m->site[node].with_srq && one_in(3) && rq->users + 1 < rq->slots ? rq : NULL;
}

static void side_init(struct model *m, unsigned index, unsigned node, const struct weather *w,
	const struct sim_qp_opts *o, uint32_t max_msg)
{
	struct side *s = &m->side[index];

	memset(s, 0, sizeof(*s));
	s->index = index;
	s->node_index = node;
	s->node = &m->world.node[node];
	s->max_msg = max_msg;
	s->budget = one_in(8) ? 1000000 : 100000;
	s->todo = (unsigned)between(1, one_in(3) ? MAX_WRS : MAX_WRS / 8);
	s->builder = one_in(3);
	s->opts = *o;
	draw_options(s, w);
	s->rq = may_share(m, node);
	if (s->rq) {
		s->rq->users++;
	} else {
		s->rq = &s->own_rq;
		rq_init(m, s->rq, (unsigned)between(1, max_msg > 8192 ? 4 : MAX_SLOTS), max_msg + GRH_LEN);
		s->rq->sge = s->rq->sge < s->opts.sge ? s->rq->sge : s->opts.sge;
	}
	s->target = model_alloc(m, TARGET);
	s->model = model_note(m, TARGET);
	s->base = model_note(m, TARGET);
	memcpy(s->target, model_source + draw(SOURCE - TARGET), TARGET);
	memcpy(s->model, s->target, TARGET);
	memcpy(s->base, s->target, TARGET);
	s->next_post = draw(100 * SIM_US);
	s->next_recv = draw(100 * SIM_US);
}

static bool qpn_is_new(const struct model *m, uint32_t qpn)
{
	for (unsigned i = 0; i < m->nqps; i++) {
		if (m->qp[i].qpn == qpn)
			return false;
	}
	return true;
}

/* A QP number of the dead is not given again: late packets of theirs would be taken for the new one's. */
static void make_qp(struct model *m, struct side *s)
{
	const struct sim_site *site = &m->site[s->node_index];

	s->opts.send_cq = site->send_cq;
	s->opts.recv_cq = site->recv_cq;
	s->opts.srq = s->rq->srq;
	s->opts.psn = (uint32_t)(one_in(3) ? PSN_MASK - draw(200) : draw(PSN_MASK + 1));
	s->qp = sim_qp(s->node, &s->opts);
	while (!qpn_is_new(m, hca_qpn(s->qp))) {
		struct hca_qp *other = sim_qp(s->node, &s->opts);

		hca_qp_destroy(s->qp);
		s->qp = other;
	}
	if (m->nqps == MAX_QPS)
		model_fail(m, s, "too many queue pairs");
	s->qpn = m->qp[m->nqps].qpn = hca_qpn(s->qp);
	m->qp[m->nqps++].side = s;
	if (s->builder)
		hca_qp_wr_init(s->qp, ~0ull);
}

static void make_windows(struct model *m, struct side *s)
{
	memset(s->window, 0, sizeof(s->window));
	if (s->opts.type != IBV_QPT_RC || one_in(2))
		return;
	for (unsigned i = 0; i < MAX_WINDOWS; i++) {
		struct hca_mw *mw = hca_mw_alloc(s->node->pd, one_in(3) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);

		if (!mw)
			model_fail(m, s, "cannot make a memory window");
		s->window[i].mw = mw;
		s->window[i].invalidable = mw->ibv.type == IBV_MW_TYPE_2;
		s->window[i].rkey = mw->ibv.rkey;
	}
}

/* Between real processes its address, since that is the usual case there. */
static uint64_t own_iova(struct model *m, const struct side *s)
{
	size_t len;

	if (model_here.notes)
		return (uintptr_t)s->target;
	return MODEL_ARENA_IOVA + (uint64_t)(s->target - (uint8_t *)model_arena(&len));
}

void life_side_birth(struct model *m, struct side *s)
{
	s->dead = s->skipped = s->failed = s->told = s->killable = s->recv_failed = s->last_wqe = false;
	s->stopped = s->notify = s->drained = false;
	s->first = s->succeeded = s->completed = s->fenced = s->posted;
	s->received = s->peer->posted;
	s->datagrams = s->stale_rkey = 0;
	draw_faults(m, s);
	if (s->rq == &s->own_rq)
		rq_clear(s->rq, m->site[s->node_index].arena_mr->ibv.lkey);
	make_qp(m, s);
	s->target_iova = one_in(2) ? own_iova(m, s) : draw(1ull << 40) * 4096;
	s->target_mr =
		must_reg(m, s->node, s->target, TARGET, s->target_iova, SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	s->target_rkey = s->target_mr->ibv.rkey;
	make_windows(m, s);
	for (unsigned i = 0; i < GROUPS && s->opts.type == IBV_QPT_UD; i++) {
		if (m->site[s->node_index].group_ah[i] && one_in(2) && hca_mcast_attach(s->qp, m->group[i]))
			model_fail(m, s, "cannot attach to a group");
	}
}

/* ---- connections ---- */
static void conn_birth(struct model *m, struct conn *c)
{
	struct side *a = &m->side[2 * (c - m->conn)], *b = a + 1;

	c->over = false;
	life_side_birth(m, a);
	life_side_birth(m, b);
	trace_side(m, a);
	trace_side(m, b);
	sim_connect(a->qp, &a->opts, b->qp, &b->opts);
	sim_connect(b->qp, &b->opts, a->qp, &a->opts);
}

void life_conn_init(struct model *m, struct conn *c, const struct weather *w)
{
	unsigned index = (unsigned)(2 * (c - m->conn)), nodes = m->world.nodes;
	struct side *a = &m->side[index], *b = a + 1;
	struct sim_qp_opts o = sim_qp_opts(NULL);
	unsigned from = (unsigned)draw(nodes);
	unsigned to = one_in(10) ? from : (from + 1 + (unsigned)draw(nodes - 1)) % nodes;
	uint32_t max_msg;

	o.type = one_in(5) ? IBV_QPT_UC : one_in(5) ? IBV_QPT_UD : IBV_QPT_RC;
	if (life_connected && o.type == IBV_QPT_UD)
		o.type = IBV_QPT_RC;
	o.mtu = (enum ibv_mtu)between(IBV_MTU_256, IBV_MTU_4096);
	max_msg = o.type == IBV_QPT_UD ? 4096 : one_in(4) ? 65536 : (128u << o.mtu) * 4;
	side_init(m, index, from, w, &o, max_msg);
	side_init(m, index + 1, to, w, &o, max_msg);
	a->peer = b;
	b->peer = a;
	*c = (struct conn){.lives = (unsigned)draw(4)};
	m->nsides += 2;
}

void life_bury(struct model *m, struct side *s)
{
	struct sim_rq *rq = s->rq;

	if (!s->qp)
		return;
	lock_take(&s->qp->lock); /* a helper is in the middle of nothing */
	lock_drop(&s->qp->lock);
	trace_say(m, s, "destroyed with %u requests in the queue", sim_requests_of(s->qp));
	model_poll(m); /* what has come is known */
	model_settle(m, s);
	life_total.requests += s->posted - s->first;
	life_total.packets += s->qp->count->tx_packets;
	life_total.retransmits += s->qp->count->retransmits;
	life_total.direct += s->qp->count->direct;
	if (s->skipped && !s->failed && !s->told && !s->killable)
		model_fail(m, s, "requests were flushed, and none has failed");
	if (rq->srq && s->qp->recv.valid)
		rq->busy[s->qp->recv.wr_id & 0xff] = false; /* goes with it */
	for (unsigned i = 0; i < GROUPS; i++)
		hca_mcast_detach(s->qp, m->group[i]);
	if (hca_qp_destroy(s->qp))
		model_fail(m, s, "cannot destroy a queue pair");
	s->qp = NULL;
	s->qpn = 0;
	for (unsigned i = 0; i < MAX_WINDOWS; i++) {
		if (s->window[i].mw && hca_mw_dealloc(s->window[i].mw))
			model_fail(m, s, "cannot free a memory window");
		s->window[i].mw = NULL;
	}
	if (s->target_mr && hca_mr_dereg(s->target_mr))
		model_fail(m, s, "cannot deregister a region that nothing uses");
	if (s->target_mr && s->opts.type == IBV_QPT_RC)
		memcpy(s->model, s->target, TARGET); /* from now on nothing may land */
	s->target_mr = NULL;
	s->harmed = s->peer->harmed = true;
}

void life_rebirth(struct model *m, struct conn *c)
{
	struct side *a = &m->side[2 * (c - m->conn)], *b = a + 1;

	life_bury(m, a);
	life_bury(m, b);
	model_check_remains(m, a);
	model_check_remains(m, b);
	c->lives--;
	life_total.rebirths++;
	conn_birth(m, c);
}

/* ---- nodes ---- */
void life_node_dies(struct model *m, unsigned node)
{
	trace_say(m, NULL, "node %u dies", node);
	life_total.deaths++;
	for (unsigned i = 0; i < m->nsides; i++) {
		if (m->side[i].node_index == node)
			life_bury(m, &m->side[i]);
	}
	life_site_close(m, node);
	sim_node_stop(&m->world, node);
}

void life_node_returns(struct model *m, unsigned node)
{
	sim_node_start(&m->world, node);
	life_site_open(m, node);
	trace_say(m, NULL, "node %u is back", node);
}

/* ---- worlds ---- */
static void group_gid(unsigned i, bool ipv6, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (ipv6) {
		gid[0] = 0xff;
		gid[1] = 0x15;
	} else {
		gid[10] = gid[11] = 0xff;
		gid[12] = 239;
	}
	gid[15] = (uint8_t)(i + 1);
}

void life_world_init(struct model *m, uint64_t seed, const struct weather *w)
{
	unsigned nodes = one_in(2) ? (unsigned)between(2, SIM_NODES) : 2;

	m->seed = seed;
	m->nsides = m->nqps = 0;
	m->arena_used = 0;
	m->calm = w->calm;
	m->naughty = w->naughty;
	m->ordered = !w->rules.duplicate && !w->rules.delayed;
	m->pairs = one_in(3) ? (unsigned)between(1, MAX_SIDES / 2) : (unsigned)between(1, 3);
	sim_world_init(&m->world, nodes, seed, one_in(3));
	sim_rules_set(m->world.net, &w->rules);
	trace_seed(m, &w->rules, w->timeout, w->pause_max);
	for (unsigned i = 0; i < GROUPS; i++)
		group_gid(i, m->world.ipv6, m->group[i]);
	for (unsigned i = 0; i < nodes; i++) {
		life_site_init(m, i);
		life_site_open(m, i);
	}
	for (unsigned i = 0; i < m->pairs; i++) {
		life_conn_init(m, &m->conn[i], w);
		conn_birth(m, &m->conn[i]);
	}
}

void life_world_fini(struct model *m)
{
	for (unsigned i = 0; i < m->nsides; i++)
		life_bury(m, &m->side[i]);
	for (unsigned i = 0; i < m->world.nodes; i++) {
		if (m->world.node[i].up)
			life_site_close(m, i);
	}
	sim_world_fini(&m->world);
}
