/* SPDX-License-Identifier: MIT */
/* Queue pairs: life, state machine, completions. Posting is in qp_send.c, the attribute table in qp_attr.c.
 */
#include "hca/qp.h"

#include "base/asserts.h"
#include "base/bits.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/provider.h"
#include "host/registry.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */
static int check_init(const struct hca_device *dev, const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_qp_cap *c = &attr->cap;
	const struct hca_service *service = hca_service_of(attr->qp_type);

	if (!service || !(hca_kinds[dev->kind].services & service->bit))
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq || !attr->pd)
		return EINVAL;
	if (c->max_send_wr > HCA_MAX_QP_WR || c->max_send_sge > HCA_MAX_SGE ||
		c->max_inline_data > HCA_MAX_INLINE)
		return EINVAL;
	if (!attr->srq && (c->max_recv_wr > HCA_MAX_QP_WR || c->max_recv_sge > HCA_MAX_SGE))
		return EINVAL;
	return 0;
}

static int sq_init(struct hca_sq *sq, const struct ibv_qp_cap *cap)
{
	size_t tail = cap->max_send_sge * sizeof(struct ibv_sge);

	if (tail < cap->max_inline_data)
		tail = cap->max_inline_data;
	sq->max_wr = cap->max_send_wr;
	sq->max_sge = cap->max_send_sge;
	sq->max_inline = cap->max_inline_data;
	sq->mask = pow2_at_least(cap->max_send_wr) - 1;
	sq->stride = (sizeof(struct hca_send_wqe) + tail + 15) & ~(size_t)15;
	sq->ring = malloc((sq->mask + 1) * sq->stride);
	sq->head = sq->tail = 0;
	return sq->ring ? 0 : ENOMEM;
}

static void take_refs(struct hca_qp *qp, int n)
{
	((struct hca_pd *)qp->ex.qp_base.pd)->objects += (unsigned)n;
	qp->send_cq->users += (unsigned)n;
	qp->recv_cq->users += (unsigned)n;
	if (qp->srq)
		qp->srq->users += (unsigned)n;
}

static size_t state_size(const struct hca_adapter *a, enum hca_carrier carrier)
{
	const struct hca_provider *p = a->engine.provider[carrier];

	return p ? (p->ops.state_size + 63) & ~(size_t)63 : 0;
}

/* Frames may carry any queue pair; one of iWARP has state of its own besides. */
static struct hca_qp *alloc(struct hca_adapter *a, enum hca_kind kind)
{
	enum hca_carrier by = hca_kinds[kind].carrier;
	size_t frames = state_size(a, HCA_FRAMES), stream = by == HCA_STREAMS ? state_size(a, by) : 0;
	size_t size = ((sizeof(struct hca_qp) + 63) & ~(size_t)63) + frames + stream;
	struct hca_qp *qp = aligned_alloc(64, size);

	if (!qp)
		return NULL;
	memset(qp, 0, size);
	qp->dev_provider = qp->provider = a->engine.provider[by];
	qp->stream_state = stream ? qp->frame_state + frames : NULL;
	return qp;
}

/* iWARP has no P_Keys; its connections on one host, which frames carry, have the port's first. */
static void set_port(struct hca_qp *qp, unsigned num, unsigned pkey_index)
{
	qp->path.port = hca_device_port(qp->ctx->dev, num);
	hca_port_pkey(qp->path.port, pkey_index, &qp->path.pkey);
	qp->path.epoch = 0; /* it is walked again */
}

