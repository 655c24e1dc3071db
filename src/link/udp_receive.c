/* SPDX-License-Identifier: MIT */
/*
 * Receiving: the sockets are bound to the wildcard address; IP_PKTINFO tells which address was meant. The
 * kernel does not show the IP identification, so the check accepts any (wire/icrc.h).
 */
#include "link/udp_parts.h"

#include "base/guard.h"
#include "host/slot.h"
#include "observe/probe.h"
#include "wire/ibt.h"
#include "wire/icrc.h"
#include "wire/qpn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct rx_meta {
	struct icrc_flow flow;
	uint32_t ifindex;
	uint16_t ip_id;   /* the next packet's, if it is as we send them */
	bool to_all;      /* for an address that is not ours alone, nor a group's */
	unsigned segment; /* size of the packets merged into one buffer; 0: one packet */
};

static void read_control(struct msghdr *m, bool v4, struct rx_meta *meta)
{
	meta->segment = 0;
	meta->ifindex = 0;
	meta->ip_id = 0;
	meta->to_all = false;
	memset(meta->flow.dst, 0, 16);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
			int size;

			memcpy(&size, CMSG_DATA(c), sizeof(size));
			meta->segment = (unsigned)size;
		} else if (v4 && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo pi;

			memcpy(&pi, CMSG_DATA(c), sizeof(pi));
			gid_of_v4(&pi.ipi_addr, meta->flow.dst);
			meta->ifindex = (uint32_t)pi.ipi_ifindex;
			meta->to_all = pi.ipi_addr.s_addr != pi.ipi_spec_dst.s_addr &&
				       !IN_MULTICAST(ntohl(pi.ipi_addr.s_addr));
		} else if (!v4 && c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo pi;

			memcpy(&pi, CMSG_DATA(c), sizeof(pi));
			memcpy(meta->flow.dst, &pi.ipi6_addr, 16);
			meta->ifindex = pi.ipi6_ifindex;
		}
	}
}

int link_udp_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct steer *s = &((struct udp_link *)link)->steer;

	if (steer_is_member(s, slot))
		return steer_hand_over(s, slot, in, wait);
	/* Perhaps one of ours that has to find its way back to us (steer.h): not yet then. */
	return wait && slot_is_alive(s->port, slot) ? -EAGAIN : -ESRCH;
}

static bool receive_packet(struct udp_link *l, const uint8_t *pkt, uint32_t len, struct rx_meta *meta,
	link_deliver_fn *deliver, void *arg)
{
	struct frame_in in = {.bytes = pkt, .len = len - ICRC_LEN, .ifindex = meta->ifindex, .hop_limit = 64};
	struct link_stats *st = &l->link.stats;
	uint32_t slot;

	if (len < BTH_LEN + ICRC_LEN || len % 4) {
		st->bad_length++;
		PROBE(BAD_LENGTH, .length = len);
		return false;
	}
	if (pkt[0] == OPCODE_INDEX) {
		steer_index_reply(&l->steer, pkt, len);
		return false;
	}
	/* Packets of a batch are numbered from 0. */
	if (!icrc_check(&meta->flow, pkt, len, false, meta->ip_id++)) {
		st->bad_icrc++;
		PROBE(BAD_ICRC, .qpn = bth_dqpn(pkt), .opcode = bth_opcode(pkt), .psn = bth_psn(pkt),
			.length = len);
		return false;
	}
	st->rx_packets++;
	st->rx_bytes += len;
	memcpy(in.sgid, meta->flow.src, 16);
	memcpy(in.dgid, meta->flow.dst, 16);
	slot = qpn_slot(bth_dqpn(pkt));
	if (slot != l->steer.slot && slot != 0 && bth_dqpn(pkt) != QP_MULTICAST &&
		!link_udp_hand_over(&l->link, slot, &in, false)) {
		st->handed_over++;
		PROBE(HANDED_OVER, .qpn = bth_dqpn(pkt), .opcode = bth_opcode(pkt));
		steer_misdelivered(&l->steer);
		return true;
	}
	deliver(arg, &in);
	return true;
}

