/* SPDX-License-Identifier: MIT */
/*
 * Opening streams: TCP, then MPA's request and reply. What is offered and asked for is the same for all
 * streams of a process; ANYRDMA_IWARP changes it (man anyrdma).
 */
#include "iwarp/port.h"

#include "base/asserts.h"
#include "base/env.h"
#include "base/fd.h"
#include "base/gid.h"
#include "hca/qp.h"
#include "link/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define SECONDS    1000000000ull
#define CONNECT_NS (20 * SECONDS)  /* for TCP */
#define REQUEST_NS (10 * SECONDS)  /* for a request, once TCP is connected */
#define REPLY_NS   (120 * SECONDS) /* for a reply: a program may think */
#define AGAIN_NS   (SECONDS / 50)  /* between attempts to tell of a request */
#define NO_FDS_NS  (SECONDS / 10)
#define RETRY_NS   (SECONDS / 100)

enum { RETRIES = 5, MOST_AT_ONCE = 16, MOST_PENDING = 4096 };

/* ---- options ---- */
/* In the order of the words in base/env.h. */
enum option { CRC, MARKERS, MPA1, CLIENT_SERVER, PLAIN, RTR_WRITE, RTR_READ, RTR_ZERO, MSS };

static struct iwarp_options our_options(struct stream *s)
{
	unsigned set = (unsigned)env_value(ANYRDMA_IWARP);
	uint8_t rtr = (uint8_t)((set >> RTR_WRITE & 1 ? MPA_RTR_WRITE : 0) |
				(set >> RTR_READ & 1 ? MPA_RTR_READ : 0) |
				(set >> RTR_ZERO & 1 ? MPA_RTR_ZERO : 0));
	bool old = set >> MPA1 & 1;

	s->fit_mss = set >> MSS & 1;
	return (struct iwarp_options){
		.revision = old ? 1 : 2,
		.crc = set >> CRC & 1,
		.markers = set >> MARKERS & 1,
		.peer_to_peer = !old && !(set >> CLIENT_SERVER & 1),
		.rtr = rtr ? rtr : MPA_RTR_WRITE | MPA_RTR_READ | MPA_RTR_ZERO,
		.extended = !(set >> PLAIN & 1),
		.memory = !(set >> PLAIN & 1) && stream_may_upgrade(s),
	};
}

/* ---- queue pairs ---- */
struct hca_qp *stream_free_qp(struct iwarp_port *port, uint32_t qpn)
{
	struct hca_qp *qp = idmap_get(&port->provider.e->adapter->qps, qpn);

	if (!qp || qp->dev_provider != &port->provider || qp->stream)
		return NULL;
	return hca_qp_state(qp) == IBV_QPS_INIT || hca_qp_state(qp) == IBV_QPS_RTR ? qp : NULL;
}

/* ---- events ---- */
static void tell_established(struct stream *s)
{
	const struct iwarp_params *p = &s->mpa.params;
	struct iwarp_conn_event ev = {.type = IWARP_CONN_ESTABLISHED, .ird = p->ird, .ord = p->ord};

	s->established = true;
	stream_clear_deadline(s);
	stream_upgrade_done(s);
	lock_take(&s->qp->lock); /* posters look at it from now on */
	stream_watch(s, EPOLLIN);
	stream_set_state(s, STREAM_OPEN);
	s->qp->connecting = false;
	lock_drop(&s->qp->lock);
	if (p->initiator)
		ev.private_data = iwarp_connect_private(&s->mpa, &ev.private_len);
	stream_tell(s, &ev);
	hca_engine_make_runnable(s->e, s->qp);
	if (atomic_load(&s->closing) || hca_qp_state(s->qp) == IBV_QPS_ERR)
		iwarp_port_wake(s->port);
}

/* What the peer wants of us, and offers; where its revision does not say, it is for the program to know. */
static uint16_t depth(uint16_t told)
{
	return told < HCA_MAX_RD_ATOMIC ? told : HCA_MAX_RD_ATOMIC;
}

