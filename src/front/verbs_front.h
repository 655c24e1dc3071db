/* SPDX-License-Identifier: MIT */
/* What the files of the verbs front share. The front checks arguments and speaks errno; it owns nothing. */
#ifndef FRONT_VERBS_FRONT_H
#define FRONT_VERBS_FRONT_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct hca_context;

/* Fills a context's tables: ibv_context_ops and verbs_context (verbs_ops.c). */
void verbs_fill_ops(struct hca_context *ctx);

/* Extended verbs, reached through those tables. */
int verbs_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t len);
int verbs_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *attr, size_t size);
int verbs_query_rt_values(struct ibv_context *c, struct ibv_values_ex *values);
struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr);
int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
struct ibv_qp *verbs_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr);
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr);
int verbs_get_srq_num(struct ibv_srq *srq, uint32_t *num);
struct ibv_td *verbs_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *attr);
int verbs_dealloc_td(struct ibv_td *td);
struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *c, struct ibv_parent_domain_init_attr *attr);
struct ibv_dm *verbs_alloc_dm(struct ibv_context *c, struct ibv_alloc_dm_attr *attr);
int verbs_free_dm(struct ibv_dm *dm);
struct ibv_mr *verbs_reg_dm_mr(
	struct ibv_pd *pd, struct ibv_dm *dm, uint64_t off, size_t length, unsigned int access);
int verbs_advise_mr(
	struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge, uint32_t n);

/* Plain verbs called through ibv_context_ops. */
int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int verbs_dealloc_mw(struct ibv_mw *mw);
int verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

#endif
