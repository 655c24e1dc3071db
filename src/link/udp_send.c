/* SPDX-License-Identifier: MIT */
/*
 * Sending: the sockets are not connected and forbid fragmentation, so that the kernel sends IP identification
 * 0, which the ICRC covers; packets of one UDP_SEGMENT batch carry 0, 1, 2, ... Frames of equal length that
 * follow each other go out as one such batch, and all of a call's batches by one sendmmsg. A path MTU
 * larger than the interface's goes through a second socket that lets the kernel fragment: only other
 * anyrdma adapters accept that (they check the ICRC for an unfragmented header).
 */
#include "link/udp_parts.h"

#include "base/fd.h"
#include "base/guard.h"
#include "base/log.h"
#include "observe/probe.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	STAGE = 64 * 4160,
	SMALL = 1024, /* payload that is cheaper to copy than to point at */
};

/* What one send call works with; one per thread, since threads send at the same time. */
struct scratch {
	struct mmsghdr msg[FRAME_BATCH_MAX];
	struct iovec iov[FRAME_BATCH_MAX * 2 + FRAME_BATCH_IOV];
	uint8_t trailer[FRAME_BATCH_MAX][8]; /* pad and ICRC */
	_Alignas(8) char control[FRAME_BATCH_MAX][UDP_CONTROL];
	uint8_t stage[STAGE]; /* copies of payload that may change while it is sent */
	size_t staged;
};

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_make_key(void)
{
	pthread_key_create(&scratch_key, free);
}

static struct scratch *scratch_get(void)
{
	struct scratch *s;

	pthread_once(&scratch_once, scratch_make_key);
	s = pthread_getspecific(scratch_key);
	if (!s) {
		s = calloc(1, sizeof(*s)); /* control messages have padding */
		if (s)
			pthread_setspecific(scratch_key, s);
	}
	if (s)
		s->staged = 0;
	return s;
}

static uint8_t *put_bytes(uint8_t *to, const void *from, size_t len)
{
	memcpy(to, from, len);
	return to + len;
}

/* A whole frame as one private piece: for small ones, and for payload that may change while it is sent. */
static void stage_frame(struct scratch *s, const struct icrc_flow *flow, uint16_t ip_id,
	const struct frame_out *f, const struct iovec *payload, struct iovec *iov)
{
	uint8_t *start = s->stage + s->staged, *end = put_bytes(start, f->hdr, f->hdr_len);

	for (unsigned k = 0; k < f->iov_count; k++)
		end = put_bytes(end, payload[k].iov_base, payload[k].iov_len);
	memset(end, 0, f->pad);
	end += f->pad;
	icrc_put(end, icrc_packet(flow, start, (size_t)(end - start), ip_id));
	*iov = (struct iovec){start, (size_t)(end - start) + ICRC_LEN};
	s->staged += iov->iov_len;
}

/* The iovecs of one frame with its trailer; returns how many. */
static unsigned put_frame(struct scratch *s, const struct icrc_flow *flow, const struct frame_batch *b,
	unsigned i, uint16_t ip_id, struct iovec *iov)
{
	const struct frame_out *f = &b->frame[i];
	const struct iovec *payload = b->iov + f->iov_first;
	uint8_t *trailer = s->trailer[i];
	unsigned n = f->iov_count;
	uint32_t crc;

	if ((f->copy || f->payload_len <= SMALL) && s->staged + frame_len(f) + ICRC_LEN <= STAGE) {
		stage_frame(s, flow, ip_id, f, payload, iov);
		return 1;
	}
	iov[0] = (struct iovec){(void *)f->hdr, f->hdr_len};
	memcpy(iov + 1, payload, n * sizeof(*iov));
	crc = icrc_front(flow, frame_len(f) + ICRC_LEN, ip_id, f->hdr, f->hdr_len);
	for (unsigned k = 1; k <= n; k++)
		crc = icrc_bytes(crc, iov[k].iov_base, iov[k].iov_len);
	memset(trailer, 0, f->pad);
	if (f->pad)
		crc = icrc_bytes(crc, trailer, f->pad);
	icrc_put(trailer + f->pad, crc);
	iov[n + 1] = (struct iovec){trailer, (size_t)f->pad + ICRC_LEN};
	return n + 2;
}

/* How many frames from i on can go as one batch: all as long as the first, but for a shorter last one. */
static unsigned run_length(const struct frame_batch *b, unsigned i)
{
	uint32_t size = frame_len(&b->frame[i]) + ICRC_LEN, total = size;
	unsigned n = 1;

	for (; i + n < b->nframes; n++) {
		uint32_t next = frame_len(&b->frame[i + n]) + ICRC_LEN;

		if (next > size || total + next > FRAME_RUN_BYTES)
			break;
		total += next;
		if (next < size)
			return n + 1;
	}
	return n;
}

