/* SPDX-License-Identifier: MIT */
/* The UD QPs of a datagram rsocket: buffers, requests, completions. */
#include "rsocket/dgram.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { GRH = 40, RECV_ROOM = GRH + DG_ROOM };

/* A completion's wr_id: a receive buffer's message, or a send buffer's address with the lowest bit set. */
static uint64_t send_id(uint8_t *buf)
{
	return (uintptr_t)buf | 1;
}

/* ---- making ---- */

static bool is_any(const union dg_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr)
					   : a->in.sin_addr.s_addr == INADDR_ANY;
}

/* Our address as `to` will see it: the UDP socket's own, or the one that the kernel would choose. */
static int source_towards(struct dgram *d, const union dg_addr *to, union dg_addr *from)
{
	socklen_t len = sizeof(*from);
	in_port_t port;
	int fd, err = 0;

	memset(from, 0, sizeof(*from));
	if (getsockname(d->udp, &from->sa, &len))
		return -errno;
	sockaddr_unmap(&from->in6);
	if (!is_any(from))
		return 0;
	port = from->in.sin_port; /* at the same place for IPv6 */
	fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	len = sizeof(*from);
	if (connect(fd, &to->sa, sockaddr_len(&to->sa)) || getsockname(fd, &from->sa, &len))
		err = -errno;
	from->in.sin_port = port;
	close(fd);
	return err;
}

static int post_recv(struct dg_msg *m)
{
	struct ibv_sge sge = {.addr = (uintptr_t)m->grh, .length = RECV_ROOM, .lkey = m->qp->recv_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uintptr_t)m, .sg_list = &sge, .num_sge = 1}, *bad;

	return -ibv_post_recv(m->qp->id->qp, &wr, &bad);
}

static int post_all(struct dg_qp *qp)
{
	for (uint32_t i = 0; i < qp->d->nrecv; i++) {
		struct dg_msg *m = &qp->msgs[i];
		int err;

		list_init(&m->node);
		m->qp = qp;
		m->grh = qp->recv_buf + (size_t)i * RECV_ROOM;
		err = post_recv(m);
		if (err)
			return err;
	}
	return 0;
}

/* The device of the address. The port does not matter: nobody looks for us there. */
static int make_id(struct dg_qp *qp)
{
	union dg_addr any_port = qp->at;
	struct ibv_port_attr port;

	any_port.in.sin_port = 0;
	if (rdma_create_id(NULL, &qp->id, qp, RDMA_PS_UDP))
		return -errno;
	if (rdma_bind_addr(qp->id, &any_port.sa))
		return -errno;
	if (!qp->id->verbs || ibv_query_port(qp->id->verbs, qp->id->port_num, &port))
		return -ENODEV;
	qp->mtu = 128u << port.active_mtu;
	return 0;
}

static int make_queues(struct dg_qp *qp)
{
	struct dgram *d = qp->d;
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_UD, .sq_sig_all = 1};

	qp->channel = ibv_create_comp_channel(qp->id->verbs);
	if (!qp->channel)
		return -errno;
	if (fcntl(qp->channel->fd, F_SETFL, fcntl(qp->channel->fd, F_GETFL) | O_NONBLOCK))
		return -errno;
	qp->cq = ibv_create_cq(qp->id->verbs, (int)(d->nsend + d->nrecv), qp, qp->channel, 0);
	if (!qp->cq)
		return -errno;
	attr.send_cq = attr.recv_cq = qp->cq;
	attr.cap = (struct ibv_qp_cap){.max_send_wr = d->nsend,
		.max_recv_wr = d->nrecv,
		.max_send_sge = 1,
		.max_recv_sge = 1,
		.max_inline_data = d->rs.sizes.inline_bytes};
	if (rdma_create_qp(qp->id, NULL, &attr))
		return -errno;
	qp->inline_bytes = attr.cap.max_inline_data;
	qp->armed = !ibv_req_notify_cq(qp->cq, 0); /* somebody may be asleep already */
	return 0;
}

static int make_buffers(struct dg_qp *qp)
{
	struct dgram *d = qp->d;
	struct ibv_pd *pd = qp->id->qp->pd;

	qp->recv_buf = calloc(d->nrecv, RECV_ROOM);
	qp->msgs = calloc(d->nrecv, sizeof(*qp->msgs));
	if (!qp->recv_buf || !qp->msgs)
		return -ENOMEM;
	qp->send_mr = ibv_reg_mr(pd, d->send_buf, (size_t)d->nsend * DG_ROOM, 0);
	qp->recv_mr = ibv_reg_mr(pd, qp->recv_buf, (size_t)d->nrecv * RECV_ROOM, IBV_ACCESS_LOCAL_WRITE);
	return qp->send_mr && qp->recv_mr ? 0 : -errno;
}

static int watch_channel(struct dg_qp *qp)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = qp};

	return epoll_ctl(qp->d->epoll, EPOLL_CTL_ADD, qp->channel->fd, &ev) ? -errno : 0;
}

