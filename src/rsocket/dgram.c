/* SPDX-License-Identifier: MIT */
/* The calls of a datagram rsocket. */
#include "rsocket/dgram.h"

#include "rsocket/iov.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- beginning ---- */

static uint32_t buffers(uint32_t queue, uint32_t bytes)
{
	uint32_t n = bytes / DG_ROOM;

	n = n < queue ? n : queue;
	return n ? n : 1;
}

int dg_start(struct dgram *d)
{
	int err;

	assert_locked(&d->lock);
	if (d->up)
		return 0;
	if (!d->send_buf) {
		d->nsend = buffers(d->rs.sizes.sq, d->rs.sizes.sbuf);
		d->nrecv = buffers(d->rs.sizes.rq, d->rs.sizes.rbuf);
		d->send_buf = calloc(d->nsend, DG_ROOM);
		d->send_free = calloc(d->nsend, sizeof(*d->send_free));
		if (!d->send_buf || !d->send_free)
			return -ENOMEM;
		while (d->nfree < d->nsend) {
			d->send_free[d->nfree] = d->send_buf + (size_t)d->nfree * DG_ROOM;
			d->nfree++;
		}
	}
	d->watch = (struct rs_watch){.fd = d->udp, .run = dg_udp_receive};
	err = rs_watch(&d->watch);
	d->up = !err;
	return err;
}

static int start(struct dgram *d)
{
	int err;

	lock_take(&d->lock);
	err = dg_start(d);
	lock_drop(&d->lock);
	return err;
}

static int dgram_bind(struct rsock *rs, const struct sockaddr *addr, socklen_t len)
{
	struct dgram *d = dg_of(rs);

	return bind(d->udp, addr, len) ? -errno : start(d);
}

/* The UDP socket's peer and ours; an address without family means anybody again. */
static int set_peer(struct dgram *d, const struct sockaddr *addr, socklen_t len)
{
	bool nobody = addr && len >= sizeof(addr->sa_family) && addr->sa_family == AF_UNSPEC;
	struct dg_dest *dest;
	union dg_addr peer;
	int err = nobody ? 0 : dg_addr_read(&peer, addr, len);

	if (err)
		return err;
	if (connect(d->udp, addr, len))
		return -errno;
	d->connected = !nobody;
	if (nobody)
		return 0;
	d->peer = peer;
	err = dg_start(d);
	return err ? err : dg_dest_get(d, &peer, &dest);
}

static int dgram_connect(struct rsock *rs, const struct sockaddr *addr, socklen_t len)
{
	struct dgram *d = dg_of(rs);
	int err;

	lock_take(&d->lock);
	err = set_peer(d, addr, len);
	lock_drop(&d->lock);
	return err;
}

/* ---- waiting ---- */

static short ready(struct dgram *d, short events)
{
	short now = 0;

	dg_collect(d);
	if (!list_empty(&d->arrived))
		now |= POLLIN;
	if (d->nfree || !d->send_buf)
		now |= POLLOUT;
	now &= events;
	return d->rs.err ? now | POLLERR : now;
}

static short dgram_poll(struct rsock *rs, short events)
{
	struct dgram *d = dg_of(rs);
	short now;

	if (start(d))
		return POLLERR;
	lock_take(&d->lock);
	now = ready(d, events);
	lock_drop(&d->lock);
	return now;
}

void dg_ring(struct dgram *d)
{
	uint64_t one = 1;

	(void)!write(d->bell, &one, sizeof(one));
}

static void arm_all(struct dgram *d)
{
	list_for_each(n, &d->qps)
	{
		struct dg_qp *qp = container_of(n, struct dg_qp, node);

		if (!qp->armed)
			qp->armed = !ibv_req_notify_cq(qp->cq, 0);
	}
}

static int dgram_arm(struct rsock *rs)
{
	struct dgram *d = dg_of(rs);

	lock_take(&d->lock);
	arm_all(d);
	lock_drop(&d->lock);
	return d->epoll;
}

static void dgram_disarm(struct rsock *rs)
{
	struct dgram *d = dg_of(rs);
	struct ibv_cq *cq;
	uint64_t rung;
	void *context;

	lock_take(&d->lock);
	(void)!read(d->bell, &rung, sizeof(rung));
	list_for_each(n, &d->qps)
	{
		struct dg_qp *qp = container_of(n, struct dg_qp, node);

		while (!ibv_get_cq_event(qp->channel, &cq, &context)) { /* does not block */
			qp->events++;
			qp->armed = false;
		}
	}
	if (d->sleeping) /* they saw the event come, or did not; for the next one */
		arm_all(d);
	lock_drop(&d->lock);
}

static void stop_sleeping(void *arg)
{
	struct dgram *d = arg;

	lock_take(&d->lock);
	d->sleeping--;
	lock_drop(&d->lock);
}

