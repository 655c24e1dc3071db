/* SPDX-License-Identifier: MIT */
/*
 * Listening. The service thread answers requests, so that connections are made while the program is busy, and
 * queues those that are established for raccept.
 */
#include "rsocket/stream.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LEAST_BACKLOG = 16, MOST_BACKLOG = 1024 };

/* Under the lock of the listening stream. */
struct rs_listener {
	int fd;                     /* an eventfd that counts `ready` */
	struct list pending, ready; /* struct rs_stream: not yet established, and for raccept */
	int count, most;            /* in both */
};

int rs_listener_fd(struct rs_stream *s)
{
	return s->accepting->fd;
}

bool rs_listener_ready(struct rs_stream *s)
{
	assert_locked(&s->lock);
	return !list_empty(&s->accepting->ready);
}

/* ---- requests ---- */
static int answer(struct rs_stream *s, const struct rdma_conn_param *asked)
{
	uint8_t data[RS_CONN_LEN];
	struct rdma_conn_param param = *asked;
	int err;

	if (asked->private_data_len < RS_CONN_LEN)
		return -EPROTO;
	err = rs_ep_create(s);
	if (!err)
		err = rs_flow_meet(&s->flow, asked->private_data);
	if (err)
		return err;
	rs_flow_describe(&s->flow, (uintptr_t)s->flow.slots, s->shared_mr->rkey, data);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	return rdma_accept(s->id, &param) ? -errno : 0;
}

static struct rs_stream *stream_for(struct rs_stream *listener, struct rdma_cm_id *id)
{
	struct rs_stream *s = rs_stream_alloc(listener->rs.domain);

	if (!s)
		return NULL;
	s->rs.sizes = listener->rs.sizes;
	s->listener = listener;
	s->channel = rdma_create_event_channel();
	if (!s->channel || rdma_migrate_id(id, s->channel)) {
		rs_stream_free(s);
		return NULL;
	}
	id->context = s;
	s->id = id;
	lock_take(&s->lock);
	rs_stream_set_state(s, RS_OPENING);
	lock_drop(&s->lock);
	return s;
}

static void on_request(struct rs_stream *listener, const struct rdma_cm_event *e)
{
	struct rs_stream *s = stream_for(listener, e->id);
	int err;

	if (!s) {
		rdma_destroy_id(e->id); /* which refuses */
		return;
	}
	err = answer(s, &e->param.conn);
	if (!err)
		err = rs_stream_watch(s); /* this thread is the one that watches: nothing happens yet */
	if (err) {
		log_info("rsocket: a request is refused: error %d", -err);
		rdma_reject(s->id, NULL, 0);
		rs_stream_free(s);
		return;
	}
	lock_take(&listener->lock);
	list_add_tail(&listener->accepting->pending, &s->node);
	listener->accepting->count++;
	lock_drop(&listener->lock);
}

/* The queue is full: requests wait in the connection manager, whose backlog is full some time. */
static bool is_full(struct rs_stream *listener)
{
	bool full;

	lock_take(&listener->lock);
	full = listener->accepting->count >= listener->accepting->most;
	lock_drop(&listener->lock);
	return full;
}

static void on_listener(struct rs_watch *w, uint64_t now)
{
	struct rs_stream *s = container_of(w, struct rs_stream, watch);
	struct rdma_cm_event *e;

	while (!is_full(s) && !rdma_get_cm_event(s->channel, &e)) {
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			on_request(s, e);
		rdma_ack_cm_event(e);
	}
	if (!is_full(s))
		return;
	rs_unwatch(w);
	if (!is_full(s)) /* by now */
		rs_watch(w);
}

void rs_accepted(struct rs_stream *s, bool ok)
{
	struct rs_stream *listener = s->listener;
	struct rs_listener *l = listener->accepting;
	uint64_t one = 1;
	bool mine;

	if (ok)
		ok = !rsock_insert(&s->rs, s->channel->fd);
	lock_take(&listener->lock);
	mine = !list_empty(&s->node); /* else the listener is being closed, and frees it */
	list_del(&s->node);
	if (mine && ok) {
		list_add_tail(&l->ready, &s->node);
		(void)!write(l->fd, &one, sizeof(one));
		rsock_wake(&listener->rs); /* with the lock: who accepts it may close the listener next */
	} else if (mine) {
		l->count--;
	}
	lock_drop(&listener->lock);
	if (mine && !ok)
		rs_stream_free(s);
}

/* ---- rlisten, raccept ---- */
static int listener_new(struct rs_stream *s, int backlog)
{
	struct rs_listener *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	list_init(&l->pending);
	list_init(&l->ready);
	l->most = backlog < LEAST_BACKLOG ? LEAST_BACKLOG : backlog > MOST_BACKLOG ? MOST_BACKLOG : backlog;
	l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	s->accepting = l;
	return l->fd < 0 ? -errno : 0;
}

int rs_stream_listen(struct rsock *rs, int backlog)
{
	struct rs_stream *s = rs_stream(rs);
	int err;

	if (s->state == RS_LISTENING)
		return 0;
	if (s->state != RS_NEW)
		return -EINVAL;
	err = s->accepting ? 0 : listener_new(s, backlog);
	if (err)
		return err;
	if (rdma_listen(s->id, backlog))
		return -errno;
	s->watch.fd = s->channel->fd;
	s->watch.run = on_listener;
	if (fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK))
		return -errno;
	lock_take(&s->lock);
	rs_stream_set_state(s, RS_LISTENING);
	lock_drop(&s->lock);
	return rs_watch(&s->watch);
}

static struct rs_stream *next_ready(struct rs_stream *listener)
{
	struct list *n;
	uint64_t one;

	lock_take(&listener->lock);
	n = list_pop(&listener->accepting->ready);
	if (n) {
		listener->accepting->count--;
		(void)!read(listener->accepting->fd, &one, sizeof(one));
	}
	lock_drop(&listener->lock);
	return n ? container_of(n, struct rs_stream, node) : NULL;
}

int rs_stream_accept(struct rsock *rs, struct rsock **out)
{
	struct rs_stream *listener = rs_stream(rs), *s;
	struct pollfd p = {.events = POLLIN};
	int err;

	if (listener->state != RS_LISTENING)
		return -EINVAL;
	p.fd = listener->accepting->fd;
	while (!(s = next_ready(listener))) {
		if (rsock_nonblocking(rs, 0))
			return -EAGAIN;
		rsock_wait_begin();
		err = poll(&p, 1, -1) < 0 ? -errno : 0;
		rsock_wait_end();
		if (err)
			return err;
	}
	s->listener = NULL;
	rs_watch(&listener->watch); /* there is room again */
	*out = &s->rs;
	return 0;
}

/* ---- the end ---- */
static struct list *take_any(struct rs_stream *listener)
{
	struct list *n;

	lock_take(&listener->lock);
	n = list_pop(&listener->accepting->ready);
	if (!n)
		n = list_pop(&listener->accepting->pending);
	lock_drop(&listener->lock);
	return n;
}

void rs_listener_free(struct rs_stream *s)
{
	struct rs_listener *l = s->accepting;

	if (!l)
		return;
	for (struct list *n; (n = take_any(s));) {
		struct rs_stream *one = container_of(n, struct rs_stream, node);

		rs_unwatch(&one->watch);
		rsock_remove(&one->rs);
		rs_stream_free(one);
	}
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}
