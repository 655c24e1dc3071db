/* SPDX-License-Identifier: MIT */
/* QPs of ids, with the queues and channels that the inline functions of rdma_verbs.h use. */
#include "cm/qp.h"

#include "cm/id.h"
#include "cm/mcast.h"
#include "hca/qp.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- attributes ---- */
void rcm_fill_ah(const struct rcm_id *id, const uint8_t dgid[16], struct ibv_ah_attr *ah)
{
	*ah = (struct ibv_ah_attr){
		.is_global = !id->path.slid || id->path.has_grh,
		.dlid = id->path.dlid,
		.sl = id->path.slid ? id->path.sl : 0,
		.src_path_bits = (uint8_t)(id->path.slid & ((1u << id->path.lmc) - 1)),
		.port_num = id->path.port,
		.grh =
			{
				.flow_label = id->path.flow_label,
				.sgid_index = (uint8_t)id->path.sgid_index,
				.hop_limit = id->path.hop_limit,
				.traffic_class = id->path.tclass,
			},
	};
	memcpy(ah->grh.dgid.raw, dgid, 16);
}

static void init_attr(const struct rcm_id *id, struct ibv_qp_attr *a, int *mask)
{
	int index = ibv_get_pkey_index(id->pub.verbs, id->path.port, htobe16(id->path.pkey));

	a->pkey_index = index > 0 ? (uint16_t)index : 0;
	a->port_num = id->path.port;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (rcm_is_ud(id)) {
		a->qkey = id->path.qkey;
		*mask |= IBV_QP_QKEY;
		return;
	}
	a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (rcm_is_iwarp(id) || id->path.responder_resources)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	*mask |= IBV_QP_ACCESS_FLAGS;
}

/*
 * A peer whose device can do more may answer with more than we offered (Linux's rxe says 128 when its program
 * does not care). It is free to say so; we do what we can.
 */
static uint8_t as_we_can(uint8_t depth)
{
	return depth < HCA_MAX_RD_ATOMIC ? depth : HCA_MAX_RD_ATOMIC;
}