static struct cmsghdr *put_cmsg(
	struct msghdr *m, struct cmsghdr *c, int level, int type, const void *data, size_t len)
{
	c = c ? (struct cmsghdr *)((char *)c + CMSG_ALIGN(c->cmsg_len)) : (struct cmsghdr *)m->msg_control;
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(len);
	memcpy(CMSG_DATA(c), data, len);
	m->msg_controllen += CMSG_SPACE(len);
	return c;
}

static void put_control(
	struct msghdr *m, char *control, const struct frame_dest *d, bool v4, uint16_t segment)
{
	bool mcast = v4 ? (d->dgid[12] & 0xf0) == 0xe0 : d->dgid[0] == 0xff;
	struct cmsghdr *c = NULL;

	m->msg_control = control;
	m->msg_controllen = 0;
	if (v4) {
		struct in_pktinfo pi = {0};

		memcpy(&pi.ipi_spec_dst, d->sgid + 12, 4);
		if (mcast)
			pi.ipi_ifindex = (int)d->ifindex;
		c = put_cmsg(m, c, IPPROTO_IP, IP_PKTINFO, &pi, sizeof(pi));
	} else {
		struct in6_pktinfo pi = {0};

		memcpy(&pi.ipi6_addr, d->sgid, 16);
		if (mcast || (d->dgid[0] == 0xfe && (d->dgid[1] & 0xc0) == 0x80))
			pi.ipi6_ifindex = d->ifindex;
		c = put_cmsg(m, c, IPPROTO_IPV6, IPV6_PKTINFO, &pi, sizeof(pi));
	}
	if (d->tclass) {
		int tclass = d->tclass;

		c = put_cmsg(m, c, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS, &tclass,
			sizeof(tclass));
	}
	/* The kernel's own default for multicast is 1; for the rest it is what everybody uses. */
	if (mcast || d->hop_limit != 64) {
		int hops = d->hop_limit;

		c = put_cmsg(m, c, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT, &hops,
			sizeof(hops));
	}
	if (segment)
		put_cmsg(m, c, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment));
}

/* The socket that may fragment, and its own port, which the ICRC covers. -1: none. */
static int frag_socket(struct udp_link *l, bool v4, uint16_t *port)
{
	_Atomic int *slot = v4 ? &l->frag4 : &l->frag6;
	struct sockaddr_in6 any = {.sin6_family = v4 ? AF_INET : AF_INET6};
	socklen_t len = sizeof(any);
	int fd;

	pthread_mutex_lock(&l->frag_mutex);
	fd = *slot;
	if (fd < 0) {
		int omit = IP_PMTUDISC_OMIT;

		fd = fd_above_stdio(socket(any.sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
		if (fd >= 0 && (setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6,
					v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &omit, sizeof(omit)) ||
				       bind(fd, (struct sockaddr *)&any,
					       v4 ? sizeof(struct sockaddr_in) : sizeof(any)))) {
			close(fd);
			fd = -1;
		}
		if (fd >= 0)
			log_info("the path MTU is larger than the interface's: packets will be fragmented");
		*slot = fd;
	}
	pthread_mutex_unlock(&l->frag_mutex);
	if (fd >= 0 && !getsockname(fd, (struct sockaddr *)&any, &len))
		*port = ntohs(any.sin6_port);
	return fd;
}

/*
 * An acknowledge and one longer request behind it. As a batch the shorter must be last; who receives both at
 * once puts them back in order.
 */
static bool is_ack_and_more(const struct frame_batch *b)
{
	return b->nframes == 2 && b->ack_first && frame_len(&b->frame[0]) < frame_len(&b->frame[1]) &&
	       frame_len(&b->frame[1]) < FRAME_RUN_BYTES / 2;
}

struct build {
	struct scratch *s;
	const struct frame_batch *b;
	const struct icrc_flow *flow;
	void *to;
	bool v4, gso;
	bool swap; /* two frames, the second first: see receive_message() */
	unsigned nmsg;
	uint8_t run[FRAME_BATCH_MAX]; /* frames in each message */
};

/* Frames that were staged lie behind each other: one piece. Returns how many of the new pieces stay. */
static unsigned join(struct iovec *iov, unsigned pieces)
{
	if (pieces != 1 || (char *)iov[-1].iov_base + iov[-1].iov_len != (char *)iov->iov_base)
		return pieces;
	iov[-1].iov_len += iov->iov_len;
	return 0;
}

/* Messages for all frames of a batch. Reads the program's memory, which may be gone: runs guarded. */
static void build_messages(void *arg)
{
	struct build *w = arg;
	const struct frame_batch *b = w->b;
	struct scratch *s = w->s;
	struct iovec *iov = s->iov;

	w->nmsg = 0;
	s->staged = 0;
	w->swap = w->gso && is_ack_and_more(b);
	for (unsigned i = 0, n; i < b->nframes; i += n) {
		struct msghdr *m = &s->msg[w->nmsg].msg_hdr;

		n = w->swap ? 2 : w->gso ? run_length(b, i) : 1;
		*m = (struct msghdr){.msg_iov = iov};
		m->msg_name = w->to;
		m->msg_namelen = w->v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		for (unsigned k = 0; k < n; k++) {
			unsigned pieces = put_frame(s, w->flow, b, w->swap ? 1 - k : i + k, (uint16_t)k, iov);

			iov += k ? join(iov, pieces) : pieces;
		}
		m->msg_iovlen = (size_t)(iov - m->msg_iov);
		w->run[w->nmsg] = (uint8_t)n;
		put_control(m, s->control[w->nmsg], &b->dest, w->v4,
			n > 1 ? (uint16_t)(frame_len(&b->frame[w->swap ? 1 : i]) + ICRC_LEN) : 0);
		w->nmsg++;
	}
}

/* A batch on its way out: from which socket, to whom, and what the kernel said. */
struct outgoing {
	struct udp_link *l;
	int fd;
	struct icrc_flow flow;
	struct sockaddr_in to4;
	struct sockaddr_in6 to6;
	struct build w;
	bool refused; /* as UDP_SEGMENT has it: the packets go one by one */
	bool failed;
};

/* false: there is no such socket. */
static bool aim(struct outgoing *o, struct udp_link *l, struct scratch *s, const struct frame_batch *b)
{
	const struct frame_dest *d = &b->dest;
	bool v4 = gid_is_v4(d->dgid);

	o->l = l;
	o->fd = v4 ? l->steer.fd4 : l->steer.fd6;
	o->refused = o->failed = false;
	o->flow = (struct icrc_flow){.sport = l->port, .dport = l->port};
	memcpy(o->flow.src, d->sgid, 16);
	memcpy(o->flow.dst, d->dgid, 16);
	o->to4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(l->port)};
	memcpy(&o->to4.sin_addr, d->dgid + 12, 4);
	o->to6 = (struct sockaddr_in6){
		.sin6_family = AF_INET6, .sin6_port = htons(l->port), .sin6_scope_id = d->ifindex};
	memcpy(&o->to6.sin6_addr, d->dgid, 16);
	o->w = (struct build){.s = s,
		.b = b,
		.flow = &o->flow,
		.v4 = v4,
		.gso = l->gso,
		.to = v4 ? (void *)&o->to4 : (void *)&o->to6};
	return o->fd >= 0;
}

