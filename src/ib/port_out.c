/* SPDX-License-Identifier: MIT */
/* Frames out: the requests of a QP, and answers of all QPs together. */
#include "ib/port.h"

#include "base/cancel.h"
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/flow.h"
#include "link/link.h"
#include "local/channel.h"
#include "local/direct.h"

#include <string.h>

enum {
	ROUND_BATCHES = 4, /* what one QP may send before others get their turn */
	DOUBT_EVERY = 256, /* requests, after which the posting thread looks at its signal mask */
};

/* What goes over UDP to a process that may write to us through shared memory: see local/channel.h. */
void ibt_port_send_batch(struct ibt_port *p, const struct frame_batch *b)
{
	if (b->link == p->wire && b->slot && p->channel)
		local_channel_ack_aside(p->channel, b->slot);
	b->link->ops->send(b->link, b);
}

static void __attribute__((cold, noinline)) tell_tx(const struct frame_out *f)
{
	PROBE(FRAME_TX, .qpn = bth_dqpn(f->hdr), .opcode = bth_opcode(f->hdr), .psn = bth_psn(f->hdr),
		.length = frame_len(f), .frame = f);
}

/* ---- requests ---- */
/* Frames of the batch from `first` on are this QP's. */
static void count_frames(struct ibt_port *p, struct hca_qp *qp, const struct frame_batch *b, unsigned first)
{
	unsigned n = b->nframes - first;
	uint64_t bytes = 0;

	for (unsigned i = first; i < b->nframes; i++) {
		bytes += frame_len(&b->frame[i]);
		if (probe_is_on(FRAME_TX))
			tell_tx(&b->frame[i]);
	}
	qp->count->tx_packets += n;
	qp->count->tx_bytes += bytes;
	hca_engine_count_sent(p->provider.e, n, bytes);
	if (p->gated && n && b->link != p->wire && local_channel_is_up(p->channel, b->slot))
		ibt_tally_frames(qp, b, first);
}

/* It did not go by the fast path after all. */
static void send_one(
	struct ibt_port *p, struct hca_qp *qp, const struct frame_out *f, const struct iovec *iov)
{
	CANCEL_SAFE;
	struct frame_batch b;

	frame_batch_begin(&b);
	hca_path_address(&qp->path, &b);
	b.nframes = 1;
	b.niov = f->iov_count;
	b.wanted = false;
	b.frame[0] = *f;
	memcpy(b.iov, iov, f->iov_count * sizeof(*iov));
	ibt_port_send_batch(p, &b);
}

/* Whether there is something that the initiator could do itself; SENDs are not asked twice. */
static bool may_be_onesided(const struct hca_qp *qp)
{
	const struct hca_sq *sq = &qp->sq;

	return qp->direct_min_len ||
	       (sq->head != sq->tail &&
		       (local_can(hca_sq_at(sq, sq->tail)) || local_can(hca_sq_at(sq, sq->head - 1))));
}

/* A connection through shared memory; datagrams go there as they would over UDP. */
static bool is_fast(struct ibt_port *p, struct hca_qp *qp)
{
	if (!qp->path.shared || !qp->service.connected)
		return false;
	ibt_path_check(p, qp);
	return qp->path.shared;
}

/* What goes through shared memory, at once. Whether that is all there was. */
static bool send_fast(struct ibt_port *p, struct hca_qp *qp)
{
	struct frame_out f;
	struct iovec iov[HCA_MAX_SGE];
	enum ibt_fast q;

	assert_locked(&qp->lock);
	if (!(qp->sq.head % DOUBT_EVERY))
		guard_doubt();
	if (may_be_onesided(qp))
		ibt_onesided(p, qp, 0);
	if (qp->moving)
		return false;
	while ((q = ibt_request_fast(qp, &f, iov)) == FAST_FRAME) {
		bool out;

		if (ibt_lacks_timer(qp))
			ibt_set_lazy_timer(qp, hca_clock_coarse());
		out = !local_channel_put(p->channel, qp->path.flow->slot, &qp->path.dest, &f, iov);
		/* Counted afterwards: the peer is at it already. */
		qp->count->tx_packets++;
		qp->count->tx_bytes += frame_len(&f);
		hca_engine_count_sent(p->provider.e, 1, frame_len(&f));
		if (p->gated && out)
			ibt_tally_message(qp, hca_sq_at(&qp->sq, ibt_qp(qp)->req.next - 1));
		if (probe_is_on(FRAME_TX))
			tell_tx(&f);
		if (!out)
			ibt_path_leave_ring(p, qp);
		if (!out && (f.by_ref || !qp->path.shared))
			ibt_by_ref_failed(qp); /* the slow path does it, in its own way */
		else if (!out)
			send_one(p, qp, &f, iov);
	}
	hca_engine_arm(p->provider.e, qp);
	return q == FAST_IDLE;
}

