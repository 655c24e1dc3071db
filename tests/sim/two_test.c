/* SPDX-License-Identifier: MIT */
/*
 * Random work between two real processes of one host, each with a real adapter, by the way that
 * ANYRDMA_LOCAL says. What is posted and what goes wrong is drawn from a seed as in the simulation, and the
 * simulation's model says what must come out; who is when at what is the scheduler's.
 *
 *   two_test [--seed N] [--seeds COUNT] [--trace] [kill]
 *
 * `kill`: one of the two is killed, at a moment that is drawn. The other gets an error for everything it
 * still had to do, soon, and its memory is what some prefix of the dead one's work would have left.
 *
 * The model lies in memory that both see, under a lock that neither holds while it posts, deregisters or
 * modifies (model_leave). Each process has its own sides' objects and memory, and checks them.
 */
#include "act.h"
#include "cm/router.h"
#include "draw.h"
#include "hca/adapter.h"
#include "hca/local.h"
#include "life.h"
#include "mad/gsi.h"
#include "seeds.h"
#include "trace.h"
#include "trouble.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 2, PATIENCE_S = 60 };

/* What both processes see. */
struct two {
	struct model model;
	pthread_mutex_t lock;
	struct weather weather;
	atomic_uint phase[NODES]; /* which barrier it has come to */
	atomic_bool killed;       /* one of them was, and is no more */
	uint32_t first_qpn[NODES];
	atomic_ullong requests, packets, direct;
};

uint64_t draw_state;
static struct two *two;
static bool kills;

/* ---- together ---- */
static void nap(uint64_t us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	nanosleep(&t, NULL);
}

static void drive(unsigned me)
{
	static _Atomic unsigned looks;
	struct hca_adapter *a = &two->model.world.node[me].adapter;

	if (a->up)
		hca_engine_poll(&a->engine, &looks);
}

/* Both have come here; or the other one never will. */
static void meet(unsigned me)
{
	unsigned phase = atomic_fetch_add(&two->phase[me], 1) + 1;

	while (atomic_load(&two->phase[!me]) < phase && !atomic_load(&two->killed)) {
		drive(me);
		nap(50);
	}
}

/* ---- a real node ---- */
static void node_open(struct model *m, unsigned me)
{
	static const struct mad_router *const routers[] = {&cm_router, NULL};
	struct sim_node *n = &m->world.node[me];
	struct hca_device *dev = NULL;

	hca_adapter_init(&n->adapter);
	if (mad_gsi_open(&n->adapter, routers)) /* others' MADs come to us, too */
		model_fail(m, NULL, "cannot make QP1");
	n->adapter.local = hca_local_wanted();
	if (hca_devices_refresh(&n->adapter))
		model_fail(m, NULL, "cannot read the network interfaces");
	list_for_each(node, &n->adapter.devices)
	{
		struct hca_device *d = container_of(node, struct hca_device, node);

		dev = d->loopback && d->kind != HCA_IWARP ? d : dev;
	}
	n->ctx = dev ? hca_context_open(dev) : NULL;
	n->pd = n->ctx ? hca_pd_alloc(n->ctx) : NULL;
	if (!n->pd)
		model_fail(m, NULL, "cannot open the loopback's device");
	hca_port_gid(hca_device_port(dev, 1), 0, n->gid);
	n->up = true;
}

static void node_close(struct model *m, unsigned me)
{
	struct sim_node *n = &m->world.node[me];

	if (hca_pd_dealloc(n->pd))
		model_fail(m, NULL, "something is left in the PD");
	hca_context_close(n->ctx);
	mad_gsi_close(&n->adapter);
}

/* A connection to that queue pair's process, until it goes by memory: on a busy machine that one may be late.
 */
static void reach(struct model *m, unsigned me, const struct sim_qp_opts *o, uint32_t qpn)
{
	struct sim_node *n = &m->world.node[me];
	bool wanted = n->adapter.local != HCA_LOCAL_OFF, local = !wanted;

	for (unsigned tries = 0; local != wanted && tries < 100 && !atomic_load(&two->killed); tries++) {
		struct hca_qp *qp = sim_qp(n, o);

		sim_connect_to(qp, o, n->gid, qpn, o);
		local = qp->path.shared;
		hca_qp_destroy(qp);
	}
	if (local != wanted)
		model_fail(m, NULL, "node %u does not go by memory", me);
}

/* To the other one and to ourselves: datagrams would go by the wire until it is there, and be overtaken. */
static void first_connections(struct model *m, unsigned me)
{
	struct sim_qp_opts o = sim_qp_opts(m->site[me].send_cq);
	struct hca_qp *qp = sim_qp(&m->world.node[me], &o);

	two->first_qpn[me] = hca_qpn(qp);
	meet(me);
	for (unsigned i = 0; i < NODES; i++)
		reach(m, me, &o, two->first_qpn[i]);
	meet(me);
	hca_qp_destroy(qp);
}