void stream_tell_request(struct stream *s, uint64_t now)
{
	bool told = s->mpa.peer.revision >= 2 && (s->mpa.peer.flags & MPA_ENHANCED);
	struct iwarp_conn_event ev = {
		.type = IWARP_CONN_REQUEST,
		.listener = s->listener ? &s->listener->pub : NULL,
		.ird = told ? depth(s->mpa.peer_v2.ord) : HCA_MAX_RD_ATOMIC,
		.ord = told ? depth(s->mpa.peer_v2.ird) : HCA_MAX_RD_ATOMIC,
	};

	assert_locked(&s->e->drive);
	if (!ev.listener) {
		stream_close_socket(s, true, 0);
		return;
	}
	ev.private_data = iwarp_connect_private(&s->mpa, &ev.private_len);
	if (!stream_tell(s, &ev)) {
		if (s->state != STREAM_BACKLOGGED)
			stream_set_state(s, STREAM_BACKLOGGED);
		stream_set_deadline(s, now + AGAIN_NS);
		return;
	}
	stream_set_state(s, STREAM_AWAIT_APP);
	s->listener->pending--;
	s->listener = NULL;
	s->owned = true;
	s->end_told = false;
}

/* ---- bytes ---- */
/* false: it broke */
static bool send_mpa(struct stream *s)
{
	struct iovec out = iwarp_connect_out(&s->mpa);
	ssize_t n = out.iov_len ? link_tcp_send(s->fd, &out, 1) : 0;

	if (n > 0)
		iwarp_connect_sent(&s->mpa, (size_t)n);
	return n >= 0 || n == -EAGAIN || n == -EINTR;
}

static bool receive_mpa(struct stream *s)
{
	for (;;) {
		struct iovec in = iwarp_connect_in(&s->mpa);
		ssize_t n;

		if (!in.iov_len)
			return true;
		n = link_tcp_receive(s->fd, &in, 1);
		if (n == -EAGAIN || n == -EINTR)
			return true;
		if (n <= 0)
			return false;
		iwarp_connect_got(&s->mpa, (size_t)n);
	}
}

static int begin_connect(struct stream *s, uint64_t now)
{
	s->fd = link_tcp_connect((struct sockaddr *)&s->local, (struct sockaddr *)&s->remote, s->tclass);
	if (s->fd < 0)
		return s->fd;
	stream_set_state(s, STREAM_CONNECTING);
	stream_watch(s, EPOLLOUT);
	stream_set_deadline(s, now + CONNECT_NS);
	return 0;
}

/* A peer that speaks only the first revision says so in its refusal: once more, in its way. */
static bool try_older(struct stream *s, uint64_t now)
{
	struct iwarp_options o = s->mpa.opt;
	uint32_t skip = MPA_FRAME_LEN + MPA_V2_LEN, len = s->mpa.out_len - skip;
	uint8_t data[MPA_PRIVATE_MAX];

	if (o.revision < 2 || s->mpa.peer.revision != 1)
		return false;
	memcpy(data, s->mpa.out + skip, len);
	o.revision = 1;
	o.peer_to_peer = false;
	stream_watch(s, 0);
	link_tcp_reset(fd_take(&s->fd));
	return iwarp_connect_start(&s->mpa, &o, data, len) && !begin_connect(s, now);
}

static void agreed(struct stream *s, uint64_t now)
{
	struct hca_qp *qp;

	if (s->qp) { /* the reply has left */
		tell_established(s);
		return;
	}
	qp = stream_free_qp(s->port, s->qpn);
	if (!qp || stream_attach_qp(s, qp, &s->mpa.params, now))
		stream_close_socket(s, true, -EINVAL);
	else
		tell_established(s);
}

static void refused(struct stream *s, uint64_t now)
{
	if (s->mpa.refusing) { /* by us: the peer shall read it */
		s->end_told = true;
		s->shut = true; /* the peer closes: siw does not see a refusal that comes with the end of the
				   stream */
		stream_set_state(s, STREAM_DRAINING);
		stream_set_deadline(s, now + 2 * SECONDS);
		stream_watch(s, EPOLLIN);
		stream_drain(s, now);
		return;
	}
	if (!try_older(s, now))
		stream_close_socket(s, false, -ECONNREFUSED);
}

/*
 * Broken on the way. To who has answered the connection was there: it opens and ends, as one does whose
 * caller leaves behind the reply. Many servers take an error for their own end.
 */
void stream_setup_failed(struct stream *s, int status, uint64_t now)
{
	if (!s->qp) {
		stream_close_socket(s, true, status);
		return;
	}
	s->mpa.params.memory = false;
	if (s->mpa.answered)
		tell_established(s);
	else
		s->why = status;
	lock_take(&s->qp->lock);
	iwarp_lost(s->qp, now);
	if (s->state != STREAM_OPEN)
		stream_set_state(s, STREAM_OPEN);
	lock_drop(&s->qp->lock);
	stream_follow_qp(s, now);
}

