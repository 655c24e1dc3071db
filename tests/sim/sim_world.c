/* SPDX-License-Identifier: MIT */
#include "sim_world.h"

#include "base/gid.h"
#include "cm/router.h"
#include "hca/export.h"
#include "ib/port.h"
#include "local/channel.h"
#include "mad/gsi.h"
#include "seeds.h"
#include "wire/lrh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "simulation: cannot %s\n", what);
	abort();
}

/* ---- nodes ---- */
static void node_gid(unsigned i, bool ipv6, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (ipv6) {
		memcpy(gid, (uint8_t[]){0xfd, 0x51, 0x3a}, 3);
	} else {
		gid[10] = gid[11] = 0xff;
		gid[12] = 10;
	}
	gid[15] = (uint8_t)(i + 1);
}

/* The first address is its own. */
static void port_init(const struct sim_world *w, struct sim_node *n, unsigned me)
{
	struct hca_port *p = &n->dev.port[0];

	hca_port_init(p, &n->dev, 1);
	p->mtu = 9000;
	p->up = true;
	for (unsigned i = 0; i < (w->host ? w->nodes : 1); i++)
		node_gid((me + i) % w->nodes, w->ipv6, p->gid[i].raw);
}

static bool is_ours(void *arg, const uint8_t gid[16])
{
	return gid_lid(gid) || hca_devices_have(arg, gid);
}

void sim_channel_open(struct sim_node *n, struct link *wire, uint16_t host)
{
	struct hca_adapter *a = &n->adapter;
	size_t size = a->local >= HCA_LOCAL_COPY ? sizeof(struct local_export) : 0;
	void *export = NULL;

	must(wire && !local_channel_open(&n->channel, wire, host, a->slot, is_ours, a, size, &export),
		"make a channel");
	hca_export_to(a, export);
	must(!ibt_port_open(a, local_channel_link(n->channel), n->channel), "make a port");
}

static void links_open(const struct sim_world *w, struct sim_node *n, struct link *wire)
{
	n->channel = NULL;
	if (w->host)
		sim_channel_open(n, wire, w->host);
	else
		must(wire && !ibt_port_open(&n->adapter, wire, NULL), "make a port");
	hca_engine_open(&n->adapter.engine);
	if (n->adapter.export.table)
		hca_export_begin(&n->adapter);
}

static void node_init(struct sim_world *w, unsigned i, struct link *link)
{
	static const struct mad_router *const routers[] = {&cm_router, NULL};
	struct sim_node *n = &w->node[i];

	hca_adapter_init(&n->adapter);
	must(!mad_gsi_open(&n->adapter, routers), "make QP1");
	n->adapter.seed = (w->seed * SIM_NODES + i + 1) ^ (uint64_t)n->deaths << 48;
	n->adapter.slot = i + 1;
	n->adapter.local = w->local;
	memset(&n->dev, 0, sizeof(n->dev));
	n->dev.adapter = &n->adapter;
	n->dev.ifindex = 1;
	snprintf(n->dev.vd.ibv.name, sizeof(n->dev.vd.ibv.name), "sim%u", i);
	node_gid(i, w->ipv6, n->gid);
	port_init(w, n, i);
	list_add_tail(&n->adapter.devices, &n->dev.node);
	hca_engine_init(&n->adapter.engine, &n->adapter, sim_clock, w->net);
	links_open(w, n, link);
	n->adapter.up = true;
	n->ctx = hca_context_open(&n->dev);
	n->pd = n->ctx ? hca_pd_alloc(n->ctx) : NULL;
	must(n->pd, "open a device");
	n->up = true;
}

static void node_fini(struct sim_node *n)
{
	must(!hca_pd_dealloc(n->pd), "free a PD: something the test made is left");
	if (n->adapter.export.table)
		hca_export_end(&n->adapter);
	hca_context_close(n->ctx); /* takes the engine and its link with it */
	mad_gsi_close(&n->adapter);
	hca_adapter_fini(&n->adapter);
	n->up = false;
}

void sim_world_init(struct sim_world *w, unsigned nodes, uint64_t seed, bool ipv6)
{
	sim_world_init_host(w, nodes, seed, ipv6, 0, HCA_LOCAL_OFF);
}

void sim_world_init_host(
	struct sim_world *w, unsigned nodes, uint64_t seed, bool ipv6, uint16_t host, enum hca_local local)
{
	w->host = host;
	w->local = local;
	w->net = sim_net_open(seed);
	must(w->net, "make a net");
	w->nodes = nodes;
	w->seed = seed;
	w->ipv6 = ipv6;
	for (unsigned i = 0; i < nodes; i++) {
		uint8_t gid[16];

		node_gid(i, ipv6, gid);
		w->node[i].deaths = 0;
		node_init(w, i, sim_port_open(w->net, gid));
	}
}

