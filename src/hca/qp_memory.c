/* SPDX-License-Identifier: MIT */
/* The memory that requests name: our own program's lists of entries, and words that a peer acts on. */
#include "hca/qp.h"

#include "base/guard.h"
#include "hca/adapter.h"

/* ---- scatter and gather ---- */
static void *own_range(struct hca_qp *qp, uint32_t key, uint64_t addr, uint32_t len, unsigned access)
{
	void *at;

	if (!qp->last_key || atomic_load_explicit(&qp->last_key->key, memory_order_relaxed) != key)
		qp->last_key = hca_key_find(qp->adapter, key);
	at = hca_key_at(qp->last_key, qp->pd, key, addr, len, access, 0);
	if (!at)
		hca_key_refused(key, addr, len, access, hca_qpn(qp));
	return at;
}

bool hca_sge_gather(struct hca_qp *qp, const struct ibv_sge *sge, unsigned nsge, uint32_t off, uint32_t len,
	unsigned access, struct iovec *iov, unsigned max, unsigned *n)
{
	*n = 0;
	for (unsigned i = 0; i < nsge && len; i++) {
		uint32_t part = sge[i].length;
		void *p;

		if (off >= part) {
			off -= part;
			continue;
		}
		part -= off;
		if (part > len)
			part = len;
		p = own_range(qp, sge[i].lkey, sge[i].addr + off, part, access);
		if (!p || *n == max)
			return false;
		iov[(*n)++] = (struct iovec){p, part};
		len -= part;
		off = 0;
	}
	return !len;
}

/*
 * What peers have mapped they fetch at once; for the rest they have to ask the kernel, which pays only for
 * long ones. Many small pieces are better sent.
 */
bool hca_sge_goes_by_ref(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	enum { PIECE_MIN = 1024, KERNEL_MIN = 32768 };
	struct hca_adapter *a = qp->adapter;
	uint32_t mapped = 0;

	if (!a->export.table || (w->flags & IBV_SEND_INLINE) || w->length < w->nsge * (uint32_t)PIECE_MIN)
		return false;
	for (unsigned i = 0; i < w->nsge; i++) {
		const struct ibv_sge *s = &w->sge[i];
		void *p;

		if (!s->length)
			continue;
		p = own_range(qp, s->lkey, s->addr, s->length, 0);
		if (!p)
			return false;
		mapped += hca_key_mapped(a, s->lkey, p, s->length);
	}
	return mapped == w->length || w->length >= KERNEL_MIN;
}

bool hca_sge_scatter(struct hca_qp *qp, const struct ibv_sge *sge, unsigned nsge, uint32_t off,
	const void *src, uint32_t len)
{
	struct iovec iov[HCA_MAX_SGE];
	unsigned n;

	return hca_sge_gather(qp, sge, nsge, off, len, IBV_ACCESS_LOCAL_WRITE, iov, HCA_MAX_SGE, &n) &&
	       hca_iov_fill(iov, n, src);
}

/* ---- atomics ---- */
struct atomic_run {
	uint64_t *at, original;
	hca_atomic_fn *result;
	const void *op;
};

static void run_atomic(void *arg)
{
	struct atomic_run *r = arg;

	r->original = __atomic_load_n(r->at, __ATOMIC_SEQ_CST);
	while (!__atomic_compare_exchange_n(r->at, &r->original, r->result(r->op, r->original), false,
		__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

bool hca_atomic(uint64_t *at, hca_atomic_fn *result, const void *op, uint64_t *original)
{
	struct atomic_run r = {.at = at, .result = result, .op = op};
	bool done = guard_run(run_atomic, &r);

	*original = r.original;
	return done;
}
