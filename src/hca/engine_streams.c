/* SPDX-License-Identifier: MIT */
/*
 * All streams of an adapter: which have something, whose time has come, which are to be ended.
 *
 * The sockets are in an epoll set, so that who sleeps needs one descriptor for all of them. Who polls does
 * not ask the set while few queue pairs are connected: reading from a socket that has nothing costs less.
 * Only now and then it looks there for the others, who want to connect.
 */
#include "hca/engine_streams.h"

#include "base/fd.h"
#include "base/fence.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/qp.h"
#include "link/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { FEW = 2, SELDOM = 32, READY = 64 };

/* ---- life ---- */
int hca_streams_open(struct hca_engine *e)
{
	struct hca_streams *all = calloc(1, sizeof(*all));
	struct epoll_event timer = {.events = EPOLLIN};

	if (!all)
		return -ENOMEM;
	list_init(&all->all);
	all->next = UINT64_MAX;
	all->epfd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	all->timer_fd = fd_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (all->epfd >= 0 && all->timer_fd >= 0 &&
		!epoll_ctl(all->epfd, EPOLL_CTL_ADD, all->timer_fd, &timer)) {
		e->streams = all;
		return 0;
	}
	log_info("no iWARP connections: %s", fd_reason(errno));
	if (all->epfd >= 0)
		close(all->epfd);
	if (all->timer_fd >= 0)
		close(all->timer_fd);
	free(all);
	return 0;
}

static void stream_free(struct stream *s)
{
	list_for_each(n, &s->e->streams->all)
	{
		struct stream *other = container_of(n, struct stream, node);

		if (other->listener == s)
			other->listener = NULL;
	}
	if (s->listener)
		s->listener->pending--;
	list_del(&s->node);
	free(s->stage);
	free(s->rest);
	free(s);
}

/* After fork, in the child, only the descriptors: memory and locks are as the parent's threads left them. */
void hca_streams_abandon(struct hca_engine *e)
{
	struct hca_streams *all = e->streams;

	if (!all)
		return;
	e->abandoned.streams = all;
	e->streams = NULL;
	list_for_each(n, &all->all)
	{
		if (container_of(n, struct stream, node)->fd >= 0)
			close(container_of(n, struct stream, node)->fd);
	}
	close(all->epfd);
	close(all->timer_fd);
}

void hca_streams_close(struct hca_engine *e)
{
	struct hca_streams *all = e->streams;

	if (!all)
		return;
	for (struct list *n; (n = all->all.next) != &all->all;) {
		struct stream *s = container_of(n, struct stream, node);

		if (s->fd >= 0)
			close(s->fd);
		stream_free(s);
	}
	close(all->epfd);
	close(all->timer_fd);
	free(all);
	e->streams = NULL;
}

int hca_streams_fd(struct hca_engine *e)
{
	return e->streams ? e->streams->epfd : -1;
}

bool hca_streams_carry(struct hca_engine *e)
{
	return e->streams && e->streams->nopen;
}

bool hca_streams_nudged(struct hca_engine *e)
{
	return e->streams && atomic_load_explicit(&e->streams->nudged, memory_order_relaxed);
}

struct stream *stream_new(struct hca_engine *e, hca_stream_fn *tell, void *user)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->pub.user = user;
	s->e = e;
	s->tell = tell;
	s->fd = -1;
	s->deadline = UINT64_MAX;
	list_add_tail(&e->streams->all, &s->node);
	return s;
}

/* ---- waking ---- */
void stream_watch(struct stream *s, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = s};
	int op = !events ? EPOLL_CTL_DEL : s->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (events == s->watched || s->fd < 0)
		return;
	if (epoll_ctl(s->e->streams->epfd, op, s->fd, &ev))
		log_warn("a connection cannot be waited for: %s", fd_reason(errno));
	s->watched = events;
}

void stream_wake_at(struct stream *s, uint64_t at)
{
	struct hca_streams *all = s->e->streams;
	struct itimerspec ts = {.it_value.tv_sec = (time_t)(at / 1000000000ull),
		.it_value.tv_nsec = (long)(at % 1000000000ull)};

	s->deadline = at;
	if (at >= all->next)
		return;
	all->next = at;
	timerfd_settime(all->timer_fd, TFD_TIMER_ABSTIME, &ts, NULL);
}

void stream_nudge(struct hca_engine *e)
{
	if (!atomic_exchange(&e->streams->nudged, true))
		hca_engine_wake_helper(e);
}

