/* SPDX-License-Identifier: MIT */
/*
 * All streams of an adapter: which have something, whose time has come, which are to be ended.
 *
 * The sockets are in an epoll set, so that a sleeper needs one descriptor for all of them. A poller does
 * not ask the set while few queue pairs are connected: reading from a socket that has nothing costs less.
 * Only now and then it looks there for the others, who want to connect.
 */
#include "iwarp/port.h"

#include "base/fd.h"
#include "base/fence.h"
#include "base/log.h"
#include "hca/qp.h"
#include "iwarp/iwarp.h"
#include "link/tcp.h"
#include "observe/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { FEW = 2, SELDOM = 32, READY = 64 };

/* ---- life ---- */
static void stream_free(struct stream *s)
{
	list_for_each(n, &s->port->all)
	{
		struct stream *other = container_of(n, struct stream, node);

		if (other->listener == s)
			other->listener = NULL;
	}
	if (s->listener)
		s->listener->pending--;
	stream_clear_deadline(s);
	list_del(&s->node);
	free(s->stage);
	free(s->rest);
	free(s);
}

static struct iwarp_port *port_of(struct hca_provider *v)
{
	return container_of(v, struct iwarp_port, provider);
}

/* After fork, in the child, only the descriptors: memory and locks are as the parent's threads left them. */
static void abandon(struct hca_provider *v)
{
	struct iwarp_port *all = port_of(v);

	list_for_each(n, &all->all)
	{
		if (container_of(n, struct stream, node)->fd >= 0)
			close(container_of(n, struct stream, node)->fd);
	}
	close(all->epfd);
}

static void close_port(struct hca_provider *v)
{
	struct iwarp_port *all = port_of(v);

	for (struct list *n; (n = all->all.next) != &all->all;) {
		struct stream *s = container_of(n, struct stream, node);

		if (s->fd >= 0)
			close(s->fd);
		stream_free(s);
	}
	close(all->epfd);
	free(all);
}

static int fds(struct hca_provider *v, int fd[HCA_PROVIDER_FDS])
{
	fd[0] = port_of(v)->epfd;
	return 1;
}

static bool is_busy(struct hca_provider *v)
{
	return port_of(v)->nopen;
}

struct stream *stream_new(struct iwarp_port *port, iwarp_conn_fn *tell, void *user)
{
	struct stream *s = calloc(1, sizeof(*s));

	assert_locked(&port->provider.e->drive);
	if (!s)
		return NULL;
	s->pub.user = user;
	s->e = port->provider.e;
	s->port = port;
	s->tell = tell;
	s->fd = -1;
	list_add_tail(&port->all, &s->node);
	return s;
}

/* ---- waking ---- */
void stream_watch(struct stream *s, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = s};
	int op = !events ? EPOLL_CTL_DEL : s->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (events == s->watched || s->fd < 0)
		return;
	if (epoll_ctl(s->port->epfd, op, s->fd, &ev))
		log_warn("a connection cannot be waited for: %s", fd_reason(errno));
	s->watched = events;
}

void stream_set_deadline(struct stream *s, uint64_t at)
{
	struct iwarp_port *all = s->port;

	assert_locked(&s->e->drive);
	timer_set(&all->timers, &s->timer, at);
	hca_provider_arm(&all->provider, timers_next(&all->timers));
}

void stream_clear_deadline(struct stream *s)
{
	timer_clear(&s->port->timers, &s->timer); /* the alarm may come in vain */
}

void iwarp_port_wake(struct iwarp_port *port)
{
	if (!atomic_exchange(&port->tidy_wanted, true))
		hca_engine_wake_helper(port->provider.e);
}

static void recv_posted(struct hca_provider *v)
{
	fence_full(); /* the receive is there before we look who waits for one */
	if (atomic_load(&port_of(v)->rx_no_recv))
		iwarp_port_wake(port_of(v));
}

static void failed(struct hca_qp *qp)
{
	if (qp->stream)
		iwarp_port_wake(port_of(qp->dev_provider));
}

/* ---- the end ---- */
bool stream_tell(struct stream *s, struct iwarp_conn_event *ev)
{
	ev->local = (struct sockaddr *)&s->local;
	ev->remote = (struct sockaddr *)&s->remote;
	return s->tell(&s->pub, ev);
}

static void tell_end(struct stream *s, int status)
{
	struct iwarp_conn_event ev = {
		.type = s->established ? IWARP_CONN_DISCONNECTED : IWARP_CONN_FAILED, .status = status};

	if (status == -ECONNREFUSED && s->mpa.state == CONNECT_REFUSED)
		ev.private_data = iwarp_connect_private(&s->mpa, &ev.private_len);
	stream_tell(s, &ev);
}

