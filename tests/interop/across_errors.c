/* SPDX-License-Identifier: MIT */
/* Mistakes, and ends that go away: what both ends are told (IBA 9.9.3 and 10.10.2). */
#include "across.h"

#include <signal.h>
#include <unistd.h>

enum { WRONG_KEY, TOO_FAR, ODD };

static const struct {
	const char *what;
	enum ibv_wr_opcode op;
	int fault;
	enum ibv_wc_status status;
} requests[] = {
	{"WRITE with a wrong key", IBV_WR_RDMA_WRITE, WRONG_KEY, IBV_WC_REM_ACCESS_ERR},
	{"READ with a wrong key", IBV_WR_RDMA_READ, WRONG_KEY, IBV_WC_REM_ACCESS_ERR},
	{"FETCH_ADD with a wrong key", IBV_WR_ATOMIC_FETCH_AND_ADD, WRONG_KEY, IBV_WC_REM_ACCESS_ERR},
	{"WRITE too far", IBV_WR_RDMA_WRITE, TOO_FAR, IBV_WC_REM_ACCESS_ERR},
	{"READ too far", IBV_WR_RDMA_READ, TOO_FAR, IBV_WC_REM_ACCESS_ERR},
	{"FETCH_ADD too far", IBV_WR_ATOMIC_FETCH_AND_ADD, TOO_FAR, IBV_WC_REM_ACCESS_ERR},
	{"FETCH_ADD at an odd address", IBV_WR_ATOMIC_FETCH_AND_ADD, ODD, IBV_WC_REM_INV_REQ_ERR},
};

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The request fails with its reason and what is behind it is flushed; so are the target's receives. */
static void bad_request(struct end *e, size_t i)
{
	uint32_t len = is_atomic(requests[i].op) ? 8 : 3001;
	uint64_t at = e->peer.addr + (requests[i].fault == TOO_FAR ? 65536 - len / 2 / 8 * 8 : 0) +
		      (requests[i].fault == ODD);
	uint32_t key = e->peer.rkey ^ (requests[i].fault == WRONG_KEY ? 0x5a5a5a00 : 0);

	print_message("  %s\n", requests[i].what);
	if (e->calls) {
		vt_post(e->ep, .op = requests[i].op, .id = 1, .len = len, .raddr = at, .rkey = key, .add = 1);
		vt_expect(e->ep, 1, requests[i].status);
		vt_post(e->ep, .op = IBV_WR_SEND, .id = 2, .len = 10);
		vt_expect(e->ep, 2, IBV_WC_WR_FLUSH_ERR);
	} else {
		vt_expect(e->ep, 7, IBV_WC_WR_FLUSH_ERR);
		vt_check_all(e->ep->buf, e->ep->len, 0);
	}
	assert_int_equal(vt_state(e->ep->qp), IBV_QPS_ERR);
}

void bad_requests(struct end *e)
{
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		if (requests[i].fault == ODD && e->kernel[CALLER])
			continue; /* refuses to post it */
		meet(e, &(struct vt_opts){0}, NULL);
		if (!e->calls)
			vt_recv(e->ep, 7, 0, 100);
		turn(e);
		bad_request(e, i);
		part(e);
	}
}

/* A receive that does not fit: too short for the message, or a key that is not one. */
void bad_receives(struct end *e)
{
	for (int wrong_key = 0; wrong_key < 2; wrong_key++) {
		bool own_fault = wrong_key || e->kernel[TARGET]; /* rxe takes either for its program's */
		struct ibv_sge sge;
		struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;

		print_message("  %s\n", wrong_key ? "a wrong key" : "too short");
		meet(e, &(struct vt_opts){0}, NULL);
		sge = vt_sge(e->ep, 0, wrong_key ? 5000 : 2999);
		sge.lkey ^= wrong_key ? 0x5a5a5a00 : 0;
		if (!e->calls)
			assert_int_equal(ibv_post_recv(e->ep->qp, &wr, &bad), 0);
		turn(e);
		if (e->calls) {
			vt_post(e->ep, .op = IBV_WR_SEND, .id = 1, .len = 3000);
			vt_expect(e->ep, 1, own_fault ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
		} else {
			vt_expect(e->ep, 7,
				e->kernel[TARGET] ? IBV_WC_LOC_QP_OP_ERR
				: wrong_key       ? IBV_WC_LOC_PROT_ERR
						  : IBV_WC_LOC_LEN_ERR);
		}
		assert_int_equal(vt_state(e->ep->qp), IBV_QPS_ERR);
		part(e);
	}
}

/* No receive: retried as often as the caller said; the target does not suffer. */
void no_receive(struct end *e)
{
	struct vt_conn c = usual(e);

	c.rnr_retry = 2;
	meet(e, &(struct vt_opts){0}, &c);
	if (e->calls) {
		vt_post(e->ep, .op = IBV_WR_SEND, .id = 1, .len = 3000);
		vt_expect(e->ep, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		assert_int_equal(vt_state(e->ep->qp), IBV_QPS_ERR);
	}
	turn(e);
	if (!e->calls)
		assert_int_equal(vt_state(e->ep->qp), IBV_QPS_RTS);
	part(e);
}

/* A receive that comes late, for a caller who waits for ever. */
void late_receive(struct end *e)
{
	meet(e, &(struct vt_opts){0}, NULL);
	if (e->calls) {
		vt_fill(e->ep->buf, 3000, 4);
		vt_post(e->ep, .op = IBV_WR_SEND, .id = 1, .len = 3000);
		vt_ok(e->ep, 1);
	} else {
		usleep(100000); /* many times the receiver's own RNR timer; nothing depends on how many */
		vt_recv(e->ep, 7, 0, 3000);
		vt_ok(e->ep, 7);
		vt_check(e->ep->buf, 3000, 4);
	}
	part(e);
}

/* Sooner or later: a kernel needs a moment to clean up after a process. */
static void unanswered(struct end *e)
{
	struct ibv_wc wc;

	do {
		vt_post(e->ep, .op = IBV_WR_RDMA_WRITE, .len = 3000, .raddr = e->peer.addr,
			.rkey = e->peer.rkey);
		wc = vt_wait(e->ep);
	} while (wc.status == IBV_WC_SUCCESS);
	assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(vt_state(e->ep->qp), IBV_QPS_ERR);
}

void destroyed(struct end *e)
{
	meet(e, &(struct vt_opts){0}, NULL);
	if (!e->calls)
		vt_ep_drop_qp(e->ep);
	turn(e);
	if (e->calls)
		unanswered(e);
	part(e);
}

/* The caller hears of the end by the stream that breaks. */
void killed(struct end *e)
{
	char c;

	meet(e, &(struct vt_opts){0}, NULL);
	if (!e->calls)
		raise(SIGKILL);
	while (read(e->fd, &c, 1) > 0)
		;
	unanswered(e);
}
