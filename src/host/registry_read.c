/* SPDX-License-Identifier: MIT */
/* Reading what other processes show of themselves. Also part of the anyrdma command, which has no library. */
#include "host/registry.h"

#include "host/process.h"

#include <sys/shm.h>
#include <unistd.h>

const struct host_registry_counters *host_registry_attach(uint32_t slot, const struct host_process *p)
{
	const struct host_registry_counters *c;
	struct shmid_ds ds;

	/* Its number may be another's by now, or a lie. */
	if (p->segment < 0 || shmctl(p->segment, IPC_STAT, &ds) || ds.shm_segsz < sizeof(*c) ||
		ds.shm_perm.uid != geteuid())
		return NULL;
	c = shmat(p->segment, NULL, SHM_RDONLY);
	if (c == (void *)-1)
		return NULL;
	if (c->magic == REGISTRY_MAGIC && c->version == REGISTRY_VERSION && c->pid == p->pid &&
		c->slot == slot && c->nqps <= REGISTRY_QPS)
		return c;
	shmdt(c);
	return NULL;
}

void host_registry_detach(const struct host_registry_counters *c)
{
	shmdt(c);
}
