/* SPDX-License-Identifier: MIT */
/*
 * The peers of a datagram rsocket: any messages to its queue pair, in anybody's name, and any packets to its
 * UDP socket. The input is a list of moves. The program gets what has a right header, from the address in
 * it, and nothing else; and no peer makes the rsocket remember more than it may.
 */
#include "input.h"
#include "rsocket/device_test.h"
#include "rsocket/dgram.h"

#include <arpa/inet.h>
#include <unistd.h>

enum { GRH = 40, ROOM = GRH + DG_ROOM, RECEIVES = 8, PATIENCE_MS = 20000 };

static struct dgram *d;
static int peer = -1;         /* a UDP socket */
static union dg_addr at, her; /* the addresses of both */
static struct ibv_mr mr;

static void posted(const struct ibv_send_wr *wr)
{
	abort(); /* no way to any queue pair is known */
}

/* ---- what is expected: messages in the order that they came ---- */
static struct expected {
	union dg_addr from;
	uint32_t len;
	uint8_t data[DG_ROOM];
} expected[64];
static unsigned first, last;

static void expect(const union dg_addr *from, const uint8_t *data, uint32_t len)
{
	struct expected *e = &expected[last++ % 64];

	e->from = *from;
	e->len = len;
	memcpy(e->data, data, len);
}

/* ---- headers ---- */
/* A header is what it would be written as, and is never longer than what is there. */
static uint32_t check_header(const uint8_t *p, uint32_t len, union dg_addr *from)
{
	uint8_t again[DG_HDR_MOST];
	uint32_t n = dg_hdr_get(p, len, from);

	must(n <= len);
	if (n)
		must(dg_hdr_put(again, from) == n && dg_hdr_len(from) == n && !memcmp(again, p, n));
	return n;
}

static uint32_t check_udp_header(const uint8_t *p, uint32_t len, int family, int *op)
{
	uint8_t again[DG_UDP_HDR_MOST];
	union dg_addr from = {.sa.sa_family = (sa_family_t)family};
	uint32_t qpn, n = dg_udp_hdr_get(p, len, family, op, &qpn);

	must(n <= len);
	if (n) {
		must(qpn <= 0xffffff && dg_udp_hdr_put(again, *op, qpn, &from) == n);
		must(!memcmp(again, p, 7) && !memcmp(again + 9, p + 9, 3));
	}
	return n;
}

/* ---- the peers' moves ---- */
static const uint8_t *source_in(const uint8_t *grh, const union dg_addr *from)
{
	return from->sa.sa_family == AF_INET6 ? grh + 8 : grh + 32;
}

static const void *address_in(const union dg_addr *from)
{
	return from->sa.sa_family == AF_INET6 ? (const void *)&from->in6.sin6_addr : &from->in.sin_addr;
}

/* Any bytes to the queue pair, the GRH in front; often in the name that the header says. */
static void message(struct input *in)
{
	uint8_t how = draw_u8(in), *bytes = malloc(ROOM);
	struct ibv_wc wc = {.byte_len = how & 32 ? draw_u16(in) % (ROOM + 1) : GRH + how % 32u,
		.status = how == 255 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS};
	union dg_addr from;
	size_t given = wc.byte_len < GRH + 64 ? wc.byte_len : GRH + 64;
	uint32_t n, len, size;

	memset(bytes, how, ROOM);
	draw(in, bytes + GRH, given > GRH ? given - GRH : 0);
	if (how & 64) { /* a header of ours */
		bytes[GRH] = how & 1 ? 4 : 6;
		bytes[GRH + 1] = how & 1 ? DG_HDR4 : DG_HDR6;
	}
	len = wc.byte_len < GRH ? 0 : wc.byte_len - GRH;
	n = check_header(bytes + GRH, len, &from);
	size = from.sa.sa_family == AF_INET6 ? 16 : 4;
	if (n && how & 128)
		memcpy((uint8_t *)source_in(bytes, &from), address_in(&from), size);
	if (device_complete_receive(&wc, bytes) && n && wc.status == IBV_WC_SUCCESS &&
		!memcmp(source_in(bytes, &from), address_in(&from), size) && dg_wanted(d, &from))
		expect(&from, bytes + GRH + n, len - n);
	free(bytes);
}

