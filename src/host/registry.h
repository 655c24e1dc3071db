/* SPDX-License-Identifier: MIT */
/*
 * The registry: the counters of this process, in a System V shared memory segment that its record names
 * (host/process.h), so that others can read them while it runs.
 *
 * Why a segment: we count on the data path, and nobody can truncate it, as one can a file, whose pages then
 * are a SIGBUS away. It is marked to be removed as soon as we have it: on Linux others of our user can still
 * attach it by its number, whether we are stopped or may not be looked into (PR_SET_DUMPABLE), and it goes
 * when the last one has let go of it.
 */
#ifndef HOST_REGISTRY_H
#define HOST_REGISTRY_H

#include "host/counters.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REGISTRY_MAGIC = 0x79617272, REGISTRY_VERSION = 7, REGISTRY_QPS = 1024 };

/* The segment. Readers check magic and version, and believe nothing else without bounds. */
struct host_registry_counters {
	uint32_t magic, version;
	uint32_t pid, slot;
	uint32_t nqps; /* records below that were ever used */
	uint32_t reserved;
	struct host_adapter_counters adapter;
	struct host_qp_counters qp[REGISTRY_QPS];
};

struct host_registry;

/* 0 or -errno. */
int host_registry_open(struct host_registry **out, uint32_t slot);
void host_registry_close(struct host_registry *r);
struct host_adapter_counters *host_registry_adapter(
	struct host_registry *r, struct host_adapter_counters *own);
/* A record for a QP, or `own` when there is no registry or no record left. */
struct host_qp_counters *host_registry_qp(
	struct host_registry *r, uint32_t qpn, uint32_t type, struct host_qp_counters *own);
void host_registry_qp_done(struct host_registry *r, struct host_qp_counters *c);
/* What its record says of it; -1: nobody else can read them. */
int32_t host_registry_segment(const struct host_registry *r);
/* After fork, in the child: the segment stays the parent's; records we have handed out stay valid memory. */
void host_registry_abandon(struct host_registry *r);

/* ---- registry_read.c: for those who look at others ---- */
struct host_process;
/* Its counters, to be let go of by host_registry_detach; NULL: they cannot be read. */
const struct host_registry_counters *host_registry_attach(uint32_t slot, const struct host_process *p);
void host_registry_detach(const struct host_registry_counters *c);

#endif
