/* SPDX-License-Identifier: MIT */
/*
 * A stream and its queue pair: bytes in, bytes out, and the end of both.
 *
 * A posting thread sends by itself, under qp->lock alone. Receiving, answering the peer's READs, and
 * everything that changes the stream itself is done by the driving thread. A poster that finds something of
 * that kind to do has the port looked at (iwarp_port_wake).
 */
#include "iwarp/port.h"

#include "base/guard.h"
#include "hca/qp.h"
#include "iwarp/reader.h"
#include "iwarp/writer.h"
#include "link/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	PIECES = 128,
	ROUNDS_OUT = 4, /* what one may send before others get their turn */
	ROUNDS_IN = 8,
};

/* How long the peer may take to close, once we have said all; and how long it may take none of our last
 * words. */
#define DRAIN_NS     2000000000ull
#define LAST_WORD_NS 5000000000ull

static struct stream *stream_of(const struct hca_qp *qp)
{
	return (struct stream *)qp->stream;
}

/* ---- beginning ---- */
static uint32_t longest_segment(const struct stream *s)
{
	uint32_t mss = s->fit_mss ? link_tcp_mss(s->fd) : 0;

	return mss > 128 ? mss - MPA_HDR_LEN - MPA_CRC_LEN - 3 : MPA_ULPDU_MAX;
}

int stream_attach_qp(struct stream *s, struct hca_qp *qp, const struct iwarp_params *p, uint64_t now)
{
	assert_locked(&s->e->drive);
	s->stage = malloc(IWARP_STAGE + IWARP_STAGE_OUT);
	if (!s->stage)
		return -ENOMEM;
	lock_take(&qp->lock);
	qp->attr.max_rd_atomic = (uint8_t)(p->ord < HCA_MAX_RD_ATOMIC ? p->ord : HCA_MAX_RD_ATOMIC);
	qp->attr.max_dest_rd_atomic = (uint8_t)(p->ird < HCA_MAX_RD_ATOMIC ? p->ird : HCA_MAX_RD_ATOMIC);
	hca_qp_set_state(qp, IBV_QPS_RTS);
	qp->stream = &s->pub;
	qp->connecting = true;
	s->qp = qp;
	iwarp_open(qp, p, s->stage, s->stage + IWARP_STAGE, longest_segment(s), now);
	lock_drop(&qp->lock);
	s->port->nopen++;
	list_del(&s->node); /* to the front: who polls looks there, however many are still to open */
	list_add_tail(s->port->all.next, &s->node);
	return 0;
}