static void rtr_attr(const struct rcm_id *id, struct ibv_qp_attr *a, int *mask)
{
	rcm_fill_ah(id, id->path.remote, &a->ah_attr);
	a->path_mtu = id->path.mtu;
	a->dest_qp_num = id->path.remote_qpn;
	a->rq_psn = id->path.rq_psn;
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (id->pub.qp_type == IBV_QPT_RC) {
		a->max_dest_rd_atomic = as_we_can(id->path.responder_resources);
		a->min_rnr_timer = 0;
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
}

static void rts_attr(const struct rcm_id *id, struct ibv_qp_attr *a, int *mask)
{
	a->sq_psn = id->path.sq_psn;
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (id->pub.qp_type == IBV_QPT_RC) {
		a->timeout = id->has_ack_timeout ? id->ack_timeout : id->path.ack_timeout;
		a->retry_cnt = id->path.retry_count;
		a->rnr_retry = id->path.rnr_retry;
		a->max_rd_atomic = as_we_can(id->path.initiator_depth);
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
}

int rcm_qp_attr(const struct rcm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	if (!id->pub.verbs)
		return -EINVAL;
	if (attr->qp_state == IBV_QPS_INIT || (attr->qp_state == IBV_QPS_RTR && rcm_is_iwarp(id)))
		init_attr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS && rcm_is_iwarp(id))
		*mask = 0; /* it comes there with its connection */
	else if (attr->qp_state == IBV_QPS_RTR && id->conn && !rcm_is_ud(id))
		rtr_attr(id, attr, mask);
	else if (attr->qp_state == IBV_QPS_RTS && id->conn && !rcm_is_ud(id))
		rts_attr(id, attr, mask);
	else
		return -EINVAL;
	return 0;
}

/* ---- states ---- */
static int go(struct rcm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = 0, err = rcm_qp_attr(id, &attr, &mask);

	return err ? err : -ibv_modify_qp(id->pub.qp, &attr, mask);
}

/* What the QP may do was not known when it was made. */
int rcm_qp_to_rtr(struct rcm_id *id)
{
	int err;

	id->pub.qp_type = id->pub.qp->qp_type;
	err = go(id, IBV_QPS_INIT);
	return err ? err : go(id, IBV_QPS_RTR);
}

int rcm_qp_to_rts(struct rcm_id *id)
{
	return go(id, IBV_QPS_RTS);
}

int rcm_qp_to_err(struct rcm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return id->pub.qp ? -ibv_modify_qp(id->pub.qp, &attr, IBV_QP_STATE) : 0;
}

/* Datagrams need no peer: ready at once. */
static int start_ud(struct rcm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask, err;

	init_attr(id, &attr, &mask);
	err = ibv_modify_qp(qp, &attr, mask);
	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0;
	if (!err)
		err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return -err;
}

static int start_connected(struct rcm_id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	int mask;

	init_attr(id, &attr, &mask);
	return -ibv_modify_qp(qp, &attr, mask);
}

/* ---- queues ---- */
static int make_cq(struct rcm_id *id, uint32_t size, struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	int err;

	*channel = ibv_create_comp_channel(id->pub.verbs);
	if (!*channel)
		return -errno;
	*cq = ibv_create_cq(id->pub.verbs, size ? (int)size : 1, &id->pub, *channel, 0);
	if (*cq)
		return 0;
	err = -errno;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return err;
}

static void drop_cq(struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

static void drop_cqs(struct rcm_id *id)
{
	if (id->own_send_cq)
		drop_cq(&id->pub.send_cq_channel, &id->pub.send_cq);
	if (id->own_recv_cq)
		drop_cq(&id->pub.recv_cq_channel, &id->pub.recv_cq);
	id->own_send_cq = id->own_recv_cq = false;
}

/* Queues that the program did not bring. */
static int make_cqs(struct rcm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *pub = &id->pub;
	int err = 0;

	if (!attr->send_cq) {
		err = make_cq(id, attr->cap.max_send_wr, &pub->send_cq_channel, &pub->send_cq);
		id->own_send_cq = !err;
		attr->send_cq = pub->send_cq;
	}
	if (!err && !attr->recv_cq && attr->srq && attr->srq == pub->srq && pub->recv_cq)
		attr->recv_cq = pub->recv_cq;
	if (!err && !attr->recv_cq) {
		err = make_cq(id, attr->cap.max_recv_wr, &pub->recv_cq_channel, &pub->recv_cq);
		id->own_recv_cq = !err;
		attr->recv_cq = pub->recv_cq;
	}
	if (err)
		drop_cqs(id);
	return err;
}

/* ---- QPs ---- */
static int choose_pd(struct rcm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pub.pd;
	}
	return attr->pd->context == id->pub.verbs ? 0 : -EINVAL;
}

int rcm_qp_create_ex(struct rcm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *pub = &id->pub;
	struct ibv_qp *qp;
	int err;

	if (!pub->verbs || pub->qp)
		return -EINVAL;
	err = choose_pd(id, attr);
	if (err)
		return err;
	if (!attr->srq)
		attr->srq = pub->srq;
	err = make_cqs(id, attr);
	if (err)
		return err;
	qp = ibv_create_qp_ex(pub->verbs, attr);
	if (!qp) {
		err = -errno;
		goto drop_cqs;
	}
	err = qp->qp_type == IBV_QPT_UD ? start_ud(id, qp) : start_connected(id, qp);
	if (err)
		goto destroy_qp;
	pub->pd = attr->pd;
	pub->qp = qp;
	return 0;

destroy_qp:
	ibv_destroy_qp(qp);
drop_cqs:
	drop_cqs(id);
	return err;
}

int rcm_qp_create(struct rcm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_init_attr_ex attr = {.comp_mask = pd ? IBV_QP_INIT_ATTR_PD : 0, .pd = pd};
	const size_t same = offsetof(struct ibv_qp_init_attr_ex, comp_mask); /* both begin alike */
	int err;

	memcpy(&attr, init, same);
	err = rcm_qp_create_ex(id, &attr);
	memcpy(init, &attr, same);
	return err;
}

void rcm_qp_destroy(struct rcm_id *id)
{
	rcm_groups_leave(id);
	if (id->pub.qp)
		ibv_destroy_qp(id->pub.qp);
	id->pub.qp = NULL;
	drop_cqs(id);
}

/* ---- shared receive queues ---- */
int rcm_srq_create_ex(struct rcm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct rdma_cm_id *pub = &id->pub;
	struct ibv_srq *srq;

	if (!pub->verbs || pub->srq)
		return -EINVAL;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = pub->pd;
	}
	srq = ibv_create_srq_ex(pub->verbs, attr);
	if (!srq)
		return errno ? -errno : -ENOMEM;
	if (!pub->pd)
		pub->pd = attr->pd;
	pub->srq = srq;
	return 0;
}

int rcm_srq_create(struct rcm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct ibv_srq_init_attr_ex attr = {
		.srq_context = init->srq_context,
		.attr = init->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | (pd ? IBV_SRQ_INIT_ATTR_PD : 0),
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	int err = rcm_srq_create_ex(id, &attr);

	init->attr = attr.attr;
	return err;
}

void rcm_srq_destroy(struct rcm_id *id)
{
	if (id->pub.srq)
		ibv_destroy_srq(id->pub.srq);
	id->pub.srq = NULL;
}
