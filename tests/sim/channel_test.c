/* SPDX-License-Identifier: MIT */
/*
 * The two processes of sim.two as two simulated adapters in one, that reach each other through the rings of
 * src/local/ and act in each other's memory: who is when at what is drawn from the seed, too. They take
 * turns, which may end at any atomic access to what they share (turns.h); each sleeps on its doorbell now and
 * then, is stalled for long enough to be cut off (local/settle.c), or dies in the middle of a step. The wire
 * below is link/sim.h, the clock is simulated; sockets of the handshake, memory to share and process_vm_* are
 * the kernel's, which answers one thread always the same.
 *
 *   channel_test [--seed N] [--seeds COUNT] [--trace]
 *
 * The work and the model are those of sim.two (two.h).
 */
#include "turns.h"

#include "act.h"
#include "base/log.h"
#include "cm/router.h"
#include "draw.h"
#include "fabric/shared.h"
#include "ib/port.h"
#include "life.h"
#include "local/channel_parts.h"
#include "mad/gsi.h"
#include "seeds.h"
#include "trace.h"
#include "two.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t draw_state;

static struct {
	struct sim_net *net;
	uint16_t port;
	enum hca_local local;
	struct local_channel *channel[TWO];
	bool sleeps, troubled;
	struct fabric_table *fabric; /* NULL: it is RoCE */
} t;

static struct {
	unsigned long long sleeps, kills, cut_off, flaps, away, back;
} total;

/* ---- time ---- */
static uint64_t now(void)
{
	return t.net ? sim_clock(t.net) : 0;
}

static void move(uint64_t to)
{
	sim_clock_set(t.net, to);
}

/*
 * ---- a fabric ----
 * Every other seed has InfiniBand: two ports with a cable between them, which is plain, or is not. While it
 * is not, packets go by the link below, which stands for the switches.
 */
enum { FABRIC_MTU = 5 };

static struct fabric_table *new_fabric(void)
{
	static const struct fabric_counts n = {.ports = TWO, .rows = TWO};
	void *zeroed = calloc(1, fabric_table_size(&n));
	struct fabric_table *f = zeroed ? fabric_table_init(zeroed, &n) : NULL;

	for (uint32_t i = 0; f && i < TWO; i++) {
		*fabric_port(f, i) = (struct fabric_port){.sw = FABRIC_NONE,
			.num = 1,
			.peer = 1 - i,
			.sl2vl = i,
			.host = i + 1,
			.lid = (uint16_t)(i + 1),
			.state = PORT_ACTIVE,
			.phys = PHYS_LINK_UP,
			.mtu = FABRIC_MTU,
			.mtu_cap = FABRIC_MTU,
			.vls = 1,
			.flags = FABRIC_PLAIN,
			.prefix = 0xfe80000000000000,
			.guid = {i + 1},
			.pkey = {PKEY_DEFAULT}};
		fabric_lid_set(f, (uint16_t)(i + 1), i);
		*fabric_program(f, i + 1) =
			(struct fabric_program){i + 1, getpid()}; /* the slot of two_node_open() */
	}
	return f;
}

static void flap(void)
{
	fabric_change_begin(t.fabric);
	fabric_port(t.fabric, 0)->flags ^= FABRIC_PLAIN;
	for (unsigned i = 0; total.flaps % 8 == 0 && i < TWO; i++)
		fabric_port(t.fabric, i)->pkey[0] ^= PKEY_DEFAULT ^ 0x8001; /* another partition */
	fabric_change_end(t.fabric);
	total.flaps++;
}

/* What became of that. */
static void look_at_paths(unsigned me)
{
	static bool was_shared[MAX_SIDES];

	for (unsigned i = 0; i < two->model.nsides; i++) {
		const struct side *s = &two->model.side[i];
		bool shared = s->qp && s->qp->path.shared;

		if (s->node_index != me || !s->qp || hca_qp_state(s->qp) != IBV_QPS_RTS)
			continue;
		if (s->qp->path.epoch == fabric_epoch(t.fabric) &&
			s->qp->path.pkey != fabric_port(t.fabric, me)->pkey[0])
			model_fail(&two->model, s, "has the P_Key of another time");
		total.away += was_shared[i] && !shared;
		total.back += !was_shared[i] && shared;
		was_shared[i] = shared;
	}
}

static void port_on_fabric(struct sim_node *n, unsigned me)
{
	hca_port_init_ib(&n->dev.port[0], &n->dev, 1, me);
	hca_port_follow_ib(&n->dev.port[0], fabric_port(t.fabric, me));
	gid_of_lid((uint16_t)(me + 1), n->gid);
	n->adapter.on_fabric = true;
	n->adapter.table = t.fabric;
}

/* ---- nodes ---- */
static void gid_of(unsigned i, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 10;
	gid[15] = (uint8_t)(i + 1);
}

/* Addresses of both are those of the host; the first is its own. */
static void port_init(struct sim_node *n, unsigned me)
{
	struct hca_port *p = &n->dev.port[0];

	hca_port_init(p, &n->dev, 1);
	p->mtu = 9000;
	p->up = true;
	for (unsigned i = 0; i < TWO; i++)
		gid_of((me + i) % TWO, p->gid[i].raw);
	gid_of(me, n->gid);
}