void dg_qp_free(struct dg_qp *qp)
{
	list_del(&qp->node);
	if (qp->id && qp->id->qp)
		rdma_destroy_qp(qp->id);
	if (qp->recv_mr)
		ibv_dereg_mr(qp->recv_mr);
	if (qp->send_mr)
		ibv_dereg_mr(qp->send_mr);
	if (qp->cq) {
		ibv_ack_cq_events(qp->cq, qp->events);
		ibv_destroy_cq(qp->cq);
	}
	if (qp->channel)
		ibv_destroy_comp_channel(qp->channel);
	if (qp->id)
		rdma_destroy_id(qp->id);
	free(qp->msgs);
	free(qp->recv_buf);
	free(qp);
}

static int make(struct dgram *d, const union dg_addr *at, struct dg_qp **out)
{
	static int (*const steps[])(struct dg_qp *) = {
		make_id, make_queues, make_buffers, post_all, watch_channel};
	struct dg_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return -ENOMEM;
	list_init(&qp->node);
	qp->d = d;
	qp->at = *at;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		int err = steps[i](qp);

		if (err) {
			dg_qp_free(qp);
			return err;
		}
	}
	list_add_tail(&d->qps, &qp->node);
	*out = qp;
	return 0;
}

int dg_qp_towards(struct dgram *d, const union dg_addr *to, struct dg_qp **out)
{
	union dg_addr from;
	int err = source_towards(d, to, &from);

	assert_locked(&d->lock);
	if (err)
		return err;
	list_for_each(n, &d->qps)
	{
		*out = container_of(n, struct dg_qp, node);
		if (dg_addr_equal(&(*out)->at, &from))
			return 0;
	}
	return make(d, &from, out);
}

/* ---- out ---- */

int dg_qp_post(struct dg_qp *qp, const struct dg_dest *dest, uint8_t *buf, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = len, .lkey = qp->send_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = send_id(buf),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = len <= qp->inline_bytes ? IBV_SEND_INLINE : 0,
		.wr.ud = {.ah = dest->ah, .remote_qpn = dest->qpn, .remote_qkey = RDMA_UDP_QKEY},
	};
	struct ibv_send_wr *bad;

	assert_locked(&qp->d->lock);
	return -ibv_post_send(qp->id->qp, &wr, &bad);
}

/* ---- in ---- */

/* Whether the packet comes from the address that the header claims: IPv4's header is in the last 20 of the 40
 * bytes. */
static bool honest(const uint8_t *grh, const union dg_addr *from)
{
	if (from->sa.sa_family == AF_INET6)
		return !memcmp(grh + 8, &from->in6.sin6_addr, 16);
	return !memcmp(grh + 32, &from->in.sin_addr, 4);
}

/* The header names no zone; a link-local address means the one of our own. */
static void add_scope(struct dg_msg *m)
{
	if (m->from.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&m->from.in6.sin6_addr))
		m->from.in6.sin6_scope_id = m->qp->at.in6.sin6_scope_id;
}

static bool take_in(struct dgram *d, struct dg_msg *m, const struct ibv_wc *wc)
{
	uint32_t len, hdr;

	if (wc->status != IBV_WC_SUCCESS || wc->byte_len < GRH)
		return false;
	len = wc->byte_len - GRH;
	hdr = dg_hdr_get(m->grh + GRH, len, &m->from);
	if (!hdr || !honest(m->grh, &m->from))
		return false;
	add_scope(m);
	if (!dg_wanted(d, &m->from))
		return false;
	m->data = m->grh + GRH + hdr;
	m->len = len - hdr;
	list_add_tail(&d->arrived, &m->node);
	return true;
}

static void complete(struct dgram *d, const struct ibv_wc *wc)
{
	if (wc->wr_id & 1) {
		d->send_free[d->nfree++] = (uint8_t *)(uintptr_t)(wc->wr_id & ~1ull);
		return;
	}
	struct dg_msg *m = (struct dg_msg *)(uintptr_t)wc->wr_id;

	if (!take_in(d, m, wc) && wc->status != IBV_WC_WR_FLUSH_ERR)
		post_recv(m);
}

void dg_collect(struct dgram *d)
{
	assert_locked(&d->lock);
	list_for_each(n, &d->qps)
	{
		struct dg_qp *qp = container_of(n, struct dg_qp, node);
		struct ibv_wc wc[16];
		int got;

		do {
			got = ibv_poll_cq(qp->cq, 16, wc);
			for (int i = 0; i < got; i++)
				complete(d, &wc[i]);
		} while (got == 16);
	}
}

void dg_msg_free(struct dgram *d, struct dg_msg *m)
{
	assert_locked(&d->lock);
	list_del(&m->node);
	if (m->qp) {
		post_recv(m);
		return;
	}
	d->nspilled--;
	free(m);
}