/* ---- out ---- */
static size_t length(const struct iovec *iov, unsigned n)
{
	size_t len = 0;

	for (unsigned i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

static void count_out(struct hca_engine *e, struct hca_qp *qp, size_t n)
{
	qp->count->tx_packets++;
	qp->count->tx_bytes += n;
	PROBE(STREAM_TX, .qpn = hca_qpn(qp), .length = n);
	hca_engine_count_sent(e, 1, n);
}

static void set_blocked(struct stream *s, bool blocked)
{
	if (atomic_exchange(&s->blocked, blocked) != blocked)
		atomic_fetch_add(&s->port->blocked, blocked ? 1 : -1u);
}

/*
 * What a peer reads or writes the program may be at meanwhile: that is RDMA, and no mistake of anybody's. So
 * that tests/tsan.supp can name just these, they are functions of their own.
 */
static __attribute__((noinline)) ssize_t send_what_is_read(int fd, const struct iovec *iov, unsigned n)
{
	return link_tcp_send(fd, iov, n);
}

static __attribute__((noinline)) ssize_t receive_what_is_written(int fd, const struct iovec *iov, unsigned n)
{
	return link_tcp_receive(fd, iov, n);
}

/* One system call. false: nothing to send, or no room. */
static bool send_once(struct stream *s, struct hca_qp *qp, bool driving, uint64_t now)
{
	struct iovec iov[PIECES];
	unsigned n;
	ssize_t sent;

	guard_doubt();
	n = iwarp_send_iov(qp, driving, now, iov, PIECES);
	if (!n)
		return false;
	sent = driving && iwarp_sends_read(qp) ? send_what_is_read(s->fd, iov, n)
					       : link_tcp_send(s->fd, iov, n);
	if (sent == -EFAULT) {
		iwarp_send_fault(qp, now);
		return true;
	}
	if (sent < 0 && sent != -EAGAIN && sent != -EINTR && sent != -ENOBUFS) {
		atomic_store(&s->tx_failed, true);
		return false;
	}
	if (sent > 0) {
		count_out(s->e, qp, (size_t)sent);
		iwarp_sent(qp, (size_t)sent, now);
	}
	if (sent < 0 || (size_t)sent < length(iov, n)) {
		set_blocked(s, true);
		stream_watch(s, s->watched | EPOLLOUT);
		return false;
	}
	return true;
}

void stream_unblock(struct stream *s)
{
	set_blocked(s, false);
	if (!s->shut)
		stream_clear_deadline(s); /* of an end whose last words now go on: stream_follow_qp() */
	hca_engine_make_runnable(s->e, s->qp);
}

bool iwarp_port_send(struct hca_qp *qp, bool driving, uint64_t now)
{
	struct hca_engine *e = qp->provider->e;
	struct stream *s = stream_of(qp);
	unsigned rounds = driving ? ROUNDS_OUT : UINT32_MAX;
	bool more;

	assert_locked(&qp->lock);
	if (!s)
		return false;
	more = !atomic_load(&s->tx_failed) && !atomic_load(&s->blocked) && s->state == STREAM_OPEN;
	if (driving && more && iwarp_owes(qp))
		e->served_reads = true;
	while (more && rounds--) {
		more = send_once(s, qp, driving, now);
		if (!driving) /* the program is busy with us: hca_engine_drive_if_overdue() */
			atomic_fetch_add_explicit(&e->posts_since_rx, 1, memory_order_relaxed);
	}
	if (iwarp_life(qp) != IWARP_OPEN)
		iwarp_port_wake(s->port);
	return more;
}

/* ---- in ---- */
/* One system call. false: nothing is there, or nothing is wanted. */
static bool receive_once(struct stream *s, struct hca_qp *qp, uint64_t now, int *done)
{
	struct iovec iov[PIECES];
	unsigned n = iwarp_recv_iov(qp, now, iov, PIECES);
	ssize_t got;

	if (!n)
		return false;
	got = iwarp_takes_write(qp) ? receive_what_is_written(s->fd, iov, n)
				    : link_tcp_receive(s->fd, iov, n);
	if (got == -EAGAIN || got == -EINTR)
		return false;
	guard_doubt();
	*done += 1 + (int)(got > 0 ? got / 4096 : 0);
	if (got == -EFAULT) {
		iwarp_recv_fault(qp, now);
	} else if (got <= 0) {
		iwarp_lost(qp, now);
	} else {
		qp->count->rx_packets++;
		qp->count->rx_bytes += (uint64_t)got;
		PROBE(STREAM_RX, .qpn = hca_qpn(qp), .length = (uint64_t)got);
		iwarp_received(qp, (size_t)got, now);
	}
	return got > 0 && (size_t)got == length(iov, n);
}

static void watch_again(struct stream *s)
{
	stream_watch(
		s, (atomic_load(&s->rx_no_recv) ? 0 : EPOLLIN) | (atomic_load(&s->blocked) ? EPOLLOUT : 0));
}

/* A receive is missing, or there again: the socket is not waited for meanwhile. */
static void note_rx_no_recv(struct stream *s, struct hca_qp *qp)
{
	bool lacks = iwarp_life(qp) == IWARP_OPEN && iwarp_needs_recv(qp), did = atomic_load(&s->rx_no_recv);

	assert_locked(&qp->lock);
	if (lacks == did)
		return;
	atomic_store(&s->rx_no_recv, lacks);
	atomic_fetch_add(&s->port->rx_no_recv, lacks ? 1 : -1u);
	watch_again(s);
}

int stream_receive(struct stream *s, uint64_t now)
{
	struct hca_qp *qp = s->qp;
	int done = 0;
	uint32_t writes;
	bool did;

	assert_locked(&s->e->drive);
	if (s->by_frames)
		return stream_receive_end(s, now);
	lock_take(&qp->lock);
	writes = iwarp_writes(qp);
	for (unsigned i = 0; i < ROUNDS_IN && receive_once(s, qp, now, &done); i++)
		;
	did = atomic_load(&s->rx_no_recv);
	note_rx_no_recv(s, qp);
	if (!did && atomic_load(&s->rx_no_recv)) { /* one may have been posted before we said so */
		receive_once(s, qp, now, &done);
		note_rx_no_recv(s, qp);
	}
	watch_again(s);
	if (iwarp_writes(qp) != writes)
		atomic_fetch_add_explicit(&s->e->stream_writes, 1, memory_order_relaxed);
	lock_drop(&qp->lock);
	if (done || did)
		hca_engine_make_runnable(s->e, qp);
	return done;
}

/* ---- the end ---- */
static void unlink_qp(struct stream *s)
{
	struct hca_qp *qp = s->qp;

	assert_locked(&qp->lock);
	if (atomic_exchange(&s->rx_no_recv, false))
		atomic_fetch_sub(&s->port->rx_no_recv, 1);
	set_blocked(s, false);
	qp->stream = NULL;
	qp->connecting = false;
	s->qp = NULL;
	s->port->nopen -= !s->by_frames;
	stream_stop_upgrade(s);
}

void stream_follow_qp(struct stream *s, uint64_t now)
{
	struct hca_qp *qp = s->qp;
	enum iwarp_life life;

	assert_locked(&s->e->drive);
	if (s->by_frames && !s->shut && hca_qp_state(qp) == IBV_QPS_ERR)
		hca_engine_send_held(s->e); /* before the peer reads that it is over */
	lock_take(&qp->lock);
	life = iwarp_life(qp);
	note_rx_no_recv(s, qp);
	if (life == IWARP_ENDING && !timer_is_set(&s->timer))
		stream_set_deadline(s, now + LAST_WORD_NS);
	if (life == IWARP_FINISH && !s->shut) {
		s->shut = true;
		link_tcp_finish(s->fd);
		stream_set_deadline(s, now + DRAIN_NS);
	}
	if (life == IWARP_RESET || life == IWARP_GONE)
		unlink_qp(s);
	lock_drop(&qp->lock);
	if (!s->qp)
		stream_close_socket(s, life == IWARP_RESET, s->why);
}

/* What the queue pair still has to say is kept here: it may be gone when there is room for it. */
static bool take_rest(struct stream *s, struct hca_qp *qp, uint64_t now)
{
	struct iovec iov[PIECES];
	unsigned n = iwarp_send_iov(qp, true, now, iov, PIECES);

	s->rest_len = (uint32_t)length(iov, n);
	s->rest = malloc(s->rest_len + 1);
	if (!s->rest)
		return false;
	for (unsigned i = 0, at = 0; i < n; at += (unsigned)iov[i++].iov_len)
		if (!guard_copy(s->rest + at, iov[i].iov_base, iov[i].iov_len))
			return false;
	return iwarp_life(qp) != IWARP_RESET;
}

void stream_detach_qp(struct stream *s, uint64_t now)
{
	struct hca_qp *qp = s->qp;
	bool clean;

	assert_locked(&qp->lock);
	if (iwarp_life(qp) == IWARP_OPEN)
		iwarp_abort(qp);
	clean = iwarp_life(qp) != IWARP_RESET && iwarp_life(qp) != IWARP_GONE && take_rest(s, qp, now);
	unlink_qp(s);
	stream_set_state(s, STREAM_DRAINING);
	if (!clean)
		s->rest_len = 0;
	stream_set_deadline(s, clean ? now + DRAIN_NS : now);
	stream_watch(s, EPOLLIN | (s->rest_len ? EPOLLOUT : 0));
	iwarp_port_wake(s->port);
	if (clean)
		stream_drain(s, now);
}

void iwarp_port_detach(struct hca_qp *qp)
{
	assert_locked(&qp->dev_provider->e->drive);
	assert_locked(&qp->lock);
	if (qp->stream)
		stream_detach_qp(stream_of(qp), hca_engine_now(qp->dev_provider->e));
}

void stream_drain(struct stream *s, uint64_t now)
{
	uint8_t waste[4096];
	struct iovec in = {waste, sizeof(waste)}, out = {s->rest + s->rest_sent, s->rest_len - s->rest_sent};
	ssize_t n = out.iov_len ? link_tcp_send(s->fd, &out, 1) : 0;

	assert_locked(&s->e->drive);
	if (n > 0)
		s->rest_sent += (uint32_t)n;
	if (s->rest_sent == s->rest_len && !s->shut) {
		s->shut = true;
		link_tcp_finish(s->fd);
		stream_watch(s, EPOLLIN);
	}
	for (int i = 0; i < 64; i++) {
		n = link_tcp_receive(s->fd, &in, 1);
		if (n == -EAGAIN)
			return;
		if (n <= 0)
			break;
	}
	if (n > 0)
		return;
	s->peer_closed = true;
	stream_set_deadline(s, now); /* the peer has closed: over, but not in the middle of who called */
}
