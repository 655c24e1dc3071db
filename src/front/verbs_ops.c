/* SPDX-License-Identifier: MIT */
/* The function tables through which the inline verbs of <infiniband/verbs.h> call us. */
#include "front/verbs_front.h"

#include "hca/context.h"

void verbs_fill_ops(struct hca_context *ctx)
{
	struct verbs_context *v = &ctx->v;

	v->context.ops = (struct ibv_context_ops){
		.poll_cq = verbs_poll_cq,
		.req_notify_cq = verbs_req_notify_cq,
		.post_send = verbs_post_send,
		.post_recv = verbs_post_recv,
		.post_srq_recv = verbs_post_srq_recv,
		.alloc_mw = verbs_alloc_mw,
		.dealloc_mw = verbs_dealloc_mw,
		.bind_mw = verbs_bind_mw,
	};
	/* What is left NULL is answered EOPNOTSUPP by the inline functions. */
	v->query_port = verbs_query_port;
	v->query_device_ex = verbs_query_device_ex;
	v->query_rt_values = verbs_query_rt_values;
	v->create_cq_ex = verbs_create_cq_ex;
	v->modify_cq = verbs_modify_cq;
	v->create_qp_ex = verbs_create_qp_ex;
	v->create_srq_ex = verbs_create_srq_ex;
	v->get_srq_num = verbs_get_srq_num;
	v->alloc_td = verbs_alloc_td;
	v->dealloc_td = verbs_dealloc_td;
	v->alloc_parent_domain = verbs_alloc_parent_domain;
	v->advise_mr = verbs_advise_mr;
	v->alloc_dm = verbs_alloc_dm;
	v->free_dm = verbs_free_dm;
	v->reg_dm_mr = verbs_reg_dm_mr;
}
