/* SPDX-License-Identifier: MIT */
/*
 * Adapters in a simulated network (link/sim.h): no thread, no socket, no real time. The hca-level API is used
 * as the front uses it; sim_step() is what time and the helper threads would do.
 *
 * Set-up that cannot fail in a right program aborts when it does.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/cq.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/local.h"
#include "hca/mr.h"
#include "hca/qp.h"
#include "link/sim.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { SIM_NODES = 8, SIM_QKEY = 0x1badcafe };

#define SIM_US 1000ull
#define SIM_MS (1000 * SIM_US)
#define SIM_S  (1000 * SIM_MS)

#define SIM_ALL_ACCESS                                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct local_channel;

/* An adapter with one device, opened once. Port i of the net is node i's. */
struct sim_node {
	struct hca_adapter adapter;
	struct local_channel
		*channel; /* in front of the wire, to the others of its host; NULL: there is none */
	struct hca_device dev;
	uint8_t gid[16];
	struct hca_context *ctx;
	struct hca_pd *pd;
	bool up;
	unsigned deaths;
};

struct sim_world {
	struct sim_net *net; /* NULL: real adapters (two_test.c), whose time is since `began` */
	uint64_t began;
	uint64_t seed;
	bool ipv6;
	uint16_t
		host; /* not 0: nodes are processes of one host, whose handshake has names with this number */
	enum hca_local local; /* and how they reach each other */
	unsigned nodes;
	struct sim_node node[SIM_NODES];
};

/* Builds the net and the nodes; everything drawn comes from the seed. */
void sim_world_init(struct sim_world *w, unsigned nodes, uint64_t seed, bool ipv6);
/* The same for processes of one host, which all have its addresses (w->host, w->local). */
void sim_world_init_host(
	struct sim_world *w, unsigned nodes, uint64_t seed, bool ipv6, uint16_t host, enum hca_local local);
/* Of an adapter whose engine is about to open: puts the channel in front of its wire. */
void sim_channel_open(struct sim_node *n, struct link *wire, uint16_t host);
/* Takes it all down; what the test made on the nodes is gone by then. */
void sim_world_fini(struct sim_world *w);
/*
 * A node's process ends without a word, and another one starts at the same address: other QP numbers, other
 * keys. What the test made on the node is gone before it stops.
 */
void sim_node_stop(struct sim_world *w, unsigned i);
void sim_node_start(struct sim_world *w, unsigned i);

/*
 * Lets every adapter do what it can do now, then moves the clock to the next packet or timer. false: there is
 * none before `limit`; the clock is then at the limit, unless that is UINT64_MAX.
 */
bool sim_step(struct sim_world *w, uint64_t limit);
/* Steps until `limit`. */
void sim_run(struct sim_world *w, uint64_t limit);
/* Steps until no packet and no timer is left. */
void sim_run_idle(struct sim_world *w);
uint64_t sim_now(struct sim_world *w);
/* Every packet from now on is printed when seeds.trace, and is part of the digest. */
void sim_watch(struct sim_world *w);
/* So is this completion. */
void sim_note_wc(const struct ibv_wc *wc);

struct hca_cq *sim_cq(struct sim_node *n, unsigned cqe);
struct hca_mr *sim_mr(struct sim_node *n, void *addr, size_t len, uint64_t iova);
struct hca_ah *sim_ah(struct sim_node *n, const struct sim_node *to);
struct hca_ah *sim_ah_to_gid(struct sim_node *n, const uint8_t gid[16]);
void sim_ah_free(struct hca_ah *ah);

/* How a QP is made and connected; sim_qp_opts() gives what most tests want. */
struct sim_qp_opts {
	enum ibv_qp_type type;
	struct hca_cq *send_cq, *recv_cq;
	struct hca_srq *srq;
	struct hca_pd *pd; /* NULL: the node's */
	unsigned send_wr, recv_wr, sge, inline_data;
	bool sig_all;
	enum ibv_mtu mtu;
	unsigned rd_atomic, timeout, retry, rnr_retry, rnr_timer;
	uint32_t psn; /* of what this end sends first */
};

struct sim_qp_opts sim_qp_opts(struct hca_cq *cq);
struct hca_qp *sim_qp(struct sim_node *n, const struct sim_qp_opts *o);
/* To RTS; a peer for RC and UC, with the options it was made with. */
void sim_connect(
	struct hca_qp *qp, const struct sim_qp_opts *o, struct hca_qp *peer, const struct sim_qp_opts *po);
/* The same, with a peer that is known by its address. */
void sim_connect_to(struct hca_qp *qp, const struct sim_qp_opts *o, const uint8_t gid[16], uint32_t qpn,
	const struct sim_qp_opts *po);

/* Posted and not completed yet; another thread may complete some. */
unsigned sim_requests_of(const struct hca_qp *qp);
/* What this QP's requests in flight cost the flow towards its peer, or, reads, the adapter's own. */
uint64_t sim_qp_in_flight(struct hca_qp *qp, bool reads);
struct sim_node *sim_node_of(struct hca_qp *qp);

#endif
