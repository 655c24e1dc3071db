/* SPDX-License-Identifier: MIT */
/*
 * Which link a path goes by, and whose frames a connected queue pair accepts. Any user of this host can send
 * packets in the name of one of its addresses, so a queue pair whose peer is reached through shared memory
 * accepts nothing else: it takes frames only from the ring of the process that has its peer (frame_in.slot),
 * and packets no more as soon as it knows that the peer sends that way.
 *
 * That it does not know from the beginning: each end fixes its path by itself, and one of them may have
 * failed to reach the other. So each says HERE through the ring when it is connected, and answers when it
 * comes from one that is connected to it:
 *
 *   BTH (12): opcode HERE, destination QP, PSN 1: asks for an answer, 0: is one | the sender's QPN (4)
 *
 * An echo (ib/echo.h) tells nothing of that: it comes by the path of the question, not by the peer's own.
 *
 * When the ring is gone (the peer has died, or was cut off: local/settle.c), packets are accepted again, and
 * what is sent goes by packets, which ask for acknowledges.
 *
 * On a fabric the channel is used as long as the path is clear (fabric/clear.h), which each end finds out by
 * itself, so packets are always accepted: nobody can send them in another's name. Where there is no channel a
 * queue pair walks all the same, for its P_Key.
 *
 *                      set_path: not clear, or no channel
 *            .-----------------------------------------------.
 *            |                                               v
 *     by the channel ---- not clear any more: at once ----> by packets
 *            ^                                               |
 *            '--- clear again, nothing of ours in flight ----'
 *
 * Leaving, what lies in the ring may be overtaken by packets, and returning those of UC, which are done when
 * they have left, by what lies in the ring: RC finds out by PSN, UC drops what was overtaken
 * (responder.c), UD may change places, as with any change of routes. To return, requests wait until those
 * before them are done.
 */
#include "ib/port.h"

#include "hca/adapter.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "local/channel.h"

enum { HERE_LEN = 4 };

/* ---- which link ---- */
static inline bool may_use_channel(struct ibt_port *p, const struct hca_path *path)
{
	return p->channel && (p->gated ? path->clear : path->flow->on_this_host);
}

static inline void choose(struct ibt_port *p, struct hca_path *path)
{
	bool shared = may_use_channel(p, path) && local_channel_is_up(p->channel, path->flow->slot);

	hca_path_go_by(path, shared ? local_channel_link(p->channel) : p->wire, shared);
}

/* Its P_Key may be another one by now, too: looked at last, so that it is not older than the epoch. */
static void walk(struct hca_qp *qp)
{
	do
		hca_path_walk(&qp->path, qp->path.flow->slot);
	while (hca_qp_follow_pkey(qp));
}

void ibt_path_choose(struct ibt_port *p, struct hca_qp *qp)
{
	if (p->gated)
		walk(qp);
	choose(p, &qp->path);
}

static bool is_same_destination(const struct hca_path *path, const struct frame_dest *dest, uint32_t qpn)
{
	return path->flow && path->flow->slot == qpn_slot(qpn) && frame_dest_same(&path->dest, dest);
}

void ibt_path_aim(struct hca_qp *qp, const struct frame_dest *dest, uint32_t qpn)
{
	struct ibt_port *p = ibt_port_of(qp);
	struct hca_path *path = &qp->path;

	assert_locked(&qp->lock);
	if (p->gated && !is_same_destination(path, dest, qpn))
		hca_path_invalidate(path);
	path->dest = *dest;
	if (gid_is_mcast(dest->dgid)) { /* the switches know the way, which nobody walks */
		if (p->gated)
			hca_qp_follow_pkey(qp);
		hca_path_go_by(path, p->wire, false);
		return;
	}
	if (!path->flow || !hca_flow_is_to(path->flow, dest->dgid, qpn_slot(qpn)))
		hca_qp_set_flow(qp, hca_adapter_flow(qp->adapter, dest->dgid, qpn));
	if (p->gated && path->epoch != hca_adapter_epoch(p->adapter))
		walk(qp);
	choose(p, path);
	if (!path->shared && may_use_channel(p, path))
		local_channel_want(p->channel, path->flow->slot);
}

/* ---- what it accepts ---- */
static uint32_t peer_slot(const struct hca_qp *qp)
{
	return qpn_slot(qp->attr.dest_qp_num);
}

static bool accepts_from_ring(struct hca_qp *qp, const struct frame_in *in)
{
	if (in->slot == peer_slot(qp)) {
		qp->path.peer_shared = qp->path.shared;
		return true;
	}
	return !in->slot && !qp->path.shared; /* it cannot be known; as for a packet */
}