/* How many messages went out; -1: not even the first. */
static int send_some(int fd, struct mmsghdr *msg, unsigned n)
{
	if (n == 1)
		return sendmsg(fd, &msg->msg_hdr, MSG_NOSIGNAL) < 0 ? -1 : 1;
	return sendmmsg(fd, msg, n, MSG_NOSIGNAL);
}

static void count_error(struct udp_link *l)
{
	__atomic_fetch_add(&l->link.stats.tx_errors, 1, __ATOMIC_RELAXED);
}

/*
 * The kernel does not take a message of n packets. 0: no route, buffer full, host unreachable, which is as
 * good as lost on the way. -EAGAIN: the batch is to go in another way, from the beginning; what went out
 * already is a duplicate to the peer. Another -errno: it cannot.
 */
static int not_taken(struct outgoing *o, unsigned n, int error)
{
	if (error == EMSGSIZE && o->flow.sport == o->l->port) {
		o->fd = frag_socket(o->l, o->w.v4, &o->flow.sport);
		o->w.gso = false;
		return o->fd >= 0 ? -EAGAIN : -EMSGSIZE;
	}
	/* No UDP_SEGMENT here; or packets larger than the interface's, which some kernels say this way. */
	if (n > 1 && (error == EIO || error == EINVAL || error == EOPNOTSUPP)) {
		o->w.gso = false;
		o->refused = true;
		return -EAGAIN;
	}
	PROBE(TX_ERROR, .error = error);
	count_error(o->l);
	o->failed = true;
	return 0;
}

static int send_messages(struct outgoing *o)
{
	int err = 0;

	/* A payload that is not there any more: nothing is sent, and the requester's or the peer's timer
	 * tells. */
	if (!guard_run(build_messages, &o->w)) {
		count_error(o->l);
		return -EFAULT;
	}
	for (unsigned done = 0; done < o->w.nmsg && !err;) {
		int n = send_some(o->fd, o->w.s->msg + done, o->w.nmsg - done);

		if (n > 0)
			done += (unsigned)n;
		else if (errno != EINTR)
			err = not_taken(o, o->w.run[done++], errno);
	}
	return err;
}

int link_udp_send(struct link *link, const struct frame_batch *b)
{
	struct udp_link *l = (struct udp_link *)link;
	struct scratch *s = scratch_get();
	struct outgoing o;
	int err;

	if (!s || !aim(&o, l, s, b))
		return s ? -EAFNOSUPPORT : -ENOMEM;
	if (!o.w.v4 && !l->v6_seen)
		l->v6_seen = true;
	do
		err = send_messages(&o);
	while (err == -EAGAIN);
	/* The same packets went out one by one: it was the batch that the kernel did not want. */
	if (!err && o.refused && !o.failed && o.flow.sport == l->port) {
		log_info("UDP_SEGMENT is refused: sending packets one by one");
		l->gso = false;
	}
	return err;
}
