/* SPDX-License-Identifier: MIT */
#include "trouble.h"

#include "draw.h"
#include "trace.h"
#include "wire/ibt.h"

#include <string.h>

/* ---- the network ---- */
enum kind { CALM, PERFECT, LOSSY, DOUBLING, REORDERING, CORRUPTING, GHOSTS, BAD, WORSE, KINDS };

static void draw_rules(struct sim_rules *r, enum kind kind)
{
	r->mercy = 2;
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
}

struct weather trouble_draw_weather(void)
{
	enum kind kind = (enum kind)draw(KINDS);
	struct weather w = {.calm = kind == CALM};
	struct sim_rules *r = &w.rules;
	uint64_t round_trip;

	draw_rules(r, kind);
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
	w.naughty = one_in(2);
	w.troubles = one_in(2) ? (unsigned)between(1, TROUBLES) : 0;
	return w;
}

void trouble_init(struct trouble *t, const struct weather *w)
{
	uint64_t at = 0;

	*t = (struct trouble){
		.pause_max = w->pause_max, .pause_next = w->pause_max, .cut_at = w->cut_at, .n = w->troubles};
	for (unsigned i = 0; i < t->n; i++)
		t->at[i] = at += between(1, one_in(3) ? 3000 : 300) * SIM_US;
}

/* ---- single troubles ---- */
static void modify(struct model *m, struct side *s, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to, .en_sqd_async_notify = s->notify};

	int err;

	model_leave();
	err = hca_qp_modify(
		s->qp, &attr, IBV_QP_STATE | (to == IBV_QPS_SQD ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0));
	model_enter();
	if (err)
		model_fail(m, s, "cannot be moved to %s", hca_qp_state_name(to));
}

static void kill_node(struct model *m, struct side *s)
{
	struct sim_site *site = &m->site[s->node_index];

	if (!m->world.net || !s->node->up || site->cut)
		return;
	site->back_at = sim_now(&m->world) + between(1, one_in(2) ? 10 : 2000) * SIM_US;
	life_node_dies(m, s->node_index);
}

static void destroy(struct model *m, struct side *s)
{
	life_bury(m, s);
}

void trouble_tell(struct model *m, struct side *s)
{
	if (!s->qp)
		return;
	model_poll(m); /* that its queue was drained just before is known */
	trace_say(m, s, "moved to the error state");
	s->told = s->harmed = s->peer->harmed = true;
	modify(m, s, IBV_QPS_ERR);
}

static bool has_windows(const struct side *s)
{
	for (unsigned i = 0; i < MAX_WINDOWS; i++) {
		if (s->window[i].mw && s->window[i].state != WINDOW_FREE)
			return true;
	}
	return false;
}

static void deregister(struct model *m, struct side *s)
{
	struct hca_mr *mr;

	if (!s->qp || !s->target_mr || s->opts.type != IBV_QPT_RC || has_windows(s))
		return;
	trace_say(m, s, "its target is deregistered");
	mr = s->target_mr;
	s->target_mr = NULL;
	s->killable = s->harmed = s->peer->harmed = true;
	model_leave();
	if (hca_mr_dereg(mr))
		model_fail(m, s, "cannot deregister its target");
	model_enter();
	memcpy(s->model, s->target, TARGET); /* from now on nothing may land */
}

/* The same region anew, under its peer's hands, who must not notice. */
static void reregister(struct model *m, struct side *s)
{
	if (!s->qp || !s->target_mr || has_windows(s))
		return;
	trace_say(m, s, "its target is registered again");
	model_leave();
	if (hca_mr_rereg(s->target_mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
		    SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND))
		model_fail(m, s, "cannot register its target again");
	model_enter();
}

static void stop(struct model *m, struct side *s)
{
	if (!s->qp || s->stopped || hca_qp_state(s->qp) != IBV_QPS_RTS)
		return;
	s->notify = !one_in(4);
	s->stopped = true;
	s->drained = false;
	s->resume_at = sim_now(&m->world) + between(1, one_in(3) ? 2000 : 100) * SIM_US;
	trace_say(m, s, "moved to SQD");
	modify(m, s, IBV_QPS_SQD);
}

static void happen(struct model *m)
{
	static void (*const what[])(struct model *, struct side *) = {
		kill_node, destroy, trouble_tell, deregister, reregister, stop, stop};
	struct side *s = &m->side[draw(m->nsides)];
	unsigned i = (unsigned)draw(sizeof(what) / sizeof(what[0]));

	if (model_is_ours(s))
		what[i](m, s);
}

