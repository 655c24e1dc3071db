/* SPDX-License-Identifier: MIT */
/*
 * Stream rsockets: making and freeing, names, and the one function that changes their state.
 *
 *       rs_stream_listen()
 *   NEW -----------------> LISTENING
 *    |  begin(), or stream_for() for a request
 *    '--> OPENING
 *            | established()
 *            v
 *         CONNECTED --> CLOSED    disconnected(), on_message(), on_shutdown(), on_sent(): both have
 *                                 disconnected, or the other side is gone
 *
 *   NEW, OPENING and CONNECTED --> FAILED by rs_stream_fail(): refused, unreachable, broken
 */
#include "rsocket/stream.h"

#include "base/asserts.h"
#include "observe/probe.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- states ---- */
static const char *const names[] = {
	[RS_NEW] = "NEW",
	[RS_LISTENING] = "LISTENING",
	[RS_OPENING] = "OPENING",
	[RS_CONNECTED] = "CONNECTED",
	[RS_CLOSED] = "CLOSED",
	[RS_FAILED] = "FAILED",
};

/* Where one can come from. */
static const unsigned from[] = {
	[RS_LISTENING] = 1 << RS_NEW,
	[RS_OPENING] = 1 << RS_NEW,
	[RS_CONNECTED] = 1 << RS_OPENING,
	[RS_CLOSED] = 1 << RS_CONNECTED,
	[RS_FAILED] = 1 << RS_NEW | 1 << RS_OPENING | 1 << RS_CONNECTED,
};

void rs_stream_set_state(struct rs_stream *s, enum rs_state state)
{
	assert_locked(&s->lock);
	assert_that(from[state] & 1u << s->state);
	PROBE(RSOCKET_STATE, .fd = (uint64_t)s->rs.fd, .from = names[s->state], .to = names[state]);
	s->state = state;
	s->can_read = s->can_write = state == RS_CONNECTED;
}

void rs_stream_fail(struct rs_stream *s, int why)
{
	bool connected = s->state == RS_CONNECTED;

	assert_locked(&s->lock);
	s->why = why;
	s->rs.err = why;
	rs_stream_set_state(s, RS_FAILED);
	if (connected)
		rdma_disconnect(s->id); /* wakes who waits: receives are flushed */
}

/* ---- names ---- */
static int stream_bind(struct rsock *rs, const struct sockaddr *addr, socklen_t len)
{
	struct rs_stream *s = rs_stream(rs);

	if (!addr || len < sizeof(sa_family_t) || len < sockaddr_len(addr))
		return -EINVAL;
	return rdma_bind_addr(s->id, (struct sockaddr *)addr) ? -errno : 0;
}

static int stream_getsockname(struct rsock *rs, struct sockaddr *addr, socklen_t *len)
{
	const struct sockaddr *own = rdma_get_local_addr(rs_stream(rs)->id);
	struct sockaddr_storage none = {.ss_family = (sa_family_t)rs->domain};

	rsock_copy_addr(own->sa_family ? own : (struct sockaddr *)&none, addr, len);
	return 0;
}

static int stream_getpeername(struct rsock *rs, struct sockaddr *addr, socklen_t *len)
{
	struct rs_stream *s = rs_stream(rs);

	if (!s->cq || s->state == RS_OPENING)
		return -ENOTCONN;
	rsock_copy_addr(rdma_get_peer_addr(s->id), addr, len);
	return 0;
}

/* ---- poll ---- */
/* lock held */
static int ready_now(struct rs_stream *s)
{
	assert_locked(&s->lock);
	switch (atomic_load(&s->state)) {
	case RS_NEW:
		return POLLOUT | POLLHUP; /* as Linux has it for TCP */
	case RS_LISTENING:
		return rs_listener_ready(s) ? POLLIN : 0;
	case RS_OPENING:
		return 0;
	case RS_CONNECTED:
		return (s->flow.unread || !s->can_read ? POLLIN : 0) |
		       (rs_send_room(s) || !s->can_write ? POLLOUT : 0);
	case RS_CLOSED: /* who looks for POLLHUP first must not miss what is still to be read */
		return POLLIN | POLLOUT | (s->flow.unread ? 0 : POLLHUP);
	case RS_FAILED:
		break;
	}
	return POLLIN | POLLOUT | POLLERR | POLLHUP;
}