/* What a program asks for, rounded up to what it gets. */
static void round_up(struct ibv_qp_cap *cap, bool has_srq)
{
	if (!cap->max_send_sge)
		cap->max_send_sge = 1;
	if (has_srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	else if (!cap->max_recv_sge)
		cap->max_recv_sge = 1;
	/* Inline data costs nothing here: round up to what the entries' room gives. */
	if (cap->max_inline_data < cap->max_send_sge * sizeof(struct ibv_sge))
		cap->max_inline_data = cap->max_send_sge * sizeof(struct ibv_sge);
}

/* Both, or neither: 0 or errno. */
static int make_queues(struct hca_qp *qp, struct ibv_qp_cap *cap)
{
	int err = sq_init(&qp->sq, cap);

	if (err)
		return err;
	err = hca_rq_init(&qp->rq, cap->max_recv_wr, cap->max_recv_sge);
	if (err)
		free(qp->sq.ring);
	return err;
}

static void free_queues(struct hca_qp *qp)
{
	hca_rq_fini(&qp->rq);
	free(qp->sq.ring);
}

/* The part that programs see. */
static void fill_public(struct hca_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *ibv = &qp->ex.qp_base;

	ibv->context = &qp->ctx->v.context;
	ibv->qp_context = attr->qp_context;
	ibv->pd = attr->pd;
	ibv->send_cq = attr->send_cq;
	ibv->recv_cq = attr->recv_cq;
	ibv->srq = attr->srq;
	ibv->qp_type = attr->qp_type;
	ibv->state = qp->by_modify ? IBV_QPS_RESET : IBV_QPS_INIT;
	pthread_mutex_init(&ibv->mutex, NULL);
	pthread_cond_init(&ibv->cond, NULL);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		hca_qp_wr_init(qp, attr->send_ops_flags);
}

static void fill(struct hca_qp *qp, struct hca_context *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	lock_init(&qp->lock);
	lock_init(&qp->post_lock);
	list_init(&qp->runnable_node);
	list_init(&qp->delayed_ack_node);
	list_init(&qp->coalescing_node);
	list_init(&qp->flow_node);
	qp->ctx = ctx;
	qp->adapter = ctx->adapter;
	set_port(qp, 1, 0);
	qp->pd = hca_pd(attr->pd);
	qp->send_cq = hca_cq(attr->send_cq);
	qp->recv_cq = hca_cq(attr->recv_cq);
	qp->srq = (struct hca_srq *)attr->srq;
	qp->by_modify = hca_kinds[ctx->dev->kind].by_modify;
	if (!qp->by_modify)
		atomic_store_explicit(&qp->send_cq->streams, true, memory_order_relaxed);
	qp->service = *hca_service_of(attr->qp_type);
	qp->sig_all = attr->sq_sig_all;
	qp->cap = attr->cap;
	qp->count = &qp->own_count;
	fill_public(qp, attr);
	qp->dev_provider->ops.reset(qp);
}

/* It gets its number, and frames find it: 0 or errno. */
static int enter(struct hca_adapter *a, struct hca_qp *qp)
{
	int err = -hca_flow_table_reserve(&a->flows);

	if (err)
		return err;
	err = -hca_adapter_add_qp(a, qp);
	if (err) {
		hca_flow_table_unreserve(&a->flows);
		return err;
	}
	qp->count =
		host_registry_qp(a->registry, hca_qpn(qp), (uint32_t)qp->ex.qp_base.qp_type, &qp->own_count);
	take_refs(qp, 1);
	return 0;
}

/* Whether there can be one: 0 or errno. The adapter comes up with its first. */
static int may_create(struct hca_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	int err = check_init(ctx->dev, attr);

	if (!err)
		err = -hca_adapter_up(ctx->adapter);
	return err ? err : -hca_adapter_has(ctx->adapter, ctx->dev->kind);
}

struct hca_qp *hca_qp_create(struct hca_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct hca_adapter *a = ctx->adapter;
	int err = may_create(ctx, attr);
	struct hca_qp *qp = err ? NULL : alloc(a, ctx->dev->kind);

	if (err)
		errno = err;
	if (!qp)
		return NULL;
	round_up(&attr->cap, attr->srq);
	err = make_queues(qp, &attr->cap);
	if (err)
		goto free_qp;
	fill(qp, ctx, attr);
	err = enter(a, qp);
	if (!err)
		return qp;
	free_queues(qp);
free_qp:
	free(qp);
	errno = err;
	return NULL;
}

static void leave_flow(struct hca_qp *qp)
{
	if (!qp->waits_for)
		return;
	lock_take(&qp->waits_for->lock);
	list_del(&qp->flow_node);
	lock_drop(&qp->waits_for->lock);
	qp->waits_for = NULL;
	qp->flow_closed = false;
}

void hca_qp_set_flow(struct hca_qp *qp, struct hca_flow *f)
{
	assert_locked(&qp->lock);
	leave_flow(qp);
	hca_adapter_flow_put(qp->adapter, qp->path.flow);
	qp->path.flow = f;
}

bool hca_qp_flow_take(struct hca_qp *qp, struct hca_flow *f, uint32_t cost, bool stuck)
{
	assert_locked(&qp->lock);
	if (qp->waits_for != f)
		leave_flow(qp);
	qp->waits_for = f;
	qp->flow_closed = !hca_flow_take(f, cost, &qp->flow_node, stuck);
	return !qp->flow_closed;
}

bool hca_qp_flow_take_unreliable(
	struct hca_qp *qp, struct hca_flow *f, uint32_t cost, uint64_t now, uint64_t *ask)
{
	assert_locked(&qp->lock);
	if (qp->waits_for != f)
		leave_flow(qp);
	qp->waits_for = f;
	qp->flow_closed = !hca_flow_take_unreliable(f, cost, &qp->flow_node, now, ask);
	return !qp->flow_closed;
}

static void reset(struct hca_qp *qp)
{
	qp->provider->ops.reset(qp);
	if (qp->provider != qp->dev_provider) {
		hca_qp_set_provider(qp, qp->dev_provider);
		qp->dev_provider->ops.reset(qp);
	}
	qp->generation++;
	hca_qp_set_flow(qp, NULL);
	hca_engine_window_freed(&qp->adapter->engine);
	qp->path = (struct hca_path){.link = NULL};
	qp->moving = false;
	qp->count->local = 0;
	qp->deadline = 0;
	qp->sq.head = 0;
	__atomic_store_n(&qp->sq.tail, 0, __ATOMIC_RELEASE);
	qp->recv.valid = false;
	qp->sqd_drained_raised = qp->last_wqe_raised = qp->comm_est_raised = false;
	lock_take(&qp->rq.lock);
	qp->rq.head = qp->rq.tail = 0;
	lock_drop(&qp->rq.lock);
	memset(&qp->attr, 0, sizeof(qp->attr));
	set_port(qp, 1, 0);
	hca_cq_purge(qp->send_cq, hca_qpn(qp));
	if (qp->recv_cq != qp->send_cq)
		hca_cq_purge(qp->recv_cq, hca_qpn(qp));
}

/* The connection is ended in the background. */
static void detach(struct hca_qp *qp)
{
	struct hca_engine *e = &qp->adapter->engine;

	if (qp->by_modify)
		return;
	lock_take(&e->drive);
	lock_take(&qp->lock);
	qp->dev_provider->ops.detach(qp);
	lock_drop(&qp->lock);
	lock_drop(&e->drive);
}

int hca_qp_destroy(struct hca_qp *qp)
{
	struct hca_engine *e = &qp->adapter->engine;

	if (hca_mcast_attached(qp))
		return EBUSY;
	hca_engine_flush_pending_tx(e); /* the peer waits for what we hold back */
	detach(qp);
	hca_adapter_del_qp(qp->adapter, qp); /* no frame finds it any more */
	lock_take(&e->drive);
	lock_take(&qp->lock);
	reset(qp);
	hca_qp_set_state(qp, IBV_QPS_RESET); /* whoever still has it in hand finds nothing to do */
	hca_export_qp(qp->adapter, qp);
	lock_drop(&qp->lock);
	lock_drop(&e->drive);
	hca_engine_forget(e, qp);
	hca_flow_table_unreserve(&qp->adapter->flows);
	hca_engine_quiesce(e);
	hca_async_forget(qp->ctx, &qp->ex.qp_base);
	take_refs(qp, -1);
	host_counters_log_qp(qp->count);
	host_registry_qp_done(qp->adapter->registry, qp->count);
	free_queues(qp);
	pthread_mutex_destroy(&qp->ex.qp_base.mutex);
	pthread_cond_destroy(&qp->ex.qp_base.cond);
	lock_fini(&qp->lock);
	lock_fini(&qp->post_lock);
	free(qp);
	return 0;
}

/* ---- modify and query ---- */
/* The port must be one of the device, and have a P_Key at the index: either may be what it has already. */
static int check_port(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct hca_port *p =
		mask & IBV_QP_PORT ? hca_device_port(qp->ctx->dev, attr->port_num) : qp->path.port;
	unsigned index = mask & IBV_QP_PKEY_INDEX ? attr->pkey_index : qp->attr.pkey_index;
	uint16_t pkey;

	return p && hca_port_pkey(p, index, &pkey) ? 0 : EINVAL;
}

static int check_values(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_mtu max = IBV_MTU_4096;

	if (check_port(qp, attr, mask))
		return EINVAL;
	if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > max))
		return EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > HCA_MAX_RD_ATOMIC)
		return EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > HCA_MAX_RD_ATOMIC)
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31)
		return EINVAL;
	if ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7)
		return EINVAL;
	if ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7)
		return EINVAL;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31)
		return EINVAL;
	if ((mask & IBV_QP_DEST_QPN) && attr->dest_qp_num > 0xffffff)
		return EINVAL;
	if ((mask & IBV_QP_ALT_PATH) ||
		((mask & IBV_QP_PATH_MIG_STATE) && attr->path_mig_state != IBV_MIG_MIGRATED))
		return EOPNOTSUPP;
	return 0;
}