void stream_close_socket(struct stream *s, bool reset, int status)
{
	stream_stop_upgrade(s);
	stream_watch(s, 0);
	if (s->fd >= 0 && reset)
		link_tcp_reset(fd_take(&s->fd));
	else if (s->fd >= 0)
		close(fd_take(&s->fd));
	stream_set_state(s, STREAM_CLOSED);
	stream_clear_deadline(s);
	if (!s->end_told) {
		s->end_told = true;
		tell_end(s, status ? status : -ECONNRESET);
	}
	if (!s->owned || atomic_load(&s->closing))
		iwarp_port_wake(s->port);
}

static void end_open(struct stream *s, uint64_t now)
{
	struct hca_qp *qp = s->qp;

	if (s->by_frames)
		hca_engine_send_held(s->e);
	lock_take(&qp->lock);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_set_state(qp, IBV_QPS_ERR);
	stream_detach_qp(s, now);
	lock_drop(&qp->lock);
}

/* The manager has let go of it. */
static void end_stream(struct stream *s, uint64_t now)
{
	switch (s->state) {
	case STREAM_OPEN:
		end_open(s, now);
		break;
	case STREAM_DRAINING:
	case STREAM_CLOSED:
		break;
	case STREAM_AWAIT_APP:
		stream_reject(s, NULL, 0, now);
		break;
	case STREAM_NEGOTIATING:
		if (s->mpa.state == CONNECT_ANSWERING)
			break; /* a refusal that has not left */
			       /* fall through */
	case STREAM_UPGRADING:
		if (s->qp) {
			end_open(s, now);
			break;
		} /* fall through */
	default:
		s->end_told = true;
		stream_close_socket(s,
			s->state == STREAM_CONNECTING || s->state == STREAM_NEGOTIATING ||
				s->state == STREAM_BACKLOGGED,
			0);
	}
	s->end_told = true;
	if (s->state == STREAM_CLOSED)
		stream_free(s);
}

static void look_at(struct stream *s, uint64_t now)
{
	if (s->state == STREAM_OPEN && atomic_load(&s->rx_no_recv))
		stream_receive(s, now);
	if (s->state == STREAM_OPEN)
		stream_follow_qp(s, now);
	if (atomic_load(&s->closing) || (s->state == STREAM_CLOSED && !s->owned))
		end_stream(s, now);
}

static void tidy(struct hca_provider *v, struct hca_clock *clock)
{
	struct iwarp_port *all = port_of(v);
	uint64_t now;

	if (!atomic_load_explicit(&all->tidy_wanted, memory_order_relaxed) ||
		!atomic_exchange(&all->tidy_wanted, false))
		return;
	now = hca_clock_now(clock);
	hca_engine_run_runnable(v->e, now); /* last words first */
	list_for_each_safe(n, &all->all) look_at(container_of(n, struct stream, node), now);
	hca_engine_run_runnable(v->e, now);
}

/* ---- time ---- */
static void on_deadline(struct stream *s, uint64_t now)
{
	switch (s->state) {
	case STREAM_LISTENING:
		stream_watch(s, EPOLLIN); /* descriptors had run out */
		break;
	case STREAM_RETRY_CONNECT:
		stream_retry_connect(s, now);
		break;
	case STREAM_CONNECTING:
	case STREAM_NEGOTIATING:
		stream_setup_failed(s, -ETIMEDOUT, now);
		break;
	case STREAM_UPGRADING:
		stream_upgrade(s, now);
		break;
	case STREAM_BACKLOGGED:
		if (now < s->give_up)
			stream_tell_request(s, now);
		else
			stream_close_socket(s, true, -ETIMEDOUT);
		break;
	case STREAM_OPEN: /* the peer does not take our last words, or does not close */
		lock_take(&s->qp->lock);
		iwarp_give_up(s->qp);
		lock_drop(&s->qp->lock);
		stream_follow_qp(s, now);
		break;
	case STREAM_DRAINING:
		stream_close_socket(s, !s->peer_closed, 0);
		break;
	default:
		break;
	}
}

static void expire(struct hca_provider *v, uint64_t now)
{
	struct iwarp_port *all = port_of(v);
	struct timer *t;

	while ((t = timers_take_due(&all->timers, now)))
		on_deadline(container_of(t, struct stream, timer), now);
	hca_provider_arm(v, timers_next(&all->timers));
}

/* ---- moving ---- */
static int step(struct stream *s, uint32_t events, uint64_t now)
{
	switch (s->state) {
	case STREAM_LISTENING:
		stream_accept_all(s, now);
		return 1;
	case STREAM_CONNECTING:
		stream_connected(s, now);
		return 1;
	case STREAM_NEGOTIATING:
		stream_negotiate(s, now);
		return 1;
	case STREAM_OPEN:
		if (events & EPOLLOUT)
			stream_unblock(s);
		return stream_receive(s, now);
	case STREAM_DRAINING:
		stream_drain(s, now);
		return 1;
	default:
		return 0;
	}
}

