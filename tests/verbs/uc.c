/* SPDX-License-Identifier: MIT */
/*
 * UC: what arrives, arrives whole and in order; what cannot be delivered is dropped without a word. Messages
 * are small enough to fit any receive buffer: none is lost.
 */
#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static void uc_pair(struct vt *t, enum ibv_mtu mtu, struct vt_ep **a, struct vt_ep **b)
{
	struct vt_conn c = vt_conn(t);

	c.mtu = mtu;
	*a = vt_ep(t, .type = IBV_QPT_UC);
	*b = vt_ep(t, .type = IBV_QPT_UC);
	vt_connect(*a, *b, &c);
}

static const struct {
	enum ibv_wr_opcode wr;
	enum ibv_wc_opcode wc, recv_wc;
	bool imm;
} ops[] = {
	{IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, false},
	{IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true},
	{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM, true},
};

static void transfer(struct vt_ep *a, struct vt_ep *b, size_t o, uint32_t len)
{
	struct ibv_wc wc;

	vt_fill(a->buf, len, len);
	memset(b->buf, 0x55, len + 64);
	vt_recv(b, 2, 0, ops[o].recv_wc == IBV_WC_RECV ? len : 0);
	vt_post(a, .op = ops[o].wr, .id = 1, .len = len, .to = b, .imm = 0xabcd1234);
	wc = vt_ok(a, 1);
	assert_int_equal(wc.opcode, ops[o].wc);
	assert_int_equal(wc.qp_num, a->qp->qp_num);
	wc = vt_ok(b, 2);
	assert_int_equal(wc.opcode, ops[o].recv_wc);
	assert_int_equal(wc.byte_len, len);
	assert_int_equal(wc.qp_num, b->qp->qp_num);
	assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), ops[o].imm);
	if (ops[o].imm)
		assert_int_equal(ntohl(wc.imm_data), 0xabcd1234);
	vt_check(b->buf, len, len);
	vt_check_all(b->buf + len, 64, 0x55);
}

static void every_operation_and_length(void **state)
{
	struct vt *t = *state;

	vt_need("UC");
	for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= t->port.active_mtu; mtu++) {
		uint32_t m = vt_mtu_bytes(mtu);
		const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, m - 1, m, m + 1, 2 * m, 4 * m + 1};
		struct vt_ep *a, *b;

		uc_pair(t, mtu, &a, &b);
		for (size_t o = 0; o < ARRAY_LEN(ops); o++)
			for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
				transfer(a, b, o, lengths[i]);
	}
}

static void write_lands_before_the_send_after_it(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_need("UC");
	uc_pair(t, IBV_MTU_1024, &a, &b);
	for (int i = 0; i < 100; i++) {
		vt_fill(a->buf, 3000, i);
		vt_recv(b, 2, 8192, 8);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 3000, .to = b);
		vt_ok(a, 1);
		vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 3, .len = 8);
		vt_check(b->buf, 3000, i);
	}
}

static void message_without_a_receive_is_dropped(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c, *d;

	vt_need("UC");
	uc_pair(t, IBV_MTU_1024, &a, &b);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 3000);
	vt_ok(a, 1);
	vt_ping_pong(c, d);
	transfer(a, b, 0, 2000);
}

/* Nobody is told: the sender has long been served. The memory is what counts. */
static void write_with_a_wrong_key_changes_nothing(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c, *d;

	vt_need("UC");
	uc_pair(t, IBV_MTU_1024, &a, &b);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	memset(a->buf, 0xaa, 3000);
	memset(b->buf, 0x55, b->len);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 3000, .to = b, .rkey = b->mr->rkey ^ 0x5a5a5a00);
	vt_ok(a, 1);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = 3000, .to = b, .roff = b->len - 2999);
	vt_ok(a, 2);
	vt_ping_pong(c, d);
	vt_check_all(b->buf, b->len, 0x55);
}

