/* SPDX-License-Identifier: MIT */
/*
 * Connecting. Every step is an event of the connection manager, taken by the thread that waits in rconnect
 * or, when it does not wait, by the service thread. Later that one listens for the end, and for silence.
 */
#include "rsocket/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { RESOLVE_MS = 2000 };

/*
 * While somebody waits, a silent peer is asked whether it is there. A process that is killed cannot say
 * good-bye: its adapter dies with it, where a card's driver would disconnect.
 */
#define SILENCE_NS 3000000000ull
#define SECOND_NS  1000000000ull

/* ---- steps ---- */
static int ask_route(struct rs_stream *s)
{
	if (s->route && !rdma_set_option(s->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, s->route, s->route_len))
		return 0;
	return rdma_resolve_route(s->id, RESOLVE_MS) ? -errno : 0;
}

static int ask_peer(struct rs_stream *s)
{
	uint8_t data[RS_CONN_LEN];
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.flow_control = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	int err = rs_ep_create(s);

	if (err)
		return err;
	param.initiator_depth = s->by_send; /* iWARP may begin with a READ */
	rs_flow_describe(&s->flow, (uintptr_t)s->flow.slots, s->shared_mr->rkey, data);
	return rdma_connect(s->id, &param) ? -errno : 0;
}

static int established(struct rs_stream *s, const struct rdma_cm_event *e)
{
	const struct rdma_conn_param *param = &e->param.conn;
	int err = 0;

	if (!s->listener)
		err = param->private_data_len < RS_CONN_LEN ? -EPROTO
							    : rs_flow_meet(&s->flow, param->private_data);
	if (err) {
		rdma_disconnect(s->id);
		return err;
	}
	rs_stream_set_state(s, RS_CONNECTED);
	return 0;
}

/* The other side is gone. It may have said so before, in a message nobody has looked at yet. */
static void disconnected(struct rs_stream *s)
{
	rs_progress(s);
	if (s->state == RS_CONNECTED)
		rs_stream_set_state(s, RS_CLOSED);
	rdma_disconnect(s->id);
}

/* It came and went, and its RTU was lost. What it sent is still to be read. */
static int established_and_gone(struct rs_stream *s)
{
	rs_stream_set_state(s, RS_CONNECTED);
	disconnected(s);
	return 0;
}

static int refusal(const struct rdma_cm_event *e)
{
	if (e->event == RDMA_CM_EVENT_REJECTED)
		return -ECONNREFUSED;
	return e->status ? -abs(e->status) : -ECONNABORTED;
}

/* lock held */
static int opening_step(struct rs_stream *s, const struct rdma_cm_event *e)
{
	assert_locked(&s->lock);
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return s->beside_tcp && rs_ep_is_iwarp(s) ? -EPROTONOSUPPORT : ask_route(s);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return ask_peer(s);
	case RDMA_CM_EVENT_ESTABLISHED:
		return established(s, e);
	case RDMA_CM_EVENT_DISCONNECTED:
		return s->listener ? established_and_gone(s) : refusal(e);
	default:
		return refusal(e);
	}
}

static void on_event(struct rs_stream *s, const struct rdma_cm_event *e)
{
	int err;

	lock_take(&s->lock);
	if (s->state == RS_OPENING) {
		err = opening_step(s, e);
		if (err)
			rs_stream_fail(s, -err);
	} else if (e->event == RDMA_CM_EVENT_DISCONNECTED) {
		disconnected(s);
	}
	lock_drop(&s->lock);
}

/* ---- the service thread ---- */
static uint64_t patience(const struct rs_stream *s, bool somebody_waits)
{
	uint64_t idle = s->keepalive ? s->keep_idle * SECOND_NS : UINT64_MAX;

	return somebody_waits && SILENCE_NS < idle ? SILENCE_NS : idle;
}

/* A WRITE of nothing: the other side's adapter answers it, and its program never sees it. */
static void probe(struct rs_stream *s)
{
	if (!s->ctrl_free)
		return; /* something is under way */
	s->ctrl_free--;
	rs_post_write(s, RS_WR_CTRL, 0, 0, 0, NULL, 0, 0);
}

static uint64_t next_look(const struct rs_stream *s, uint64_t most)
{
	uint64_t silent = most == UINT64_MAX ? most : s->quiet_since + most;

	return silent < s->give_up ? silent : s->give_up;
}