static int receive_message(struct udp_link *l, unsigned i, bool v4, link_deliver_fn *deliver, void *arg)
{
	const uint8_t *p = l->rx_buf + (size_t)i * UDP_RX_BUF;
	uint32_t left = l->rx_msg[i].msg_len, step;
	struct rx_meta meta;
	int n = 0;

	read_control(&l->rx_msg[i].msg_hdr, v4, &meta);
	if (meta.to_all)
		return 0; /* the filter does not know that address yet (udp_filter.c) */
	if (v4) {
		gid_of_v4(&l->rx_from[i].v4.sin_addr, meta.flow.src);
		meta.flow.sport = ntohs(l->rx_from[i].v4.sin_port);
	} else {
		memcpy(meta.flow.src, &l->rx_from[i].v6.sin6_addr, 16);
		meta.flow.sport = ntohs(l->rx_from[i].v6.sin6_port);
	}
	meta.flow.dport = l->port;
	step = meta.segment && meta.segment < left ? meta.segment : left;
	if (left > step && left < 2 * step && p[step] == (IBT_RC | OP_ACK)) {
		/* An acknowledge behind a request: it was made first, and programs count on that order. */
		meta.ip_id = 1;
		n += receive_packet(l, p + step, left - step, &meta, deliver, arg);
		meta.ip_id = 0;
		left = step;
	}
	for (; left; p += step, left -= step) {
		if (step > left)
			step = left;
		n += receive_packet(l, p, step, &meta, deliver, arg);
	}
	return n;
}

void link_udp_rx_ready(struct udp_link *l, unsigned i)
{
	struct msghdr *m = &l->rx_msg[i].msg_hdr;

	m->msg_namelen = sizeof(l->rx_from[i]);
	m->msg_controllen = UDP_CONTROL;
}

/*
 * A single message comes cheaper by recvmsg; in a stream many come at once. Of large ones only some are
 * taken, so that acknowledges and requests leave while more lie there, and the buffers stay in the cache.
 */
static unsigned next_at_once(const struct udp_link *l, int n)
{
	enum { STREAM = 4096, LARGE = 16384, LARGE_ONES = 8 };
	unsigned len = n > 0 ? l->rx_msg[0].msg_len : 0;

	if (n < 2 && len <= STREAM)
		return 1;
	return len < LARGE ? UDP_RX_MSGS : LARGE_ONES;
}

static int receive_some(struct udp_link *l, int fd)
{
	int n;

	if (l->at_once > 1) {
		n = recvmmsg(fd, l->rx_msg, l->at_once, MSG_DONTWAIT, NULL);
	} else {
		/* Past libc, whose wrapper prepares to be cancelled: nobody can be here. */
		long len = syscall(SYS_recvmsg, fd, &l->rx_msg[0].msg_hdr, MSG_DONTWAIT);

		n = len < 0 ? 0 : 1;
		l->rx_msg[0].msg_len = (unsigned)len;
	}
	l->at_once = next_at_once(l, n);
	return n;
}

static int receive_socket(struct udp_link *l, int fd, bool v4, link_deliver_fn *deliver, void *arg)
{
	int n = receive_some(l, fd), got = 0;

	if (n > 0)
		guard_doubt();
	for (int i = 0; i < n; i++) {
		got += receive_message(l, (unsigned)i, v4, deliver, arg);
		link_udp_rx_ready(l, (unsigned)i);
	}
	return got;
}

int link_udp_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum { EVERY = 64 };
	struct udp_link *l = (struct udp_link *)link;
	int n = receive_socket(l, l->steer.fd4, true, deliver, arg);
	bool all = l->polls++ % EVERY == 0 || (!max && !n);

	/* Most programs use one family: look at the other, and at what is handed over, now and then. */
	if (l->steer.fd6 >= 0 && (l->v6_seen || all)) {
		int n6 = receive_socket(l, l->steer.fd6, false, deliver, arg);

		if (n6)
			l->v6_seen = true;
		n += n6;
	}
	if (all)
		n += steer_receive(&l->steer, 64, deliver, arg);
	return n;
}