/* Not told of what it does not read now: a peer that has closed, or goes on, while our reply has no room. */
static uint32_t wanted(struct stream *s)
{
	return (iwarp_connect_out(&s->mpa).iov_len ? EPOLLOUT : 0) |
	       (iwarp_connect_in(&s->mpa).iov_len ? EPOLLIN : 0);
}

void stream_negotiate(struct stream *s, uint64_t now)
{
	assert_locked(&s->e->drive);
	assert_that(s->state == STREAM_NEGOTIATING);
	if (!send_mpa(s) || !receive_mpa(s)) {
		iwarp_connect_lost(&s->mpa);
		stream_setup_failed(s, -ECONNRESET, now);
		return;
	}
	switch (s->mpa.state) {
	case CONNECT_ASKED:
		stream_watch(s, 0);
		s->give_up = now + REQUEST_NS;
		stream_clear_deadline(s);
		stream_tell_request(s, now);
		return;
	case CONNECT_UPGRADE_READY:
		stream_upgrade(s, now);
		return;
	case CONNECT_DONE:
		agreed(s, now);
		return;
	case CONNECT_REFUSED:
		refused(s, now);
		return;
	case CONNECT_BROKEN:
		stream_setup_failed(s, -EPROTO, now);
		return;
	default:
		stream_watch(s, wanted(s));
	}
}

/* ---- initiator ---- */
/* Servers stop listening between two clients for a moment, and through a kernel the way is longer: cm/host.c.
 */
static void retry_later(struct stream *s, uint64_t now)
{
	stream_watch(s, 0);
	link_tcp_reset(fd_take(&s->fd));
	stream_set_state(s, STREAM_RETRY_CONNECT);
	stream_set_deadline(s, now + (RETRY_NS << s->retries++));
}

void stream_retry_connect(struct stream *s, uint64_t now)
{
	int err = begin_connect(s, now);

	if (err)
		stream_close_socket(s, false, err);
}

void stream_connected(struct stream *s, uint64_t now)
{
	int err = link_tcp_connected(s->fd, &s->local);

	if (err == -ECONNREFUSED && s->retries < RETRIES) {
		retry_later(s, now);
		return;
	}
	if (err) {
		stream_close_socket(s, false, err);
		return;
	}
	stream_set_state(s, STREAM_NEGOTIATING);
	stream_set_deadline(s, now + REPLY_NS);
	stream_negotiate(s, now);
}

static int start_request(struct stream *s, const struct iwarp_conn_param *p, uint64_t now)
{
	struct iwarp_options o;

	if (s->state != STREAM_FRESH || !stream_free_qp(s->port, p->qpn))
		return -EINVAL;
	s->qpn = p->qpn;
	s->tclass = p->tclass;
	memcpy(&s->local, p->from, sockaddr_len(p->from));
	memcpy(&s->remote, p->to, sockaddr_len(p->to));
	o = our_options(s);
	o.ird = p->ird;
	o.ord = p->ord;
	if (!iwarp_connect_start(&s->mpa, &o, p->private_data, p->private_len))
		return -EINVAL;
	return begin_connect(s, now);
}

int iwarp_conn_connect(struct hca_adapter *a, struct iwarp_conn *pub, const struct iwarp_conn_param *p)
{
	int err;

	lock_take(&a->engine.drive);
	err = start_request((struct stream *)pub, p, hca_engine_now(&a->engine));
	lock_drop(&a->engine.drive);
	return err;
}

/* ---- responder ---- */
int iwarp_conn_listen(
	struct hca_adapter *a, struct iwarp_conn *pub, const struct sockaddr *addr, bool v6only, int backlog)
{
	struct stream *s = (struct stream *)pub;
	int fd = link_tcp_listen(addr, v6only, backlog);

	if (fd < 0)
		return fd;
	lock_take(&a->engine.drive);
	s->fd = fd;
	s->end_told = true; /* there is nothing to tell of it */
	stream_set_state(s, STREAM_LISTENING);
	stream_watch(s, EPOLLIN);
	lock_drop(&a->engine.drive);
	return 0;
}