static void packet(struct input *in)
{
	uint8_t how = draw_u8(in), bytes[DG_ROOM + 16] = {0};
	uint32_t len = how & 32 ? draw_u16(in) % sizeof(bytes) : how % 32u, n;
	int op;

	draw(in, bytes, len < 64 ? len : 64);
	if (how & 64 && len >= 8) {
		put_be32(bytes, DG_TAG);
		bytes[4] = 4;
		bytes[5] = how & 128 ? DG_UDP_DATA : bytes[5];
		bytes[6] = DG_UDP_HDR4;
	}
	check_udp_header(bytes, len, AF_INET6, &op);
	n = len <= DG_ROOM ? check_udp_header(bytes, len, AF_INET, &op) : 0;
	if (sendto(peer, bytes, len, MSG_DONTWAIT, &at.sa, sizeof(at.in)) != (ssize_t)len)
		return;
	if (n && op == DG_UDP_DATA && d->nspilled < d->nrecv && dg_wanted(d, &her)) {
		d->rs.ops->poll(&d->rs, POLLIN); /* what came to the queue pair came first */
		expect(&her, bytes + n, len - n);
	}
	must(poll(&(struct pollfd){.fd = d->udp, .events = POLLIN}, 1, PATIENCE_MS) == 1);
	dg_udp_receive(&d->watch, 0);
	while (recv(peer, bytes, sizeof(bytes), MSG_DONTWAIT) >= 0) /* a CTRL with our QP number */
		must(get_be32(bytes) == DG_TAG && bytes[5] == DG_UDP_CTRL);
}

/* ---- the program's ---- */
static void receive(struct input *in)
{
	uint8_t to[DG_ROOM], how = draw_u8(in);
	struct iovec iov = {to, how & 128 ? how % 16u : sizeof(to)};
	struct expected *e = &expected[first % 64];
	union dg_addr from = {0};
	socklen_t len = sizeof(from);
	ssize_t got =
		d->rs.ops->recv(&d->rs, &iov, 1, MSG_DONTWAIT | (how & 64 ? MSG_PEEK : 0), &from.sa, &len);

	must((got >= 0) == (first != last));
	if (got < 0)
		return;
	must((size_t)got == (e->len < iov.iov_len ? e->len : iov.iov_len));
	must(!memcmp(to, e->data, (size_t)got) && !memcmp(&from, &e->from, len));
	first += !(how & 64);
}

/* It talks to the peer alone, or to all. */
static void choose_peer(struct input *in)
{
	d->rs.ops->poll(&d->rs, POLLIN); /* what has come was judged by the old choice */
	d->connected = draw_u8(in) & 1;
	d->peer = her;
}

/* ---- the whole ---- */
static void make_qp(struct dg_qp *qp)
{
	*qp = (struct dg_qp){.d = d, .at = at, .id = &device.id, .cq = &device.cq, .recv_mr = &mr};
	qp->recv_buf = malloc(RECEIVES * ROOM);
	qp->msgs = calloc(RECEIVES, sizeof(*qp->msgs));
	for (unsigned i = 0; i < RECEIVES; i++) {
		struct dg_msg *m = &qp->msgs[i];
		struct ibv_sge sge = {.addr = (uintptr_t)(qp->recv_buf + i * ROOM), .length = ROOM};
		struct ibv_recv_wr wr = {.wr_id = (uintptr_t)m, .sg_list = &sge, .num_sge = 1}, *bad;

		list_init(&m->node);
		m->qp = qp;
		m->grh = qp->recv_buf + i * ROOM;
		must(!ibv_post_recv(&device.qp, &wr, &bad));
	}
	list_init(&qp->node);
	list_add_tail(&d->qps, &qp->node);
}

static bool bind_loopback(int fd, union dg_addr *a)
{
	socklen_t len = sizeof(*a);

	memset(a, 0, sizeof(*a));
	a->in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	return !bind(fd, &a->sa, sizeof(a->in)) && !getsockname(fd, &a->sa, &len);
}

static void open_rsocket(void)
{
	struct rsock *rs;
	struct dg_qp *qp = calloc(1, sizeof(*qp));

	device_reset(IBV_TRANSPORT_IB, posted);
	device.id.qp = &device.qp;
	if (peer < 0)
		must((peer = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && bind_loopback(peer, &her));
	must(!rsock_dgram_new(AF_INET, &rs));
	d = (struct dgram *)rs;
	must(bind_loopback(d->udp, &at));
	d->nrecv = RECEIVES;
	d->up = true; /* the target is the service thread */
	make_qp(qp);
	first = last = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const moves[])(struct input *) = {message, packet, receive, choose_peer};
	struct input in = {data, data + size};
	struct dg_qp *qp;

	open_rsocket();
	qp = container_of(d->qps.next, struct dg_qp, node);
	while (in.at < in.end) {
		moves[*in.at++ % 4](&in);
		must(d->ndests <= 1 && d->nspilled <= RECEIVES && last - first <= 2 * RECEIVES);
	}
	qp->recv_mr = NULL; /* not the rsocket's */
	rsock_remove(&d->rs);
	d->rs.ops->free(&d->rs);
	return 0;
}