void hca_engine_stream_ends(struct hca_engine *e)
{
	if (e->streams)
		stream_nudge(e);
}

void hca_engine_recv_posted(struct hca_engine *e)
{
	if (!e->streams)
		return;
	fence_full(); /* the receive is there before we look who waits for one */
	if (atomic_load(&e->streams->starving))
		stream_nudge(e);
}

/* ---- the end ---- */
static void tell(struct stream *s, enum hca_stream_event_type type, int status)
{
	struct hca_stream_event ev = {.type = type,
		.status = status,
		.local = (struct sockaddr *)&s->local,
		.remote = (struct sockaddr *)&s->remote};

	if (status == -ECONNREFUSED && s->mpa.state == CONNECT_REFUSED)
		ev.private_data = iwarp_connect_private(&s->mpa, &ev.private_len);
	s->tell(&s->pub, &ev);
}

void stream_over(struct stream *s, bool reset, int status)
{
	stream_stop_meeting(s);
	stream_watch(s, 0);
	if (s->fd >= 0 && reset)
		link_tcp_reset(fd_take(&s->fd));
	else if (s->fd >= 0)
		close(fd_take(&s->fd));
	s->state = STREAM_OVER;
	s->deadline = UINT64_MAX;
	if (!s->ended) {
		s->ended = true;
		tell(s, s->opened ? STREAM_ENDED : STREAM_FAILED, status ? status : -ECONNRESET);
	}
	if (!s->owned || atomic_load(&s->closing))
		stream_nudge(s->e);
}

static void end_open(struct stream *s, uint64_t now)
{
	struct hca_qp *qp = s->qp;

	if (s->by_memory)
		hca_engine_send_held(s->e);
	lock_take(&qp->lock);
	if (hca_qp_state(qp) != IBV_QPS_ERR)
		hca_qp_set_state(qp, IBV_QPS_ERR);
	stream_part(s, now);
	lock_drop(&qp->lock);
}

/* The manager has let go of it. */
static void end_stream(struct stream *s, uint64_t now)
{
	switch (s->state) {
	case STREAM_OPEN:
		end_open(s, now);
		break;
	case STREAM_LINGERING:
		break;
	case STREAM_UNTOLD:
	case STREAM_WAITING:
		iwarp_connect_reject(&s->mpa, NULL, 0);
		stream_shake(s, now);
		break;
	case STREAM_SHAKING:
		if (s->mpa.state == CONNECT_ANSWERING)
			break; /* a refusal that has not left */
			       /* fall through */
	case STREAM_MEETING:
		if (s->qp) {
			end_open(s, now);
			break;
		} /* fall through */
	default:
		s->ended = true;
		stream_over(s, s->state == STREAM_CONNECTING || s->state == STREAM_SHAKING, 0);
	}
	s->ended = true;
	if (s->state == STREAM_OVER)
		stream_free(s);
}

static void look_at(struct stream *s, uint64_t now)
{
	if (s->state == STREAM_OPEN && atomic_load(&s->starving))
		stream_in(s, now);
	if (s->state == STREAM_OPEN)
		stream_follow(s, now);
	if (atomic_load(&s->closing) || (s->state == STREAM_OVER && !s->owned))
		end_stream(s, now);
}

void hca_streams_tidy(struct hca_engine *e, uint64_t now)
{
	if (!atomic_exchange(&e->streams->nudged, false))
		return;
	hca_engine_run_runnable(e, now); /* last words first */
	list_for_each_safe(n, &e->streams->all) look_at(container_of(n, struct stream, node), now);
	hca_engine_run_runnable(e, now);
}

void hca_engine_tidy(struct hca_engine *e)
{
	assert_locked(&e->drive);
	if (e->streams)
		hca_streams_tidy(e, hca_engine_now(e));
}

/* ---- time ---- */
static void time_is_over(struct stream *s, uint64_t now)
{
	s->deadline = UINT64_MAX;
	switch (s->state) {
	case STREAM_LISTENING:
		stream_watch(s, EPOLLIN); /* descriptors had run out */
		break;
	case STREAM_KNOCKING:
		stream_knock(s, now);
		break;
	case STREAM_CONNECTING:
	case STREAM_SHAKING:
		stream_broke(s, -ETIMEDOUT, now);
		break;
	case STREAM_MEETING:
		stream_meet(s, now);
		break;
	case STREAM_UNTOLD:
		if (now < s->give_up)
			stream_tell_asked(s, now);
		else
			stream_over(s, true, -ETIMEDOUT);
		break;
	case STREAM_OPEN: /* the peer does not take our last words, or does not close */
		lock_take(&s->qp->lock);
		iwarp_give_up(s->qp);
		lock_drop(&s->qp->lock);
		stream_follow(s, now);
		break;
	case STREAM_LINGERING:
		stream_over(s, !s->left, 0);
		break;
	default:
		break;
	}
}

