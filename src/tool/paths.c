/* SPDX-License-Identifier: MIT */
/* Which way the queue pairs of running programs take: read from the registry files of this user. */
#include "host/rundir.h"
#include "host/registry.h"
#include "tool/tool.h"

#include <dirent.h>
#include <string.h>

struct ways {
	unsigned memory, wire;
};

/* A QP that has moved nothing yet may not be connected. */
static struct ways count(const struct host_registry_counters *c)
{
	struct ways w = {0};

	for (uint32_t i = 0; i < c->nqps && i < REGISTRY_QPS; i++) {
		const struct host_qp_counters *q = &c->qp[i];

		if (q->qpn && q->local)
			w.memory++;
		else if (q->qpn && (q->tx_packets || q->rx_packets))
			w.wire++;
	}
	return w;
}

static void print(const struct host_registry_file *f, struct ways w, bool *begun)
{
	if (!w.memory && !w.wire)
		return;
	if (!*begun)
		printf("\n%8s  %-15s  %s\n", "PID", "PROGRAM", "QUEUE PAIRS");
	*begun = true;
	printf("%8u  %-15.15s  %u through shared memory, %u over the network\n", f->pid, f->comm, w.memory,
		w.wire);
}

void tool_print_ways(void)
{
	enum { ANSWER_MS = 50 };
	struct host_registry_file f;
	bool begun = false;
	char path[200];
	struct dirent *e;
	DIR *d;

	host_registry_ask(tool_udp_port(), ANSWER_MS);
	if (base_rundir_find(path, sizeof(path)) || !(d = opendir(path)))
		return;
	while ((e = readdir(d))) {
		const struct host_registry_counters *c = NULL;

		if (!strncmp(e->d_name, "adapter-", 8) && host_registry_read(dirfd(d), e->d_name, &f))
			c = host_registry_attach(&f);
		if (!c)
			continue;
		print(&f, count(c), &begun);
		host_registry_detach(c);
	}
	closedir(d);
}