static int sleep_on(struct dgram *d, struct pollfd *p)
{
	int err;

	pthread_cleanup_push(stop_sleeping, d);
	rsock_wait_begin();
	err = poll(p, 1, -1) < 0 ? -errno : 0;
	rsock_wait_end();
	pthread_cleanup_pop(0);
	return err;
}

/* Until one of the events holds: 0. Or -errno: an error is for whoever sees it first. The lock is held before
 * and after. */
static int wait_for(struct dgram *d, short events, int flags)
{
	uint64_t look_until = 0;

	assert_locked(&d->lock);
	while (!(ready(d, events) & events)) {
		struct pollfd p = {.events = POLLIN};
		int err = -atomic_exchange(&d->rs.err, 0);

		if (err)
			return err;
		if (rsock_nonblocking(&d->rs, flags))
			return -EAGAIN;
		if (!look_until)
			look_until = rs_now() + rsock_config()->polling_us * 1000ull;
		if (rs_now() < look_until)
			continue;
		d->sleeping++;
		lock_drop(&d->lock);
		p.fd = dgram_arm(&d->rs);
		if (!dgram_poll(&d->rs, events)) {
			err = sleep_on(d, &p);
			dgram_disarm(&d->rs);
			rsock_wake(&d->rs);
		}
		lock_take(&d->lock);
		d->sleeping--;
		if (err)
			return err;
	}
	return 0;
}

/* What is left is for others who sleep. */
static void wake_next(struct dgram *d)
{
	if (d->sleeping && !list_empty(&d->arrived))
		dg_ring(d);
}

/* ---- out ---- */

uint32_t dg_gather(uint8_t *to, const struct iovec *iov, int n)
{
	uint32_t at = 0;

	for (int i = 0; i < n; i++) {
		memcpy(to + at, iov[i].iov_base, iov[i].iov_len);
		at += (uint32_t)iov[i].iov_len;
	}
	return at;
}

static ssize_t send_by_qp(struct dgram *d, struct dg_dest *dest, const struct iovec *iov, int n, int flags)
{
	union dg_addr to = dest->addr;
	uint8_t *buf;
	uint32_t hdr;
	int err = wait_for(d, POLLOUT, flags);

	if (!err) /* we may have slept, and it may have been forgotten */
		err = dg_dest_get(d, &to, &dest);
	if (!err && !dest->ah)
		err = -EAGAIN;
	if (err)
		return err;
	buf = d->send_free[--d->nfree];
	hdr = dg_hdr_put(buf, &dest->qp->at);
	err = dg_qp_post(dest->qp, dest, buf, hdr + dg_gather(buf + hdr, iov, n));
	if (err) {
		d->send_free[d->nfree++] = buf;
		return err;
	}
	return (ssize_t)rs_iov_total(iov, n);
}

/* By UDP while the peer's QP is not known, and what is too long for a packet. */
static ssize_t send_to(struct dgram *d, const union dg_addr *to, const struct iovec *iov, int n, int flags)
{
	size_t len = rs_iov_total(iov, n);
	struct dg_dest *dest;
	int err = dg_start(d);

	if (!err && len > DG_ROOM - dg_udp_hdr_len(to))
		err = -EMSGSIZE;
	if (!err)
		err = dg_dest_get(d, to, &dest);
	if (err)
		return err;
	if (!dest->ah || dg_hdr_len(&dest->qp->at) + len > dest->qp->mtu)
		return dg_udp_send(d, dest, DG_UDP_DATA, iov, n, flags);
	return send_by_qp(d, dest, iov, n, flags);
}

static ssize_t dgram_send(struct rsock *rs, const struct iovec *iov, int n, int flags,
	const struct sockaddr *addr, socklen_t len)
{
	struct dgram *d = dg_of(rs);
	union dg_addr to;
	ssize_t sent;
	int err = 0;

	if (addr && len)
		err = dg_addr_read(&to, addr, len);
	else if (d->connected)
		to = d->peer;
	else
		err = -EDESTADDRREQ;
	if (!err)
		err = -atomic_exchange(&rs->err, 0);
	if (err)
		return err;
	lock_take(&d->lock);
	sent = send_to(d, &to, iov, n, flags);
	lock_drop(&d->lock);
	return sent;
}

/* ---- in ---- */

static void give_addr(const struct dgram *d, const union dg_addr *from, struct sockaddr *addr, socklen_t *len)
{
	union dg_addr a = *from;

	dg_addr_map(d, &a);
	if (addr && len)
		rsock_copy_addr(&a.sa, addr, len);
}

static size_t scatter(const struct iovec *iov, int n, const uint8_t *from, size_t len)
{
	size_t done = 0;

	for (int i = 0; i < n && done < len; i++) {
		size_t part = len - done < iov[i].iov_len ? len - done : iov[i].iov_len;

		memcpy(iov[i].iov_base, from + done, part);
		done += part;
	}
	return done;
}

