/* SPDX-License-Identifier: MIT */
/*
 * A malicious peer: right addresses, wrong everything else (attacker.h). Everything is drawn from a seed;
 * prey.h says what must hold. Traffic with others must also keep its bandwidth: what the attacked adapter
 * moves to and from an honest one is compared with what it moves when the attacker is silent.
 *
 *   hostile_test [--seed N] [--seeds COUNT] [--trace]
 */
#include "prey.h"
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOVES = 300 };

static struct {
	unsigned long long frames, completed, died, sent;
} total;

/* Bytes per simulated millisecond. */
struct rates {
	uint64_t data, reads;
};

static struct rates rates_since(const struct prey *p, uint64_t start)
{
	uint64_t ns = sim_clock(p->w.net) - start;

	return (struct rates){
		honest_bytes(&p->honest, false) * SIM_MS / ns, honest_bytes(&p->honest, true) * SIM_MS / ns};
}

static struct rates undisturbed(void)
{
	struct choices c = {.seed = 1};
	struct prey *p = prey_open(&c, 1, true);
	uint64_t start = sim_now(&p->w);
	struct rates r;

	prey_rest(p, 5 * SIM_MS);
	r = rates_since(p, start);
	prey_close(p);
	return r;
}

/*
 * Nine tenths of what it is without an attack. But READs that the prey itself asks for share one window,
 * whoever is asked: a peer that holds back responses holds part of it (docs/security.md). Only those that the
 * honest node asks for, half of all, must keep theirs.
 */
static void check_rates(const struct rates *r, const struct rates *calm)
{
	if (r->data >= calm->data * 9 / 10 && r->reads >= calm->reads / 2)
		return;
	fprintf(stderr, "honest traffic: %llu and %llu bytes per ms, %llu and %llu without an attack\n",
		(unsigned long long)r->data, (unsigned long long)r->reads, (unsigned long long)calm->data,
		(unsigned long long)calm->reads);
	abort();
}

static void run_seed(uint64_t seed, const struct rates *calm)
{
	struct choices c = {.seed = seed * 0x9e3779b97f4a7c15ull + 1};
	struct prey *p = prey_open(&c, seed, true);
	uint64_t start = sim_now(&p->w);
	struct rates r;

	sim_watch(&p->w);
	for (unsigned i = 0; i < MOVES; i++)
		prey_suffer(p);
	r = rates_since(p, start);
	check_rates(&r, calm);
	total.frames += p->attacker.frames;
	total.completed += p->completed;
	total.died += p->died;
	total.sent += p->answers + p->read_packets + p->requests;
	prey_close(p);
}

int main(int argc, char **argv)
{
	struct rates calm;

	seeds_init(argc, argv);
	calm = undisturbed();
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i, &calm);
	printf("%llu seeds from %llu on: all well; %llu hostile frames, %llu sent in answer, %llu "
	       "completions, "
	       "%llu queue pairs died\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, total.frames, total.sent,
		total.completed, total.died);
	return 0;
}