enum hca_post ibt_port_post(struct hca_qp *qp)
{
	struct ibt_port *p = ibt_port_of(qp);

	if (!is_fast(p, qp))
		return POST_MAY_WAIT;
	return send_fast(p, qp) ? POST_SENT : POST_NOW;
}

/* qp->lock is held all the while, since requests must leave in order whoever sends them. */
static bool send_requests(
	struct ibt_port *p, struct hca_qp *qp, struct frame_batch *b, unsigned rounds, uint64_t now)
{
	bool more = true;

	if (p->gated)
		ibt_path_follow(p, qp);
	if (is_fast(p, qp) && send_fast(p, qp))
		return false;
	if (qp->moving)
		return true; /* what follows waits for it */
	if (is_fast(p, qp))
		ibt_path_leave_ring(p, qp);
	qp->flow_closed = false; /* unless it asks and finds it so */
	while (more && rounds--) {
		frame_batch_begin(b);
		more = ibt_requests(qp, now, b);
		if (!b->nframes)
			continue;
		count_frames(p, qp, b, 0);
		ibt_port_send_batch(p, b);
	}
	return more;
}

/* A program that sends datagrams and waits for nothing may not drive for long. */
static void drive_for_wanted(struct ibt_port *p)
{
	enum { ASK_NS = 10 * 1000000 };

	if (p->channel && local_channel_has_wanted(p->channel))
		hca_engine_drive_within(p->provider.e, ASK_NS);
}

/* A posting thread has a batch of its own; the driving one has the port's. */
static bool send_posted(struct ibt_port *p, struct hca_qp *qp, uint64_t now)
{
	struct frame_batch b;
	bool more = send_requests(p, qp, &b, UINT32_MAX, now);

	if (!qp->service.connected && !qp->path.shared)
		drive_for_wanted(p);
	return more;
}

bool ibt_port_send(struct hca_qp *qp, bool driving, uint64_t now)
{
	struct ibt_port *p = ibt_port_of(qp);

	if (qp->connecting)
		return false;
	return driving ? send_requests(p, qp, &p->batch, ROUND_BATCHES, now) : send_posted(p, qp, now);
}

/* ---- answers ---- */
/*
 * Answers of all QPs that go to one place leave together. They leave in order because they are sent
 * under the drive lock alone, so qp->lock is not held during the system call: the program, woken by what just
 * arrived, wants to post now.
 */
static void flush_answers(struct ibt_port *p)
{
	struct frame_batch *b = &p->answers;

	if (b->nframes)
		ibt_port_send_batch(p, b);
	frame_batch_begin(b);
	while (p->nanswering) {
		struct hca_qp *qp = p->answering[--p->nanswering];

		lock_take(&qp->lock);
		ibt_answered(qp);
		lock_drop(&qp->lock);
	}
}

void ibt_port_flush_answers(struct hca_provider *v)
{
	flush_answers(container_of(v, struct ibt_port, provider));
}

static bool put_answers(struct ibt_port *p, struct hca_qp *qp, uint64_t now)
{
	struct frame_batch *b = &p->answers;
	unsigned before;
	bool more;

	lock_take(&qp->lock);
	ibt_path_check(p, qp);
	if (b->nframes && (frame_batch_full(b, 1) || !hca_path_goes_with(&qp->path, b))) {
		lock_drop(&qp->lock); /* it takes the locks of those who answered */
		flush_answers(p);
		lock_take(&qp->lock);
	}
	before = b->nframes;
	b->wanted = false;
	more = ibt_answers(qp, now, b);
	count_frames(p, qp, b, before);
	lock_drop(&qp->lock);
	if (b->nframes == before)
		return more;
	p->provider.e->served_reads |= b->wanted;
	p->answering[p->nanswering++] = qp; /* once per frame at most: there is room */
	return more;
}

bool ibt_port_answer(struct hca_provider *v, struct hca_qp *qp, uint64_t now)
{
	struct ibt_port *p = container_of(v, struct ibt_port, provider);
	bool more = !hca_engine_delay_ack(p->provider.e, qp, now);

	for (unsigned i = 0; i < ROUND_BATCHES && more; i++) {
		more = put_answers(p, qp, now);
		if (more)
			flush_answers(p);
	}
	return more;
}
