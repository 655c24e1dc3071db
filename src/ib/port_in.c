/* SPDX-License-Identifier: MIT */
/* Frames in: whom each is for. */
#include "ib/port.h"

#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "ib/echo.h"
#include "link/link.h"
#include "local/channel.h"
#include "wire/ibt.h"

#include <string.h>

void ibt_port_tell_rx(const struct frame_in *in)
{
	PROBE(FRAME_RX, .qpn = bth_dqpn(in->bytes), .opcode = bth_opcode(in->bytes),
		.psn = bth_psn(in->bytes), .length = in->len, .frame = in);
}

static void give(struct ibt_port *p, struct hca_qp *qp, const struct frame_in *in, uint64_t now)
{
	bool done = false;

	if (probe_is_on(FRAME_RX))
		ibt_port_tell_rx(in);
	lock_take(&qp->lock);
	qp->count->rx_packets++;
	qp->count->rx_bytes += in->len;
	if (qp->provider != &p->provider)
		hca_qp_probe(qp, DROP, .why = "the queue pair moves bytes, no frames");
	else if (ibt_path_accepts(p, qp, in))
		done = ibt_receive(qp, in, now);
	else
		hca_qp_probe(qp, WRONG_PEER);
	if (in->from)
		local_channel_took(in, done);
	lock_drop(&qp->lock);
	hca_engine_make_runnable(p->provider.e, qp);
}

/* Its kind first: what the queue pair accepts tells how its peer sends, and an echo does not (path.c). */
bool ibt_port_deliver_fast(struct ibt_port *p, const struct frame_in *in)
{
	struct hca_qp *qp = idmap_get(&p->adapter->qps, bth_dqpn(in->bytes));
	bool done;

	if (!qp || qp->provider != &p->provider || !ibt_is_whole(bth_opcode(in->bytes)))
		return false;
	lock_take(&qp->lock);
	done = ibt_path_accepts(p, qp, in) && ibt_receive_fast(qp, in);
	if (done) {
		qp->count->rx_packets++;
		qp->count->rx_bytes += in->len;
		if (probe_is_on(FRAME_RX))
			ibt_port_tell_rx(in);
		local_channel_took(in, true);
	}
	lock_drop(&qp->lock);
	return done;
}

bool ibt_port_executed(struct ibt_port *p, uint32_t cookie, uint32_t psn, bool done, uint64_t now)
{
	struct hca_qp *qp = idmap_get(&p->adapter->qps, cookie & 0xffffff);
	bool taken, more;

	if (!qp || qp->provider != &p->provider)
		return true;
	lock_take(&qp->lock);
	taken = ibt_executed(qp, cookie, psn, done, now);
	hca_engine_arm(p->provider.e, qp);
	more = qp->sq.tail != qp->sq.head || (qp->path.flow && hca_flow_is_waited_for(qp->path.flow));
	lock_drop(&qp->lock);
	if (taken && more)
		hca_engine_make_runnable(p->provider.e, qp);
	return taken;
}

struct mcast_give {
	struct ibt_port *p;
	const struct frame_in *in;
	uint64_t now;
};

static void mcast_give(struct hca_qp *qp, void *arg)
{
	struct mcast_give *g = arg;

	give(g->p, qp, g->in, g->now);
}

/*
 * Only who could send to the QP is answered: a datagram's sender any, a connection's the peer. *pkey: what
 * the QP sends with: its port may be a limited member where the asker's is a full one, or the other way
 * round.
 */
static bool may_ask(struct hca_adapter *a, const struct frame_in *in, uint16_t *pkey)
{
	struct hca_qp *qp = idmap_get(&a->qps, bth_dqpn(in->bytes));

	if (!qp || (qp->service.connected && memcmp(in->sgid, qp->path.dest.dgid, 16)))
		return false;
	lock_take(&qp->lock);
	*pkey = qp->path.pkey;
	lock_drop(&qp->lock);
	return true;
}

static void handle_echo(struct ibt_port *p, const struct frame_in *in)
{
	struct hca_port *port = hca_devices_port(p->adapter, in->dgid);
	struct frame_batch *b = &p->batch;
	uint16_t pkey = 0;
	bool may = may_ask(p->adapter, in, &pkey);
	uint32_t qpn;
	uint64_t sent;

	if (!port)
		return;
	frame_batch_begin(b);
	if (ibt_echo_reply(in, pkey, b)) {
		if (!may) {
			hca_adapter_probe(p->adapter, NO_QP, .qpn = bth_dqpn(in->bytes));
			return;
		}
		hca_adapter_probe(p->adapter, ECHO_REQUEST, .qpn = bth_dqpn(in->bytes));
		if (hca_port_is_ib(port)) /* what lies in a ring says the port of who wrote it */
			b->dest.ifindex = port->ib.index + 1;
		b->link = in->from ? local_channel_link(p->channel) : p->wire;
		b->slot = in->slot; /* who wrote it, whatever it says: it fills no other's ring */
		ibt_port_send_batch(p, b);
	} else if (ibt_echo_parse(in, &qpn, &sent)) {
		struct hca_flow *f = hca_adapter_flow_find(p->adapter, in->sgid, qpn);

		if (f)
			hca_flow_echoed(f, sent);
		hca_engine_resume_waiters(p->provider.e, f, hca_engine_now(p->provider.e));
		hca_adapter_flow_put(p->adapter, f);
	}
}

void ibt_port_deliver(struct ibt_port *p, const struct frame_in *in, uint64_t now)
{
	struct hca_adapter *a = p->adapter;
	uint32_t qpn = bth_dqpn(in->bytes);
	struct hca_qp *qp;

	assert_locked(&p->provider.e->drive);
	if (bth_opcode(in->bytes) == OPCODE_ECHO_REQUEST || bth_opcode(in->bytes) == OPCODE_ECHO_REPLY) {
		handle_echo(p, in);
		return;
	}
	if (in->from && bth_opcode(in->bytes) == OPCODE_HERE) {
		ibt_path_receive_here(p, in);
		return;
	}
	/* What comes through shared memory is for our queue pairs: QP1 and groups take the wire's alone. */
	if (qpn == QP_MULTICAST && !in->from) {
		struct mcast_give g = {p, in, now};

		hca_mcast_each(a, in->dgid, mcast_give, &g);
		return;
	}
	if (qpn == QP_GSI && !in->from) {
		a->qp1.ops->receive(a, in, now);
		return;
	}
	qp = idmap_get(&a->qps, qpn);
	/* The peer of an iWARP connection is whom TCP is connected to, and writes into a ring. A packet's
	 * address says less: any user of this host has it. */
	if (qp && (in->from || qp->dev_provider == &p->provider))
		give(p, qp, in, now);
	else
		hca_adapter_probe(a, NO_QP, .qpn = qpn);
}
