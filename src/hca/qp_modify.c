/* SPDX-License-Identifier: MIT */
/*
 * What a program changes of a queue pair, and asks of it. Which attributes go with which arrow is the table
 * of qp_attr.c; whether their values can be is looked at here, all of it before anything changes.
 */
#include "hca/qp_parts.h"

#include "base/log.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/provider.h"
#include "host/registry.h"
#include "wire/ibt.h"

#include <errno.h>

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

	assert_locked(&qp->adapter->engine.drive);
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
		hca_qp_reset(qp);
		hca_qp_set_state(qp, to);
		return 0;
	}
	store_attr(qp, attr, mask);
	if (mask & (IBV_QP_PORT | IBV_QP_PKEY_INDEX))
		hca_qp_set_port(
			qp, mask & IBV_QP_PORT ? attr->port_num : qp->path.port->num, qp->attr.pkey_index);
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
