/* SPDX-License-Identifier: MIT */
/* Receive descriptors: the receive queue of a QP, or of an SRQ that several QPs take from. */
#ifndef HCA_RQ_H
#define HCA_RQ_H

#include "base/lock.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>

enum { HCA_MAX_SGE = 32 };

struct hca_recv_wqe {
	uint64_t wr_id;
	uint32_t nsge;
	uint32_t length; /* sum of the entries */
	struct ibv_sge sge[];
};

/* A receive that was taken off its queue and is being filled. */
struct hca_recv {
	bool valid;
	uint64_t wr_id;
	uint32_t nsge, length;
	struct ibv_sge sge[HCA_MAX_SGE];
};

struct hca_rq {
	struct lock lock; /* guards all below */
	char *ring;
	size_t stride;
	uint32_t size, max_sge; /* size is a power of two, at least max_wr */
	uint32_t max_wr;
	_Atomic uint32_t head, tail;
};

struct hca_srq {
	struct ibv_srq ibv;
	struct hca_context *ctx;
	struct hca_rq rq;
	uint32_t limit; /* armed when not 0; under rq.lock */
	uint32_t num;
	_Atomic unsigned users;
};

int hca_rq_init(struct hca_rq *rq, uint32_t max_wr, uint32_t max_sge);
void hca_rq_fini(struct hca_rq *rq);
/* 0, ENOMEM when full, EINVAL for too many entries */
int hca_rq_post(struct hca_rq *rq, const struct ibv_recv_wr *wr);
/* Takes the oldest receive into *out; false when there is none. */
bool hca_rq_take(struct hca_rq *rq, struct hca_recv *out);
/* The only entry of the receive that is taken after i others; false: there is none, or it has several. */
bool hca_rq_ahead(struct hca_rq *rq, uint32_t i, struct ibv_sge *out);
int hca_rq_resize(struct hca_rq *rq, uint32_t max_wr);

static inline uint32_t hca_rq_count(struct hca_rq *rq)
{
	return atomic_load_explicit(&rq->head, memory_order_relaxed) -
	       atomic_load_explicit(&rq->tail, memory_order_relaxed);
}

struct hca_srq *hca_srq_create(struct hca_context *ctx, struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int hca_srq_modify(struct hca_srq *srq, struct ibv_srq_attr *attr, int mask);
int hca_srq_destroy(struct hca_srq *srq);
/* hca_rq_take, and the limit event when the queue falls below it. */
bool hca_srq_take(struct hca_srq *srq, struct hca_recv *out);

#endif