/* lock held */
static void look_after(struct rs_stream *s, uint64_t now)
{
	uint64_t most = patience(s, s->waiting || s->rs.polled), next;

	assert_locked(&s->lock);
	rs_progress(s);
	if (s->heard != s->heard_before)
		s->quiet_since = now;
	s->heard_before = s->heard;
	if (s->state == RS_CONNECTED && now - s->quiet_since >= most) {
		probe(s);
		s->quiet_since = now;
	}
	if (s->state == RS_CONNECTED && now >= s->give_up)
		rs_stream_fail(s, ETIMEDOUT);
	next = s->state == RS_CONNECTED ? next_look(s, most) : UINT64_MAX;
	s->attended = next != UINT64_MAX;
	rs_watch_due(&s->watch, next);
}

/* With the lock: look_after() must not find that nobody waits, and let go of it behind us. */
void rs_attend(struct rs_stream *s)
{
	assert_locked(&s->lock);
	if (!atomic_exchange(&s->attended, true))
		rs_watch_due(&s->watch, rs_now());
}

static void on_watch(struct rs_watch *w, uint64_t now)
{
	struct rs_stream *s = container_of(w, struct rs_stream, watch);
	bool was_opening = s->state == RS_OPENING;
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(s->channel, &e)) {
		on_event(s, e);
		rdma_ack_cm_event(e);
	}
	lock_take(&s->lock);
	if (rs_watch_is_due(w, now) && s->cq)
		look_after(s, now);
	lock_drop(&s->lock);
	rsock_wake(&s->rs);
	if (was_opening && s->state != RS_OPENING && s->listener)
		rs_accepted(s, s->state != RS_FAILED); /* closed by now: what it sent is still to be read */
}

int rs_stream_watch(struct rs_stream *s)
{
	s->watch.fd = s->channel->fd;
	s->watch.run = on_watch;
	if (fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK))
		return -errno;
	return rs_watch(&s->watch);
}

/* ---- rconnect ---- */
/* Takes events until it is decided. */
static int finish(struct rs_stream *s)
{
	struct rdma_cm_event *e;

	while (s->state == RS_OPENING) {
		int err;

		rsock_wait_begin();
		err = rdma_get_cm_event(s->channel, &e) ? -errno : 0;
		rsock_wait_end();
		if (err)
			return err;
		on_event(s, e);
		rdma_ack_cm_event(e);
	}
	return s->state == RS_FAILED ? -s->why : 0;
}

static int begin(struct rs_stream *s, const struct sockaddr *addr)
{
	int err = 0;

	lock_take(&s->lock);
	rs_stream_set_state(s, RS_OPENING);
	if (rdma_resolve_addr(s->id, NULL, (struct sockaddr *)addr, RESOLVE_MS)) {
		err = -errno;
		rs_stream_fail(s, -err);
	}
	lock_drop(&s->lock);
	return err;
}

/* As Linux answers a connect after the first: not yet; done (once); already; or why not. */
static int connect_again(struct rs_stream *s)
{
	bool reported = s->reported;

	switch (atomic_load(&s->state)) {
	case RS_OPENING:
		return -EALREADY;
	case RS_CONNECTED:
	case RS_CLOSED:
		s->reported = true;
		return reported ? -EISCONN : 0;
	case RS_FAILED:
		return -s->why;
	default:
		return -EINVAL;
	}
}

int rs_stream_connect(struct rsock *rs, const struct sockaddr *addr, socklen_t len)
{
	struct rs_stream *s = rs_stream(rs);
	bool nonblock = rsock_nonblocking(rs, 0);
	int err, watch;

	if (!addr || len < sizeof(sa_family_t) || len < sockaddr_len(addr))
		return -EINVAL;
	if (!sockaddr_is_ip(addr) && !sockaddr_is_ib(addr))
		return -EAFNOSUPPORT;
	if (s->state != RS_NEW)
		return connect_again(s);
	err = begin(s, addr);
	if (!err)
		err = nonblock ? -EINPROGRESS : finish(s);
	if (err && err != -EINPROGRESS && err != -EINTR)
		return err;
	s->reported = !err;
	watch = rs_stream_watch(s);
	return watch ? watch : err;
}

int rs_need_connection(struct rs_stream *s, int flags)
{
	struct pollfd p = {.fd = s->rs.fd, .events = POLLOUT};
	int ret;

	while (s->state == RS_OPENING) {
		if (rsock_nonblocking(&s->rs, flags))
			return -EAGAIN;
		ret = rsock_poll(&p, 1, -1);
		if (ret < 0)
			return ret;
	}
	if (s->state == RS_NEW || s->state == RS_LISTENING)
		return -ENOTCONN;
	return s->cq ? 0 : -s->why; /* it never was connected */
}
