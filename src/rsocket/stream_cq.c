/* SPDX-License-Identifier: MIT */
/* Completions of a stream: posting what will complete, what a completion means, waiting for the next. */
#include "rsocket/stream.h"

#include "base/asserts.h"
#include "base/cancel.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { COMPLETIONS_AT_ONCE = 32 };

/* ---- posting ---- */
static uint64_t wr_id(enum rs_wr kind, uint32_t used)
{
	return (uint64_t)kind << 32 | used;
}

static int post(struct rs_stream *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return -ibv_post_send(s->id->qp, wr, &bad);
}

int rs_post_write(struct rs_stream *s, enum rs_wr kind, uint32_t used, uint64_t addr, uint32_t rkey,
	struct ibv_sge *sge, int n, int flags)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id(kind, used),
		.sg_list = sge,
		.num_sge = n,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = (unsigned)flags,
		.wr.rdma = {.remote_addr = addr, .rkey = rkey},
	};

	assert_locked(&s->lock);
	return post(s, &wr);
}

/* Where there is no immediate data the message follows as a SEND, in the byte order of the hosts. */
static int post_by_send(struct rs_stream *s, enum rs_wr kind, uint32_t used, const struct rs_post *p,
	struct ibv_sge *sge, int n, int flags)
{
	uint32_t msg = p->msg;
	struct ibv_sge inline_msg = {.addr = (uintptr_t)&msg, .length = sizeof(msg)};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(kind, used),
		.sg_list = &inline_msg,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE,
	};
	int err = n ? rs_post_write(s, RS_WR_PART, 0, p->addr, p->rkey, sge, n, flags) : 0;

	return err ? err : post(s, &wr);
}

int rs_post(struct rs_stream *s, enum rs_wr kind, uint32_t used, const struct rs_post *p, struct ibv_sge *sge,
	int n, int flags)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id(kind, used),
		.sg_list = sge,
		.num_sge = n,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = (unsigned)flags,
		.imm_data = htobe32(p->msg),
		.wr.rdma = {.remote_addr = p->addr, .rkey = p->rkey},
	};

	assert_locked(&s->lock);
	return s->by_send ? post_by_send(s, kind, used, p, sge, n, flags) : post(s, &wr);
}

void rs_tell(struct rs_stream *s)
{
	struct rs_post p;
	struct ibv_sge sge;

	assert_locked(&s->lock);
	while (s->state == RS_CONNECTED && s->ctrl_free && rs_flow_must_tell(&s->flow)) {
		rs_flow_tell(&s->flow, &p);
		sge = (struct ibv_sge){.addr = (uintptr_t)&p.sge, .length = p.len};
		s->ctrl_free--;
		if (rs_post(s, RS_WR_CTRL, 0, &p, &sge, p.len != 0, p.len ? IBV_SEND_INLINE : 0))
			rs_stream_fail(s, ECONNRESET);
	}
}

/* ---- what completions mean ---- */
static void on_shutdown(struct rs_stream *s)
{
	if (s->can_write)
		s->can_read = false;
	else
		rs_stream_set_state(s, RS_CLOSED);
}

static void on_message(struct rs_stream *s, uint32_t msg, uint32_t written)
{
	if (s->state != RS_CONNECTED)
		return;
	switch (rs_flow_receive(&s->flow, msg, written)) {
	case RS_SHUTDOWN:
		on_shutdown(s);
		break;
	case RS_DISCONNECT:
		rs_stream_set_state(s, RS_CLOSED);
		break;
	case RS_BREACH:
		rs_stream_fail(s, EPROTO);
		break;
	case RS_NOTHING:
	case RS_DATA:
	case RS_CREDIT:
		break;
	}
}

static uint32_t message_of(const struct rs_stream *s, const struct ibv_wc *wc)
{
	uint32_t msg;

	if (wc->wc_flags & IBV_WC_WITH_IMM)
		return be32toh(wc->imm_data);
	if (!s->by_send)
		return RS_NO_MESSAGE; /* a SEND: no rsocket does that */
	memcpy(&msg, s->msgs + (uint32_t)wc->wr_id * RS_MSG_LEN, sizeof(msg));
	return msg;
}

static void on_sent(struct rs_stream *s, const struct ibv_wc *wc)
{
	switch ((enum rs_wr)(wc->wr_id >> 32)) {
	case RS_WR_DATA:
		s->sqe_free++;
		s->sbuf_used -= (uint32_t)wc->wr_id;
		break;
	case RS_WR_DISCONNECT:
		if (s->state == RS_CONNECTED)
			rs_stream_set_state(s, RS_CLOSED);
		s->ctrl_free++;
		break;
	case RS_WR_CTRL:
		s->ctrl_free++;
		break;
	case RS_WR_PART:
	case RS_WR_RECV:
		break;
	}
	if (wc->status != IBV_WC_SUCCESS && s->state == RS_CONNECTED)
		rs_stream_fail(s, wc->status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET);
}