static int step_ready(struct iwarp_port *all, uint64_t now)
{
	struct epoll_event ev[READY];
	int n = epoll_wait(all->epfd, ev, READY, 0), done = 0;

	for (int i = 0; i < n; i++) {
		done += step(ev[i].data.ptr, ev[i].events, now);
	}
	return done;
}

/* They are at the beginning of the list: stream_attach_qp(). */
static int step_open(struct iwarp_port *all, uint64_t now)
{
	unsigned left = all->nopen;
	int done = 0;

	list_for_each(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (!left)
			break;
		if (!s->qp || s->by_frames)
			continue;
		left--;
		if (s->state == STREAM_OPEN)
			done += stream_receive(s, now);
	}
	return done;
}

/* The link may have reached somebody. */
static void step_upgrading(struct iwarp_port *all, uint64_t now)
{
	list_for_each_safe(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (s->state == STREAM_UPGRADING)
			stream_upgrade(s, now);
	}
}

/* Not each time while none carries bytes. */
static bool due(struct hca_provider *v, unsigned woken, bool busy)
{
	struct iwarp_port *all = port_of(v);

	return !list_empty(&all->all) &&
	       (all->nopen || all->upgrading || (woken & v->bit) || ++all->skipped >= SELDOM);
}

static int receive(struct hca_provider *v, unsigned woken, struct hca_clock *clock)
{
	struct iwarp_port *all = port_of(v);
	uint64_t now = hca_clock_now(clock);
	int done = 0;

	atomic_store_explicit(&v->e->posts_since_rx, 0, memory_order_relaxed);
	if (all->upgrading)
		step_upgrading(all, now);
	if (all->nopen <= FEW)
		done = step_open(all, now);
	if ((woken && !done) || all->nopen > FEW || atomic_load(&all->blocked) || ++all->skipped >= SELDOM) {
		all->skipped = 0;
		done += step_ready(all, now);
	}
	return done;
}

/* No is_quiet(): a look at a socket is a system call, so who polls looks now and then, whatever has come. */
static const struct hca_provider_ops port_ops = {
	.state_size = sizeof(struct iwarp_qp),
	.offers = iwarp_offers,
	.reset = iwarp_reset,
	.abort = iwarp_abort,
	.failed = failed,
	.modified = iwarp_modified,
	.detach = iwarp_port_detach,
	.timer = iwarp_timer,
	.send = iwarp_port_send,
	.due = due,
	.receive = receive,
	.is_busy = is_busy,
	.expire = expire,
	.tidy = tidy,
	.fds = fds,
	.recv_posted = recv_posted,
	.close = close_port,
	.abandon = abandon,
};

int iwarp_port_open(struct hca_adapter *a)
{
	struct iwarp_port *all = aligned_alloc(64, sizeof(*all));

	if (!all)
		return -ENOMEM;
	memset(all, 0, sizeof(*all));
	list_init(&all->all);
	all->epfd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	if (all->epfd >= 0) {
		hca_provider_init(&all->provider, &port_ops, &a->engine, HCA_STREAMS);
		return 0;
	}
	log_info("no iWARP connections: %s", fd_reason(errno));
	free(all);
	return 0;
}

/* ---- for the manager ---- */
struct iwarp_conn *iwarp_conn_new(struct hca_adapter *a, iwarp_conn_fn *tell_fn, void *manager, void *user)
{
	struct stream *s = NULL;

	lock_take(&a->engine.drive);
	if (iwarp_port_in(a))
		s = stream_new(iwarp_port_in(a), tell_fn, user);
	if (s) {
		s->pub.manager = manager;
		s->owned = true;
	}
	lock_drop(&a->engine.drive);
	return s ? &s->pub : NULL;
}

void iwarp_conn_close(struct iwarp_conn *pub)
{
	struct stream *s = (struct stream *)pub;
	struct iwarp_port *port = s->port;
	bool alive = s->e->open; /* and not a child's copy of the parent's */

	atomic_store(&s->closing, true); /* from here on who drives may free it */
	if (alive)
		iwarp_port_wake(port);
}

int iwarp_conn_disconnect(struct hca_adapter *a, struct iwarp_conn *pub)
{
	struct stream *s = (struct stream *)pub;
	struct hca_engine *e = &a->engine;
	struct hca_qp *qp;

	lock_take(&e->drive);
	qp = s->qp;
	if (qp) {
		lock_take(&qp->lock);
		if (hca_qp_state(qp) != IBV_QPS_ERR)
			hca_qp_set_state(qp, IBV_QPS_ERR);
		hca_engine_kick(e, qp, hca_engine_now(e));
		lock_drop(&qp->lock);
		hca_engine_tidy(e);
	}
	lock_drop(&e->drive);
	if (qp)
		hca_engine_quiesce(e); /* what the peer does in our memory is over */
	return qp ? 0 : -ENOTCONN;
}

void iwarp_conn_settle(struct hca_adapter *a)
{
	struct hca_engine *e = &a->engine;

	lock_take(&e->drive);
	hca_engine_tidy(e);
	lock_drop(&e->drive);
}
