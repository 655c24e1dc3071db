/* SPDX-License-Identifier: MIT */
/*
 * Frames by reference: messages whose bytes the transport fetches out of the memory of the process that sent
 * them. It is entered for each, as for a READ of our own (onesided.c): a region that its owner takes
 * away meanwhile is not found any more, or its owner waits until the copy is done.
 *
 * A call of the kernel costs as much as 8 KiB, so SENDs that wait one behind the other are fetched together,
 * each into the receive that it is going to take. Nothing else is ahead of its time: each frame is taken,
 * checked and completed in its turn, and finds then that its bytes are there. A posted receive is ours until
 * its completion, so nobody can tell.
 */
#include "ib/port.h"

#include "hca/adapter.h"
#include "hca/flow.h"
#include "local/channel.h"
#include "local/fetch.h"

_Static_assert((int)IBT_FETCHED == (int)LOCAL_ROW, "as many as are fetched together");

enum { ROW_BYTES = 256 << 10 }; /* fetched together: the first of them waits for the last */

struct source {
	struct ibt_port *p;
	struct hca_qp *qp;
	const struct frame_in *in;
};

/* ---- several at once ---- */
static bool is_same_ref(const struct frame_ref *a, const struct frame_ref *b)
{
	return a->addr == b->addr && a->len == b->len && a->key == b->key;
}

/* Was this frame, of this connection, fetched to this place before? */
static bool is_fetched(const struct source *s, uint64_t connection, const struct iovec *to)
{
	const struct ibt_fetched *row = &s->p->fetched;
	uint32_t i = s->in->place - row->place;

	return row->connection == connection && i < row->n && is_same_ref(&s->in->refs[0], &row->ref[i]) &&
	       row->to[i].iov_base == to->iov_base;
}

/* The SEND that comes i frames after ours, and the receive that it will find. */
static bool look_ahead(const struct source *s, uint32_t i, struct frame_ref *ref, struct iovec *to)
{
	struct frame_ahead a;
	struct ibv_sge sge;
	unsigned n;

	if (!local_channel_ahead(s->in, i, &a) || a.dqpn != hca_qpn(s->qp) ||
		(a.opcode != (IBT_RC | OP_SEND_ONLY) && a.opcode != (IBT_RC | OP_SEND_ONLY_IMM)))
		return false;
	*ref = a.ref;
	return a.ref.len && hca_rq_ahead(&s->qp->rq, i, &sge) && a.ref.len <= sge.length &&
	       hca_sge_gather(s->qp, &sge, 1, 0, a.ref.len, IBV_ACCESS_LOCAL_WRITE, to, 1, &n);
}

/* The message in hand, with those that wait behind it; false: there are none, or it has to go alone. */
static bool fetch_row(const struct source *s, const struct local_peer *p, const struct iovec *to)
{
	struct ibt_fetched *row = &s->p->fetched;
	uint64_t len = s->in->refs[0].len;

	row->connection = 0;
	row->place = s->in->place;
	row->ref[0] = s->in->refs[0];
	row->to[0] = *to;
	for (row->n = 1; row->n < IBT_FETCHED; row->n++) {
		if (!look_ahead(s, row->n - 1, &row->ref[row->n], &row->to[row->n]))
			break;
		len += row->ref[row->n].len;
		if (len > ROW_BYTES)
			break;
	}
	if (row->n == 1 || !local_fetch_row(&s->qp->source, p, row->ref, row->to, row->n))
		return false;
	row->connection = p->number;
	return true;
}

/*
 * Whole messages that lie in one place, here and there, into receives that only this QP takes; and ours has
 * taken its own, so the next one is for the frame behind it.
 */
static bool goes_in_rows(const struct source *s, uint32_t off, unsigned n, uint32_t len)
{
	return !off && n == 1 && s->in->nrefs == 1 && len == s->in->ref_len && !s->qp->srq &&
	       s->qp->recv.valid && bth_opcode(s->in->bytes) != (IBT_RC | OP_WRITE_ONLY) &&
	       bth_opcode(s->in->bytes) != (IBT_RC | OP_WRITE_ONLY_IMM);
}

/* ---- one ---- */
static enum local_act copy(const struct source *s, const struct local_peer *p, uint32_t off,
	const struct iovec *to, unsigned n, uint32_t len)
{
	if (goes_in_rows(s, off, n, len) && (is_fetched(s, p->number, to) || fetch_row(s, p, to)))
		return LOCAL_DONE;
	return local_fetch(
		&s->qp->source, p, &(struct local_source){s->in->refs, s->in->nrefs, off, len}, to, n);
}

/* Is the QP that sent it still there, connected to ours, and in the same life? */
static bool is_wanted(const struct source *s, const struct local_export *export)
{
	struct local_export_qp q;

	return local_export_find_qp(export, s->qp->attr.dest_qp_num, &q) && q.peer_qpn == hca_qpn(s->qp) &&
	       frame_by_ref_is_of(s->in->by_ref, q.life);
}

/*
 * Only from who is known to have written the frame, and has the QP's peer; and as long as that is on its
 * export: once its requests are flushed their buffers are the program's again.
 */
static bool fetch(void *arg, uint32_t off, const struct iovec *to, unsigned n, uint32_t len)
{
	const struct source *s = arg;
	struct local_channel *channel = s->p->channel;
	struct hca_flow *f = s->qp->path.flow;
	const struct local_process *there;
	struct local_peer peer;
	enum local_act act;

	if (!s->p->adapter->export.table || !f || !s->qp->path.shared || f->slot != s->in->slot)
		return false;
	there = local_channel_enter(channel, f->slot);
	if (!there)
		return false;
	ibt_local_peer(&peer, f, there);
	act = is_wanted(s, there->export) ? copy(s, &peer, off, to, n, len) : LOCAL_DECLINED;
	local_channel_leave(channel, f->slot);
	if (act == LOCAL_CLOSED)
		ibt_shut_out(f);
	return act == LOCAL_DONE;
}

void ibt_port_deliver_by_ref(struct ibt_port *p, const struct frame_in *in, uint64_t now)
{
	struct hca_qp *qp = idmap_get(&p->adapter->qps, bth_dqpn(in->bytes));
	struct source s = {p, qp, in};
	bool done;

	if (!qp || qp->provider != &p->provider) {
		hca_adapter_probe(p->adapter, NO_QP, .qpn = bth_dqpn(in->bytes));
		return;
	}
	if (probe_is_on(FRAME_RX))
		ibt_port_tell_rx(in);
	lock_take(&qp->lock);
	if (p->gated)
		ibt_path_follow(p, qp);
	done = ibt_path_accepts(p, qp, in) && ibt_receive_by_ref(qp, in, fetch, &s, now);
	local_channel_took(in, done);
	lock_drop(&qp->lock);
	if (!done)
		hca_engine_make_runnable(p->provider.e, qp);
}