static void reads_and_atomics_are_not_for_uc(void **state)
{
	static const enum ibv_wr_opcode op[] = {
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
	struct vt *t = *state;

	vt_need("UC");
	for (size_t i = 0; i < ARRAY_LEN(op); i++) {
		struct vt_ep *a, *b;
		int rc;

		uc_pair(t, IBV_MTU_1024, &a, &b);
		rc = vt_try(a, .op = op[i], .id = 1, .len = 8, .to = b);
		if (!rc)
			vt_expect(a, 1, IBV_WC_LOC_QP_OP_ERR);
		else
			assert_int_equal(rc, EINVAL);
	}
}

static void bad_local_key_is_a_local_error(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	enum ibv_qp_state s;

	vt_need("UC");
	uc_pair(t, IBV_MTU_1024, &a, &b);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100, .lkey = 0xbad);
	vt_post(a, .op = IBV_WR_SEND, .id = 2, .len = 100);
	vt_expect(a, 1, IBV_WC_LOC_PROT_ERR);
	vt_expect(a, 2, IBV_WC_WR_FLUSH_ERR);
	s = vt_state(a->qp);
	assert_true(s == IBV_QPS_SQE || s == IBV_QPS_ERR);
}

static void sender_does_not_notice_that_the_peer_is_gone(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_need("UC");
	uc_pair(t, IBV_MTU_1024, &a, &b);
	vt_ep_drop_qp(b);
	for (int i = 0; i < 20; i++) {
		vt_post(a, .op = IBV_WR_SEND, .id = i, .len = 1000);
		vt_ok(a, i);
	}
	assert_int_equal(vt_state(a->qp), IBV_QPS_RTS);
}

/* ---- ends that send by different paths ---- */
enum { MIRRORED = 64 << 10, TIMES = 8 };

/* Both ends come with these. */
static struct vt_conn mirrored(const struct vt *t)
{
	struct vt_conn c = vt_conn(t);

	c.psn_in = c.psn_out;
	return c;
}

/* Sends back what comes. */
static void role_mirror(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .type = IBV_QPT_UC, .len = MIRRORED);
	struct vt_conn c = mirrored(t);
	struct vt_addr peer, own = vt_addr(ep);

	vt_init(ep, &c);
	vt_tell(fd, &own, sizeof(own));
	vt_hear(fd, &peer, sizeof(peer));
	vt_rtr(ep, &peer, &c);
	vt_rts(ep, &c);
	for (unsigned i = 0; i < TIMES; i++) {
		vt_recv(ep, 1, 0, MIRRORED);
		vt_tell(fd, "r", 1);
		vt_ok(ep, 1);
		vt_post(ep, .op = IBV_WR_SEND, .id = 2, .len = MIRRORED);
		vt_ok(ep, 2);
	}
}

/* A peer that is stopped says nothing of shared memory; once it goes on, it reaches us by that all the same.
 */
static void connect_while_stopped(struct vt_ep *ep, struct vt_peer *p)
{
	struct vt_conn c = mirrored(ep->t);
	struct vt_addr peer, own = vt_addr(ep);
	int status;

	vt_hear(p->fd, &peer, sizeof(peer));
	assert_int_equal(kill(p->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
	vt_init(ep, &c);
	vt_rtr(ep, &peer, &c);
	vt_rts(ep, &c);
	assert_int_equal(kill(p->pid, SIGCONT), 0);
	vt_tell(p->fd, &own, sizeof(own));
}

static void ends_need_not_send_by_the_same_path(void **state)
{
	struct vt *t = *state;
	struct vt_peer p;
	struct vt_ep *ep;
	char ready;

	vt_need("UC");
	ep = vt_ep(t, .type = IBV_QPT_UC, .len = 2 * MIRRORED);
	vt_peer_start(&p, "mirror");
	connect_while_stopped(ep, &p);
	for (unsigned i = 0; i < TIMES; i++) {
		vt_hear(p.fd, &ready, 1);
		vt_fill(ep->buf, MIRRORED, i);
		vt_recv(ep, 1, MIRRORED, MIRRORED);
		vt_post(ep, .op = IBV_WR_SEND, .len = MIRRORED, .quiet = true);
		vt_ok(ep, 1);
		vt_check(ep->buf + MIRRORED, MIRRORED, i);
	}
	vt_peer_finish(&p);
}

static const struct vt_role roles[] = {{"mirror", role_mirror}, {NULL, NULL}};

static const struct CMUnitTest tests[] = {
	VT_TEST(every_operation_and_length),
	VT_TEST(write_lands_before_the_send_after_it),
	VT_TEST(message_without_a_receive_is_dropped),
	VT_TEST(write_with_a_wrong_key_changes_nothing),
	VT_TEST(reads_and_atomics_are_not_for_uc),
	VT_TEST(bad_local_key_is_a_local_error),
	VT_TEST(sender_does_not_notice_that_the_peer_is_gone),
	VT_TEST(ends_need_not_send_by_the_same_path),
};

VT_MAIN("uc", tests, roles)
