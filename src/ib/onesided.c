/* SPDX-License-Identifier: MIT */
/*
 * Requests that need nobody else: when a QP has nothing on its way and its peer is on this host, the next
 * WRITE or READ is done here and now (src/local), before the transport hears of it. So they stay in order
 * with everything that goes by frames, and the peer's packet numbers never know.
 */
#include "ib/port.h"

#include "base/log.h"
#include "hca/adapter.h"
#include "hca/flow.h"
#include "local/channel.h"
#include "local/direct.h"

#include <errno.h>
#include <string.h>

static bool is_next(struct hca_qp *qp)
{
	return qp->sq.tail != qp->sq.head && local_can(hca_sq_at(&qp->sq, qp->sq.tail)) &&
	       hca_qp_state(qp) == IBV_QPS_RTS && ibt_nothing_started(qp);
}

void ibt_local_peer(struct local_peer *p, const struct hca_flow *f, const struct local_process *there)
{
	*p = (struct local_peer){.export = there->export,
		.number = there->number,
		.windows = there->windows,
		.revoked = there->revoked,
		.pid = atomic_load_explicit(&f->no_vm_access, memory_order_relaxed) ? 0 : there->pid,
		.self = there->self};
}

void ibt_shut_out(struct hca_flow *f)
{
	if (!atomic_exchange(&f->no_vm_access, true))
		log_info("process in slot %u: no access to its memory (%s); one-sided requests go through "
			 "the ring",
			f->slot, strerror(errno));
}

static bool peer_is_exported(const struct hca_qp *qp, const struct local_export *export)
{
	struct local_export_qp q;

	return local_export_find_qp(export, qp->attr.dest_qp_num, &q) && q.peer_qpn == hca_qpn(qp);
}

/*
 * A peer that is new on its export finds us in the middle of frames. A stream of requests would never be idle
 * by itself, so a large one waits until what is on its way is done, which is little. Where the peer's memory
 * is mapped, so does any in a row of its kind; but none among SENDs, for which it would wait again and again.
 */
static bool in_a_row(const struct hca_sq *sq)
{
	return sq->head - sq->tail > 1 && local_can(hca_sq_at(sq, sq->head - 2));
}

static void wait_or_not(struct ibt_port *p, struct hca_qp *qp)
{
	const struct hca_send_wqe *last = hca_sq_at(&qp->sq, qp->sq.head - 1);
	const struct local_process *there;
	bool row = in_a_row(&qp->sq);

	qp->direct_min_len = 0;
	if (qp->direct_disabled || qp->sq.tail == qp->sq.head || !qp->service.reliable || !local_can(last) ||
		(last->length < HCA_DIRECT_MIN && !row))
		return;
	there = local_channel_enter(p->channel, qp->path.flow->slot);
	if (!there)
		return;
	if (peer_is_exported(qp, there->export))
		qp->direct_min_len = row && qp->seen.window ? 1 : HCA_DIRECT_MIN;
	local_channel_leave(p->channel, qp->path.flow->slot);
}

static void __attribute__((cold, noinline))
tell_onesided(const struct hca_qp *qp, const struct hca_send_wqe *w)
{
	PROBE(ONESIDED, .qpn = hca_qpn(qp), .wr_id = w->wr_id, .opcode = w->opcode, .length = w->length,
		.wqe = w);
}

static void done(struct ibt_port *p, struct hca_qp *qp, uint64_t now)
{
	const struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);

	qp->count->direct_bytes += w->length;
	host_count_qp_ONESIDED(qp->count);
	if (p->gated)
		ibt_tally_onesided(qp, w);
	if (probe_is_on(ONESIDED))
		tell_onesided(qp, w);
	hca_qp_complete_send(qp, IBV_WC_SUCCESS, now);
	ibt_skip_oldest(qp);
}

/* The oldest request, or as much of it as there is time for. */
static enum local_act do_next(
	struct ibt_port *p, struct hca_qp *qp, const struct local_peer *peer, uint32_t *budget, uint64_t now)
{
	struct hca_send_wqe *w = hca_sq_at(&qp->sq, qp->sq.tail);
	uint32_t before = w->moved;
	enum local_act act = local_do(qp, w, *budget, peer);

	if (act != LOCAL_DONE) {
		w->moved = 0; /* another way does it, from its beginning */
		return act;
	}
	*budget -= w->moved - before;
	if (w->moved == w->length)
		done(p, qp, now);
	return act;
}

void ibt_onesided(struct ibt_port *p, struct hca_qp *qp, uint64_t now)
{
	enum { PIECE = 1 << 20 }; /* a tenth of a millisecond, in which nobody else gets at this QP */
	uint32_t budget = PIECE;
	enum local_act act = LOCAL_DONE;
	const struct local_process *there;
	struct local_peer peer;

	assert_locked(&qp->lock);
	qp->moving = false;
	if (!qp->path.shared || !p->adapter->export.table) {
		qp->direct_min_len = 0;
		return;
	}
	if (!is_next(qp)) {
		wait_or_not(p, qp);
		return;
	}
	there = local_channel_enter(p->channel, qp->path.flow->slot);
	if (!there)
		return;
	ibt_local_peer(&peer, qp->path.flow, there);
	while (act == LOCAL_DONE && budget && is_next(qp))
		act = do_next(p, qp, &peer, &budget, now);
	qp->moving = act == LOCAL_DONE && is_next(qp);
	local_channel_leave(p->channel, qp->path.flow->slot);
	qp->direct_disabled = act == LOCAL_DECLINED && qp->direct_min_len;
	if (act == LOCAL_CLOSED)
		ibt_shut_out(qp->path.flow);
}
