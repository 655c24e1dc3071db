/* SPDX-License-Identifier: MIT */
#include "two.h"

#include "act.h"
#include "draw.h"
#include "trace.h"
#include "trouble.h"

#include <string.h>

enum { PATIENCE_S = 60 };

struct two *two;
bool two_kills, two_troubles, two_flaps;
unsigned two_looks = 200;

/* ---- together ---- */
static void drive(unsigned me)
{
	static _Atomic unsigned looks[TWO];
	struct hca_adapter *a = &two->model.world.node[me].adapter;

	if (a->up)
		hca_engine_poll(&a->engine, &looks[me]);
}

/* Both have come here; or the other one never will. */
static void meet(unsigned me)
{
	unsigned phase = atomic_fetch_add(&two->phase[me], 1) + 1;

	while (atomic_load(&two->phase[!me]) < phase && !atomic_load(&two->killed)) {
		drive(me);
		two_nap(50);
	}
}

/* A connection to that process's queue pair, until it goes through shared memory: on a busy machine that one
 * may be late.
 */
static void reach(struct model *m, unsigned me, const struct sim_qp_opts *o, unsigned to)
{
	struct sim_node *n = &m->world.node[me];
	bool wanted = n->adapter.local != HCA_LOCAL_OFF, local = !wanted;

	for (unsigned tries = 0; local != wanted && tries < 100 && !atomic_load(&two->killed); tries++) {
		struct hca_qp *qp = sim_qp(n, o);

		sim_connect_to(qp, o, m->world.node[to].gid, two->first_qpn[to], o);
		local = qp->path.shared;
		hca_qp_destroy(qp);
	}
	if (local != wanted)
		model_fail(m, NULL, "node %u does not go through shared memory", me);
}

/* To the other one and to ourselves: datagrams would go over UDP until it is there, and be overtaken. */
static void first_connections(struct model *m, unsigned me)
{
	struct sim_qp_opts o = sim_qp_opts(m->site[me].send_cq);
	struct hca_qp *qp = sim_qp(&m->world.node[me], &o);

	two->first_qpn[me] = hca_qpn(qp);
	meet(me);
	for (unsigned i = 0; i < TWO; i++)
		reach(m, me, &o, i);
	meet(me);
	hca_qp_destroy(qp);
}

/* ---- the work of a seed ---- */
/* By the first node, for both. */
static void draw_world(struct model *m)
{
	struct weather *w = &two->weather;

	*w = (struct weather){.naughty = one_in(2), .timeout = two_kills ? 12 : 18};
	if (two_troubles)
		w->troubles = (unsigned)between(1, TROUBLES);
	m->naughty = w->naughty;
	m->ordered = m->two_ways = true;
	m->pairs = one_in(3) ? (unsigned)between(1, MAX_SIDES / 2) : (unsigned)between(1, 3);
	for (unsigned i = 0; i < TWO; i++)
		life_site_init(m, i);
	for (unsigned i = 0; i < m->pairs; i++) {
		life_conn_init(m, &m->conn[i], w);
		m->conn[i].lives = 0;
	}
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		s->one_sided = s->opts.type == IBV_QPT_RC && one_in(2);
		s->cut = s->harmed = two_kills;
		s->todo = two_kills ? MAX_WRS : s->todo;
	}
}

static void each_of_ours(struct model *m, void (*fn)(struct model *, struct side *))
{
	model_enter();
	for (unsigned i = 0; i < m->nsides; i++) {
		if (model_is_ours(&m->side[i]))
			fn(m, &m->side[i]);
	}
	model_leave();
}

static void birth(struct model *m, struct side *s)
{
	memcpy(s->target, s->base, TARGET);
	life_side_birth(m, s);
}