static ssize_t take(
	struct dgram *d, const struct iovec *iov, int n, int flags, struct sockaddr *addr, socklen_t *len)
{
	struct dg_msg *m = container_of(d->arrived.next, struct dg_msg, node);
	size_t full = m->len, done = scatter(iov, n, m->data, m->len);

	give_addr(d, &m->from, addr, len);
	if (!(flags & MSG_PEEK))
		dg_msg_free(d, m);
	return (ssize_t)(flags & MSG_TRUNC ? full : done);
}

static ssize_t dgram_recv(
	struct rsock *rs, const struct iovec *iov, int n, int flags, struct sockaddr *addr, socklen_t *len)
{
	struct dgram *d = dg_of(rs);
	ssize_t got;

	lock_take(&d->lock);
	got = dg_start(d);
	if (!got)
		got = wait_for(d, POLLIN, flags);
	if (!got)
		got = take(d, iov, n, flags, addr, len);
	wake_next(d);
	lock_drop(&d->lock);
	return got;
}

/* ---- names and options ---- */

static int dgram_getpeername(struct rsock *rs, struct sockaddr *addr, socklen_t *len)
{
	struct dgram *d = dg_of(rs);

	if (!d->connected)
		return -ENOTCONN;
	give_addr(d, &d->peer, addr, len);
	return 0;
}

static int dgram_getsockname(struct rsock *rs, struct sockaddr *addr, socklen_t *len)
{
	return getsockname(dg_of(rs)->udp, addr, len) ? -errno : 0;
}

/* The UDP socket has the options of sockets; the sizes are those of our buffers too, until there are some. */
static int dgram_setsockopt(struct rsock *rs, int level, int name, const void *value, socklen_t len)
{
	struct dgram *d = dg_of(rs);
	bool size = level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF);

	if (level >= 0x10000) /* SOL_RDMA */
		return d->send_buf ? -EINVAL : rsock_set_common(rs, level, name, value, len);
	if (setsockopt(d->udp, level, name, value, len))
		return -errno;
	return size && !d->send_buf ? rsock_set_common(rs, level, name, value, len) : 0;
}

static int dgram_getsockopt(struct rsock *rs, int level, int name, void *value, socklen_t *len)
{
	if (level >= 0x10000 || (level == SOL_SOCKET && name == SO_ERROR))
		return rsock_get_common(rs, level, name, value, len);
	return getsockopt(dg_of(rs)->udp, level, name, value, len) ? -errno : 0;
}

/* ---- end ---- */

static int dgram_shutdown(struct rsock *rs, int how)
{
	return shutdown(dg_of(rs)->udp, how) ? -errno : 0;
}

static void dgram_free(struct rsock *rs)
{
	struct dgram *d = dg_of(rs);
	struct list *n;

	rs_unwatch(&d->watch);
	while ((n = d->arrived.next) != &d->arrived) {
		struct dg_msg *m = container_of(n, struct dg_msg, node);

		list_del(n);
		if (!m->qp)
			free(m);
	}
	while ((n = d->dests.next) != &d->dests)
		dg_dest_free(d, container_of(n, struct dg_dest, node));
	while ((n = d->qps.next) != &d->qps)
		dg_qp_free(container_of(n, struct dg_qp, node));
	if (d->epoll >= 0)
		close(d->epoll);
	if (d->bell >= 0)
		close(d->bell);
	if (d->udp >= 0)
		close(d->udp);
	free(d->send_free);
	free(d->send_buf);
	lock_fini(&d->lock);
	free(d);
}

static const struct rsock_ops ops = {
	.bind = dgram_bind,
	.connect = dgram_connect,
	.shutdown = dgram_shutdown,
	.free = dgram_free,
	.recv = dgram_recv,
	.send = dgram_send,
	.getpeername = dgram_getpeername,
	.getsockname = dgram_getsockname,
	.setsockopt = dgram_setsockopt,
	.getsockopt = dgram_getsockopt,
	.poll = dgram_poll,
	.arm = dgram_arm,
	.disarm = dgram_disarm,
};

static int open_descriptors(struct dgram *d)
{
	struct epoll_event ev = {.events = EPOLLIN};

	d->udp = socket(d->rs.domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	d->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->udp < 0 || d->epoll < 0 || d->bell < 0 || epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->bell, &ev))
		return -errno;
	return 0;
}

int rsock_dgram_new(int domain, struct rsock **out)
{
	struct dgram *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	rsock_init(&d->rs, &ops, domain, SOCK_DGRAM);
	lock_init(&d->lock);
	list_init(&d->qps);
	list_init(&d->dests);
	list_init(&d->arrived);
	err = open_descriptors(d);
	if (!err)
		err = rsock_insert(&d->rs, d->udp);
	if (err) {
		dgram_free(&d->rs);
		return err;
	}
	*out = &d->rs;
	return 0;
}
