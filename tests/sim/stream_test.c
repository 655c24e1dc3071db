/* SPDX-License-Identifier: MIT */
/*
 * Whole adapters with iWARP connections over a TCP in memory (sim_tcp.h), all drawn from a seed: who calls
 * whom and when, what ANYRDMA_IWARP says at each node, how the socket calls go, what is posted, and what goes
 * wrong: from the first SYN on (nobody listens yet, the manager has no room, a program thinks too long or
 * refuses) to the last FIN.
 *
 *   stream_test [--seed N] [--seeds COUNT] [--trace]
 *
 * iwarp_work.h has the work and the model. Besides that each end of a connection must be told, once, of how
 * it begins and how it ends, and in the end no descriptor, no stream and no alarm may be left.
 *
 * Every third seed has its adapters on one host: their connections are upgraded to the rings of src/local/,
 * or are not, when one of the two is stopped for too long.
 */
#include "stream_calls.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MOST = 2000000 };
#define PATIENCE (400 * SIM_S) /* more than all deadlines that follow each other */
#define LATE     (1 * SIM_S)   /* more than who is refused tries again */

/* ---- a call's life ---- */
static void work(struct call *k, unsigned i)
{
	struct end *n = &k->end[i];
	struct player *pl = &k->work.player[i];

	if (!n->established || !pl->qp || k->whole)
		return;
	if (sim.now >= n->next_post && !k->work.broken) {
		for (unsigned m = (unsigned)sim_draw(4); m-- && pl->posted < pl->todo;)
			iwarp_work_post(&k->work, pl);
		n->next_post = sim.now + 1 + sim_draw(sim_draw(4) ? sim.rules.delay + 1 : 100 * SIM_US);
	}
	if (sim.now >= n->next_recv) {
		for (unsigned m = (unsigned)sim_draw(6); m--;)
			iwarp_work_post_recv(&k->work, pl);
		n->next_recv = sim.now + 1 + sim_draw(sim_draw(8) ? sim.rules.delay + 1 : 5 * SIM_MS);
	}
}

/* All is done: what must come has come, and now it ends. */
static void finish(struct call *k)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct end *n = &k->end[sim_draw(2)];

	if (!k->settle_at) {
		k->settle_at = sim.now + sim.rules.delay + SIM_MS; /* what has left arrives */
		return;
	}
	if (sim.now < k->settle_at)
		return;
	if (!k->work.broken)
		iwarp_work_check_end(&k->work);
	if (k->work.broken)
		return;
	k->whole = k->happened = k->work.broken = true;
	call_say(k, "all is done");
	switch (sim_draw(4)) {
	case 0:
		if (iwarp_conn_disconnect(node_adapter(n->node), n->conn))
			fail("call %u: cannot disconnect", k->index);
		break;
	case 1:
		hca_qp_modify(n->qp, &a, IBV_QP_STATE);
		break;
	case 2:
		call_destroy_qp(k, n);
		break;
	default:
		call_let_go(k, n);
	}
}

static bool both_established(const struct call *k)
{
	return k->work.player[0].qp && k->work.player[1].qp;
}

/* An end whose connection is over, or will never be, is closed. */
static void close_ends(struct call *k)
{
	for (unsigned i = 0; i < 2; i++) {
		struct end *n = &k->end[i];

		if (!n->closed && n->ended && sim.now >= n->close_at)
			call_let_go(k, n);
		/* Whom nobody was told of. */
		if (i && !n->conn && !n->closed && k->end[0].closed)
			n->closed = true;
	}
}

/* A length that grew by a bit: one waits for the rest of a segment that does not exist. */
static void help_flipped(struct call *k)
{
	if (k->trouble != FLIPPED || !sim_tcp_flipped() || k->whole)
		return;
	k->work.broken = true;
	if (!k->over_at)
		k->over_at = sim.now + 2 * SIM_S;
	if (sim.now >= k->over_at && !k->happened) {
		k->happened = true;
		sim_tcp_break((uint16_t)(CALLER_PORT + k->index));
	}
}

static bool is_over(const struct call *k)
{
	return k->end[0].closed && k->end[1].closed;
}

static void act(struct call *k)
{
	if (!k->listened && !k->end[1].closed && sim.now >= k->listen_at)
		call_listen(k);
	if (!k->begun && !k->end[0].closed && sim.now >= k->connect_at)
		call_connect(k);
	if (!k->answered && k->end[1].conn && !k->end[1].ended && sim.now >= k->answer_at)
		call_answer(k);
	if (!is_over(k) && sim.now >= k->trouble_at)
		call_happen(k);
	help_flipped(k);
	for (unsigned i = 0; i < 2; i++) {
		work(k, i);
		if (k->work.player[i].cq)
			iwarp_work_poll(&k->work, &k->work.player[i]);
	}
	if (both_established(k) && !k->work.broken && iwarp_work_done(&k->work))
		finish(k);
	close_ends(k);
}

