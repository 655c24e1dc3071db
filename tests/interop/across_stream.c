/* SPDX-License-Identifier: MIT */
/*
 * Mistakes over iWARP, and ends that go away. There a SEND or WRITE is done when it has left, so it may have
 * been reported as such before the target refused it; what must hold is that the connection is over at both
 * ends, that nothing was touched, and that a READ never succeeds.
 */
#include "across.h"

#include <signal.h>
#include <unistd.h>

static const struct {
	const char *what;
	enum ibv_wr_opcode op;
	bool too_far; /* else a wrong key */
} requests[] = {
	{"WRITE with a wrong key", IBV_WR_RDMA_WRITE, false},
	{"READ with a wrong key", IBV_WR_RDMA_READ, false},
	{"WRITE too far", IBV_WR_RDMA_WRITE, true},
	{"READ too far", IBV_WR_RDMA_READ, true},
};

enum { LEN = 3001 };

/* siw calls an end by TERMINATE SQE, and one by a closed connection SQD. */
static void is_over(struct end *e)
{
	double until = vt_deadline();

	while (vt_state(e->ep->qp) == IBV_QPS_RTS && vt_now() < until)
		usleep(1000);
	assert_int_not_equal(vt_state(e->ep->qp), IBV_QPS_RTS);
}

/* siw does not flush what it refused for as long as the queue pair lives. */
static bool is_told(const struct end *e)
{
	return !e->kernel[TARGET];
}

/* The request that was refused: what it ends with. */
static void ends(struct end *e, enum ibv_wr_opcode op)
{
	struct ibv_wc wc = vt_wait(e->ep);

	assert_int_equal(wc.wr_id, 1);
	print_message("    caller: %s\n", ibv_wc_status_str(wc.status));
	if (op == IBV_WR_RDMA_READ)
		assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	is_over(e);
}

/* The target's receive was for nothing. */
static void is_flushed(struct end *e)
{
	struct ibv_wc wc;

	if (is_told(e)) {
		wc = vt_wait(e->ep);
		print_message("    target: %s\n", ibv_wc_status_str(wc.status));
		assert_int_equal(wc.wr_id, 7);
		assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
	}
	is_over(e);
}

void stream_requests(struct end *e)
{
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		print_message("  %s\n", requests[i].what);
		meet(e, &(struct vt_opts){0}, NULL);
		if (!e->calls)
			vt_recv(e->ep, 7, 0, 100);
		turn(e);
		if (e->calls) {
			vt_post(e->ep, .op = requests[i].op, .id = 1, .len = LEN,
				.raddr = e->peer.addr + (requests[i].too_far ? 65536 - LEN / 2 : 0),
				.rkey = e->peer.rkey ^ (requests[i].too_far ? 0 : 0x5a5a5a00));
			ends(e, requests[i].op);
		} else {
			is_flushed(e);
			vt_check_all(e->ep->buf, e->ep->len, 0);
		}
		part(e);
	}
}

/* A SEND longer than the receive; and one without a receive, for which an end of ours waits a second. */
void stream_receives(struct end *e)
{
	for (int none = 0; none < 2; none++) {
		print_message("  %s\n", none ? "none" : "too short");
		meet(e, &(struct vt_opts){0}, NULL);
		if (!e->calls && !none)
			vt_recv(e->ep, 7, 0, LEN - 1);
		turn(e);
		if (e->calls) {
			vt_post(e->ep, .op = IBV_WR_SEND, .id = 1, .len = LEN);
			ends(e, IBV_WR_SEND);
		} else if (none) {
			is_over(e);
		} else {
			is_flushed(e);
		}
		if (!e->calls)
			vt_check_all(e->ep->buf + LEN - 1, 1000, 0);
		part(e);
	}
}

void stream_destroyed(struct end *e)
{
	meet(e, &(struct vt_opts){0}, NULL);
	turn(e);
	if (e->calls)
		is_over(e);
	else
		vt_ep_drop_qp(e->ep);
	part(e);
}

/* The caller hears of it by the stream beside. */
void stream_killed(struct end *e)
{
	char c;

	meet(e, &(struct vt_opts){0}, NULL);
	turn(e);
	if (!e->calls)
		raise(SIGKILL);
	while (read(e->fd, &c, 1) > 0)
		;
	is_over(e);
}
