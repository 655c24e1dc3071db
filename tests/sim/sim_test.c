/* SPDX-License-Identifier: MIT */
/*
 * Random work on random networks, all drawn from a seed: how many adapters and queue pairs, of which types,
 * with which limits; what the network does to packets; what is posted and when; who dies and who comes back.
 * The model knows what must come out.
 *
 *   sim_test [--seed N] [--seeds COUNT] [--trace]
 *
 *   draw.h      the seed           model*.c    what must come out
 *   life.c      births, deaths     work.c      requests and receives
 *   act.c       when what is posted
 *   trouble.c   what goes wrong    trace.c     the story of a seed, for people
 */
#include "act.h"
#include "draw.h"
#include "life.h"
#include "model.h"
#include "seeds.h"
#include "trace.h"
#include "trouble.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS_MAX = 4000000 };
#define TIME_MAX (100 * SIM_S) /* no seed needs a tenth of it */

uint64_t draw_state;
static struct model model;

/* ---- running ---- */
/* Does what is due and returns when something is due next. */
static uint64_t act(struct model *m, struct trouble *t)
{
	uint64_t now = sim_now(&m->world), next = trouble_act(m, t);

	for (unsigned i = 0; i < m->nsides; i++)
		act_on_side(m, &m->side[i], now, &next);
	return next;
}

static void say_stuck(struct model *m, const char *why)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		if (!model_side_done(m, &m->side[i]))
			act_say(&m->side[i]);
	}
	model_fail(m, NULL, "stuck: %s", why);
}

/* Nothing is posted any more: everything comes to rest. */
static void come_to_rest(struct model *m)
{
	unsigned steps = 0;

	for (unsigned i = 0; i < m->world.nodes; i++)
		sim_port_pause(m->world.net, i, false);
	while (sim_step(&m->world, UINT64_MAX)) {
		if (++steps > STEPS_MAX)
			say_stuck(m, "it does not come to rest");
	}
	model_poll(m);
}

static void run(struct model *m, struct trouble *t)
{
	uint64_t next = 0;
	unsigned idle = 0;

	for (unsigned steps = 1; !act_done(m); steps++) {
		bool moved = sim_step(&m->world, next);

		idle = moved || next != UINT64_MAX ? 0 : idle + 1;
		if (idle > 2) /* what the last packet led to was polled, and what that led to */
			say_stuck(m, "nothing is on its way and no timer is set");
		if (steps > STEPS_MAX || sim_now(&m->world) > TIME_MAX)
			say_stuck(m, "it takes too long");
		model_poll(m);
		next = act(m, t);
		if (steps % 64 == 0)
			model_check_flows(m);
	}
	come_to_rest(m);
	model_check_end(m);
}

/* A network that does no harm costs no packet. */
static void check_calm(struct model *m)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		const struct side *s = &m->side[i];
		const struct host_qp_counters *c = s->qp ? s->qp->count : NULL;

		if (!c || s->harmed || s->peer->harmed)
			continue;
		if (c->timeouts || c->probes || c->naks_sent || (c->retransmits && !c->rnr_received))
			model_fail(m, s,
				"%llu timeouts, %llu NAKs, %llu packets sent again in a perfect network",
				(unsigned long long)c->timeouts, (unsigned long long)c->naks_sent,
				(unsigned long long)c->retransmits);
	}
}

static void run_seed(struct model *m, uint64_t seed)
{
	struct weather weather;
	struct trouble trouble;

	draw_state = seed * 0x9e3779b97f4a7c15ull + 1;
	weather = trouble_draw_weather();
	trouble_init(&trouble, &weather);
	life_world_init(m, seed, &weather);
	run(m, &trouble);
	if (weather.calm)
		check_calm(m);
	life_world_fini(m);
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	model_init_source();
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(&model, seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu packets, %llu of them sent again, "
	       "%llu adapters died, %llu connections were made anew\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, life_total.requests,
		life_total.packets, life_total.retransmits, life_total.deaths, life_total.rebirths);
	return 0;
}