/* When there is something to do for it next. */
static void plan(const struct call *k, uint64_t *next)
{
	if (is_over(k))
		return;
	sim_earlier(next, k->listened ? UINT64_MAX : k->listen_at);
	sim_earlier(next, k->begun ? UINT64_MAX : k->connect_at);
	sim_earlier(next, k->answered ? UINT64_MAX : k->answer_at);
	sim_earlier(next, k->trouble_at);
	sim_earlier(next, k->settle_at);
	sim_earlier(next, k->over_at);
	for (unsigned i = 0; i < 2; i++) {
		sim_earlier(next, k->end[i].close_at);
		if (k->end[i].established && !k->work.broken)
			sim_earlier(next, k->end[i].next_post);
		if (k->end[i].established && !k->end[i].ended)
			sim_earlier(next, k->end[i].next_recv);
	}
}

/* ---- a seed ---- */
static void draw_call(unsigned i)
{
	struct call *k = &sim.call[i];
	uint64_t d = sim.rules.delay;

	k->index = i;
	k->trouble = sim_draw(2) ? CALM : (enum trouble)sim_draw(TROUBLE_COUNT);
	if (sim.host && (k->trouble == FLIPPED || k->trouble == VANISHED))
		k->trouble = CALM; /* nothing is between its processes */
	k->whose = (unsigned)sim_draw(2);
	sim_total.troubles[k->trouble]++;
	k->end[0].node = (unsigned)sim_draw(sim.w.nodes);
	k->end[1].node = sim_draw(8) ? (k->end[0].node + 1) % sim.w.nodes : k->end[0].node;
	for (unsigned e = 0; e < 2; e++) {
		k->len[e] = (uint32_t)sim_draw(DATA + 1);
		for (unsigned b = 0; b < DATA; b++)
			k->data[e][b] = (uint8_t)sim_draw(256);
		call_make_end(k, e);
	}
	k->connect_at = sim.now + sim_draw(5 * d + 1);
	k->listen_at = sim_draw(4) ? sim.now : sim.now + sim_draw(250 * SIM_MS); /* the caller tries again */
	if (k->trouble == UNHEARD)
		k->listen_at = sim.now + LATE + sim_draw(LATE);
	k->trouble_at = sim.now + sim_draw(sim_draw(2) ? 8 * d + 1 : 60 * d + 5 * SIM_MS);
	k->work.c = &sim.c;
	k->work.wrong = k->trouble == WRONG;
	k->work.when = sim_draw(OPS);
	iwarp_work_init(&k->work);
	if (k->trouble == FLIPPED)
		strcat(sim.words[k->end[0].node], "crc,"); /* or nobody would notice */
	for (unsigned e = 0; e < 2; e++)
		k->work.player[e].qp = NULL; /* until it is established */
}

static void draw_rules(void)
{
	static const uint32_t buffers[] = {16, 100, 600, 5000, 65536, 1 << 17};

	sim.rules = (struct sim_tcp_rules){.delay = 1 + sim_draw(sim_draw(2) ? 100 * SIM_US : 20 * SIM_US),
		.buffer = buffers[sim_draw(30) ? 2 + sim_draw(4) : sim_draw(2)],
		.mss = (uint32_t)(100 + sim_draw(9000)),
		.chopped = (unsigned)sim_draw(4),
		.failing = sim_draw(2) ? 0 : (unsigned)(3 + sim_draw(50))};
}

static void fill(void)
{
	static uint8_t pattern[WORK_MEM];

	for (unsigned k = 0; !pattern[1] && k < WORK_MEM; k++)
		pattern[k] = (uint8_t)(k * 7 + (k >> 8) * 3);
	for (unsigned i = 0; i < sim.calls; i++) {
		for (unsigned e = 0; e < 2; e++) {
			static uint8_t *kept[CALLS][2];

			if (!kept[i][e])
				kept[i][e] = malloc(WORK_MEM);
			sim.mem[i][e] = kept[i][e];
			memcpy(sim.mem[i][e], pattern, WORK_MEM);
		}
	}
}

static void world_open(uint64_t seed)
{
	sim.now = 1000;
	draw_rules();
	sim_tcp_open(&sim.rules, &sim.c, &sim.now);
	nodes_open(seed);
	sim.calls = 1 + (unsigned)sim_draw(CALLS);
	sim.strangers = sim_draw(3) ? 0 : 1 + (unsigned)sim_draw(STRANGERS);
	fill();
	for (unsigned i = 0; i < sim.calls; i++)
		draw_call(i);
	for (unsigned i = 0; i < sim.strangers; i++)
		sim.stranger[i] = (struct stranger){.fd = -1,
			.come_at = sim.now + sim_draw(20 * sim.rules.delay),
			.leave_at = sim.now + sim_draw(sim_draw(2) ? 15 * SIM_S : 100 * sim.rules.delay),
			.to = (unsigned)sim_draw(sim.calls)};
}

