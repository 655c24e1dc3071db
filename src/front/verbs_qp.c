/* SPDX-License-Identifier: MIT */
/* Queue pairs, shared receive queues, address handles, multicast. */
#include "front/verbs_front.h"

#include "base/bytes.h"
#include "base/cancel.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/qp.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- queue pairs ---- */
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr)
{
	CANCEL_SAFE;
	uint32_t known =
		IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		       IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
		       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
	struct hca_qp *qp;

	if ((attr->comp_mask & ~known) ||
		((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags) ||
		((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		errno = EINVAL;
		return NULL;
	}
	qp = hca_qp_create(hca_context(c), attr);
	return qp ? &qp->ex.qp_base : NULL;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	CANCEL_SAFE;
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct hca_qp *qp = hca_qp_create(hca_context(pd->context), &ex);

	if (!qp)
		return NULL;
	attr->cap = ex.cap;
	return &qp->ex.qp_base;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return hca_qp(qp)->wr_api ? &hca_qp(qp)->ex : NULL;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	CANCEL_SAFE;

	return hca_qp_query(hca_qp(qp), attr, init);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0; /* bytes of one message land in order of packets, but a program must not count on it */
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	CANCEL_SAFE;

	return hca_qp_modify(hca_qp(qp), attr, mask);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(qp->context))
		return 0;
	return hca_qp_destroy(hca_qp(qp));
}

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return hca_qp_post_send(hca_qp(qp), wr, bad);
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return hca_qp_post_recv(hca_qp(qp), wr, bad);
}

int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	CANCEL_SAFE;

	return hca_qp_bind_mw(hca_qp(qp), mw, bind);
}

/* ---- shared receive queues ---- */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	CANCEL_SAFE;
	struct hca_srq *srq = hca_srq_create(hca_context(pd->context), pd, attr);

	return srq ? &srq->ibv : NULL;
}

struct ibv_srq *verbs_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr)
{
	CANCEL_SAFE;
	struct ibv_srq_init_attr basic = {.srq_context = attr->srq_context, .attr = attr->attr};
	struct ibv_srq *srq;

	if ((attr->comp_mask & ~(uint32_t)(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE)) ||
		((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		errno = EINVAL;
		return NULL;
	}
	srq = ibv_create_srq(attr->pd, &basic);
	attr->attr = basic.attr;
	return srq;
}

int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	*num = ((struct hca_srq *)srq)->num;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	CANCEL_SAFE;

	return hca_srq_modify((struct hca_srq *)srq, attr, mask);
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	CANCEL_SAFE;
	struct hca_srq *srq = (struct hca_srq *)ibv;

	lock_take(&srq->rq.lock);
	*attr = (struct ibv_srq_attr){
		.max_wr = srq->rq.max_wr, .max_sge = srq->rq.max_sge, .srq_limit = srq->limit};
	lock_drop(&srq->rq.lock);
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(srq->context))
		return 0;
	return hca_srq_destroy((struct hca_srq *)srq);
}

int verbs_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct hca_srq *srq = (struct hca_srq *)ibv;
	int err = 0;

	for (; wr && !err; wr = wr->next) {
		err = hca_rq_post(&srq->rq, wr);
		if (err)
			*bad = wr;
	}
	hca_engine_recv_posted(&srq->ctx->adapter->engine);
	return err;
}

/* ---- address handles ---- */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	CANCEL_SAFE;
	struct hca_context *ctx = hca_context(pd->context);
	bool has_ah = hca_kinds[ctx->dev->kind].by_modify;
	struct hca_ah *ah = has_ah ? calloc(1, sizeof(*ah)) : NULL;
	int err;

	if (!has_ah)
		errno = EOPNOTSUPP;
	if (!ah)
		return NULL;
	err = hca_path_resolve(ctx->dev, attr, &ah->path);
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	ah->attr = *attr;
	ah->ibv.context = pd->context;
	ah->ibv.pd = pd;
	((struct hca_pd *)pd)->objects++;
	return &ah->ibv;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	CANCEL_SAFE;

	((struct hca_pd *)ah->pd)->objects--;
	free(ah);
	return 0;
}

/* The first address of the same kind, for an answer to what came by multicast. */
static int index_like(struct hca_port *p, const uint8_t gid[16])
{
	uint8_t own[16];

	for (unsigned i = 0; hca_port_gid(p, i, own); i++) {
		if (!gid_is_zero(own) && gid_is_v4(own) == gid_is_v4(gid))
			return (int)i;
	}
	return -1;
}

/* The sender's and our own address from the 40 bytes in front of a datagram. */
static int read_grh(const uint8_t *grh, uint8_t src[16], uint8_t dst[16], uint8_t *tclass, uint8_t *hop)
{
	const uint8_t *ip = grh + 20;
	uint32_t sum = 0;

	if (grh[0] >> 4 == 6) {
		memcpy(src, grh + 8, 16);
		memcpy(dst, grh + 24, 16);
		*tclass = (uint8_t)(get_be16(grh) >> 4);
		*hop = grh[7];
		return 0;
	}
	for (int i = 0; i < 20; i += 2)
		sum += get_be16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (ip[0] != 0x45 || sum != 0xffff)
		return -1;
	memset(src, 0, 16);
	memset(dst, 0, 16);
	src[10] = src[11] = dst[10] = dst[11] = 0xff;
	memcpy(src + 12, ip + 12, 4);
	memcpy(dst + 12, ip + 16, 4);
	*tclass = ip[1];
	*hop = ip[8];
	return 0;
}

int ibv_init_ah_from_wc(
	struct ibv_context *c, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	CANCEL_SAFE;
	struct hca_port *p = hca_device_port(hca_context(c)->dev, port);
	uint8_t dst[16], tclass, hop;
	int index;

	memset(attr, 0, sizeof(*attr));
	if (!p) {
		errno = EINVAL;
		return -1;
	}
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	if (read_grh((const uint8_t *)grh, attr->grh.dgid.raw, dst, &tclass, &hop)) {
		errno = EINVAL;
		return -1;
	}
	index = hca_port_gid_index(p, dst);
	if (index < 0)
		index = index_like(p, dst);
	if (index < 0) {
		errno = EINVAL;
		return -1;
	}
	attr->is_global = 1;
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.hop_limit = 0xff;
	attr->grh.traffic_class = tclass;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	CANCEL_SAFE;
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

/* ---- multicast ---- */
int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	CANCEL_SAFE;

	return hca_mcast_attach(hca_qp(qp), gid->raw);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	CANCEL_SAFE;

	return hca_mcast_detach(hca_qp(qp), gid->raw);
}
