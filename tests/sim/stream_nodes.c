/* SPDX-License-Identifier: MIT */
/* The simulated adapters: what is in their environment, and who drives when. */
#include "stream_calls.h"

#include "base/env.h"
#include "base/gid.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS_MOST = 20000 };

struct stream_sim sim;
struct stream_sim_total sim_total;

uint64_t sim_draw(uint64_t below)
{
	return choose(&sim.c, below);
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

void node_open(unsigned i)
{
	sim.w.node[i].dev.kind = HCA_IWARP;
	if (iwarp_port_open(node_adapter(i)))
		fail("no iWARP");
	draw_words(i);
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

/* Drives a node as a program that polls, or as the helper, which was woken. */
static void drive(unsigned i)
{
	struct hca_engine *e = &node_adapter(i)->engine;
	struct iwarp_port *p = iwarp_port_in(node_adapter(i));

	if (sim_tcp_ready(p->epfd) && sim_draw(3))
		atomic_fetch_or(&e->woken, p->provider.bit);
	sim.is = i;
	hca_engine_drive(e);
}

static bool has_work(unsigned i)
{
	struct hca_engine *e = &node_adapter(i)->engine;
	struct iwarp_port *p = iwarp_port_in(node_adapter(i));

	return sim_tcp_ready(p->epfd) || !list_empty(&e->runnable) || atomic_load(&p->tidy_wanted) ||
	       e->next_timer <= sim.now;
}

void nodes_drive(void)
{
	bool again = true;

	for (unsigned rounds = 0; again; rounds++) {
		unsigned first = (unsigned)sim_draw(sim.w.nodes);

		for (unsigned i = 0; i < sim.w.nodes; i++) {
			unsigned node = (first + i) % sim.w.nodes;

			if (sim.w.node[node].up)
				drive(node);
		}
		again = false;
		for (unsigned i = 0; i < sim.w.nodes; i++)
			again |= sim.w.node[i].up && has_work(i);
		if (rounds > ROUNDS_MOST)
			fail("at %.3f us: it turns in circles", (double)sim.now / 1000);
	}
}