void rs_progress(struct rs_stream *s)
{
	struct ibv_wc wc[COMPLETIONS_AT_ONCE];
	int n;

	assert_locked(&s->lock);
	do {
		unsigned receives = 0;

		n = ibv_poll_cq(s->cq, COMPLETIONS_AT_ONCE, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].wr_id >> 32 != RS_WR_RECV) {
				on_sent(s, &wc[i]);
			} else if (wc[i].status == IBV_WC_SUCCESS) {
				on_message(s, message_of(s, &wc[i]), wc[i].byte_len);
				receives++;
			} else if (s->state == RS_CONNECTED) {
				rs_stream_fail(s, ECONNRESET); /* the queue pair is broken */
			}
		}
		if (n > 0)
			s->heard += (unsigned)n;
		if (s->state == RS_CONNECTED && receives && rs_ep_post_receives(s, receives))
			rs_stream_fail(s, ECONNRESET);
	} while (n == COMPLETIONS_AT_ONCE);
	rs_tell(s);
}

/* ---- waiting ---- */
static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* wait_lock held */
static int take_event(struct rs_stream *s)
{
	struct ibv_cq *cq;
	void *context;

	assert_that(mutex_is_locked(&s->wait_lock));
	if (ibv_get_cq_event(s->comp, &cq, &context))
		return -errno;
	rsock_wait_end(); /* the event is ours */
	if (++s->unacked == 1000) {
		ibv_ack_cq_events(s->cq, s->unacked);
		s->unacked = 0;
	}
	s->armed = false;
	rsock_wake(&s->rs);
	return 0;
}

/* lock held */
static void arm(struct rs_stream *s)
{
	assert_locked(&s->lock);
	if (s->armed)
		return;
	s->armed = true;
	ibv_req_notify_cq(s->cq, 0);
}

/* ---- asleep: each undoes what it did, also when the thread is cancelled ---- */
static void stop_taking(void *arg)
{
	struct rs_stream *s = arg;

	pthread_mutex_unlock(&s->wait_lock);
	lock_take(&s->lock);
	s->asleep = false;
	pthread_cond_broadcast(&s->awake);
}

/* lock held, and dropped meanwhile */
static int sleep_first(struct rs_stream *s)
{
	int err = 0;

	assert_locked(&s->lock);
	s->asleep = true;
	lock_drop(&s->lock);
	pthread_mutex_lock(&s->wait_lock);
	pthread_cleanup_push(stop_taking, s);
	rsock_wait_begin();
	if (s->armed)
		err = take_event(s);
	rsock_wait_end();
	pthread_cleanup_pop(1);
	return err;
}

static void stop_waiting(void *arg)
{
	((struct rs_stream *)arg)->waiting--;
}

/*
 * Sleeps until the event for which the queue is armed. One thread waits for it; the others for that thread,
 * which tells them before it can sleep again: what it found may have been theirs. lock held, and dropped
 * meanwhile; held again when the thread is cancelled, for who called to let go of it.
 */
static int sleep_on_event(struct rs_stream *s)
{
	int err = 0;

	assert_locked(&s->lock);
	s->waiting++;
	pthread_cleanup_push(stop_waiting, s);
	rs_attend(s);
	if (s->asleep) {
		rsock_wait_begin();
		lock_wait(&s->lock, &s->awake);
		rsock_wait_end();
	} else {
		err = sleep_first(s);
	}
	pthread_cleanup_pop(1);
	return err;
}

int rs_wait(struct rs_stream *s, bool nonblock, bool (*ready)(struct rs_stream *s))
{
	uint64_t until = 0;
	int err = 0;

	assert_locked(&s->lock);
	for (;;) {
		bool armed = s->armed;

		rs_progress(s);
		if (ready(s))
			return 0;
		if (nonblock || err)
			return err ? err : -EAGAIN;
		if (!until)
			until = rs_now() + rsock_config()->polling_us * 1000ull;
		if (!armed && rs_now() >= until) {
			arm(s); /* and look once more */
			continue;
		}
		if (armed) {
			err = sleep_on_event(s);
		} else {
			lock_drop(&s->lock);
			lock_take(&s->lock);
		}
	}
}

int rs_stream_arm(struct rsock *rs)
{
	struct rs_stream *s = rs_stream(rs);
	int fd = -1; /* the service thread wakes */

	lock_take(&s->lock);
	if (s->state == RS_LISTENING)
		fd = rs_listener_fd(s);
	else if (s->cq && s->state != RS_OPENING) {
		arm(s);
		fd = s->comp->fd;
	}
	if (s->state == RS_CONNECTED)
		rs_attend(s);
	lock_drop(&s->lock);
	return fd;
}

void rs_stream_disarm(struct rsock *rs)
{
	struct rs_stream *s = rs_stream(rs);

	if (s->state == RS_LISTENING || !s->cq)
		return;
	if (pthread_mutex_trylock(&s->wait_lock))
		return; /* who has it takes the event, or has and sleeps for the next: not for us to wait */
	if (s->armed && is_readable(s->comp->fd))
		take_event(s);
	pthread_mutex_unlock(&s->wait_lock);
}