/* Looks for news only when something that is asked for is not so yet: then a sender's burst is not torn
 * apart. */
static short stream_poll(struct rsock *rs, short events)
{
	struct rs_stream *s = rs_stream(rs);
	int wanted = (events & (POLLIN | POLLRDNORM) ? POLLIN : 0) |
		     (events & (POLLOUT | POLLWRNORM) ? POLLOUT : 0);
	int is;

	lock_take(&s->lock);
	is = ready_now(s);
	if (s->cq && s->state != RS_OPENING && (!wanted || wanted & ~is)) {
		rs_progress(s);
		is = ready_now(s);
	}
	lock_drop(&s->lock);
	is |= (is & POLLIN ? POLLRDNORM : 0) | (is & POLLOUT ? POLLWRNORM : 0);
	return (short)(is & (events | POLLERR | POLLHUP));
}

/* ---- life ---- */
static void stream_free(struct rsock *rs)
{
	rs_stream_free(rs_stream(rs));
}

static const struct rsock_ops stream_ops = {
	.bind = stream_bind,
	.listen = rs_stream_listen,
	.accept = rs_stream_accept,
	.connect = rs_stream_connect,
	.shutdown = rs_stream_shutdown,
	.end = rs_stream_end,
	.free = stream_free,
	.recv = rs_stream_recv,
	.send = rs_stream_send,
	.getpeername = stream_getpeername,
	.getsockname = stream_getsockname,
	.setsockopt = rs_stream_setsockopt,
	.getsockopt = rs_stream_getsockopt,
	.poll = stream_poll,
	.arm = rs_stream_arm,
	.disarm = rs_stream_disarm,
	.iomap = rs_stream_iomap,
	.iounmap = rs_stream_iounmap,
	.iowrite = rs_stream_iowrite,
};

void *rs_pages(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (len + page - 1) / page * page;
	void *p = aligned_alloc(page, whole ? whole : page);

	return p ? memset(p, 0, whole) : NULL;
}

struct rs_stream *rs_stream_alloc(int domain)
{
	struct rs_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	rsock_init(&s->rs, &stream_ops, domain, SOCK_STREAM);
	pthread_mutex_init(&s->send_lock, NULL);
	pthread_mutex_init(&s->recv_lock, NULL);
	pthread_mutex_init(&s->wait_lock, NULL);
	pthread_cond_init(&s->awake, NULL);
	lock_init_unbiased(&s->lock);
	list_init(&s->mappings);
	list_init(&s->node);
	s->give_up = UINT64_MAX;
	return s;
}

void rs_stream_free(struct rs_stream *s)
{
	rs_unwatch(&s->watch);
	rs_listener_free(s);
	rs_mappings_free(s);
	rs_ep_destroy(s);
	if (s->id)
		rdma_destroy_id(s->id);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	pthread_mutex_destroy(&s->send_lock);
	pthread_mutex_destroy(&s->recv_lock);
	pthread_cond_destroy(&s->awake);
	pthread_mutex_destroy(&s->wait_lock);
	lock_fini(&s->lock);
	free(s->route);
	free(s);
}

int rsock_stream_new(int domain, struct rsock **out)
{
	struct rs_stream *s = rs_stream_alloc(domain);
	int err;

	if (!s)
		return -ENOMEM;
	s->channel = rdma_create_event_channel();
	if (!s->channel || rdma_create_id(s->channel, &s->id, s, RDMA_PS_TCP)) {
		err = -errno;
		goto free;
	}
	err = rsock_insert(&s->rs, s->channel->fd);
	if (err)
		goto free;
	*out = &s->rs;
	return 0;

free:
	rs_stream_free(s);
	return err;
}