static void connect_side(struct model *m, struct side *s)
{
	trace_side(m, s);
	model_leave(); /* it may wait for the other one */
	sim_connect_to(s->qp, &s->opts, m->world.node[s->peer->node_index].gid, s->peer->qpn, &s->peer->opts);
	model_enter();
	if (s->opts.type != IBV_QPT_UD && !two_kills && !two_flaps &&
		s->qp->path.shared != (s->node->adapter.local != HCA_LOCAL_OFF))
		model_fail(m, s, "does not go through shared memory");
}

/* A connection that is over at one end ends at the other, too, if it has not seen it by then. */
static void end_what_is_over(struct model *m, struct side *s)
{
	const struct conn *c = model_conn(m, s);

	if (c->over && s->qp && !s->told && !model_is_broken(m, s) && sim_now(&m->world) > c->rebirth_at)
		trouble_tell(m, s);
}

static void act_on_ours(struct model *m, struct side *s)
{
	uint64_t next = UINT64_MAX; /* we look all the time */

	end_what_is_over(m, s);
	act_on_side(m, s, sim_now(&m->world), &next);
}

/* Killed: the survivor has all its completions. */
static bool is_done(struct model *m)
{
	if (!two_kills)
		return act_done(m);
	for (unsigned i = 0; i < m->nsides; i++) {
		if (model_is_ours(&m->side[i]) && !model_side_done(m, &m->side[i]))
			return false;
	}
	return atomic_load(&two->killed);
}

static void step(struct model *m, struct trouble *t)
{
	model_enter();
	model_poll(m);
	trouble_act(m, t);
	model_leave();
	each_of_ours(m, act_on_ours);
}

static void say_stuck(struct model *m)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		if (model_is_ours(&m->side[i]) && !model_side_done(m, &m->side[i]))
			act_say(&m->side[i]);
	}
	model_fail(m, NULL, "node %d: not done after %d s", model_here.node, PATIENCE_S);
}

static void run(struct model *m, unsigned me, struct trouble *t)
{
	bool done = false;

	while (!done) {
		drive(me);
		step(m, t);
		if (one_in(two_looks))
			two_nap(draw(2000)); /* the helper's turn */
		model_enter();
		done = is_done(m);
		if (!done && sim_now(&m->world) > PATIENCE_S * SIM_S)
			say_stuck(m);
		model_leave();
	}
}

/* Nothing is posted any more: what is on its way arrives, and has its reply. */
static void come_to_rest(struct model *m, unsigned me)
{
	for (unsigned i = 0; i < 4; i++) {
		meet(me);
		drive(me);
		model_enter();
		model_poll(m);
		model_leave();
	}
	meet(me);
}

/* Of UC nobody knows what is still on its way: from now on it writes nowhere. */
static void close_to_writes(struct model *m, struct side *s)
{
	if (s->opts.type == IBV_QPT_UC && !model_is_broken(m, s))
		trouble_tell(m, s);
}

static void check_end(struct model *m)
{
	each_of_ours(m, close_to_writes);
	model_enter();
	model_poll(m);
	model_check_end(m);
	model_leave();
}

/* ---- a life ---- */
void two_live(unsigned me)
{
	struct model *m = &two->model;
	struct trouble trouble;

	two_node_open(m, me);
	meet(me);
	draw_state = m->seed * 0x9e3779b97f4a7c15ull + 1 + me;
	if (me == 0)
		draw_world(m);
	meet(me);
	life_site_open(m, me);
	first_connections(m, me);
	trouble_init(&trouble, &two->weather);
	each_of_ours(m, birth);
	meet(me);
	each_of_ours(m, connect_side);
	meet(me);
	for (unsigned i = 0; i < trouble.n; i++)
		trouble.at[i] += sim_now(&m->world);
	run(m, me, &trouble);
	come_to_rest(m, me);
	check_end(m);
	meet(me); /* the other one has looked at what we posted, too */
	each_of_ours(m, life_bury);
	life_site_close(m, me);
	two_node_close(m, me);
}

void two_begin(uint64_t seed)
{
	struct model *m = &two->model;

	m->seed = seed;
	m->torn = two_kills;
	m->world.nodes = TWO;
	m->world.began = sim_now(&m->world);
}