void sim_world_fini(struct sim_world *w)
{
	for (unsigned i = 0; i < w->nodes; i++) {
		if (w->node[i].up)
			node_fini(&w->node[i]);
	}
	sim_net_close(w->net);
}

void sim_node_stop(struct sim_world *w, unsigned i)
{
	node_fini(&w->node[i]);
	w->node[i].deaths++;
}

void sim_node_start(struct sim_world *w, unsigned i)
{
	node_init(w, i, sim_port_reopen(w->net, i));
}

/* ---- time ---- */
uint64_t sim_now(struct sim_world *w)
{
	struct timespec t;

	if (w->net)
		return sim_clock(w->net);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SIM_S + (uint64_t)t.tv_nsec - w->began;
}

static void drive(struct sim_world *w)
{
	bool again;

	do {
		again = false;
		for (unsigned i = 0; i < w->nodes; i++) {
			struct hca_engine *e = &w->node[i].adapter.engine;

			if (!w->node[i].up)
				continue;
			hca_engine_drive(e);
			again |= !list_empty(&e->runnable);
		}
	} while (again || sim_next_arrival(w->net) <= sim_now(w));
}

bool sim_step(struct sim_world *w, uint64_t limit)
{
	uint64_t next;

	drive(w);
	next = sim_next_arrival(w->net);
	for (unsigned i = 0; i < w->nodes; i++) {
		uint64_t timer = w->node[i].adapter.engine.next_timer;

		if (w->node[i].up && timer < next)
			next = timer;
	}
	if (next > limit || next == UINT64_MAX) {
		if (limit != UINT64_MAX)
			sim_clock_set(w->net, limit);
		return false;
	}
	sim_clock_set(w->net, next);
	return true;
}

void sim_run(struct sim_world *w, uint64_t limit)
{
	while (sim_step(w, limit))
		;
	drive(w);
}

/* One that never comes to rest is a failure, and not a test that hangs. */
void sim_run_idle(struct sim_world *w)
{
	enum { STEPS_MOST = 5000000 };

	for (unsigned n = 0; sim_step(w, UINT64_MAX); n++) {
		if (n == STEPS_MOST) {
			fprintf(stderr, "the simulation does not come to rest\n");
			abort();
		}
	}
	drive(w);
}

/* ---- the run, for people and for its digest ---- */
static void watch_packet(void *arg, const struct sim_packet *p)
{
	const uint64_t v[] = {p->at, p->arrives, p->arrives_again, p->from, p->to, p->fate};

	seeds_note(v, sizeof(v));
	seeds_note(p->bytes, p->len);
	if (seeds.trace)
		sim_trace_print(stdout, p);
}

void sim_watch(struct sim_world *w)
{
	if (w->net)
		sim_trace_set(w->net, watch_packet, NULL);
}

void sim_note_wc(const struct ibv_wc *wc)
{
	const uint64_t v[] = {wc->wr_id, wc->status, wc->qp_num, wc->status ? 0 : (uint64_t)wc->opcode};

	seeds_note(v, sizeof(v));
}

/* ---- objects ---- */
struct hca_cq *sim_cq(struct sim_node *n, unsigned cqe)
{
	struct hca_cq *cq = hca_cq_create(n->ctx, cqe, NULL, NULL, 0);

	must(cq, "make a CQ");
	return cq;
}

struct hca_mr *sim_mr(struct sim_node *n, void *addr, size_t len, uint64_t iova)
{
	struct hca_mr *mr = hca_mr_reg(n->pd, addr, len, iova, SIM_ALL_ACCESS);

	must(mr, "register memory");
	return mr;
}

static struct ibv_ah_attr path_to(const uint8_t gid[16])
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};

	memcpy(a.grh.dgid.raw, gid, 16);
	a.dlid = gid_is_mcast(gid) ? LID_MCAST : gid_lid(gid); /* where there are LIDs */
	a.is_global = !gid_lid(gid);
	return a;
}

struct hca_ah *sim_ah(struct sim_node *n, const struct sim_node *to)
{
	return sim_ah_to_gid(n, to->gid);
}

struct hca_ah *sim_ah_to_gid(struct sim_node *n, const uint8_t gid[16])
{
	struct hca_ah *ah = calloc(1, sizeof(*ah));

