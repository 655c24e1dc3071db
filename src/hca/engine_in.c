/* SPDX-License-Identifier: MIT */
/* Frames in: whom each is for. */
#include "hca/engine_parts.h"

#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "hca/transport.h"
#include "ib/echo.h"
#include "link/link.h"
#include "wire/ibt.h"

#include <string.h>

static void give(struct hca_engine *e, struct hca_qp *qp, const struct frame_in *in, uint64_t now)
{
	bool done = false;

	lock_take(&qp->lock);
	qp->count->rx_packets++;
	qp->count->rx_bytes += in->len;
	if (hca_engine_hears(e, qp, in))
		done = qp->transport->receive(qp, in, now);
	else
		qp->count->wrong_peer++;
	if (in->from)
		e->link->ops->took(e->link, in, done);
	lock_drop(&qp->lock);
	hca_engine_make_runnable(e, qp);
}

bool hca_engine_deliver_fast(struct hca_engine *e, const struct frame_in *in)
{
	struct hca_qp *qp = idmap_get(&e->adapter->qps, bth_dqpn(in->bytes));
	bool done;

	if (!qp || !qp->transport->receive_fast)
		return false;
	lock_take(&qp->lock);
	done = hca_engine_hears(e, qp, in) && qp->transport->receive_fast(qp, in);
	if (done) {
		qp->count->rx_packets++;
		qp->count->rx_bytes += in->len;
		e->link->ops->took(e->link, in, true);
	}
	lock_drop(&qp->lock);
	return done;
}

bool hca_engine_executed(struct hca_engine *e, uint32_t note, uint32_t psn, bool done, uint64_t now)
{
	struct hca_qp *qp = idmap_get(&e->adapter->qps, note & 0xffffff);
	bool taken, more;

	if (!qp || !qp->transport->executed)
		return true;
	lock_take(&qp->lock);
	taken = qp->transport->executed(qp, note, psn, done, now);
	hca_engine_arm(e, qp);
	more = qp->sq.tail != qp->sq.head || (qp->flow && hca_flow_is_waited_for(qp->flow));
	lock_drop(&qp->lock);
	if (taken && more)
		hca_engine_make_runnable(e, qp);
	return taken;
}

struct mcast_give {
	struct hca_engine *e;
	const struct frame_in *in;
	uint64_t now;
};

static void mcast_give(struct hca_qp *qp, void *arg)
{
	struct mcast_give *g = arg;

	give(g->e, qp, g->in, g->now);
}

/* Only who could send to the QP is answered: a datagram's sender any, a connection's the peer. */
static bool may_ask(struct hca_adapter *a, const struct frame_in *in)
{
	const struct hca_qp *qp = idmap_get(&a->qps, bth_dqpn(in->bytes));

	return qp && (!qp->service.connected || !memcmp(in->sgid, qp->dest.dgid, 16));
}

static void handle_echo(struct hca_engine *e, const struct frame_in *in)
{
	struct frame_batch *b = e->batch;
	uint32_t qpn;
	uint64_t sent;

	if (!hca_devices_have(e->adapter, in->dgid))
		return;
	frame_batch_begin(b);
	if (ibt_echo_reply(in, b)) {
		if (!may_ask(e->adapter, in)) {
			e->adapter->count->no_qp++;
			return;
		}
		e->adapter->count->echo_requests++;
		e->link->ops->send(e->link, b);
	} else if (ibt_echo_parse(in, &qpn, &sent)) {
		struct hca_flow *f = hca_adapter_flow_find(e->adapter, in->sgid, qpn);

		if (f)
			hca_flow_echoed(f, sent);
		hca_engine_resume_waiters(e, f, hca_engine_now(e));
		hca_adapter_flow_put(e->adapter, f);
	}
}

void hca_engine_deliver(struct hca_engine *e, const struct frame_in *in, uint64_t now)
{
	struct hca_adapter *a = e->adapter;
	uint32_t qpn = bth_dqpn(in->bytes);
	struct hca_qp *qp;

	assert_locked(&e->drive);
	if (bth_opcode(in->bytes) == OPCODE_ECHO_REQUEST || bth_opcode(in->bytes) == OPCODE_ECHO_REPLY) {
		handle_echo(e, in);
		return;
	}
	if (in->from && bth_opcode(in->bytes) == OPCODE_HERE) {
		hca_engine_hear_here(e, in);
		return;
	}
	if (qpn == QP_MULTICAST) {
		struct mcast_give g = {e, in, now};

		hca_mcast_each(a, in->dgid, mcast_give, &g);
		return;
	}
	if (qpn == QP_GSI) {
		a->qp1.ops->receive(a, in, now);
		return;
	}
	qp = idmap_get(&a->qps, qpn);
	/* A stream's peer is whom TCP is connected to, and writes into a ring. A packet's address says less:
	 * any user of this host has it. */
	if (qp && (in->from || !qp->home->stream))
		give(e, qp, in, now);
	else
		a->count->no_qp++;
}
