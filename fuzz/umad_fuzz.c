/* SPDX-License-Identifier: MIT */
/*
 * Any bytes into the socket `umad` of a fabric of two hosts, over several connections, cut anywhere. The
 * input is a list of moves: a connection that comes or goes, bytes (as they are, or as a message that fits),
 * a round of the fabric. Whatever is said, the fabric goes on and answers a question in the end.
 */
#include "base/clock.h"
#include "fabric/proto.h"
#include "fabric/shared.h"
#include "fabricd/fabricd.h"
#include "fabricd/sockets_test.h"
#include "subnet/topo_make.h"

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNS = 4 };

static struct fabricd d;
static int conn[CONNS];
static uint64_t secret[CONNS];

/* ---- the fabric: its connections are ours ---- */
/* There is no subnet manager, and it takes nothing. */
void manager_look(struct fabricd *f)
{
}

bool manager_arrived(struct fabricd *f, struct subnet_port *at, unsigned qp, const struct ibmad_addr *from,
	const uint8_t *mad)
{
	return false;
}

int trees_issm_path(
	struct fabricd *f, struct topo_host *h, unsigned hca, unsigned port, char *buf, size_t len)
{
	snprintf(buf, len, "/issm/%s/%u/%u", h->name, hca, port);
	return 0;
}

static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	umad_arrived(arg, at, p);
}

static void stop(void *arg, uint64_t now)
{
	loop_stop(d.loop);
}

/* What is there to do now, and no more. */
static void run(void)
{
	struct loop_timer t;

	loop_timer_init(&t, stop, NULL);
	loop_timer_set(d.loop, &t, 1);
	must(!loop_run(d.loop));
	loop_timer_stop(&t);
}

static void start(void)
{
	static const struct subnet_ops ops = {.arrived = arrived};
	char err[TOPO_ERROR];

	d = (struct fabricd){.loop = loop_open(), .subnet = subnet_open(&ops, &d, 1)};
	must(d.loop && d.subnet && !topo_make(d.subnet, "pair", 1, err));
	must(!topo_complete(&d.topo, d.subnet) && !subnet_start(d.subnet, 1));
	for (uint16_t i = 0; i < 2; i++) {
		struct fabric_port *p = subnet_port(d.topo.host[i].hca[0], 1)->shared;

		p->lid = (uint16_t)(i + 1);
		p->state = PORT_ACTIVE;
	}
	must(!umad_open(&d));
}

/* ---- programs ---- */
void umad_conn_accept(void *arg, uint32_t events);

static void come_or_go(unsigned i)
{
	int pair[2];

	secret[i] = 0;
	if (conn[i] >= 0) {
		close(conn[i]);
		conn[i] = -1;
		return;
	}
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
	conn[i] = pair[0];
	coming = pair[1];
	umad_conn_accept(d.umad, 0);
}

static void put(unsigned i, const void *data, size_t len)
{
	if (conn[i] >= 0 && send(conn[i], data, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		must(errno == EPIPE || errno == EAGAIN || errno == ECONNRESET);
}

static void put_message(struct input *in, unsigned i)
{
	uint8_t bytes[sizeof(struct fabric_msg) + 512];
	struct fabric_msg m = {
		.version = draw_u8(in) % 8 ? FABRIC_UMAD_VERSION : 2, .type = draw_u8(in) % 10};
	union {
		struct fabric_where where;
		struct fabric_register agent;
		struct fabric_mad mad;
		uint8_t bytes[512];
	} u;

	draw(in, &u, sizeof(u.mad) + 64);
	memset(u.bytes + sizeof(u.mad) + 64, 0, sizeof(u) - sizeof(u.mad) - 64);
	m.len = sizeof(u.where);
	if (m.type <= FABRIC_OPEN) {
		u.where.host[0] = 0;
		memcpy(u.where.ca, "ib0", 4);
		u.where.port &= 3;
	} else if (m.type <= FABRIC_UNREGISTER) {
		m.len = sizeof(u.agent);
		u.agent.secret = secret[u.agent.agent % CONNS];
		u.agent.agent = u.agent.agent >> 8 & 3;
	} else {
		m.len = (uint32_t)(sizeof(u.mad) + 36 + u.bytes[0] % 221);
		u.mad.agent &= 3;
		u.mad.lid = (uint16_t)(1 + (u.mad.lid & 1)) << 8;
		u.mad.timeout_ms &= 0xff;
		u.mad.retries &= 3;
	}
	memcpy(bytes, &m, sizeof(m));
	memcpy(bytes + sizeof(m), &u, m.len);
	put(i, bytes, sizeof(m) + m.len);
}

/* What the fabric says is whole messages; the secret of a port is the program's to know. */
static void take(unsigned i)
{
	struct fabric_opened opened;
	struct fabric_msg m;
	uint8_t rest[4096];

	while (conn[i] >= 0 && recv(conn[i], &m, sizeof(m), MSG_DONTWAIT) == sizeof(m)) {
		must(m.version == FABRIC_UMAD_VERSION && m.len && m.len < FABRIC_MESSAGE_MAX);
		for (uint32_t left = m.len; left;) {
			ssize_t n =
				recv(conn[i], rest, left < sizeof(rest) ? left : sizeof(rest), MSG_DONTWAIT);

			if (n <= 0)
				return;
			if (m.type == FABRIC_OPEN && m.len == sizeof(opened) && left == m.len &&
				n == sizeof(opened)) {
				memcpy(&opened, rest, sizeof(opened));
				secret[i] = opened.secret;
			}
			left -= (uint32_t)n;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	start();
	memset(conn, 0xff, sizeof(conn));
	while (in.at < in.end) {
		uint8_t what = draw_u8(&in), bytes[64];
		unsigned i = what >> 4 & (CONNS - 1);

		switch (what & 3) {
		case 0:
			come_or_go(i);
			break;
		case 1:
			draw(&in, bytes, sizeof(bytes));
			put(i, bytes, draw_u8(&in) % sizeof(bytes));
			break;
		case 2:
			put_message(&in, i);
			break;
		case 3:
			run();
			take(i);
			break;
		}
	}
	for (unsigned i = 0; i < CONNS; i++) {
		if (conn[i] >= 0)
			close(conn[i]);
	}
	run();
	umad_close(&d);
	loop_close(d.loop);
	subnet_close(d.subnet);
	topo_fini(&d.topo);
	return 0;
}