	must(ah, "make an address handle");
	ah->ibv.context = &n->ctx->v.context;
	ah->ibv.pd = &n->pd->ibv;
	ah->attr = path_to(gid);
	must(!hca_path_resolve(n->ctx->dev, &ah->attr, &ah->path), "resolve an address");
	return ah;
}

void sim_ah_free(struct hca_ah *ah)
{
	free(ah);
}

/* ---- queue pairs ---- */
struct sim_qp_opts sim_qp_opts(struct hca_cq *cq)
{
	return (struct sim_qp_opts){
		.type = IBV_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.send_wr = 64,
		.recv_wr = 64,
		.sge = 4,
		.inline_data = 128,
		.sig_all = true,
		.mtu = IBV_MTU_1024,
		.rd_atomic = 4,
		.timeout = 10, /* 4 ms */
		.retry = 7,
		.rnr_retry = 7,
		.rnr_timer = 8, /* 160 us */
	};
}

struct hca_qp *sim_qp(struct sim_node *n, const struct sim_qp_opts *o)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = (struct ibv_cq *)o->send_cq,
		.recv_cq = (struct ibv_cq *)o->recv_cq,
		.srq = o->srq ? &o->srq->ibv : NULL,
		.cap = {.max_send_wr = o->send_wr,
			.max_recv_wr = o->recv_wr,
			.max_send_sge = o->sge,
			.max_recv_sge = o->sge,
			.max_inline_data = o->inline_data},
		.qp_type = o->type,
		.sq_sig_all = o->sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &(o->pd ? o->pd : n->pd)->ibv,
	};
	struct hca_qp *qp = hca_qp_create(n->ctx, &init);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = SIM_QKEY, .qp_access_flags = SIM_ALL_ACCESS};
	int last = o->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	must(qp, "make a QP");
	must(!hca_qp_modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last),
		"modify a QP to INIT");
	return qp;
}

struct sim_node *sim_node_of(struct hca_qp *qp)
{
	return container_of(qp->adapter, struct sim_node, adapter);
}

void sim_connect(
	struct hca_qp *qp, const struct sim_qp_opts *o, struct hca_qp *peer, const struct sim_qp_opts *po)
{
	static const uint8_t nobody[16]; /* UD */

	sim_connect_to(qp, o, peer ? sim_node_of(peer)->gid : nobody, peer ? hca_qpn(peer) : 0, po);
}

void sim_connect_to(struct hca_qp *qp, const struct sim_qp_opts *o, const uint8_t gid[16], uint32_t qpn,
	const struct sim_qp_opts *po)
{
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR};

	if (o->type != IBV_QPT_UD) {
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		a.ah_attr = path_to(gid);
		a.path_mtu = o->mtu;
		a.dest_qp_num = qpn;
		a.rq_psn = po->psn;
	}
	if (o->type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		a.max_dest_rd_atomic = (uint8_t)po->rd_atomic;
		a.min_rnr_timer = (uint8_t)o->rnr_timer;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	must(!hca_qp_modify(qp, &a, rtr), "modify a QP to RTR");
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = o->psn;
	a.timeout = (uint8_t)o->timeout;
	a.retry_cnt = (uint8_t)o->retry;
	a.rnr_retry = (uint8_t)o->rnr_retry;
	a.max_rd_atomic = (uint8_t)o->rd_atomic;
	must(!hca_qp_modify(qp, &a, rts), "modify a QP to RTS");
}

unsigned sim_requests_of(const struct hca_qp *qp)
{
	return qp->sq.head - __atomic_load_n(&qp->sq.tail, __ATOMIC_ACQUIRE);
}

/* ---- what is in flight, counted packet by packet, apart from how the transport counts ---- */
uint64_t sim_qp_in_flight(struct hca_qp *qp, bool reads)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;
	uint32_t mtu = ibt_mtu(qp);
	uint64_t cost = 0;

	if (hca_qp_type(qp) != IBV_QPT_RC)
		return 0;
	for (uint32_t i = qp->sq.tail; i != qp->sq.head; i++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);
		bool is_read = w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			       w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

		if (!w->started)
			break;
		for (uint32_t k = 0; is_read == reads && k < w->npkts; k++) {
			uint32_t psn = psn_add(w->psn, k), left = w->length - k * mtu;

			if (psn_diff(psn, r->una) >= 0 && psn_diff(psn, r->sent) < 0)
				cost += flow_cost(1, left < mtu ? left : mtu);
		}
	}
	if (r->rec.probe_flow && (r->rec.probe_flow == qp->adapter->read_flow) == reads)
		cost += r->rec.probe_cost;
	return cost;
}