static void cut_off(struct model *m, unsigned node)
{
	if (!m->world.node[node].up)
		return;
	trace_say(m, NULL, "node %u is cut off", node);
	sim_port_cut(m->world.net, node, true);
	m->site[node].cut = true;
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		if (s->node_index != node && s->peer->node_index != node)
			continue;
		s->cut = s->harmed = true;
		model_conn(m, s)->lives = 0;
	}
}

/* ---- setting right ---- */
/* Back to RTS: from SQD, mostly once it is drained, and from SQE. */
static void resume(struct model *m, struct side *s, uint64_t now)
{
	if (!s->qp)
		return;
	if (s->stopped && hca_qp_state(s->qp) != IBV_QPS_SQD)
		s->stopped = s->drained = false; /* it broke meanwhile */
	if (s->stopped && s->resume_at <= now && (s->drained || !s->notify)) {
		trace_say(m, s, "back to RTS");
		s->stopped = s->drained = false;
		modify(m, s, IBV_QPS_RTS);
	}
	if (hca_qp_state(s->qp) == IBV_QPS_SQE && s->completed == s->posted) {
		trace_say(m, s, "back from SQE");
		s->dead = s->failed = false;
		modify(m, s, IBV_QPS_RTS);
	}
}

static bool can_be_reborn(struct model *m, const struct conn *c)
{
	const struct side *a = &m->side[2 * (c - m->conn)], *b = a + 1;

	return c->over && c->lives && (a->posted < a->todo || b->posted < b->todo);
}

static bool is_idle(const struct side *s)
{
	return !s->qp || s->qp->sq.head == s->qp->sq.tail;
}

static void look_after(struct model *m, struct conn *c, uint64_t now, uint64_t *next)
{
	struct side *a = &m->side[2 * (c - m->conn)], *b = a + 1;
	bool broken = model_is_broken(m, a);

	broken |= model_is_broken(m, b);
	if (broken && !c->over) {
		c->over = true;
		c->patient = one_in(2);
		c->rebirth_at = now + between(1, one_in(2) ? 100 : 5000) * SIM_US;
	}
	if (!can_be_reborn(m, c))
		return;
	if (now < c->rebirth_at) {
		*next = c->rebirth_at < *next ? c->rebirth_at : *next;
	} else if (a->node->up && b->node->up && (!c->patient || (is_idle(a) && is_idle(b)))) {
		life_rebirth(m, c);
	}
}

bool trouble_pending(struct model *m)
{
	for (unsigned i = 0; i < m->pairs; i++) {
		if (can_be_reborn(m, &m->conn[i]))
			return true;
	}
	return false;
}

static void earlier(uint64_t *next, uint64_t at)
{
	if (at && at < *next)
		*next = at;
}

static void act_on_nodes(struct model *m, uint64_t now, uint64_t *next)
{
	for (unsigned i = 0; i < m->world.nodes; i++) {
		struct sim_site *site = &m->site[i];

		if (!m->world.node[i].up && site->back_at <= now)
			life_node_returns(m, i);
		if (!m->world.node[i].up)
			earlier(next, site->back_at);
	}
}

static void act_on_pauses(struct model *m, struct trouble *t, uint64_t now)
{
	if (!t->pause_max || t->pause_next > now)
		return;
	t->pausing = !t->pausing;
	if (t->pausing)
		t->paused = (unsigned)draw(m->world.nodes);
	if (m->world.node[t->paused].up)
		sim_port_pause(m->world.net, t->paused, t->pausing);
	t->pause_next =
		now + (t->pausing ? between(1, t->pause_max) : between(t->pause_max * 2, t->pause_max * 10));
}

uint64_t trouble_act(struct model *m, struct trouble *t)
{
	uint64_t now = sim_now(&m->world), next = UINT64_MAX;

	for (; t->next < t->n && t->at[t->next] <= now; t->next++)
		happen(m);
	if (t->cut_at && t->cut_at <= now) {
		t->cut_at = 0;
		cut_off(m, (unsigned)draw(m->world.nodes));
	}
	act_on_pauses(m, t, now);
	act_on_nodes(m, now, &next);
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		if (!model_is_ours(s))
			continue;
		resume(m, s, now);
		if (s->stopped && s->resume_at > now)
			earlier(&next, s->resume_at);
	}
	model_poll(m); /* resuming may have led to errors at once */
	for (unsigned i = 0; i < m->pairs; i++)
		look_after(m, &m->conn[i], now, &next);
	earlier(&next, t->next < t->n ? t->at[t->next] : 0);
	earlier(&next, t->cut_at);
	earlier(&next, t->pause_max ? t->pause_next : 0);
	return next;
}
