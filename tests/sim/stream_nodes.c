/* SPDX-License-Identifier: MIT */
/* The simulated adapters: what is in their environment, and who drives when. */
#include "stream_calls.h"

#include "base/env.h"
#include "base/gid.h"
#include "ib/port.h"
#include "local/channel_parts.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MOST = 20000 };

struct stream_sim sim;
struct stream_sim_total sim_total;

uint64_t sim_draw(uint64_t below)
{
	return choose(&sim.c, below);
}

void sim_earlier(uint64_t *next, uint64_t at)
{
	if (at > sim.now && at < *next)
		*next = at;
}

void call_say(const struct call *k, const char *fmt, ...)
{
	va_list ap;

	if (!seeds.trace)
		return;
	printf("%12.3f us  ", (double)sim.now / 1000);
	if (k)
		printf("call %u: ", k->index);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

struct hca_adapter *node_adapter(unsigned node)
{
	return &sim.w.node[node].adapter;
}

struct sockaddr_storage node_address(unsigned node, unsigned port)
{
	struct sockaddr_storage sa = {0};

	gid_to_sockaddr(sim.w.node[node].gid, (uint16_t)port, 0, &sa);
	return sa;
}

/* What our_options() reads. */
static void draw_words(unsigned node)
{
	static const char *const words[] = {"crc", "markers", "mpa1", "client-server", "plain", "mss"};
	static const char *const rtrs[] = {"rtr-write", "rtr-read", "rtr-zero"};
	char *w = sim.words[node];

	w[0] = 0;
	sim.rtr[node] = 0;
	for (unsigned i = 0; i < 6; i++) {
		if (!sim_draw(4))
			sprintf(w + strlen(w), "%s,", words[i]);
	}
	for (unsigned i = 0, some = !sim_draw(4); some && i < 3; i++) {
		if (sim_draw(2))
			continue;
		sprintf(w + strlen(w), "%s,", rtrs[i]);
		sim.rtr[node] |= 1u << i;
	}
	if (!sim.rtr[node])
		sim.rtr[node] = 7;
}

static void world_open(uint64_t seed)
{
	unsigned nodes = 2 + (unsigned)sim_draw(2);
	bool ipv6 = !sim_draw(3);

	sim.host = !sim_draw(3);
	sim_total.hosts += sim.host;
	if (!sim.host) {
		sim_world_init(&sim.w, nodes, seed, ipv6);
		return;
	}
	sim_tcp_kernel_sets(true); /* for the handshake */
	sim_world_init_host(&sim.w, nodes, seed, ipv6, (uint16_t)(20000 + getpid() % 40000),
		sim_draw(3) ? HCA_LOCAL_COPY : HCA_LOCAL_RING);
	sim_tcp_kernel_sets(false);
}

/* Nobody drives there for less time than the peer waits for a word, but often longer than for the link. */
static void draw_stop(unsigned node)
{
	if (!sim.host || sim_draw(2))
		return;
	sim.stopped_at[node] = sim.now + sim_draw(15 * sim.rules.delay);
	sim.goes_on_at[node] = sim.stopped_at[node] + sim_draw(6 * SIM_S);
}

void nodes_open(uint64_t seed)
{
	world_open(seed);
	sim_clock_set(sim.w.net, sim.now);
	for (unsigned i = 0; i < sim.w.nodes; i++) {
		sim.w.node[i].dev.kind = HCA_IWARP;
		if (iwarp_port_open(node_adapter(i)))
			fail("no iWARP");
		draw_words(i);
		draw_stop(i);
	}
}

/* What its process has in its environment: each node is a process. */
int64_t __real_env_value(enum env v);
int64_t __wrap_env_value(enum env v);
int64_t __wrap_env_value(enum env v)
{
	static const char *const all[] = {"crc", "markers", "mpa1", "client-server", "plain", "rtr-write",
		"rtr-read", "rtr-zero", "mss"};
	int64_t set = 0;

	if (v != ANYRDMA_IWARP)
		return __real_env_value(v);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		set |= strstr(sim.words[sim.is], all[i]) ? 1 << i : 0;
	return set;
}

/* ---- on one host ---- */
static bool has_frames(struct local_channel *c)
{
	for (unsigned i = 0; i < c->nreaders; i++) {
		const struct local_reader *r = c->reader[i];

		if (r->state == READER_GONE || (r->state == READER_UP && ring_waiting(&r->rx)))
			return true;
	}
	return false;
}

static bool has_acks(struct local_channel *c)
{
	for (unsigned i = 0; i < c->nmade; i++) {
		struct local_writer *w = c->made[i];

		if (local_credit_is_acked(w) || w->ended)
			return true;
	}
	return false;
}

/* What it deferred is none: that waits for its time. */
static bool channel_has_work(struct local_channel *c)
{
	struct pollfd p;

	if (!c)
		return false;
	p = (struct pollfd){.fd = c->ep_fd, .events = POLLIN};
	return has_frames(c) || has_acks(c) || poll(&p, 1, 0) > 0;
}

/* The channel has the time from libc. */
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	if (!sim.now || clock == CLOCK_REALTIME)
		return __real_clock_gettime(clock, t);
	*t = (struct timespec){.tv_sec = (time_t)(sim.now / SIM_S), .tv_nsec = (long)(sim.now % SIM_S)};
	return 0;
}

