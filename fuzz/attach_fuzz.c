/* SPDX-License-Identifier: MIT */
/*
 * Any bytes into the socket `attach` of a fabric of two hosts, and into the rings of programs that it took
 * in. The input is a list of moves: a program that comes or goes, bytes, a HELLO that fits, a packet (as it
 * is, or of a program that may send it), any place in a ring, a round of the fabric, what it listens for, a
 * MAD of the connection manager or to the SA. Whatever is said, the
 * fabric goes on, and when all have gone nothing is left of them.
 */
#include "base/memfile.h"
#include "fabric/shared.h"
#include "fabricd/attach_parts.h"
#include "fabricd/sockets_test.h"
#include "fabricd/umad_parts.h"
#include "subnet/packet.h"
#include "subnet/topo_make.h"
#include "wire/cm_msg.h"
#include "wire/qpn.h"
#include "wire/sa.h"

#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PROGRAMS = 4, ROUNDS = 64 /* until all that was said is read */ };

static struct fabricd d;

static struct program {
	int fd; /* -1: it is not there */
	struct trunk *trunk;
	struct trunk_tx tx;
	unsigned host, slot;
} program[PROGRAMS];

/* ---- the fabric: its connections are ours ---- */
int trees_path(struct fabricd *f, struct topo_host *h, char *buf, size_t len)
{
	snprintf(buf, len, "/tree/%s", h->name);
	return 0;
}

/* A question of the client of the SA, which is answered in the next round, with its own bytes. */
static struct subnet_port *asker; /* NULL: none waits */
static uint8_t question[MAD_LEN];

void umad_qp_flush(struct umad *u)
{
}

void umad_qp_put_mad(struct umad *u, struct subnet_port *at, unsigned qp, const struct ibmad_addr *to,
	const uint8_t mad[MAD_LEN])
{
	asker = at;
	memcpy(question, mad, MAD_LEN);
}

static void answer(void)
{
	const struct packet_addr a = {.dlid = asker ? asker->shared->lid : 0,
		.slid = 1,
		.pkey = PKEY_DEFAULT,
		.sqpn = GSI_QPN,
		.dqpn = GSI_QPN,
		.qkey = GSI_QKEY};
	uint8_t room[PACKET_MAD_LEN];
	struct packet p;

	if (!asker)
		return;
	question[3] |= MAD_METHOD_RESPONSE;
	packet_mad_make(&p, room, &a, question);
	gsi_arrived(&d, asker, &p);
	asker = NULL;
}

static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	if (bth_dqpn(p->bth) > GSI_QPN)
		trunk_arrived(arg, at, p);
	else
		gsi_arrived(arg, at, p);
}

static void *table(void *arg, size_t len)
{
	return attach_table(arg, len);
}

static struct subnet_port *port_of(unsigned host)
{
	return subnet_port(d.topo.host[host & 1].hca[0], 1);
}

static void start(void)
{
	static const struct subnet_ops ops = {.arrived = arrived, .table = table};
	char err[TOPO_ERROR];

	d = (struct fabricd){.loop = loop_open(), .subnet = subnet_open(&ops, &d, 1)};
	must(d.loop && d.subnet && !topo_make(d.subnet, "pair", 1, err));
	must(!topo_complete(&d.topo, d.subnet) && !subnet_start(d.subnet, 1));
	for (unsigned i = 0; i < 2; i++) {
		port_of(i)->shared->lid = (uint16_t)(i + 1);
		port_of(i)->shared->state = PORT_ACTIVE;
	}
	must(!attach_open(&d));
}

/* Connections are read one after the other; one that ends leaves the list. */
static void run(void)
{
	list_for_each_safe(n, &d.attach->conns)
	{
		attach_read(container_of(n, struct attach_conn, node));
	}
	answer();
	trunk_before_sleep(d.attach, 0);
}

/* ---- programs ---- */
static void go(struct program *p)
{
	if (p->trunk)
		munmap(p->trunk, sizeof(*p->trunk));
	close(p->fd);
	*p = (struct program){.fd = -1};
}

