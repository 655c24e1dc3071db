/* SPDX-License-Identifier: MIT */
/*
 * What a requester does about packets that do not come back. ibt_set_timers() is the one door to the timers,
 * ibt_timer() the one way out of them.
 *
 *            first packet             rto, no progress          2 rto, 4 rto, ...
 *     IDLE --------------> WAITING ----------------------> PROBED -----------------> PROBED ...
 *      ^                    ^ ^ |                            | |
 *      |  nothing in flight | | | sequence NAK: go back      | | 4.096 us * 2^timeout without progress
 *      '--------------------' | '--->---.                    | v
 *                             |         |  answered: go back | CAUTIOUS: goes back, one packet at a time
 *                             '----<----'<-------------------' |   |
 *                             ^                                |   | retry_cnt times more
 *                             '-------------- progress --------'   v
 *                                                                 ERR: the request fails
 *
 * The spec's timer is the program's: it alone counts retries and ends in an error, it runs from the last
 * progress, and it is at least as long as the program said, usually 67 ms. A lost NAK, a lost tail, a lost
 * retransmission would stop a stream for that long. So when the peer has been silent for what a round trip
 * can take, the oldest open packet is sent once more, alone, and asks for an acknowledge: the *probe*. A peer
 * that is merely slow has one duplicate to drop. One that misses this packet takes it, has nothing to say
 * about the rest, and so tells that the rest is lost; one whose acknowledge was lost says how far it is, and
 * what it says next about the packet there is asked for at once.
 *
 * The round trip is measured on one packet at a time, sent once (Karn), up to the acknowledge that covers it,
 * so that what the peer's acknowledges wait for is in it. The floor is above what a scheduler usually adds on
 * a busy machine; what it adds beyond raises the estimate.
 */
#include "ib/ibt.h"

#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/flow.h"

enum {
	RTO_MIN_NS = 500000,
	RTO_FIRST_NS = 10 * 1000000,       /* nothing measured yet */
	STUCK_NS = 1000000,                /* a flow that does not move for so long holds nobody back */
	PROBE_MAX_NS = 1000 * 1000 * 1000, /* where the program wants no timeout at all */
};
static const uint64_t HELD_MOST_NS =
	5000ull * 1000 * 1000; /* each retry waits so long for a peer that is alive */

/* ---- the round trip ---- */
void ibt_time_packet(struct ibt_requester *r, uint64_t now)
{
	if (r->rec.timing)
		return;
	r->rec.timing = true;
	r->rec.timed_psn = r->sent;
	r->rec.timed_at = now;
}

/* RFC 6298: what TCP does, and for the same reasons. */
static void measure(struct ibt_requester *r, uint64_t now)
{
	struct ibt_recovery *c = &r->rec;
	uint64_t rtt = now - c->timed_at, off;

	if (!c->timing || psn_diff(r->acked, c->timed_psn) <= 0)
		return;
	c->timing = false;
	if (now < c->timed_at)
		return; /* who drives looked at the clock before the program posted, and came to this later */
	if (!c->srtt) {
		c->srtt = rtt + 1;
		c->rttvar = rtt / 2;
		return;
	}
	off = rtt > c->srtt ? rtt - c->srtt : c->srtt - rtt;
	c->rttvar += off / 4 - c->rttvar / 4;
	c->srtt += rtt / 8 - c->srtt / 8;
}

/* How long the peer may be silent before it is asked. */
static uint64_t patience(const struct ibt_recovery *c)
{
	uint64_t rto = c->srtt ? c->srtt + 4 * c->rttvar : RTO_FIRST_NS;

	rto = (rto > RTO_MIN_NS ? rto : RTO_MIN_NS) << (c->probes < 16 ? c->probes : 16);
	return rto < PROBE_MAX_NS ? rto : PROBE_MAX_NS;
}

