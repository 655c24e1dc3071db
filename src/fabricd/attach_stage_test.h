/* SPDX-License-Identifier: MIT */
/*
 * A fabric of two hosts with one cable, and programs at its socket `attach`: the stage of attach_test.c and
 * gsi_test.c. All is in one process and one thread; run() is what the loop would do.
 */
#ifndef FABRICD_ATTACH_STAGE_TEST_H
#define FABRICD_ATTACH_STAGE_TEST_H

#include "base/memfile.h"
#include "fabric/shared.h"
#include "fabricd/attach_parts.h"
#include "fabricd/sockets_test.h"
#include "fabricd/umad_parts.h"
#include "subnet/packet.h"
#include "subnet/topo_make.h"
#include "wire/qpn.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLOT_A = 3, SLOT_B = 9, LID_A = 1, LID_B = 2 };

static struct fabricd d;
static void (*hears)(
	struct fabricd *f, struct subnet_port *at, const struct packet *p); /* who hears of them */
static unsigned unwanted;                                                   /* MADs for no program */

/* ---- the fabric: its connections are ours ---- */
int trees_path(struct fabricd *f, struct topo_host *h, char *buf, size_t len)
{
	snprintf(buf, len, "/tree/%s", h->name);
	return 0;
}

/* MADs of the fabric itself are sent at once. */
void umad_qp_flush(struct umad *u)
{
}

void umad_qp_put_mad(struct umad *u, struct subnet_port *at, unsigned qp, const struct ibmad_addr *to,
	const uint8_t mad[MAD_LEN])
{
	uint8_t room[PACKET_MAD_LEN];
	const struct packet_addr a = {.slid = at->shared->lid,
		.dlid = to->lid,
		.pkey = PKEY_DEFAULT,
		.sqpn = qp,
		.dqpn = to->qpn,
		.qkey = to->qkey};
	struct packet p;

	packet_mad_make(&p, room, &a, mad);
	subnet_inject(d.subnet, at, &p, 0);
}

static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	if (bth_dqpn(p->bth) > GSI_QPN)
		trunk_arrived(arg, at, p);
	else if (!gsi_arrived(arg, at, p)) {
		unwanted++;
		if (hears)
			hears(arg, at, p);
	}
}

static void changed(void *arg, struct subnet_port *at, enum subnet_change what)
{
	attach_changed(arg, at, what);
}

static void tallies(void *arg)
{
	attach_take_tallies(arg);
}

static void *table(void *arg, size_t len)
{
	return attach_table(arg, len);
}

static int begin(void **state)
{
	static const struct subnet_ops ops = {
		.arrived = arrived, .changed = changed, .tallies = tallies, .table = table};
	char err[TOPO_ERROR];

	d = (struct fabricd){.loop = loop_open(), .subnet = subnet_open(&ops, &d, 1)};
	if (!d.loop || !d.subnet || topo_make(d.subnet, "pair", 1, err) || topo_complete(&d.topo, d.subnet) ||
		subnet_start(d.subnet, 1) || attach_open(&d))
		return -1;
	for (uint16_t i = 0; i < 2; i++) {
		struct fabric_port *p = subnet_port(d.topo.host[i].hca[0], 1)->shared;

		p->lid = (uint16_t)(LID_A + i);
		p->state = PORT_ACTIVE;
		fabric_lid_set(subnet_table(d.subnet), p->lid, subnet_port(d.topo.host[i].hca[0], 1)->index);
	}
	return 0;
}

static int end(void **state)
{
	attach_close(&d);
	subnet_close(d.subnet);
	topo_fini(&d.topo);
	loop_close(d.loop);
	close(d.table_fd);
	return 0;
}

/* What there is to do now. */
static inline void run(void)
{
	trunk_before_sleep(d.attach, 0);
}

/* ---- programs ---- */
static inline uint32_t qpn_in(uint32_t slot)
{
	return slot << QPN_SLOT_SHIFT | 77;
}

struct program {
	int fd;
	struct attach_conn *conn;
	struct attach_welcome welcome;
	int passed[3];
	unsigned npassed;
	struct trunk *trunk;
	struct trunk_tx tx;
	struct trunk_rx rx;
};

static struct attach_conn *last(void)
{
	return container_of(d.attach->conns.prev, struct attach_conn, node);
}

static void come(struct program *p)
{
	int fd[2];

	*p = (struct program){0};
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd), 0);
	p->fd = fd[0];
	coming = fd[1];
	attach_accept(d.attach);
	p->conn = last();
}

static ssize_t hear(struct program *p)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = {&p->welcome, sizeof(p->welcome)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(p->fd, &m, 0);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

	if (c) {
		p->npassed = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(p->passed, CMSG_DATA(c), p->npassed * sizeof(int));
	}
	return n;
}

static int hello(struct program *p, const char *host, uint32_t slot)
{
	struct attach_hello h = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION, .slot = slot};

	come(p);
	snprintf(h.host, sizeof(h.host), "%s", host);
	assert_int_equal(send(p->fd, &h, sizeof(h), 0), sizeof(h));
	attach_read(p->conn);
	assert_int_equal(hear(p), sizeof(p->welcome));
	return p->welcome.error;
}

static void attach(struct program *p, unsigned host, uint32_t slot)
{
	assert_int_equal(hello(p, d.topo.host[host].name, slot), 0);
	assert_int_equal(p->npassed, 3);
	p->trunk = memfile_map(p->passed[2], sizeof(*p->trunk), PROT_READ | PROT_WRITE, NULL);
	assert_non_null(p->trunk);
	p->tx.ring = &p->trunk->to_fabric;
	p->rx.ring = &p->trunk->to_program;
	for (unsigned i = 0; i < p->npassed; i++)
		close(p->passed[i]);
}

/* It is killed. */
static void leave(struct program *p)
{
	close(p->fd);
	if (p->trunk)
		munmap(p->trunk, sizeof(*p->trunk));
	attach_read(p->conn);
}

static inline void put(struct program *p, const struct trunk_packet *head, const uint8_t *bytes, uint32_t len)
{
	struct trunk_packet *to = trunk_reserve(&p->tx, len);

	assert_non_null(to);
	memcpy(to + 1, bytes, len);
	trunk_commit(&p->tx, head, len);
}

#endif