static void come_or_go(struct program *p)
{
	int pair[2];

	if (p->fd >= 0) {
		go(p);
		return;
	}
	must(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
	p->fd = pair[0];
	coming = pair[1];
	attach_accept(d.attach);
}

/* What the fabric says; with a WELCOME may come the trunk. */
static void hear(struct program *p)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct attach_welcome w;
	struct iovec iov = {&w, sizeof(w)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	int fd[3] = {-1, -1, -1};

	if (p->fd < 0 || recvmsg(p->fd, &m, MSG_DONTWAIT) <= 0)
		return;
	c = CMSG_FIRSTHDR(&m);
	if (!c)
		return;
	memcpy(fd, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	must(fd[0] >= 0 && !memfile_map(fd[0], w.table_size, PROT_READ | PROT_WRITE, NULL));
	close(fd[0]);
	close(fd[1]);
	if (fd[2] < 0)
		return;
	p->trunk = memfile_map(fd[2], sizeof(*p->trunk), PROT_READ | PROT_WRITE, NULL);
	must(p->trunk);
	p->tx = (struct trunk_tx){.ring = &p->trunk->to_fabric};
	close(fd[2]);
}

static void say(struct program *p, const void *data, size_t len)
{
	if (p->fd >= 0 && send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		must(errno == EPIPE || errno == EAGAIN || errno == ECONNRESET);
}

static void say_hello(struct input *in, struct program *p)
{
	struct attach_hello h = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION};

	p->host = draw_u8(in) & 1;
	p->slot = h.slot = draw_u8(in) % 8;
	memcpy(h.host, d.topo.host[p->host].name, sizeof(h.host));
	say(p, &h, sizeof(h));
	run();
	hear(p);
}

static void send_packet(struct input *in, struct program *p)
{
	uint8_t bytes[BTH_LEN + DETH_LEN + 64];
	uint32_t len = draw_u8(in) % (sizeof(bytes) + 1);
	struct trunk_packet head, *to;

	draw(in, &head, sizeof(head));
	draw(in, bytes, sizeof(bytes));
	if (draw_u8(in) & 1) { /* one that it may send */
		len &= ~3u;
		head = (struct trunk_packet){.port = port_of(p->host)->index,
			.slid = (uint16_t)(p->host + 1),
			.dlid = (uint16_t)(2 - p->host)};
		bth_put(bytes, bytes[0], false, 0, PKEY_DEFAULT, (uint32_t)bytes[8] % 8 << QPN_SLOT_SHIFT,
			false, 1);
		put_be32(bytes + BTH_LEN + 4, p->slot << QPN_SLOT_SHIFT);
	}
	to = p->trunk ? trunk_reserve(&p->tx, len) : NULL;
	if (!to)
		return;
	memcpy(to + 1, bytes, len);
	trunk_commit(&p->tx, &head, len);
}

static void listen_for(struct input *in, struct program *p)
{
	struct attach_listen l = {.type = draw_u8(in) & 1 ? ATTACH_LISTEN : ATTACH_UNLISTEN,
		.families = draw_u8(in) & 3,
		.service_id = draw_u8(in) % 4};

	l.addr[15] = draw_u8(in) % 3;
	say(p, &l, sizeof(l));
}

static void make_mad(struct input *in, const struct program *p, uint8_t mad[MAD_LEN])
{
	static const enum cm_attr attr[] = {CM_REQ, CM_REP, CM_REJ, CM_SIDR_REQ};
	struct cm_msg m = {.attr = attr[draw_u8(in) % 4], .local_id = p->slot << COMM_ID_SLOT_SHIFT};

	m.remote_id = draw_u8(in) % 8u << COMM_ID_SLOT_SHIFT;
	if (m.attr == CM_REQ)
		m.req.service_id = draw_u8(in) % 4;
	if (m.attr == CM_REJ)
		m.rej.reason = CM_REJ_TIMEOUT;
	cm_msg_pack(&m, mad);
	if (draw_u8(in) & 1) {
		mad[1] = MAD_CLASS_SA;
		mad[2] = SA_CLASS_VERSION;
		mad[3] = MAD_METHOD_GET;
		put_be16(mad + 16, SA_PATH);
	}
	mad[draw_u8(in)] ^= draw_u8(in) & 1;
}

static void send_mad(struct input *in, struct program *p)
{
	enum { LEN = BTH_LEN + DETH_LEN + MAD_LEN };
	const struct trunk_packet head = {.port = port_of(p->host)->index,
		.slid = (uint16_t)(p->host + 1),
		.dlid = (uint16_t)(2 - p->host)};
	struct trunk_packet *to = p->trunk ? trunk_reserve(&p->tx, LEN) : NULL;
	uint8_t *bytes;

	if (!to)
		return;
	bytes = (uint8_t *)(to + 1);
	bth_put(bytes, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, GSI_QPN, false, 1);
	put_be32(bytes + BTH_LEN, GSI_QKEY);
	put_be32(bytes + BTH_LEN + 4, GSI_QPN);
	make_mad(in, p, bytes + BTH_LEN + DETH_LEN);
	trunk_commit(&p->tx, &head, LEN);
}

/* Where it is, or says it is. */
static void spoil_ring(struct input *in, struct program *p)
{
	uint64_t place;

	draw(in, &place, sizeof(place));
	if (!p->trunk)
		return;
	switch (draw_u8(in) % 4) {
	case 0:
		atomic_store(&p->trunk->to_fabric.head, place);
		break;
	case 1:
		atomic_store(&p->trunk->to_program.tail, place);
		break;
	case 2:
		draw(in, p->trunk->to_fabric.data + place % (TRUNK_DATA - TRUNK_LINE), TRUNK_LINE);
		break;
	case 3:
		atomic_store(&p->trunk->to_program.asleep, (uint32_t)place);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	asker = NULL;
	start();
	for (unsigned i = 0; i < PROGRAMS; i++)
		program[i] = (struct program){.fd = -1};
	while (in.at < in.end) {
		uint8_t what = draw_u8(&in), bytes[128];
		struct program *p = &program[what >> 4 & (PROGRAMS - 1)];

		switch (what % 8) {
		case 0:
			come_or_go(p);
			break;
		case 1:
			draw(&in, bytes, sizeof(bytes));
			say(p, bytes, draw_u8(&in) % sizeof(bytes));
			break;
		case 2:
			say_hello(&in, p);
			break;
		case 3:
			send_packet(&in, p);
			break;
		case 4:
			spoil_ring(&in, p);
			break;
		case 5:
			run();
			hear(p);
			break;
		case 6:
			listen_for(&in, p);
			break;
		case 7:
			send_mad(&in, p);
			break;
		}
	}
	for (unsigned i = 0; i < PROGRAMS; i++)
		if (program[i].fd >= 0)
			go(&program[i]);
	for (unsigned i = 0; i < ROUNDS && d.attach->nconns; i++)
		run();
	must(!d.attach->nconns);
	attach_close(&d);
	loop_close(d.loop);
	close(d.table_fd);
	subnet_close(d.subnet);
	topo_fini(&d.topo);
	return 0;
}