/* Copies what the mask names; everything is checked by now. */
static void store_attr(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

#define STORE(bit, field)                                                                                    \
	if (mask & (bit))                                                                                    \
	to->field = attr->field
	STORE(IBV_QP_PKEY_INDEX, pkey_index);
	STORE(IBV_QP_PORT, port_num);
	STORE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	STORE(IBV_QP_QKEY, qkey);
	STORE(IBV_QP_AV, ah_attr);
	STORE(IBV_QP_PATH_MTU, path_mtu);
	STORE(IBV_QP_DEST_QPN, dest_qp_num);
	STORE(IBV_QP_RQ_PSN, rq_psn);
	STORE(IBV_QP_SQ_PSN, sq_psn);
	STORE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	STORE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	STORE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	STORE(IBV_QP_TIMEOUT, timeout);
	STORE(IBV_QP_RETRY_CNT, retry_cnt);
	STORE(IBV_QP_RNR_RETRY, rnr_retry);
	STORE(IBV_QP_RATE_LIMIT, rate_limit);
#undef STORE
	to->rq_psn &= PSN_MASK;
	to->sq_psn &= PSN_MASK;
}

void hca_qp_count_path(struct hca_qp *qp)
{
	struct host_adapter_counters *c = qp->adapter->count;

	qp->count->local = qp->path.shared;
	*(qp->path.shared ? &c->qps_local : &c->qps_wire) += 1;
	if (qp->path.shared || qp->by_modify)
		PROBE(PATH_CHANGED, .qpn = hca_qpn(qp), .peer = qp->attr.dest_qp_num,
			.path = qp->path.shared          ? "through shared memory"
				: qp->adapter->on_fabric ? "through the fabric"
							 : "over UDP");
	else
		log_info("QP 0x%06x: connected by TCP", hca_qpn(qp));
}

