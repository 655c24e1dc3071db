/* SPDX-License-Identifier: MIT */
/* Requests from the thread that posts them. */
#include "engine/parts.h"

#include "hca/qp.h"

/*
 * A program that posts many small requests one by one would pay a system call for each. The first few of a
 * burst leave at once; then every BURST_BATCH of them leave together, or what there is when the program polls
 * or waits, or when ENGINE_HELD_NS have passed.
 */
enum { BURST_ALONE = 4, BURST_BATCH = 32, BURST_GAP_NS = 3 * 1000 };

static bool in_burst(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	uint32_t drives = atomic_load_explicit(&e->drives, memory_order_relaxed);
	bool goes_on = drives == qp->burst_drives && now - qp->burst_at < BURST_GAP_NS;

	qp->burst = goes_on ? qp->burst + 1 : 0;
	qp->burst_drives = drives;
	return qp->burst >= BURST_ALONE && qp->burst % BURST_BATCH;
}

void hca_engine_post(struct hca_engine *e, struct hca_qp *qp)
{
	enum hca_post left;
	uint64_t now;

	assert_locked(&qp->lock);
	if (qp->connecting || !e->open)
		return;
	left = qp->provider->ops.post(qp);
	if (left == POST_SENT)
		return;
	now = hca_engine_now(e);
	if (left == POST_NOW || !e->running) {
		hca_engine_kick(e, qp, now);
		return;
	}
	if (!in_burst(e, qp, now)) {
		hca_engine_kick(e, qp, now);
		qp->burst_at = hca_engine_now(e);
		return;
	}
	qp->burst_at = now;
	engine_defer(e, qp, now + ENGINE_HELD_NS);
}
