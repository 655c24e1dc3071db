/* SPDX-License-Identifier: MIT */
/*
 * As many processes as a port has names for, which come one after the other. Each has a queue pair, and all
 * are there at once: each of them reaches another, the next program is refused in words that it can
 * understand, and gets a name as soon as one of them has ended, or was killed. On a UDP port of their own.
 */
#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAMES = 510, LEN = 64, FROM_PEER = 4096 };

/* ---- one of them ---- */
static void connect_to(struct vt_ep *ep, const struct vt_addr *peer)
{
	struct vt_conn c = vt_conn(ep->t);

	c.psn_in = c.psn_out; /* as the other */
	vt_init(ep, &c);
	vt_recv(ep, 1, FROM_PEER, LEN);
	vt_rtr(ep, peer, &c);
	vt_rts(ep, &c);
}

static void role_one(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr own = vt_addr(ep), peer;
	uint64_t done = 0;
	char byte = 0;

	vt_tell(fd, &own, sizeof(own));
	if (recv(fd, &peer, sizeof(peer), MSG_WAITALL) != (ssize_t)sizeof(peer))
		return;
	connect_to(ep, &peer);
	vt_tell(fd, &byte, 1);
	recv(fd, &byte, 1, 0);
	vt_fill(ep->buf, LEN, own.qpn);
	vt_post(ep, .op = IBV_WR_SEND, .id = 2, .len = LEN);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = vt_wait(ep);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		done += wc.wr_id;
	}
	assert_int_equal(done, 1 + 2);
	vt_check(ep->buf + FROM_PEER, LEN, peer.qpn);
	vt_tell(fd, &byte, 1);
	recv(fd, &byte, 1, 0); /* until it is told to end */
}

/* ---- all of them ---- */
static struct vt_peer one[NAMES];

static void start_all(struct vt_addr at[NAMES])
{
	for (unsigned i = 0; i < NAMES; i++) {
		vt_peer_start(&one[i], "one");
		vt_hear(one[i].fd, &at[i], sizeof(at[i]));
	}
}

static void two_converse(unsigned a, unsigned b, const struct vt_addr at[NAMES])
{
	char byte = 0;

	vt_tell(one[a].fd, &at[b], sizeof(at[b]));
	vt_tell(one[b].fd, &at[a], sizeof(at[a]));
	vt_hear(one[a].fd, &byte, 1);
	vt_hear(one[b].fd, &byte, 1);
	vt_tell(one[a].fd, &byte, 1);
	vt_tell(one[b].fd, &byte, 1);
	vt_hear(one[a].fd, &byte, 1);
	vt_hear(one[b].fd, &byte, 1);
}

static void nobody_else_gets_a_queue_pair(struct vt *t)
{
	struct ibv_cq *cq = ibv_create_cq(t->ctx, 2, NULL, NULL, 0);
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};

	errno = 0;
	assert_null(ibv_create_qp(pd, &attr));
	assert_int_equal(errno, EUSERS);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void we_get_one(struct vt *t)
{
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_ping_pong(a, b);
}

static void each_of_all_that_can_be_reaches_another(void **state)
{
	static struct vt_addr at[NAMES];

	start_all(at);
	nobody_else_gets_a_queue_pair(*state);
	for (unsigned i = 0; i < NAMES / 2; i++)
		two_converse(i, NAMES - 1 - i, at);
	vt_peer_kill(&one[0]);
	we_get_one(*state);
	for (unsigned i = 1; i < NAMES; i++)
		vt_peer_finish(&one[i]);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(each_of_all_that_can_be_reaches_another),
};

static const struct vt_role roles[] = {
	{"one", role_one},
	{NULL, NULL},
};

/* Other tests of this network need names, too. */
int main(int argc, char **argv)
{
	char port[16];

	snprintf(port, sizeof(port), "%d", 20000 + getpid() % 20000);
	setenv("ANYRDMA_PORT", port, argc > 1 && argv[1][0] == '-' ? 0 : 1);
	return vt_main(argc, argv, "crowd", tests, ARRAY_LEN(tests), roles);
}