/* What modify says of the path; the provider decides the rest. */
static void set_address(struct hca_qp *qp, const struct hca_path *from)
{
	qp->path.dest = from->dest;
	qp->path.sl = from->sl;
}

static int modify_locked(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = hca_qp_state(qp), to = mask & IBV_QP_STATE ? attr->qp_state : from;
	struct hca_path path;
	int err;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return EINVAL;
	err = hca_qp_check_attr(qp, from, to, mask);
	if (!err)
		err = check_values(qp, attr, mask);
	if (!err && from == IBV_QPS_SQD && (mask & IBV_QP_AV) && !qp->sqd_drained_raised)
		err = EINVAL; /* packets are still out on the old path */
	if (!err && (mask & IBV_QP_AV))
		err = hca_path_resolve(qp->ctx->dev, &attr->ah_attr, &path);
	if (!err && (mask & IBV_QP_AV) && path.port != qp->path.port)
		err = EINVAL;
	if (err)
		return err;
	if (to == IBV_QPS_RESET) {
		qp->dev_provider->ops.detach(qp);
		reset(qp);
		hca_qp_set_state(qp, to);
		return 0;
	}
	store_attr(qp, attr, mask);
	if (mask & (IBV_QP_PORT | IBV_QP_PKEY_INDEX))
		set_port(qp, mask & IBV_QP_PORT ? attr->port_num : qp->path.port->num, qp->attr.pkey_index);
	qp->path.mtu = !qp->service.connected || !qp->attr.path_mtu ? hca_port_mtu(qp->path.port)
								    : qp->attr.path_mtu;
	if (mask & IBV_QP_AV)
		set_address(qp, &path);
	if (mask & (IBV_QP_AV | IBV_QP_DEST_QPN))
		qp->dev_provider->ops.set_path(qp);
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->sqd_notify = attr->en_sqd_async_notify;
	if (to != from)
		hca_qp_set_state(qp, to);
	return 0;
}

