/* SPDX-License-Identifier: MIT */
#include "hca/rq.h"

#include "base/bits.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/mr.h"
#include "hca/qp.h"
#include "observe/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct hca_recv_wqe *wqe_at(const struct hca_rq *rq, uint32_t i)
{
	return (struct hca_recv_wqe *)(rq->ring + (size_t)(i & (rq->size - 1)) * rq->stride);
}

int hca_rq_init(struct hca_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	lock_init(&rq->lock);
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	rq->size = pow2_at_least(max_wr);
	rq->stride = sizeof(struct hca_recv_wqe) + max_sge * sizeof(struct ibv_sge);
	rq->ring = calloc(rq->size, rq->stride);
	rq->head = rq->tail = 0;
	return rq->ring ? 0 : ENOMEM;
}

void hca_rq_fini(struct hca_rq *rq)
{
	free(rq->ring);
	lock_fini(&rq->lock);
}

static void __attribute__((cold, noinline)) tell_posted(const struct hca_rq *rq, const struct hca_recv_wqe *w)
{
	PROBE(RECV_POSTED, .rq = rq, .wr_id = w->wr_id, .length = w->length, .nsge = w->nsge);
}

int hca_rq_post(struct hca_rq *rq, const struct ibv_recv_wr *wr)
{
	struct hca_recv_wqe *w;
	uint64_t length = 0;
	int err = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	lock_take(&rq->lock);
	if (hca_rq_count(rq) >= rq->max_wr) {
		err = ENOMEM;
	} else {
		w = wqe_at(rq, rq->head);
		w->wr_id = wr->wr_id;
		w->nsge = (uint32_t)wr->num_sge;
		w->length = length > HCA_MAX_MSG ? HCA_MAX_MSG : (uint32_t)length;
		if (wr->num_sge == 1)
			w->sge[0] = wr->sg_list[0];
		else if (wr->num_sge)
			memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(w->sge[0]));
		if (probe_is_on(RECV_POSTED))
			tell_posted(rq, w);
		atomic_store_explicit(&rq->head, rq->head + 1, memory_order_release);
	}
	lock_drop(&rq->lock);
	return err;
}

static bool take_locked(struct hca_rq *rq, struct hca_recv *out)
{
	const struct hca_recv_wqe *w;

	if (!hca_rq_count(rq))
		return false;
	w = wqe_at(rq, rq->tail);
	out->valid = true;
	out->wr_id = w->wr_id;
	out->nsge = w->nsge;
	out->length = w->length;
	if (w->nsge == 1) /* without a call */
		out->sge[0] = w->sge[0];
	else
		memcpy(out->sge, w->sge, w->nsge * sizeof(w->sge[0]));
	atomic_store_explicit(&rq->tail, rq->tail + 1, memory_order_release);
	return true;
}

bool hca_rq_take(struct hca_rq *rq, struct hca_recv *out)
{
	bool got;

	lock_take(&rq->lock);
	got = take_locked(rq, out);
	lock_drop(&rq->lock);
	return got;
}

bool hca_rq_ahead(struct hca_rq *rq, uint32_t i, struct ibv_sge *out)
{
	const struct hca_recv_wqe *w;
	bool got;

	lock_take(&rq->lock);
	w = wqe_at(rq, rq->tail + i);
	got = i < hca_rq_count(rq) && w->nsge == 1;
	if (got)
		*out = w->sge[0];
	lock_drop(&rq->lock);
	return got;
}

int hca_rq_resize(struct hca_rq *rq, uint32_t max_wr)
{
	struct hca_rq n;
	int err = hca_rq_init(&n, max_wr, rq->max_sge);

	if (err)
		return err;
	lock_take(&rq->lock);
	if (hca_rq_count(rq) > max_wr) {
		err = EINVAL;
	} else {
		char *old = rq->ring;

		for (; rq->tail != rq->head; rq->tail++)
			memcpy(wqe_at(&n, n.head++), wqe_at(rq, rq->tail), rq->stride);
		rq->ring = n.ring;
		n.ring = old;
		rq->size = n.size;
		rq->max_wr = max_wr;
		rq->tail = 0;
		rq->head = n.head;
	}
	lock_drop(&rq->lock);
	hca_rq_fini(&n);
	return err;
}

/* ---- SRQ ---- */
struct hca_srq *hca_srq_create(struct hca_context *ctx, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct hca_srq *srq;
	int err;

	if (!attr->attr.max_wr || attr->attr.max_wr > HCA_MAX_QP_WR || attr->attr.max_sge > HCA_MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	if (!attr->attr.max_sge)
		attr->attr.max_sge = 1;
	err = hca_rq_init(&srq->rq, attr->attr.max_wr, attr->attr.max_sge);
	if (err)
		goto free_srq;
	srq->ctx = ctx;
	srq->ibv.context = &ctx->v.context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	err = -hca_adapter_add_srq(ctx->adapter, srq); /* others find it there: it is whole */
	if (err)
		goto free_rq;
	((struct hca_pd *)pd)->objects++;
	return srq;

free_rq:
	hca_rq_fini(&srq->rq);
free_srq:
	free(srq);
	errno = err;
	return NULL;
}

int hca_srq_modify(struct hca_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	int err;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR) {
		if (!attr->max_wr || attr->max_wr > HCA_MAX_QP_WR)
			return EINVAL;
		err = hca_rq_resize(&srq->rq, attr->max_wr);
		if (err)
			return err;
	}
	if (mask & IBV_SRQ_LIMIT) {
		if (attr->srq_limit > srq->rq.max_wr)
			return EINVAL;
		lock_take(&srq->rq.lock);
		srq->limit = attr->srq_limit;
		lock_drop(&srq->rq.lock);
	}
	return 0;
}

int hca_srq_destroy(struct hca_srq *srq)
{
	if (srq->users)
		return EBUSY;
	hca_async_forget(srq->ctx, &srq->ibv);
	hca_adapter_del_srq(srq->ctx->adapter, srq);
	((struct hca_pd *)srq->ibv.pd)->objects--;
	hca_rq_fini(&srq->rq);
	pthread_mutex_destroy(&srq->ibv.mutex);
	pthread_cond_destroy(&srq->ibv.cond);
	free(srq);
	return 0;
}

bool hca_srq_take(struct hca_srq *srq, struct hca_recv *out)
{
	bool got, low = false;

	lock_take(&srq->rq.lock);
	got = take_locked(&srq->rq, out);
	if (srq->limit && hca_rq_count(&srq->rq) < srq->limit) {
		srq->limit = 0; /* armed for one event */
		low = true;
	}
	lock_drop(&srq->rq.lock);
	if (low)
		hca_async_raise(srq->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, &srq->ibv);
	return got;
}
