/* SPDX-License-Identifier: MIT */
/*
 * The UDP socket of a datagram rsocket. What comes here comes from anybody: a packet that is no header of
 * ours is dropped, and what a packet can do is bounded. Who can send in a peer's name can draw that peer's
 * messages to a QP of its choice at the peer's address, no further: the address of a destination is the
 * packet's own.
 */
#include "rsocket/dgram.h"

#include <errno.h>
#include <stdlib.h>

ssize_t dg_udp_send(
	struct dgram *d, const struct dg_dest *dest, int op, const struct iovec *iov, int n, int flags)
{
	uint8_t hdr[DG_UDP_HDR_MOST];
	struct iovec pieces[2] = {{.iov_base = hdr}};
	struct msghdr msg = {.msg_iov = pieces, .msg_iovlen = 1};
	union dg_addr to = dest->addr;
	uint8_t whole[DG_ROOM];
	ssize_t sent;

	assert_locked(&d->lock);
	pieces[0].iov_len = dg_udp_hdr_put(hdr, op, dest->qp->id->qp->qp_num, &dest->qp->at);
	if (n == 1) {
		pieces[1] = *iov;
		msg.msg_iovlen = 2;
	} else if (n > 1) { /* more pieces than a call may take, perhaps; they are few bytes */
		pieces[1].iov_base = whole;
		pieces[1].iov_len = dg_gather(whole, iov, n);
		msg.msg_iovlen = 2;
	}
	dg_addr_map(d, &to);
	if (!d->connected) {
		msg.msg_name = &to;
		msg.msg_namelen = sockaddr_len(&to.sa);
	}
	sent = sendmsg(d->udp, &msg, (flags & MSG_NOSIGNAL) | MSG_DONTWAIT);
	return sent < 0 ? -errno : sent - (ssize_t)pieces[0].iov_len;
}

/* A message that came by UDP waits like those of the QPs, with memory of its own. */
static void deliver(struct dgram *d, const uint8_t *data, uint32_t len, const union dg_addr *from)
{
	struct dg_msg *m;

	if (d->nspilled == d->nrecv)
		return;
	m = malloc(sizeof(*m) + len);
	if (!m)
		return;
	*m = (struct dg_msg){.data = (uint8_t *)(m + 1), .len = len, .from = *from};
	memcpy(m + 1, data, len);
	list_add_tail(&d->arrived, &m->node);
	d->nspilled++;
	dg_ring(d);
}

static void packet(struct dgram *d, const uint8_t *p, uint32_t len, const union dg_addr *from)
{
	struct dg_dest *dest;
	uint32_t qpn, hdr;
	int op;

	hdr = dg_udp_hdr_get(p, len, from->sa.sa_family, &op, &qpn);
	if (!hdr || dg_dest_get(d, from, &dest))
		return;
	if (op == DG_UDP_DATA)
		dg_udp_send(d, dest, DG_UDP_CTRL, NULL, 0, 0);
	dg_dest_learn(dest, qpn);
	if (op == DG_UDP_DATA && dg_wanted(d, from))
		deliver(d, p + hdr, len - hdr, from);
}

/* Takes one packet in; false when there is none. */
static bool receive_one(struct dgram *d)
{
	uint8_t p[DG_ROOM];
	union dg_addr from;
	socklen_t len = sizeof(from);
	ssize_t got;

	memset(&from, 0, sizeof(from));
	got = recvfrom(d->udp, p, sizeof(p), MSG_DONTWAIT | MSG_TRUNC, &from.sa, &len);
	if (got < 0 && errno != EAGAIN && errno != EINTR) { /* nobody is there, says the peer's host */
		d->rs.err = errno;
		dg_ring(d);
	}
	if (got < 0)
		return false;
	sockaddr_unmap(&from.in6);
	if ((size_t)got <= sizeof(p))
		packet(d, p, (uint32_t)got, &from);
	return true;
}

void dg_udp_receive(struct rs_watch *w, uint64_t now)
{
	enum { AT_ONCE = 64 };
	struct dgram *d = container_of(w, struct dgram, watch);
	bool more = true;

	for (int i = 0; more && i < AT_ONCE; i++) {
		lock_take(&d->lock);
		more = receive_one(d);
		lock_drop(&d->lock);
	}
	rsock_wake(&d->rs);
}