/*
 * The path to a peer is fixed at modify: what a connection sends must not overtake itself on two paths. How
 * it is reached is found out before, with no lock held, since the peer may have to be asked.
 */
static void find_path(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t qpn = mask & IBV_QP_DEST_QPN ? attr->dest_qp_num & 0xffffff : qp->attr.dest_qp_num;
	struct hca_path path;

	if (!hca_path_resolve(qp->ctx->dev, &attr->ah_attr, &path))
		qp->dev_provider->ops.find_path(qp->dev_provider, &path, qpn);
}

int hca_qp_modify(struct hca_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct hca_engine *e = &qp->adapter->engine;
	int err;

	if (!e->open)
		return EIO; /* a child after fork: the parent's */
	hca_engine_flush_pending_tx(e);
	if (mask & IBV_QP_AV)
		find_path(qp, attr, mask);
	/* Frames are worked on under the drive lock: no change may come in their middle. */
	lock_take(&e->drive);
	lock_take(&qp->lock);
	err = modify_locked(qp, attr, mask);
	if (!err) {
		uint64_t now = hca_engine_now(e);

		qp->provider->ops.modified(qp, mask, now);
		hca_engine_kick(e, qp, now);
	}
	hca_export_qp(qp->adapter, qp);
	lock_drop(&qp->lock);
	if (!qp->by_modify)
		hca_engine_tidy(e);
	lock_drop(&e->drive);
	hca_engine_quiesce(e); /* what others did by the old attributes is over */
	return err;
}

/* A stream has none; what carries it on one host is not the program's. */
static void hide_path(struct ibv_qp_attr *attr)
{
	attr->path_mtu = 0;
	attr->dest_qp_num = attr->rq_psn = attr->sq_psn = 0;
	attr->timeout = attr->retry_cnt = attr->rnr_retry = attr->min_rnr_timer = 0;
}

int hca_qp_query(struct hca_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	lock_take(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = hca_qp_state(qp);
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->cap = qp->cap;
	attr->sq_draining = hca_qp_state(qp) == IBV_QPS_SQD && !qp->sqd_drained_raised;
	lock_drop(&qp->lock);
	if (!qp->by_modify)
		hide_path(attr);
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->ex.qp_base.qp_context,
		.send_cq = qp->ex.qp_base.send_cq,
		.recv_cq = qp->ex.qp_base.recv_cq,
		.srq = qp->ex.qp_base.srq,
		.cap = qp->cap,
		.qp_type = hca_qp_type(qp),
		.sq_sig_all = qp->sig_all,
	};
	return 0;
}

/* ---- completions ---- */
void hca_qp_raise(struct hca_qp *qp, enum ibv_event_type event)
{
	hca_async_raise(qp->ctx, event, &qp->ex.qp_base);
}

void hca_qp_drained(struct hca_qp *qp)
{
	if (hca_qp_state(qp) != IBV_QPS_SQD || qp->sqd_drained_raised)
		return;
	qp->sqd_drained_raised = true;
	if (qp->sqd_notify)
		hca_qp_raise(qp, IBV_EVENT_SQ_DRAINED);
}