/* It says a random number by TCP, which is in the digest. */
void __wrap_random_bytes(void *buf, size_t len);
void __wrap_random_bytes(void *buf, size_t len)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)random_seeded(&sim.random);
}

/* ---- who drives when ---- */
static bool is_stopped(unsigned i)
{
	return sim.now >= sim.stopped_at[i] && sim.now < sim.goes_on_at[i];
}

/* Drives a node as a program that polls, or as the helper, which was woken. */
static void drive(unsigned i)
{
	struct hca_engine *e = &node_adapter(i)->engine;
	struct iwarp_port *p = iwarp_port_in(node_adapter(i));

	if (sim_tcp_ready(p->epfd) && sim_draw(3))
		atomic_fetch_or(&e->woken, p->provider.bit);
	if (sim_next_arrival(sim.w.net) <= sim.now ||
		(channel_has_work(sim.w.node[i].channel) && sim_draw(3)))
		atomic_fetch_or(&e->woken, ibt_port_in(node_adapter(i))->provider.bit);
	sim.is = i;
	hca_engine_drive(e);
}

static bool has_work(unsigned i)
{
	struct hca_engine *e = &node_adapter(i)->engine;
	struct iwarp_port *p = iwarp_port_in(node_adapter(i));

	return sim_tcp_ready(p->epfd) || !list_empty(&e->runnable) || atomic_load(&p->tidy_wanted) ||
	       e->next_timer <= sim.now || channel_has_work(sim.w.node[i].channel);
}

void nodes_drive(void)
{
	bool again = true;

	for (unsigned rounds = 0; again; rounds++) {
		unsigned first = (unsigned)sim_draw(sim.w.nodes);

		for (unsigned i = 0; i < sim.w.nodes; i++) {
			unsigned node = (first + i) % sim.w.nodes;

			if (sim.w.node[node].up && !is_stopped(node))
				drive(node);
		}
		again = false;
		for (unsigned i = 0; i < sim.w.nodes; i++)
			again |= sim.w.node[i].up && !is_stopped(i) && has_work(i);
		if (rounds > ROUNDS_MOST)
			fail("at %.3f us: it turns in circles", (double)sim.now / 1000);
	}
}

void nodes_plan(uint64_t *next)
{
	sim_earlier(next, sim_next_arrival(sim.w.net));
	for (unsigned i = 0; i < sim.w.nodes; i++) {
		const struct sim_node *n = &sim.w.node[i];

		if (!n->up)
			continue;
		sim_earlier(next, n->adapter.engine.next_timer);
		sim_earlier(next, sim.goes_on_at[i]);
		if (n->channel && !is_stopped(i) && local_channel_has_deferred(n->channel))
			sim_earlier(next, sim.now + 50 * SIM_US);
	}
}
