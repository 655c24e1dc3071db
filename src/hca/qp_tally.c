/* SPDX-License-Identifier: MIT */
/* On a fabric: what goes past its switches, as these would have counted it (fabric/tally.h). */
#include "hca/adapter.h"
#include "hca/qp.h"
#include "wire/ibt.h"

void hca_qp_leave_tally(struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	if (qp->tally)
		tally_leave(&qp->adapter->tallies, qp->tally);
	qp->tally = NULL;
}

/* The next datagram may go another way; and the fabric may be another by now. */
static struct tally *follow(struct hca_qp *qp, uint64_t way)
{
	struct tally_pool *p = &qp->adapter->tallies;

	if (tally_is_for(p, qp->tally, way))
		return qp->tally;
	hca_qp_leave_tally(qp);
	if (atomic_load_explicit(&p->shared, memory_order_relaxed))
		qp->tally = tally_take(p, way);
	return qp->tally;
}

void hca_qp_tally(struct hca_qp *qp, const struct frame_dest *to, enum tally_direction direction,
	uint64_t packets, uint64_t bytes)
{
	struct tally *t = follow(qp, tally_way(to->ifindex - 1, to->slid, to->dlid, to->sl));

	if (t)
		tally_add(t, direction, packets,
			(packets * (LRH_LEN + (to->has_grh ? GRH_LEN : 0) + ICRC_LEN) + bytes) / 4);
}