/* ---- timers ---- */
/*
 * The spec's timer. Through a fabric a packet and its acknowledge each wait for a CPU for a third process: on
 * a busy machine some milliseconds at each step. So there it is as long as it may be, four times what the
 * program said (IBA 9.7.6.1.3). What is lost is probed for sooner.
 */
static uint64_t spec_timeout(const struct hca_qp *qp)
{
	uint64_t said = ibt_timeout_ns(qp->attr.timeout);

	return hca_port_is_ib(qp->path.port) && !qp->path.shared ? 4 * said : said;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* Waits for the window of others with nothing in flight: no other timer would ever ring. */
static void watch_flow(struct hca_qp *qp, uint64_t now)
{
	struct ibt_recovery *c = &ibt_qp(qp)->req.rec;

	if (!qp->flow_closed || c->stuck) {
		c->stuck_at = 0;
	} else if (!c->stuck_at) {
		c->stuck_at = now + STUCK_NS;
		c->released = hca_flow_released(qp->waits_for);
	}
}

static void look_at_flow(struct hca_qp *qp)
{
	struct ibt_recovery *c = &ibt_qp(qp)->req.rec;

	c->stuck = qp->flow_closed && hca_flow_released(qp->waits_for) == c->released;
	c->stuck_at = 0;
}

void ibt_set_timers(struct hca_qp *qp, uint64_t now, bool restart)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct ibt_recovery *c = &r->rec;
	uint64_t timeout = spec_timeout(qp);

	/* Going back is no progress, also when nothing is in flight for a moment. */
	if (restart || r->una == r->high || r->rnr_until)
		c->ack_by = 0;
	if (r->una == r->sent || r->rnr_until) {
		c->probe_at = 0;
		watch_flow(qp, now);
		qp->deadline = r->rnr_until ? r->rnr_until : c->stuck_at;
	} else {
		if (!c->ack_by)
			c->ack_by = timeout ? now + timeout : 0;
		if (restart || !c->probe_at)
			c->probe_at = now + patience(c);
		qp->deadline = earlier(c->ack_by, c->probe_at);
	}
}

void ibt_set_lazy_timer(struct hca_qp *qp, uint64_t coarse)
{
	enum { COARSE_NS = 10 * 1000000 }; /* a tick of the slowest kernel */

	qp->deadline = ibt_qp(qp)->req.rec.ack_by = coarse + COARSE_NS + spec_timeout(qp);
}

/*
 * What moves without a look at the clock does not set its timer anew. So that is done here when it rings: the
 * time begins again, and a peer that is silent from now on is given up after twice the time at most.
 */
static bool moved_meanwhile(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct ibt_recovery *c = &r->rec;
	uint64_t timeout = spec_timeout(qp);

	if (!c->moved || r->rnr_until || c->stuck_at)
		return false;
	c->moved = false;
	c->held = 0;
	c->probe_at = 0;
	qp->deadline = c->ack_by = r->una == r->sent || !timeout ? 0 : now + timeout;
	return true;
}

void ibt_progress(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	measure(r, now);
	r->rec.moved = false;
	r->rec.held = 0;
	r->retries = qp->attr.retry_cnt;
	r->rnr_retries = qp->attr.rnr_retry;
	r->rec.cautious = false;
	r->nak_unverified = IBV_WC_SUCCESS;
	r->rec.probes = 0;
	r->rec.probe_due = false;
	if (r->rec.probe_flow && psn_diff(r->una, r->rec.probe_psn) > 0) {
		ibt_probe_forget(r);
		r->rec.probe_due = r->rec.probe_again;
		r->rec.probe_again = false;
	}
	ibt_set_timers(qp, now, true);
}

/* Back to what the peer has not executed; a response that is missing before that is probed for. */
static void go_back(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (!r->retries) {
		if (r->nak_unverified)
			ibt_fail_at(qp, r->nak_unverified_psn, r->nak_unverified, now);
		else
			ibt_fail_at(qp, r->una, IBV_WC_RETRY_EXC_ERR, now);
		return;
	}
	r->retries--;
	ibt_move_to(qp, r->acked);
	r->rec.probe_due = r->una != r->acked;
	r->rec.cautious = true;
	r->rec.ack_by = 0;
}