/* How many may be on their way to a listener: strangers must not take all descriptors of the program. */
static unsigned most_pending(void)
{
	struct rlimit fds;

	if (getrlimit(RLIMIT_NOFILE, &fds) || fds.rlim_cur / 4 > MOST_PENDING)
		return MOST_PENDING;
	return (unsigned)fds.rlim_cur / 4;
}

/* The oldest that has not asked, or was refused, makes room for who comes. false: all wait for the program.
 */
static bool make_room(struct stream *l)
{
	if (l->pending < most_pending())
		return true;
	list_for_each(n, &l->port->all)
	{
		struct stream *s = container_of(n, struct stream, node);

		if (s->listener != l || (s->state != STREAM_NEGOTIATING && s->state != STREAM_DRAINING))
			continue;
		s->listener = NULL;
		l->pending--;
		stream_close_socket(s, true, 0);
		return true;
	}
	return false;
}

static void accept_one(struct stream *l, int fd, const struct sockaddr_storage *local,
	const struct sockaddr_storage *remote, uint64_t now)
{
	struct stream *s = make_room(l) ? stream_new(l->port, l->tell, NULL) : NULL;
	struct iwarp_options o;

	if (!s) {
		link_tcp_reset(fd);
		return;
	}
	s->pub.manager = l->pub.manager;
	s->fd = fd;
	s->local = *local;
	s->remote = *remote;
	s->listener = l;
	s->end_told = true; /* until somebody is told of it */
	l->pending++;
	o = our_options(s);
	o.revision = 2;
	iwarp_connect_await(&s->mpa, &o);
	stream_set_state(s, STREAM_NEGOTIATING);
	stream_set_deadline(s, now + REQUEST_NS);
	stream_negotiate(s, now);
}

void stream_accept_all(struct stream *l, uint64_t now)
{
	assert_locked(&l->e->drive);
	for (int i = 0; i < MOST_AT_ONCE; i++) {
		struct sockaddr_storage local, remote;
		int fd = link_tcp_accept(l->fd, &local, &remote);

		if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM) {
			stream_watch(l, 0);
			stream_set_deadline(l, now + NO_FDS_NS);
		}
		if (fd < 0)
			return;
		accept_one(l, fd, &local, &remote, now);
	}
}

/* MPA has been told what to answer. */
static void answer(struct stream *s, uint64_t now)
{
	stream_set_state(s, STREAM_NEGOTIATING);
	stream_negotiate(s, now);
}

static int accept_with(struct stream *s, const struct iwarp_conn_param *p, uint64_t now)
{
	struct hca_qp *qp = stream_free_qp(s->port, p->qpn);
	int err;

	if (s->state != STREAM_AWAIT_APP || !qp)
		return -EINVAL;
	s->qpn = p->qpn;
	stream_fill_identity(s);
	if (!iwarp_connect_accept(&s->mpa, p->ird, p->ord, p->private_data, p->private_len))
		return -EINVAL;
	if (s->mpa.refusing) { /* we cannot have what it wants */
		answer(s, now);
		return -EPROTO;
	}
	err = stream_attach_qp(s, qp, &s->mpa.params, now); /* before the peer may send */
	if (err) {
		stream_close_socket(s, true, 0);
		return err;
	}
	stream_set_deadline(s, now + REQUEST_NS);
	answer(s, now);
	hca_engine_run_runnable(s->e, now);
	return 0;
}

int iwarp_conn_accept(struct hca_adapter *a, struct iwarp_conn *pub, const struct iwarp_conn_param *p)
{
	int err;

	lock_take(&a->engine.drive);
	err = accept_with((struct stream *)pub, p, hca_engine_now(&a->engine));
	lock_drop(&a->engine.drive);
	return err;
}

bool stream_reject(struct stream *s, const void *private_data, uint32_t len, uint64_t now)
{
	if (!iwarp_connect_reject(&s->mpa, private_data, len))
		return false;
	s->end_told = true;
	answer(s, now);
	return true;
}

int iwarp_conn_reject(struct hca_adapter *a, struct iwarp_conn *pub, const void *private_data, uint32_t len)
{
	struct stream *s = (struct stream *)pub;
	bool done;

	lock_take(&a->engine.drive);
	done = s->state == STREAM_AWAIT_APP &&
	       stream_reject(s, private_data, len, hca_engine_now(&a->engine));
	lock_drop(&a->engine.drive);
	return done ? 0 : -EINVAL;
}
