/* SPDX-License-Identifier: MIT */
/*
 * Conversions between the kernel's structures and the library's: historical exports, kept for programs that
 * link rdma-core's own libraries next to ours. Fields with equal names have equal meanings.
 */
#include <string.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

/* Not in rdma-core's public headers. */
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

#define COPY(field)     dst->field = src->field;
#define COPY_CAP(field) dst->cap.field = src->field;

/* clang-format off */
#define AH_FIELDS(X) \
	X(grh.flow_label) X(grh.sgid_index) X(grh.hop_limit) X(grh.traffic_class) \
	X(dlid) X(sl) X(src_path_bits) X(static_rate) X(is_global) X(port_num)

#define QP_CAP_FIELDS(X) \
	X(max_send_wr) X(max_recv_wr) X(max_send_sge) X(max_recv_sge) X(max_inline_data)

/* Not qp_state: the caller has set the state it wants to go to. */
#define QP_FIELDS(X) \
	X(cur_qp_state) X(path_mtu) X(path_mig_state) X(qkey) X(rq_psn) X(sq_psn) X(dest_qp_num) \
	X(qp_access_flags) X(pkey_index) X(alt_pkey_index) X(en_sqd_async_notify) X(sq_draining) \
	X(max_rd_atomic) X(max_dest_rd_atomic) X(min_rnr_timer) X(port_num) X(timeout) X(retry_cnt) \
	X(rnr_retry) X(alt_port_num) X(alt_timeout)

#define PATH_FIELDS(X) \
	X(dlid) X(slid) X(raw_traffic) X(flow_label) X(reversible) X(mtu) X(pkey) X(hop_limit) \
	X(traffic_class) X(numb_path) X(sl) X(mtu_selector) X(rate_selector) X(rate) \
	X(packet_life_time_selector) X(packet_life_time) X(preference)
/* clang-format on */

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src)
{
	memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof(dst->grh.dgid));
	AH_FIELDS(COPY)
}

void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src)
{
	QP_FIELDS(COPY)
	QP_CAP_FIELDS(COPY_CAP)
	ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
	ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
}

void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src)
{
	memcpy(dst->dgid.raw, src->dgid, sizeof(dst->dgid));
	memcpy(dst->sgid.raw, src->sgid, sizeof(dst->sgid));
	PATH_FIELDS(COPY)
}

void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src)
{
	memcpy(dst->dgid, src->dgid.raw, sizeof(dst->dgid));
	memcpy(dst->sgid, src->sgid.raw, sizeof(dst->sgid));
	PATH_FIELDS(COPY)
}