static enum ibv_wc_opcode wc_opcode(uint8_t wr_opcode)
{
	switch (wr_opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

/*
 * A completion found no room. What a program does not learn of must not go on: the QP that lost it ends, as
 * with cards; others on the same CQ go on while theirs fit.
 */
void hca_qp_completion_lost(struct hca_qp *qp)
{
	if (hca_qp_state(qp) == IBV_QPS_ERR)
		return;
	hca_qp_raise(qp, IBV_EVENT_QP_FATAL);
	hca_qp_set_state(qp, IBV_QPS_ERR);
}

static void __attribute__((cold, noinline))
tell_done(const struct hca_qp *qp, const struct hca_send_wqe *w, enum ibv_wc_status status)
{
	PROBE(WR_DONE, .qpn = hca_qpn(qp), .wr_id = w->wr_id, .opcode = w->opcode, .status = status,
		.wqe = w);
}

void hca_qp_complete_send(struct hca_qp *qp, enum ibv_wc_status status, uint64_t now)
{
	const struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);
	bool told = true;

	assert_locked(&qp->lock);
	if (probe_is_on(WR_DONE))
		tell_done(qp, w, status);
	if (status != IBV_WC_SUCCESS || qp->sig_all || (w->flags & IBV_SEND_SIGNALED)) {
		struct ibv_wc wc = {
			.wr_id = w->wr_id,
			.status = status,
			.opcode = wc_opcode(w->opcode),
			.byte_len = w->length,
			.qp_num = hca_qpn(qp),
		};

		told = hca_cq_push(qp->send_cq, &wc, false, now);
	}
	/* Posters look without the lock how much room there is. */
	__atomic_store_n(&qp->sq.tail, qp->sq.tail + 1, __ATOMIC_RELEASE);
	if (!told)
		hca_qp_completion_lost(qp);
}

bool hca_qp_take_recv(struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	return qp->srq ? hca_srq_take(qp->srq, &qp->recv) : hca_rq_take(&qp->rq, &qp->recv);
}

bool hca_qp_complete_recv(struct hca_qp *qp, struct ibv_wc *wc, bool solicited, uint64_t now)
{
	struct ibv_wc *to = hca_qp_recv_wc(qp);

	if (!to)
		return false;
	wc->wr_id = qp->recv.wr_id;
	wc->qp_num = hca_qpn(qp);
	*to = *wc;
	hca_cq_put(qp->recv_cq, solicited, now);
	return true;
}

static void flush_recv(struct hca_qp *qp, uint64_t now)
{
	struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	if (qp->recv.valid)
		hca_qp_complete_recv(qp, &wc, false, now);
	while (!qp->srq && hca_rq_take(&qp->rq, &qp->recv))
		hca_qp_complete_recv(qp, &wc, false, now);
	if (qp->srq && !qp->last_wqe_raised) {
		qp->last_wqe_raised = true;
		hca_qp_raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

static void flush(struct hca_qp *qp, uint64_t now)
{
	while (qp->sq.tail != qp->sq.head)
		hca_qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR, now);
	flush_recv(qp, now);
}

void hca_qp_set_state(struct hca_qp *qp, enum ibv_qp_state to)
{
	enum ibv_qp_state from = hca_qp_state(qp);

	assert_locked(&qp->lock);
	assert_that(hca_qp_has_arrow(from, to));
	PROBE(QP_STATE, .qpn = hca_qpn(qp), .from = from, .to = to);
	__atomic_store_n(&qp->ex.qp_base.state, to, __ATOMIC_RELAXED);
	qp->attr.qp_state = to;
	if (to == IBV_QPS_SQD)
		qp->sqd_drained_raised = false;
	if (to == IBV_QPS_ERR) {
		qp->provider->ops.abort(qp);
		if (qp->dev_provider != qp->provider)
			qp->dev_provider->ops.abort(qp);
		if (from != IBV_QPS_ERR)
			qp->dev_provider->ops.failed(qp);
		qp->deadline = 0;
		leave_flow(qp);
		hca_engine_window_freed(&qp->adapter->engine);
		hca_export_qp(qp->adapter, qp);
		flush(qp, hca_engine_now(&qp->adapter->engine));
	}
}

enum ibv_wc_status hca_qp_do_local(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	int err;

	assert_locked(&qp->lock);
	if (w->opcode == IBV_WR_BIND_MW)
		err = hca_mw_bind(qp->adapter, &w->bind, hca_qpn(qp));
	else
		err = hca_key_invalidate(qp->adapter, qp->pd, w->imm, hca_qpn(qp));
	return err ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS;
}

void hca_qp_fail_send(struct hca_qp *qp, enum ibv_wc_status status, uint64_t now)
{
	assert_locked(&qp->lock);
	hca_qp_complete_send(qp, status, now);
	if (hca_qp_state(qp) == IBV_QPS_ERR)
		return; /* the completion was lost */
	if (qp->service.reliable) {
		hca_qp_set_state(qp, IBV_QPS_ERR);
		return;
	}
	hca_qp_set_state(qp, IBV_QPS_SQE);
	while (qp->sq.tail != qp->sq.head)
		hca_qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR, now);
}

void hca_qp_fail_recv(struct hca_qp *qp, enum ibv_wc_status status, enum ibv_event_type event, uint64_t now)
{
	struct ibv_wc wc = {.status = status, .opcode = IBV_WC_RECV};

	assert_locked(&qp->lock);
	if (qp->recv.valid)
		hca_qp_complete_recv(qp, &wc, true, now);
	/* IBA 11.6.3: affiliated events are for errors that no completion reports. */
	else
		hca_qp_raise(qp, event);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_set_state(qp, IBV_QPS_ERR);
}