bool ibt_path_accepts(struct ibt_port *p, struct hca_qp *qp, const struct frame_in *in)
{
	if (!qp->service.connected)
		return true;
	if (in->from)
		return accepts_from_ring(qp, in);
	return !qp->path.peer_shared || p->gated || !local_channel_is_paired(p->channel, peer_slot(qp));
}

/* ---- leaving the channel, and returning ---- */
static void leave(struct ibt_port *p, struct hca_qp *qp)
{
	hca_path_go_by(&qp->path, p->wire, false);
	qp->path.peer_shared = false;
	qp->count->local = 0;
	PROBE(PATH_CHANGED, .qpn = hca_qpn(qp), .peer = qp->attr.dest_qp_num,
		.path = p->gated ? "through the fabric from now on" : "over UDP from now on");
	hca_export_qp(qp->adapter, qp);
}

void ibt_path_leave_ring(struct ibt_port *p, struct hca_qp *qp)
{
	if (qp->dev_provider != &p->provider || local_channel_is_up(p->channel, qp->path.flow->slot))
		return; /* an iWARP connection has no other path: it ends */
	leave(p, qp);
}

/* Nobody may be there, or not want to: then it is asked now and then, and nothing waits. */
static void try_to_return(struct ibt_port *p, struct hca_qp *qp)
{
	qp->path.returns = local_channel_is_up(p->channel, qp->path.flow->slot);
	if (!qp->path.returns) {
		local_channel_want(p->channel, qp->path.flow->slot);
		return;
	}
	if (!ibt_is_idle(qp))
		return;
	qp->path.returns = false;
	hca_path_go_by(&qp->path, local_channel_link(p->channel), true);
	ibt_ack_again(qp);
	qp->count->local = 1;
	PROBE(PATH_CHANGED, .qpn = hca_qpn(qp), .peer = qp->attr.dest_qp_num,
		.path = "through shared memory from now on");
}

void ibt_path_follow(struct ibt_port *p, struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	if (!qp->service.connected || !qp->path.flow)
		return;
	if (qp->path.epoch != hca_adapter_epoch(p->adapter))
		walk(qp);
	if (qp->path.clear && !qp->path.shared && p->channel) {
		try_to_return(p, qp);
		return;
	}
	qp->path.returns = false;
	if (qp->path.clear || !qp->path.shared)
		return;
	ibt_leave_onesided(qp);
	leave(p, qp);
}

bool ibt_path_holds(struct hca_qp *qp, uint64_t *mark)
{
	struct local_channel *c = ibt_port_of(qp)->channel;
	uint32_t slot = qp->path.shared ? qp->path.flow->slot : 0;

	if (slot && !*mark)
		*mark = local_channel_mark(c, slot);
	if (!slot || !*mark || !local_channel_holds(c, slot, *mark))
		*mark = 0;
	return *mark;
}

static void say_here(struct hca_qp *qp, bool ask)
{
	struct frame_out f = {.hdr_len = BTH_LEN + HERE_LEN, .own = 1};

	bth_put(f.hdr, OPCODE_HERE, false, 0, qp->path.pkey, qp->attr.dest_qp_num, false, ask);
	put_be32(f.hdr + BTH_LEN, hca_qpn(qp));
	local_channel_put(ibt_port_of(qp)->channel, qp->path.flow->slot, &qp->path.dest, &f, NULL);
}

void ibt_path_say_here(struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	qp->path.peer_shared = false;
	if (qp->path.shared && qp->service.connected)
		say_here(qp, true);
}

static bool is_connected(const struct hca_qp *qp)
{
	enum ibv_qp_state s = hca_qp_state(qp);

	return s == IBV_QPS_RTR || s == IBV_QPS_RTS || s == IBV_QPS_SQD;
}

void ibt_path_receive_here(struct ibt_port *p, const struct frame_in *in)
{
	struct hca_qp *qp = idmap_get(&p->adapter->qps, bth_dqpn(in->bytes));

	if (!qp || qp->provider != &p->provider || in->len != BTH_LEN + HERE_LEN || !qp->service.connected)
		return;
	lock_take(&qp->lock);
	if (is_connected(qp) && get_be32(in->bytes + BTH_LEN) == qp->attr.dest_qp_num &&
		accepts_from_ring(qp, in) && qp->path.peer_shared && bth_psn(in->bytes))
		say_here(qp, false);
	lock_drop(&qp->lock);
}
