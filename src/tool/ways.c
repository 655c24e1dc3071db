/* SPDX-License-Identifier: MIT */
/* Which way the queue pairs of running programs take: read from the registry files of this user. */
#include "base/rundir.h"
#include "hca/registry.h"
#include "tool/tool.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct ways {
	unsigned memory, wire;
};

/* Anything may lie there: a whole file of the right kind, whose process lives. */
static bool load(int dir, const char *name, struct hca_registry_file *f)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool ok;

	if (fd < 0)
		return false;
	ok = flock(fd, LOCK_SH | LOCK_NB) && read(fd, f, sizeof(*f)) == (ssize_t)sizeof(*f) &&
	     f->magic == REGISTRY_MAGIC && f->version == REGISTRY_VERSION && f->nqps <= REGISTRY_QPS;
	close(fd);
	return ok;
}

/* A QP that has moved nothing yet may not be connected. */
static struct ways count(const struct hca_registry_file *f)
{
	struct ways w = {0};

	for (uint32_t i = 0; i < f->nqps; i++) {
		const struct hca_qp_counters *q = &f->qp[i];

		if (q->qpn && q->local)
			w.memory++;
		else if (q->qpn && (q->tx_packets || q->rx_packets))
			w.wire++;
	}
	return w;
}

static void print(const struct hca_registry_file *f, bool *begun)
{
	struct ways w = count(f);

	if (!w.memory && !w.wire)
		return;
	if (!*begun)
		printf("\n%8s  %-15s  %s\n", "PID", "PROGRAM", "QUEUE PAIRS");
	*begun = true;
	printf("%8u  %-15.15s  %u by memory, %u by the wire\n", f->pid, f->comm, w.memory, w.wire);
}

void tool_print_ways(void)
{
	struct hca_registry_file *f = malloc(sizeof(*f));
	bool begun = false;
	char path[200];
	struct dirent *e;
	DIR *d;

	if (!f || base_rundir_find(path, sizeof(path)) || !(d = opendir(path))) {
		free(f);
		return;
	}
	while ((e = readdir(d))) {
		if (!strncmp(e->d_name, "adapter-", 8) && load(dirfd(d), e->d_name, f))
			print(f, &begun);
	}
	closedir(d);
	free(f);
}
