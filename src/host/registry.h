/* SPDX-License-Identifier: MIT */
/*
 * The registry: one file per process in the run directory, held by a lock that a crash releases. It says who
 * we are and which System V shared memory segment has our counters, so that others can read them while we
 * run. Files of the dead are removed by whoever opens the registry next; the living whose file is missing
 * are asked for it by who opens the registry and by who reads it. Nobody watches for that.
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

enum { REGISTRY_MAGIC = 0x79617272, REGISTRY_VERSION = 6, REGISTRY_QPS = 1024 };

/* The file. Readers check magic and version, and believe nothing else without bounds. */
struct host_registry_file {
	uint32_t magic, version;
	uint32_t pid, slot;
	char comm[16];
	int32_t segment; /* shmat(2); -1: its counters cannot be read */
	uint32_t reserved;
};

/* The segment. */
struct host_registry_counters {
	uint32_t magic, version;
	uint32_t pid, slot;
	uint32_t nqps; /* records below that were ever used */
	uint32_t reserved;
	struct host_adapter_counters adapter;
	struct host_qp_counters qp[REGISTRY_QPS];
};

struct host_registry;

/* A process's file is called adapter-<slot>-<pid>. */
void host_registry_name(char *buf, size_t len, uint32_t slot, uint32_t pid);
/* false: no such name. Anything may lie in the directory. */
bool host_registry_name_parse(const char *name, uint32_t *slot, uint32_t *pid);

/* Removes what dead processes left. */
void host_registry_clean(void);
/* 0 or -errno; where no file can be made now it is made when we are asked to look. */
int host_registry_open(struct host_registry **out, uint32_t slot);
void host_registry_close(struct host_registry *r);
struct host_adapter_counters *host_registry_adapter(
	struct host_registry *r, struct host_adapter_counters *own);
/* A record for a QP, or `own` when there is no registry or no record left. */
struct host_qp_counters *host_registry_qp(
	struct host_registry *r, uint32_t qpn, uint32_t type, struct host_qp_counters *own);
void host_registry_qp_done(struct host_registry *r, struct host_qp_counters *c);
/* Makes the file again when it is gone or damaged. Any thread. */
void host_registry_look(struct host_registry *r);
/* The process is about to exit: take the file away, keep everything else. */
void host_registry_retire(struct host_registry *r);
/* After fork, in the child: the file stays the parent's; records we have handed out stay valid memory. */
void host_registry_abandon(struct host_registry *r);

/* ---- registry_read.c: for those who look at others ---- */
/* A file of a living process, whatever lies there under that name; false: it is none. */
bool host_registry_read(int dir, const char *name, struct host_registry_file *f);
/* Its counters, to be let go of by host_registry_detach; NULL: they cannot be read. */
const struct host_registry_counters *host_registry_attach(const struct host_registry_file *f);
void host_registry_detach(const struct host_registry_counters *c);
/*
 * Asks those who have a slot and no file, which somebody may have removed, to make it (slots_ask_to_look),
 * and waits so long at most: anybody can bind a slot's name and stay silent.
 */
void host_registry_ask(uint16_t port, unsigned wait_ms);

#endif