static void move_clock(uint64_t next)
{
	sim_earlier(&next, sim_tcp_next());
	nodes_plan(&next);
	if (next == UINT64_MAX)
		next = sim.now + SIM_MS;
	sim.now = next;
	sim_clock_set(sim.w.net, sim.now);
	sim_tcp_run();
}

static bool all_over(void)
{
	for (unsigned i = 0; i < sim.calls; i++) {
		if (!is_over(&sim.call[i]))
			return false;
	}
	for (unsigned i = 0; i < sim.strangers; i++) {
		if (sim.stranger[i].fd >= 0 || sim.now < sim.stranger[i].leave_at)
			return false;
	}
	return true;
}

static void say_stuck(void)
{
	for (unsigned i = 0; i < sim.calls; i++) {
		const struct call *k = &sim.call[i];

		if (!is_over(k))
			fprintf(stderr,
				"call %u, %s: established %d %d, ended %d %d, closed %d %d, posted %u %u of "
				"%u %u, received %u %u\n",
				i, trouble_names[k->trouble], k->end[0].established, k->end[1].established,
				k->end[0].ended, k->end[1].ended, k->end[0].closed, k->end[1].closed,
				k->work.player[0].posted, k->work.player[1].posted, k->work.player[0].todo,
				k->work.player[1].todo, k->work.player[0].received,
				k->work.player[1].received);
	}
	fail("at %.3f us: it does not come to an end", (double)sim.now / 1000);
}

static void run(void)
{
	for (unsigned steps = 0; !all_over(); steps++) {
		uint64_t next = UINT64_MAX;

		for (unsigned i = 0; i < sim.calls; i++)
			act(&sim.call[i]);
		for (unsigned i = 0; i < sim.strangers; i++)
			stranger_act(&sim.stranger[i]);
		nodes_drive();
		for (unsigned i = 0; i < sim.calls; i++)
			plan(&sim.call[i], &next);
		for (unsigned i = 0; i < sim.strangers; i++) {
			sim_earlier(&next, sim.stranger[i].come_at);
			sim_earlier(&next, sim.stranger[i].speak_at);
			sim_earlier(&next, sim.stranger[i].leave_at);
		}
		move_clock(next);
		if (steps > STEPS_MOST || sim.now > PATIENCE)
			say_stuck();
	}
}

/* Whatever was let go of is out of the way before long. */
static void come_to_rest(void)
{
	uint64_t until = sim.now + 100 * SIM_S;

	for (unsigned i = 0; i < sim.calls; i++)
		call_close_listener(&sim.call[i]);
	do {
		nodes_drive();
		move_clock(until);
	} while (sim.now < until);
	for (unsigned i = 0; i < sim.w.nodes; i++) {
		if (sim.w.node[i].up && !list_empty(&iwarp_port_in(node_adapter(i))->all))
			fail("node %u: a stream is left when all is over", i);
	}
}

static void world_close(void)
{
	for (unsigned i = 0; i < sim.calls; i++) {
		struct call *k = &sim.call[i];

		if (k->end[0].established || k->end[1].established)
			iwarp_work_check_end(&k->work);
		call_unmake_end(k, 0);
		call_unmake_end(k, 1);
		iwarp_work_fini(&k->work);
	}
	sim_world_fini(&sim.w);
	if (!sim_tcp_close())
		fail("descriptors are left when all is over");
}

static void run_seed(uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	sim.c = (struct choices){.seed = seed * 0x9e3779b97f4a7c15ull + 1};
	sim.random = seed;
	world_open(seed);
	run();
	come_to_rest();
	world_close();
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	log_level = getenv("ANYRDMA_LOG") ? log_level : LOG_ERROR;
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu ends established, %llu refused; %llu "
	       "seeds on one host, %llu ends through shared memory, %llu that could not\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, iwarp_work_total.requests,
		sim_total.established, sim_total.refused, sim_total.hosts, sim_total.shared,
		sim_total.declined);
	for (unsigned i = 1; seeds.trace && i < TROUBLE_COUNT; i++)
		printf("  %s: %llu\n", trouble_names[i], sim_total.troubles[i]);
	if (sim_total.hosts > 50 && (!sim_total.shared || !sim_total.declined)) {
		printf("no connection went through shared memory, or all did\n");
		return 1;
	}
	return 0;
}