static void open_engine(struct sim_node *n, unsigned me)
{
	struct hca_adapter *a = &n->adapter;

	hca_engine_init(&a->engine, a, sim_clock, t.net);
	sim_channel_open(n, sim_port_open(t.net, n->gid), t.port);
	t.channel[me] = n->channel;
	hca_engine_open(&a->engine);
	if (a->export.table)
		hca_export_begin(a);
	a->up = true;
}

void two_node_open(struct model *m, unsigned me)
{
	static const struct mad_router *const routers[] = {&cm_router, NULL};
	struct sim_node *n = &m->world.node[me];
	struct hca_adapter *a = &n->adapter;

	memset(n, 0, sizeof(*n));
	hca_adapter_init(a);
	if (mad_gsi_open(a, routers))
		model_fail(m, NULL, "cannot make QP1");
	a->seed = m->seed * TWO + me + 1;
	a->slot = me + 1;
	a->local = t.local;
	n->dev.adapter = a;
	n->dev.ifindex = 1;
	snprintf(n->dev.vd.ibv.name, sizeof(n->dev.vd.ibv.name), "sim%u", me);
	if (t.fabric)
		port_on_fabric(n, me);
	else
		port_init(n, me);
	list_add_tail(&a->devices, &n->dev.node);
	open_engine(n, me);
	n->ctx = hca_context_open(&n->dev);
	n->pd = n->ctx ? hca_pd_alloc(n->ctx) : NULL;
	if (!n->pd)
		model_fail(m, NULL, "cannot open a device");
	n->up = true;
}

void two_node_close(struct model *m, unsigned me)
{
	struct sim_node *n = &m->world.node[me];

	if (hca_pd_dealloc(n->pd))
		model_fail(m, NULL, "something is left in the PD");
	if (n->adapter.export.table)
		hca_export_end(&n->adapter);
	hca_context_close(n->ctx);
	mad_gsi_close(&n->adapter);
	hca_adapter_fini(&n->adapter);
	n->up = false;
	t.channel[me] = NULL;
}

/* ---- death ---- */
/* What it shares with others is as they see it from now on; what it still does there is done to a copy. */
static void part_from(void *at, size_t size)
{
	void *copy = malloc(size);

	if (!copy)
		abort();
	memcpy(copy, at, size);
	mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memcpy(at, copy, size);
	free(copy);
}

static void part_from_writer(struct local_channel *c, struct local_writer *w)
{
	if (!w)
		return;
	if (w->end.fd >= 0)
		shutdown(w->end.fd, SHUT_RDWR);
	if (w->bell)
		part_from((void *)w->bell, sizeof(*w->bell));
	if (w->there.export)
		part_from((void *)w->there.export, c->export_size);
	if (!w->tx.ring)
		return;
	part_from(w->tx.ring, sizeof(*w->tx.ring));
	w->tx.ring->revoked = 1; /* it writes nowhere any more */
}

static void part_from_reader(struct local_reader *r)
{
	if (r->end.fd >= 0)
		shutdown(r->end.fd, SHUT_RDWR);
	if (!r->rx.ring)
		return;
	part_from(r->rx.ring, sizeof(struct ring));
	r->rx.ring->acting = 0; /* and waits for nobody */
}

/* The kernel says so in what it held when its thread ended. */
static void say_dead(struct local_export *export)
{
	__atomic_fetch_or(&export->life.__data.__lock, FUTEX_OWNER_DIED, __ATOMIC_RELEASE);
}

static void say_alive(struct local_export *export)
{
	__atomic_fetch_and(&export->life.__data.__lock, (int)~FUTEX_OWNER_DIED, __ATOMIC_RELEASE);
}

static void die(unsigned me)
{
	struct local_channel *c = t.channel[me];

	trace_say(&two->model, NULL, "node %u is killed", me);
	total.kills++;
	two->killed = true;
	sim_port_cut(t.net, me, true);
	shutdown(c->listener.fd, SHUT_RDWR);
	if (c->export)
		say_dead(c->export);
	part_from(c->bell, sizeof(*c->bell));
	if (c->export) {
		part_from(c->export, c->export_size);
		say_alive(c->export);
	}
	for (unsigned i = 0; i < QPN_SLOTS; i++)
		part_from_writer(c, c->writer[i]);
	for (unsigned i = 0; i < c->nreaders; i++)
		part_from_reader(c->reader[i]);
}

/* ---- waiting ---- */
static bool has_frame(struct local_channel *c)
{
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		if (r->state == READER_UP && ring_waiting(&r->rx))
			return true;
	}
	return false;
}

/*
 * As the helper sleeps: says so, looks once more, and waits for the doorbell or for what it has to do by
 * itself. Who finds a frame then is about to be woken for it, by somebody who may be stalled; a second is too
 * long.
 */
