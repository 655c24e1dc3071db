/* SPDX-License-Identifier: MIT */
/* Which path the queue pairs of running programs take: read from the counters of this user's. */
#include "host/process.h"
#include "host/registry.h"
#include "tool/tool.h"

struct paths {
	unsigned memory, wire;
};

/* A QP that has moved nothing yet may not be connected. */
static struct paths count(const struct host_registry_counters *c)
{
	struct paths w = {0};

	for (uint32_t i = 0; i < c->nqps && i < REGISTRY_QPS; i++) {
		const struct host_qp_counters *q = &c->qp[i];

		if (q->qpn && q->local)
			w.memory++;
		else if (q->qpn && (q->tx_packets || q->rx_packets))
			w.wire++;
	}
	return w;
}

static void print(const struct host_process *p, struct paths w, bool *begun)
{
	if (!w.memory && !w.wire)
		return;
	if (!*begun)
		printf("\n%8s  %-15s  %s\n", "PID", "PROGRAM", "QUEUE PAIRS");
	*begun = true;
	printf("%8u  %-15.15s  %u through shared memory, %u over the network\n", p->pid, p->comm, w.memory,
		w.wire);
}

static void print_process(void *begun, uint32_t slot, const struct host_process *p)
{
	const struct host_registry_counters *c = host_registry_attach(slot, p);

	if (!c)
		return;
	print(p, count(c), begun);
	host_registry_detach(c);
}

void tool_print_paths(void)
{
	enum { ANSWER_MS = 50 };
	bool begun = false;

	host_processes_ask(tool_udp_port(), ANSWER_MS);
	host_processes_each(print_process, &begun);
}
