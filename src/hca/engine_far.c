/* SPDX-License-Identifier: MIT */
/*
 * Far frames: messages whose bytes the transport fetches out of the memory of the process that sent them. It
 * is entered for each, as for a READ of our own (engine_direct.c): a region that its owner takes away
 * meanwhile is not found any more, or its owner waits until the copy is done.
 */
#include "hca/engine_parts.h"

#include "hca/adapter.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "hca/transport.h"
#include "link/link.h"
#include "local/fetch.h"
#include "wire/ibt.h"

struct source {
	struct hca_engine *e;
	struct hca_qp *qp;
	const struct frame_in *in;
};

/*
 * Only from who is known to have written the frame, and has the QP's peer; and as long as that is on its
 * board: once its requests are flushed their buffers are the program's again.
 */
static bool fetch(void *arg, uint32_t off, const struct iovec *to, unsigned n, uint32_t len)
{
	const struct source *s = arg;
	const struct link_ops *ops = s->e->link->ops;
	struct hca_flow *f = s->qp->flow;
	const struct link_there *there;
	struct local_peer peer;
	enum local_act act;

	if (!s->e->adapter->board || !f || !s->qp->dest.local || f->slot != s->in->slot)
		return false;
	there = ops->enter(s->e->link, f->slot);
	if (!there)
		return false;
	hca_engine_peer(&peer, f, there);
	act = hca_engine_peer_is_shown(s->qp, there->export)
		      ? local_fetch(&s->qp->source, &peer,
				&(struct local_far){s->in->refs, s->in->nrefs, off, len}, to, n)
		      : LOCAL_LEFT;
	ops->leave(s->e->link, f->slot);
	if (act == LOCAL_CLOSED)
		hca_engine_shut_out(f);
	return act == LOCAL_DONE;
}

void hca_engine_deliver_far(struct hca_engine *e, const struct frame_in *in, uint64_t now)
{
	struct hca_qp *qp = idmap_get(&e->adapter->qps, bth_dqpn(in->bytes));
	struct source s = {e, qp, in};
	bool done;

	if (!qp || !qp->transport->receive_far) {
		e->adapter->count->no_qp++;
		return;
	}
	lock_take(&qp->lock);
	done = hca_engine_hears(e, qp, in) && qp->transport->receive_far(qp, in, fetch, &s, now);
	e->link->ops->took(e->link, in, done);
	lock_drop(&qp->lock);
	if (!done)
		hca_engine_touch(e, qp);
}
