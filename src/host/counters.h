/* SPDX-License-Identifier: MIT */
/*
 * What an adapter counts, from the first packet on, per QP and per adapter. The records lie in a segment of
 * shared memory (host/registry.h), so that another process can read them while the program runs. A record is
 * written by one thread at a time (under the QP's lock, or the drive lock for the adapter's) and read by
 * anyone. Which there are, and what each means, says the list of probes.
 */
#ifndef HOST_COUNTERS_H
#define HOST_COUNTERS_H

#include "observe/probe.h"

#include <stdint.h>

/* ---- the records, as the list of probes has them ---- */
#define NOTHING
#define P(name, level, text, counted, fields) counted

struct host_qp_counters {
	uint32_t qpn; /* 0: free record */
	uint32_t type;
#define QP_COUNTER(name) uint64_t name;
#define QP_SUM(name)     uint64_t name;
#define ADAPTER_COUNTER(name)
#define ADAPTER_SUM(name)
	PROBES(P)
#undef QP_COUNTER
#undef QP_SUM
#undef ADAPTER_COUNTER
#undef ADAPTER_SUM
};

struct host_adapter_counters {
#define QP_COUNTER(name)
#define QP_SUM(name)
#define ADAPTER_COUNTER(name) uint64_t name;
#define ADAPTER_SUM(name)     uint64_t name;
	PROBES(P)
#undef QP_COUNTER
#undef QP_SUM
#undef ADAPTER_COUNTER
#undef ADAPTER_SUM
};
#undef P

/* ---- host_count_qp_RETRANSMIT() and so on: what a probe counts ---- */
#define QP_COUNTER(name) c->name++;
#define QP_SUM(name)
#define ADAPTER_COUNTER(name)
#define ADAPTER_SUM(name)
#define P(name, level, text, counted, fields)                                                                \
	static inline void host_count_qp_##name(struct host_qp_counters *c)                                  \
	{                                                                                                    \
		counted                                                                                      \
	}
PROBES(P)
#undef P
#undef QP_COUNTER
#undef ADAPTER_COUNTER
/* Any thread: these are rare. */
#define QP_COUNTER(name)
#define ADAPTER_COUNTER(name) __atomic_fetch_add(&c->name, 1, __ATOMIC_RELAXED);
#define P(name, level, text, counted, fields)                                                                \
	static inline void host_count_adapter_##name(struct host_adapter_counters *c)                        \
	{                                                                                                    \
		counted                                                                                      \
	}
PROBES(P)
#undef P
#undef QP_COUNTER
#undef QP_SUM
#undef ADAPTER_COUNTER
#undef ADAPTER_SUM
#undef NOTHING

/* For the user's eyes when a QP or the adapter goes, at level info: what is not 0. */
void host_counters_log_qp(const struct host_qp_counters *c);
void host_counters_log_adapter(const struct host_adapter_counters *c);

#endif