/* ---- the work of a seed ---- */
/* By the first node, for both. */
static void draw_world(struct model *m)
{
	struct weather *w = &two->weather;

	*w = (struct weather){.naughty = one_in(2), .timeout = kills ? 12 : 18};
	m->naughty = w->naughty;
	m->ordered = m->two_ways = true;
	m->pairs = one_in(3) ? (unsigned)between(1, MAX_SIDES / 2) : (unsigned)between(1, 3);
	for (unsigned i = 0; i < NODES; i++)
		life_site_init(m, i);
	for (unsigned i = 0; i < m->pairs; i++) {
		life_conn_init(m, &m->conn[i], w);
		m->conn[i].lives = 0;
	}
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		s->one_sided = s->opts.type == IBV_QPT_RC && one_in(2);
		s->cut = s->harmed = kills;
		s->todo = kills ? MAX_WRS : s->todo;
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
	if (s->opts.type != IBV_QPT_UD && !kills &&
		s->qp->path.shared != (s->node->adapter.local != HCA_LOCAL_OFF))
		model_fail(m, s, "goes not by memory");
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
	if (!kills)
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
		if (one_in(200))
			nap(draw(2000)); /* the helper's turn */
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

/* ---- a process ---- */
static void live(struct model *m, unsigned me)
{
	struct trouble trouble;

	node_open(m, me);
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
	run(m, me, &trouble);
	come_to_rest(m, me);
	check_end(m);
	meet(me); /* the other one has looked at what we posted, too */
	each_of_ours(m, life_bury);
	life_site_close(m, me);
	node_close(m, me);
	two->requests += life_total.requests;
	two->packets += life_total.packets;
	two->direct += life_total.direct;
}

static pid_t start(unsigned me, pid_t parent)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	model_here.node = (int)me;
	live(&two->model, me);
	fflush(stdout);
	_exit(0);
}

/* ---- both, and who looks after them ---- */
static void *shared(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static void begin(uint64_t seed)
{
	struct model *m = &two->model;
	pthread_mutexattr_t attr;

	memset(two, 0, sizeof(*two));
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&two->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	m->seed = seed;
	m->torn = kills;
	m->world.nodes = NODES;
	m->world.began = sim_now(&m->world);
}

/* Once both have their queue pairs: while they connect, or work. */
static void kill_one(const pid_t pid[NODES])
{
	unsigned victim = (unsigned)draw(NODES);

	while (two->phase[0] < 5 || two->phase[1] < 5) {
		nap(200);
		if (sim_now(&two->model.world) > PATIENCE_S * SIM_S)
			break;
	}
	nap(draw(one_in(2) ? 2000 : 30000));
	kill(pid[victim], SIGKILL);
	waitid(P_PID, (id_t)pid[victim], NULL, WEXITED | WNOWAIT);
	atomic_store(&two->killed, true);
}

/* Whether the next of them that ends does so well. */
static bool ends_well(pid_t pid[NODES])
{
	int status;
	pid_t ended = wait(&status);

	if (ended < 0)
		return false;
	pid[ended == pid[1]] = 0;
	return status == 0 || (kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void run_seed(uint64_t seed)
{
	pid_t pid[NODES];
	bool well;

	begin(seed);
	draw_state = seed * 0x9e3779b97f4a7c15ull;
	for (unsigned i = 0; i < NODES; i++)
		pid[i] = start(i, getpid());
	if (kills)
		kill_one(pid);
	well = ends_well(pid);
	if (!well)
		kill(pid[0] ? pid[0] : pid[1], SIGKILL);
	if (!ends_well(pid) || !well) {
		fprintf(stderr, "seed %llu went wrong, replay: %s --seed %llu --trace%s\n",
			(unsigned long long)seed, seeds.program, (unsigned long long)seed,
			kills ? " kill" : "");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned long long requests = 0, packets = 0, direct = 0;
	size_t arena;

	seeds_init(argc, argv);
	kills = argc > 1 && !strcmp(argv[argc - 1], "kill");
	model_init_source();
	model_arena(&arena);
	two = shared(sizeof(*two));
	model_here.lock = &two->lock;
	model_here.notes = shared(arena);
	for (uint64_t i = 0; i < seeds.count; i++) {
		run_seed(seeds.now = seeds.first + i);
		requests += two->requests;
		packets += two->packets;
		direct += two->direct;
	}
	printf("%llu seeds from %llu on: all well; %llu requests, %llu of them direct, %llu packets\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, requests, direct, packets);
	if (!direct && seeds.count > 1 && hca_local_wanted() >= HCA_LOCAL_COPY) {
		fprintf(stderr, "nothing was done directly\n");
		return 1;
	}
	return 0;
}