static void sleep_on_bell(unsigned me, uint64_t ns)
{
	struct local_channel *c = t.channel[me];
	struct hca_engine *e = &two->model.world.node[me].adapter.engine;
	bool rung = !local_channel_sleep(c);

	if (!rung)
		rung = turns_wait_fd(c->ep_fd, local_channel_has_deferred(c) ? 50000 : ns);
	for (unsigned i = 0; !rung && has_frame(c) && !turns_is_dead(me); i++) {
		rung = turns_wait_fd(c->ep_fd, SIM_MS);
		if (i == 1000)
			model_fail(&two->model, NULL, "node %u sleeps, a frame is there, and nobody wakes it",
				me);
	}
	local_channel_woke(c);
	total.sleeps++;
	if (rung)
		atomic_fetch_or(&e->woken, 1u << HCA_FRAMES);
}

/* Both have their queue pairs. */
static void begin_trouble(void)
{
	if (t.troubled)
		return;
	t.troubled = true;
	turns_may_stall(true);
	if (two_kills)
		turns_kill((unsigned)draw(TWO), draw(one_in(2) ? 100 : 3000), die);
}

void two_nap(uint64_t us)
{
	unsigned me = (unsigned)model_here.node;

	if (turns_is_dead(me))
		turns_leave();
	if (two->phase[0] >= TWO_CONNECTS && two->phase[1] >= TWO_CONNECTS)
		begin_trouble();
	if (t.fabric && t.troubled && one_in(8))
		flap();
	if (t.fabric && t.troubled)
		look_at_paths(me);
	if (t.sleeps && one_in(3) && t.channel[me])
		sleep_on_bell(me, (1 + us) * SIM_US);
	else
		turns_wait((1 + draw(us + 1)) * SIM_US);
}

static void turn(unsigned who)
{
	model_here.node = (int)who;
}

static void enter(void)
{
	if (turns_is_dead((unsigned)model_here.node))
		turns_leave();
	turns_hold();
}

/* What it leaves behind in this process, which goes on. */
static void tidy_up_after(struct model *m, unsigned me)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		if (s->node_index != me || !s->qp)
			continue;
		hca_qp_destroy(s->qp);
		for (unsigned k = 0; k < MAX_WINDOWS; k++) {
			if (s->window[k].mw)
				hca_mw_dealloc(s->window[k].mw);
		}
		if (s->target_mr)
			hca_mr_dereg(s->target_mr);
	}
	life_site_close(m, me);
	two_node_close(m, me);
}

/* ---- a seed ---- */
/* The programs' memory is private, or, `file`, in a file that the other can map: then it acts there by
 * itself. */
static void renew_arena(bool file)
{
	size_t len;
	void *arena = model_arena(&len);
	int fd = file ? memfd_create("arena", MFD_CLOEXEC) : -1;

	if (file && ftruncate(fd, (off_t)len))
		abort();
	if (mmap(arena, len, PROT_READ | PROT_WRITE,
		    MAP_FIXED | (file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), fd, 0) == MAP_FAILED)
		abort();
	if (file)
		close(fd);
}

static void run_seed(uint64_t seed)
{
	struct turns_rules rules = {.now = now, .move = move, .turn = turn};

	memset(two, 0, sizeof(*two));
	memset(&t.channel, 0, sizeof(t.channel));
	t.troubled = false;
	draw_state = seed * 0x9e3779b97f4a7c15ull;
	t.net = sim_net_open(seed);
	sim_clock_set(t.net, SIM_S);
	sim_watch(&(struct sim_world){.net = t.net});
	t.local = one_in(3) ? HCA_LOCAL_RING : HCA_LOCAL_COPY;
	renew_arena(one_in(2));
	t.sleeps = one_in(2);
	two_kills = one_in(5);
	two_troubles = !two_kills && one_in(2);
	t.fabric = one_in(2) ? new_fabric() : NULL;
	two_flaps = life_connected = t.fabric;
	rules.steps = one_in(4) ? 0 : 1 + (unsigned)draw(1000);
	rules.stall = one_in(3) ? 200 + (unsigned)draw(2000) : 0;
	rules.stall_max = one_in(2) ? 300 * SIM_MS : SIM_MS;
	two_begin(seed);
	two->model.world.began = now();
	turns_run(TWO, &rules, two_live);
	for (unsigned i = 0; i < TWO; i++) {
		if (turns_is_dead(i))
			tidy_up_after(&two->model, i);
	}
	sim_net_close(t.net);
	t.net = NULL;
	free(t.fabric);
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	model_init_source();
	log_level = getenv("ANYRDMA_LOG") ? log_level : LOG_ERROR; /* who is cut off is told of */
	t.port = (uint16_t)(20000 + getpid() % 40000);
	two = calloc(1, sizeof(*two));
	two_looks = 3; /* time passes by nothing else */
	model_here.enter = enter;
	model_here.leave = turns_release;
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu of them direct, %llu packets, %llu "
	       "sleeps, "
	       "%llu killed, %llu flaps: %llu away, %llu back\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, life_total.requests,
		life_total.direct, life_total.packets, total.sleeps, total.kills, total.flaps, total.away,
		total.back);
	if (total.flaps > 500 && (!total.away || !total.back)) {
		printf("no path has left shared memory and come back\n");
		return 1;
	}
	return 0;
}