/*
 * Memory loses nothing: as long as the peer has not taken what we sent, sending it again tells nobody
 * anything. It is alive, and waits for a CPU: on a busy machine longer than many programs' timers, which are
 * meant for a card that answers by itself.
 */
static bool peer_is_late(struct hca_qp *qp, uint64_t now)
{
	struct ibt_recovery *c = &ibt_qp(qp)->req.rec;

	if (!c->held)
		c->held_since = now;
	if (ibt_path_holds(qp, &c->held) && now - c->held_since < HELD_MOST_NS)
		return true;
	c->held = 0;
	return false;
}

void ibt_timer(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	assert_locked(&qp->lock);
	if (!qp->service.reliable) {
		if (qp->waits_for && hca_flow_echo_timeout(qp->waits_for, now))
			hca_adapter_probe(qp->adapter, ECHO_TIMEOUT, .qpn = hca_qpn(qp));
		return;
	}
	if (moved_meanwhile(qp, now))
		return;
	if (r->rec.stuck_at && now >= r->rec.stuck_at) {
		look_at_flow(qp);
	} else if (r->rnr_until) {
		if (now >= r->rnr_until)
			r->rnr_until = 0; /* request() goes on from where the NAK put it */
	} else if (r->rec.ack_by && now >= r->rec.ack_by && peer_is_late(qp, now)) {
		r->rec.ack_by = 0;
	} else if (r->rec.ack_by && now >= r->rec.ack_by) {
		hca_qp_probe(qp, ACK_TIMEOUT, .psn = r->acked);
		hca_flow_loss(qp->path.flow);
		go_back(qp, now);
	} else if (r->rec.probe_at && now >= r->rec.probe_at) {
		r->rec.probe_due = r->rec.probe_again = true;
		r->rec.probes += r->rec.probes < 16;
		r->rec.probe_at = 0;
	}
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		ibt_set_timers(qp, now, false);
}

/* ---- what tells of a loss ---- */
/*
 * The same NAK again within half a round trip is a copy: what we sent again cannot have been missed yet. A
 * NAK costs no retry, and the spec's timer goes on: a peer that wants the same packet for ever gets an error.
 */
void ibt_sequence_nak(struct hca_qp *qp, uint32_t psn, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	struct ibt_recovery *c = &r->rec;

	if (psn != r->acked || psn_diff(psn, r->sent) >= 0)
		return;
	if (c->nak_at && c->nak_psn == psn && now - c->nak_at < c->srtt / 2)
		return;
	ibt_by_ref_refused(qp, psn);
	c->nak_psn = psn;
	c->nak_at = now;
	c->probe_at = 0;
	hca_flow_loss(qp->path.flow);
	ibt_move_to(qp, psn);
}

bool ibt_answers_probe(const struct ibt_requester *r, const struct ibt_packet *p)
{
	unsigned f = p->op->flags;

	/* A READ of one packet is answered by ONLY, where the first answer had FIRST, MIDDLE or LAST. */
	return r->rec.probe_flow && p->psn == r->rec.probe_psn &&
	       (!(f & OPF_READ) || (f & (OPF_START | OPF_END)) == (OPF_START | OPF_END));
}

/* The peer had to be given this packet: what we sent behind it, or asked for there, is lost too. */
void ibt_probe_answered(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (r->una != psn_add(r->rec.probe_psn, 1) || r->una == r->sent)
		return;
	r->rec.probe_due = false;
	if (r->una != r->acked) {
		ibt_ask_again(r);
		return;
	}
	hca_flow_loss(qp->path.flow);
	ibt_move_to(qp, r->una);
}

void ibt_probe_forget(struct ibt_requester *r)
{
	if (r->rec.probe_flow)
		hca_flow_cancel(r->rec.probe_flow, r->rec.probe_cost);
	r->rec.probe_flow = NULL;
}