static void run_deadlines(struct hca_streams *all, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	all->next = 0; /* nobody sets the alarm meanwhile */
	list_for_each_safe(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (s->deadline <= now)
			time_is_over(s, now);
	}
	list_for_each(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (s->deadline < next)
			next = s->deadline;
	}
	all->next = UINT64_MAX;
	list_for_each(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (s->deadline == next && next != UINT64_MAX) {
			stream_wake_at(s, next);
			break;
		}
	}
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
	case STREAM_SHAKING:
		stream_shake(s, now);
		return 1;
	case STREAM_OPEN:
		if (events & EPOLLOUT)
			stream_unblock(s);
		return stream_in(s, now);
	case STREAM_LINGERING:
		stream_linger(s, now);
		return 1;
	default:
		return 0;
	}
}

static int step_ready(struct hca_streams *all, uint64_t now)
{
	struct epoll_event ev[READY];
	int n = epoll_wait(all->epfd, ev, READY, 0), done = 0;

	for (int i = 0; i < n; i++) {
		struct stream *s = ev[i].data.ptr;
		uint64_t rang;

		if (s)
			done += step(s, ev[i].events, now);
		else if (read(all->timer_fd, &rang, sizeof(rang)) < 0 && errno != EAGAIN)
			log_debug("timerfd: %d", errno);
	}
	return done;
}

/* They are at the beginning of the list: stream_open(). */
static int step_open(struct hca_streams *all, uint64_t now)
{
	unsigned left = all->nopen;
	int done = 0;

	list_for_each(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (!left)
			break;
		if (!s->qp || s->by_memory)
			continue;
		left--;
		if (s->state == STREAM_OPEN)
			done += stream_in(s, now);
	}
	return done;
}

/* The link may have reached somebody. */
static void step_meeting(struct hca_streams *all, uint64_t now)
{
	list_for_each_safe(n, &all->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (s->state == STREAM_MEETING)
			stream_meet(s, now);
	}
}

bool hca_streams_due(struct hca_engine *e, unsigned woken)
{
	struct hca_streams *all = e->streams;

	if (!all)
		return false;
	if (list_empty(&all->all)) /* the alarm of one that is gone: it wakes until somebody takes it */
		return woken & WOKEN_STREAMS;
	return all->nopen || all->meeting || (woken & WOKEN_STREAMS) || ++all->skipped >= SELDOM;
}

int hca_streams_drive(struct hca_engine *e, bool woken, uint64_t now)
{
	struct hca_streams *all = e->streams;
	int done = 0;

	atomic_store_explicit(&e->posts_since_rx, 0, memory_order_relaxed);
	if (all->meeting)
		step_meeting(all, now);
	if (all->nopen <= FEW)
		done = step_open(all, now);
	if ((woken && !done) || all->nopen > FEW || atomic_load(&all->blocked) || ++all->skipped >= SELDOM) {
		all->skipped = 0;
		done += step_ready(all, now);
	}
	if (now >= all->next)
		run_deadlines(all, now);
	return done;
}

/* ---- for the manager ---- */
struct hca_stream *hca_stream_new(struct hca_adapter *a, hca_stream_fn *tell_fn, void *manager, void *user)
{
	struct stream *s = NULL;

	lock_take(&a->engine.drive);
	if (a->engine.streams)
		s = stream_new(&a->engine, tell_fn, user);
	if (s) {
		s->pub.manager = manager;
		s->owned = true;
	}
	lock_drop(&a->engine.drive);
	return s ? &s->pub : NULL;
}

void hca_stream_close(struct hca_stream *pub)
{
	struct stream *s = (struct stream *)pub;
	struct hca_engine *e = s->e;

	atomic_store(&s->closing, true); /* from here on who drives may free it */
	if (e->streams)
		stream_nudge(e);
}

int hca_stream_disconnect(struct hca_adapter *a, struct hca_stream *pub)
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

void hca_stream_settle(struct hca_adapter *a)
{
	struct hca_engine *e = &a->engine;

	lock_take(&e->drive);
	if (e->streams)
		hca_streams_tidy(e, hca_engine_now(e));
	lock_drop(&e->drive);
}
