/* SPDX-License-Identifier: MIT */
#include "host/registry.h"

#include "base/lock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

struct host_registry {
	uint32_t slot;
	int segment; /* -1: the counters are private memory */
	struct host_registry_counters *shown;
	struct lock lock; /* guards which records are in use */
	uint32_t free_hint;
	bool used[REGISTRY_QPS];
};

/* A segment; where there are none (a kernel without, or its limits), memory that nobody else can read. */
static int counters_open(struct host_registry *r)
{
	r->shown = (void *)-1;
	r->segment = shmget(IPC_PRIVATE, sizeof(*r->shown), IPC_CREAT | 0600);
	if (r->segment >= 0) {
		r->shown = shmat(r->segment, NULL, 0);
		shmctl(r->segment, IPC_RMID, NULL);
	}
	if (r->shown == (void *)-1) {
		log_info("no shared memory segment (%s): nobody can read this process's counters",
			strerror(errno));
		r->segment = -1;
		r->shown = mmap(
			NULL, sizeof(*r->shown), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (r->shown == MAP_FAILED)
			return -errno;
	}
	r->shown->magic = REGISTRY_MAGIC;
	r->shown->version = REGISTRY_VERSION;
	r->shown->pid = (uint32_t)getpid();
	r->shown->slot = r->slot;
	return 0;
}

int host_registry_open(struct host_registry **out, uint32_t slot)
{
	struct host_registry *r = calloc(1, sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	r->slot = slot;
	lock_init(&r->lock);
	err = counters_open(r);
	if (err)
		free(r);
	else
		*out = r;
	return err;
}

void host_registry_close(struct host_registry *r)
{
	if (!r)
		return;
	if (r->segment >= 0)
		shmdt(r->shown);
	else
		munmap(r->shown, sizeof(*r->shown));
	lock_fini(&r->lock);
	free(r);
}

int32_t host_registry_segment(const struct host_registry *r)
{
	return r ? r->segment : -1;
}

void host_registry_abandon(struct host_registry *r)
{
	if (r)
		mmap(r->shown, sizeof(*r->shown), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

struct host_adapter_counters *host_registry_adapter(
	struct host_registry *r, struct host_adapter_counters *own)
{
	return r ? &r->shown->adapter : own;
}

struct host_qp_counters *host_registry_qp(
	struct host_registry *r, uint32_t qpn, uint32_t type, struct host_qp_counters *own)
{
	struct host_qp_counters *c = own;

	if (r) {
		lock_take(&r->lock);
		for (uint32_t i = 0; i < REGISTRY_QPS; i++) {
			uint32_t at = (r->free_hint + i) % REGISTRY_QPS;

			if (!r->used[at]) {
				c = &r->shown->qp[at];
				r->used[at] = true;
				r->free_hint = at + 1;
				if (r->shown->nqps <= at)
					r->shown->nqps = at + 1;
				break;
			}
		}
		if (c != own)
			memset(c, 0, sizeof(*c));
		lock_drop(&r->lock);
	}
	c->qpn = qpn;
	c->type = type;
	return c;
}

void host_registry_qp_done(struct host_registry *r, struct host_qp_counters *c)
{
	if (!r)
		return;
	lock_take(&r->lock);
	c->qpn = 0;
	if (c >= r->shown->qp && c < r->shown->qp + REGISTRY_QPS)
		r->used[c - r->shown->qp] = false;
	lock_drop(&r->lock);
}
