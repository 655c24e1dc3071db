/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: how they come, are reset, and go. What a program changes of them is in qp_modify.c, the
 * attribute table in qp_attr.c, posting in qp_send.c, completions and errors in qp_complete.c.
 */
#include "hca/qp_parts.h"

#include "base/asserts.h"
#include "base/bits.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/provider.h"
#include "host/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- creating ---- */
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

void hca_qp_set_port(struct hca_qp *qp, unsigned num, unsigned pkey_index)
{
	qp->path.port = hca_device_port(qp->ctx->dev, num);
	hca_port_pkey(qp->path.port, pkey_index, &qp->path.pkey);
	hca_path_invalidate(&qp->path);
}

/* 0: the entry is empty, or there is no fabric now. */
static uint16_t pkey_now(const struct hca_qp *qp)
{
	const struct hca_port *port = qp->path.port;
	const struct fabric_port *p = NULL;
	unsigned index = qp->attr.pkey_index;

	if (hca_port_is_ib(port) && index < FABRIC_PKEYS)
		p = fabric_port(atomic_load(&qp->adapter->table), port->ib.index);
	return p ? __atomic_load_n(&p->pkey[index], __ATOMIC_RELAXED) : 0;
}

bool hca_qp_follow_pkey(struct hca_qp *qp)
{
	uint16_t now = pkey_now(qp);

	assert_locked(&qp->lock);
	if (!now || now == qp->path.pkey)
		return false;
	qp->path.pkey = now;
	hca_export_qp(qp->adapter, qp);
	return true;
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
	hca_qp_set_port(qp, 1, 0);
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

/* ---- its flow ---- */
void hca_qp_leave_flow(struct hca_qp *qp)
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
	hca_qp_leave_flow(qp);
	hca_adapter_flow_put(qp->adapter, qp->path.flow);
	qp->path.flow = f;
}

bool hca_qp_flow_take(struct hca_qp *qp, struct hca_flow *f, uint32_t cost, bool stuck)
{
	assert_locked(&qp->lock);
	if (qp->waits_for != f)
		hca_qp_leave_flow(qp);
	qp->waits_for = f;
	qp->flow_closed = !hca_flow_take(f, cost, &qp->flow_node, stuck);
	return !qp->flow_closed;
}

bool hca_qp_flow_take_unreliable(
	struct hca_qp *qp, struct hca_flow *f, uint32_t cost, uint64_t now, uint64_t *ask)
{
	assert_locked(&qp->lock);
	if (qp->waits_for != f)
		hca_qp_leave_flow(qp);
	qp->waits_for = f;
	qp->flow_closed = !hca_flow_take_unreliable(f, cost, &qp->flow_node, now, ask);
	return !qp->flow_closed;
}

/* ---- reset, and the end ---- */
void hca_qp_reset(struct hca_qp *qp)
{
	qp->provider->ops.reset(qp);
	if (qp->provider != qp->dev_provider) {
		hca_qp_set_provider(qp, qp->dev_provider);
		qp->dev_provider->ops.reset(qp);
	}
	qp->generation++;
	hca_qp_set_flow(qp, NULL);
	hca_qp_leave_tally(qp);
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
	hca_qp_set_port(qp, 1, 0);
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
	hca_qp_reset(qp);
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
