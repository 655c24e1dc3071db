/* SPDX-License-Identifier: MIT */
/*
 * A network in memory: several adapters in one process, a clock that only moves when it is told to, and a
 * seed from which every fault is drawn. The same seed and the same calls give the same packets at the same
 * times.
 *
 * A port is a link (link/link.h) with one address. What is sent is flattened as on the wire, real ICRC
 * included, and lies in the queue of the port it is for until its time has come; damage is done to those
 * bytes, so that only the ICRC stands between it and the transport.
 *
 * One thread only: nothing here takes a lock.
 */
#ifndef LINK_SIM_H
#define LINK_SIM_H

#include "link/link.h"

#include <stdbool.h>
#include <stdint.h>

enum { SIM_PORTS = 16, SIM_MILLION = 1000000 };

struct sim_net;

/* What became of a packet. Enum and name come from one list. */
#define SIM_FATES(X)                                                                                         \
	X(SIM_BY_RULES, "by rules") /* a judge's answer only: as the rules will have it */                   \
	X(SIM_DELIVERED, "delivered")                                                                        \
	X(SIM_DELAYED, "delayed") /* others overtake it */                                                   \
	X(SIM_HANDED, "handed")   /* delayed, by another process of the receiver's host */                   \
	X(SIM_DUPLICATED, "duplicated")                                                                      \
	X(SIM_CORRUPTED, "corrupted")                                                                        \
	X(SIM_LOST, "lost")                                                                                  \
	X(SIM_CUT, "cut")         /* one of the two ports is cut off */                                      \
	X(SIM_OVERRUN, "overrun") /* no room in the receiver's buffer */                                     \
	X(SIM_NOWHERE, "nowhere") /* nobody has that address, or its port is closed */

enum sim_fate {
#define X(name, text) name,
	SIM_FATES(X)
#undef X
		SIM_FATE_COUNT,
};

const char *sim_fate_name(enum sim_fate f);

/*
 * Rules of one direction between two ports; probabilities in millionths. Packets that are not delayed keep
 * their order, whatever the jitter between delay_min and delay_max.
 */
struct sim_rules {
	uint32_t loss, duplicate, corrupt, delayed;
	uint64_t delay_min, delay_max; /* of every packet, ns */
	uint64_t late_max;             /* up to this much more for one that is delayed, or a second copy */
	uint64_t rate;                 /* bytes per us that leave the port this way; 0: no bound */
	uint32_t mercy;                /* 0: none; else spoil the same packet at most so often */
};

/* A packet at the moment it is sent; `bytes` (BTH to ICRC, still undamaged) live as long as the call. */
struct sim_packet {
	uint64_t at, arrives, arrives_again; /* 0: it does not */
	unsigned from, to;                   /* ports; to is SIM_PORTS when nobody has the address */
	const uint8_t *bytes;
	uint32_t len;
	enum sim_fate fate;
};

/* Decides on a packet before the rules do: SIM_BY_RULES, or its fate. */
typedef enum sim_fate sim_judge_fn(void *arg, const struct sim_packet *p);
/* Is told of every packet once its fate is known. */
typedef void sim_trace_fn(void *arg, const struct sim_packet *p);

/* NULL when there is no memory. The seed may be any number. */
struct sim_net *sim_net_open(uint64_t seed);
/* Frees everything; ports whose link was not closed are closed. */
void sim_net_close(struct sim_net *n);

/* The clock, in ns; fits hca_engine_init, with the net as its argument. */
uint64_t sim_clock(void *net);
/* Moves the clock; never back. */
void sim_clock_set(struct sim_net *n, uint64_t now);
/* When the next packet arrives at a port that takes it; UINT64_MAX: none is on its way. */
uint64_t sim_next_arrival(const struct sim_net *n);

/*
 * Opens the next port, which has this address: ports are numbered from 0. NULL when there are too many. The
 * link is the caller's until its close(); then the address answers no more until sim_port_reopen() gives a
 * new link to the same port. What was in flight meanwhile and arrived nowhere is lost; what is still in
 * flight is not.
 */
struct link *sim_port_open(struct sim_net *n, const uint8_t gid[16]);
struct link *sim_port_reopen(struct sim_net *n, unsigned port);
/* A paused port sends, but takes nothing in: packets wait for it, as for a process that is not scheduled. */
void sim_port_pause(struct sim_net *n, unsigned port, bool paused);
/* A cut port loses everything it sends and everything sent to it. */
void sim_port_cut(struct sim_net *n, unsigned port, bool cut);
/* Bounds what may wait for a port, as a socket's receive buffer does, in bytes; 0: no bound. */
void sim_port_buffer(struct sim_net *n, unsigned port, uint64_t bytes);
/* The most that ever waited for it or was on its way to it, counted likewise. */
uint64_t sim_port_peak(const struct sim_net *n, unsigned port);

/* Rules for every direction, or for one. */
void sim_rules_set(struct sim_net *n, const struct sim_rules *r);
void sim_rules_set_path(struct sim_net *n, unsigned from, unsigned to, const struct sim_rules *r);
void sim_judge_set(struct sim_net *n, sim_judge_fn *fn, void *arg);
void sim_trace_set(struct sim_net *n, sim_trace_fn *fn, void *arg);
/* A sim_trace_fn that prints a line; arg is a FILE. */
void sim_trace_print(void *file, const struct sim_packet *p);

/* How many packets met this fate. */
uint64_t sim_count(const struct sim_net *n, enum sim_fate f);

#endif
