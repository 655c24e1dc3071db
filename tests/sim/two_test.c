/* SPDX-License-Identifier: MIT */
/*
 * Random work between two real processes of one host, each with a real adapter, by the way that
 * ANYRDMA_LOCAL says. What is posted and what goes wrong is drawn from a seed as in the simulation, and the
 * simulation's model says what must come out; who is when at what is the scheduler's.
 *
 *   two_test [--seed N] [--seeds COUNT] [--trace] [kill]
 *
 * On a host of a fabric (ANYRDMA_HOST) they are on its hosts node1 and node2.
 *
 * `kill`: one of the two is killed, at a moment that is drawn. The other gets an error for everything it
 * still had to do, soon, and its memory is what some prefix of the dead one's work would have left.
 */
#include "base/env.h"
#include "base/gid.h"
#include "cm/router.h"
#include "draw.h"
#include "fabric/attach.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/local.h"
#include "life.h"
#include "mad/gsi.h"
#include "seeds.h"
#include "two.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 60 };

uint64_t draw_state;

void two_nap(uint64_t us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	nanosleep(&t, NULL);
}

static void enter(void)
{
	if (pthread_mutex_lock(&two->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&two->lock); /* it was killed; what it wrote down is all there */
}

static void leave(void)
{
	pthread_mutex_unlock(&two->lock);
}

/* ---- a real node ---- */
static void go_to_host(unsigned me)
{
	if (!getenv("ANYRDMA_HOST"))
		return;
	setenv("ANYRDMA_HOST", me ? "node2" : "node1", 1);
	env_forget();
}

static bool is_ours(const struct hca_device *d)
{
	return d->kind == HCA_INFINIBAND || (d->loopback && d->kind != HCA_IWARP);
}

/* What the peer sends to. */
static void address_of(struct hca_port *p, uint8_t gid[16])
{
	if (hca_port_is_ib(p))
		gid_of_lid(hca_port_lids(p).base, gid);
	else
		hca_port_gid(p, 0, gid);
}

void two_node_open(struct model *m, unsigned me)
{
	static const struct mad_router *const routers[] = {&cm_router, NULL};
	struct sim_node *n = &m->world.node[me];
	struct hca_device *dev = NULL;

	go_to_host(me);
	hca_adapter_init(&n->adapter);
	if (mad_gsi_open(&n->adapter, routers)) /* others' MADs come to us, too */
		model_fail(m, NULL, "cannot make QP1");
	n->adapter.local = hca_local_wanted();
	n->adapter.on_fabric = fabric_is_ours();
	if (hca_devices_refresh(&n->adapter))
		model_fail(m, NULL, "cannot read the network interfaces");
	list_for_each(node, &n->adapter.devices)
	{
		struct hca_device *d = container_of(node, struct hca_device, node);

		dev = is_ours(d) ? d : dev;
	}
	n->ctx = dev ? hca_context_open(dev) : NULL;
	n->pd = n->ctx ? hca_pd_alloc(n->ctx) : NULL;
	if (!n->pd)
		model_fail(m, NULL, "cannot open the loopback's device");
	address_of(hca_device_port(dev, 1), n->gid);
	n->up = true;
}

void two_node_close(struct model *m, unsigned me)
{
	struct sim_node *n = &m->world.node[me];

	if (hca_pd_dealloc(n->pd))
		model_fail(m, NULL, "something is left in the PD");
	hca_context_close(n->ctx);
	mad_gsi_close(&n->adapter);
}

/* ---- a process ---- */
static pid_t start(unsigned me, pid_t parent)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	model_here.node = (int)me;
	two_live(me);
	two->requests += life_total.requests;
	two->packets += life_total.packets;
	two->direct += life_total.direct;
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
	pthread_mutexattr_t attr;

	memset(two, 0, sizeof(*two));
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&two->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	two_begin(seed);
}

/* Once both have their queue pairs: while they connect, or work. */
static void kill_one(const pid_t pid[TWO])
{
	unsigned victim = (unsigned)draw(TWO);

	while (two->phase[0] < TWO_CONNECTS || two->phase[1] < TWO_CONNECTS) {
		two_nap(200);
		if (sim_now(&two->model.world) > PATIENCE_S * SIM_S)
			break;
	}
	two_nap(draw(one_in(2) ? 2000 : 30000));
	kill(pid[victim], SIGKILL);
	waitid(P_PID, (id_t)pid[victim], NULL, WEXITED | WNOWAIT);
	atomic_store(&two->killed, true);
}

/* Whether the next of them that ends does so well. */
static bool ends_well(pid_t pid[TWO])
{
	int status;
	pid_t ended = wait(&status);

	if (ended < 0)
		return false;
	pid[ended == pid[1]] = 0;
	return status == 0 || (two_kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void run_seed(uint64_t seed)
{
	pid_t pid[TWO];
	bool well;

	begin(seed);
	draw_state = seed * 0x9e3779b97f4a7c15ull;
	for (unsigned i = 0; i < TWO; i++)
		pid[i] = start(i, getpid());
	if (two_kills)
		kill_one(pid);
	well = ends_well(pid);
	if (!well)
		kill(pid[0] ? pid[0] : pid[1], SIGKILL);
	if (!ends_well(pid) || !well) {
		fprintf(stderr, "seed %llu went wrong, replay: %s --seed %llu --trace%s\n",
			(unsigned long long)seed, seeds.program, (unsigned long long)seed,
			two_kills ? " kill" : "");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	unsigned long long requests = 0, packets = 0, direct = 0;
	size_t arena;

	seeds_init(argc, argv);
	two_kills = argc > 1 && !strcmp(argv[argc - 1], "kill");
	model_init_source();
	model_arena(&arena);
	two = shared(sizeof(*two));
	model_here.enter = enter;
	model_here.leave = leave;
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
