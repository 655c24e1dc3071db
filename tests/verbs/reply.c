/* SPDX-License-Identifier: MIT */
/*
 * A program that answers every message at once lets its acknowledges ride with the answers. What must hold:
 * whoever sent still gets its completion when the answer does not come, however the other program spends its
 * time. The connections here have no timeout, so that nothing but the acknowledge itself can bring it.
 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 64 };

static void meet(struct vt_ep *ep, int fd, struct vt_addr *peer)
{
	struct vt_conn c = vt_conn(ep->t);

	c.timeout = 0;
	vt_meet(ep, fd, &c, peer);
}

/* One SEND there, one back, many times: the pattern that is learnt. */
static void answer_sends(struct vt_ep *ep)
{
	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(vt_wait(ep).opcode, IBV_WC_RECV);
		vt_recv(ep, i, 0, 64);
		vt_post(ep, .op = IBV_WR_SEND, .id = 1000, .len = 8);
		vt_ok(ep, 1000);
	}
}

static void send_and_hear(struct vt_ep *ep)
{
	for (int i = 0; i < ROUNDS; i++) {
		vt_recv(ep, 2000, 0, 64);
		vt_post(ep, .op = IBV_WR_SEND, .id = 1000, .len = 8);
		/* The completion of what was answered comes before the answer. */
		vt_ok(ep, 1000);
		vt_ok(ep, 2000);
	}
}

static struct vt_ep *answerer(struct vt *t, int fd, struct vt_addr *peer)
{
	struct vt_ep *ep = vt_ep(t, .channel = true);

	meet(ep, fd, peer);
	for (int i = 0; i < 4; i++)
		vt_recv(ep, i, 0, 64);
	answer_sends(ep);
	return ep;
}

/* Stops calling the library: only its helper is left. */
static void role_falls_silent(struct vt *t, int fd)
{
	struct vt_addr peer;
	char done;

	answerer(t, fd, &peer);
	vt_hear(fd, &done, 1);
}

/* Takes the message and goes on polling, without an answer. */
static void role_only_polls(struct vt *t, int fd)
{
	struct vt_addr peer;
	struct vt_ep *ep = answerer(t, fd, &peer);
	char done;

	assert_int_equal(vt_wait(ep).opcode, IBV_WC_RECV);
	while (!vt_readable_now(fd))
		vt_cq_is_empty(ep);
	vt_hear(fd, &done, 1);
}

/* Takes the message out of ibv_get_cq_event and goes to sleep there again, without an answer. */
static void role_sleeps_again(struct vt *t, int fd)
{
	struct vt_addr peer;
	struct vt_ep *ep = answerer(t, fd, &peer);
	struct ibv_cq *cq;
	void *arg;
	char done;

	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;

		assert_int_equal(ibv_req_notify_cq(ep->cq, 0), 0);
		while (!ibv_poll_cq(ep->cq, 1, &wc)) {
			assert_int_equal(ibv_get_cq_event(ep->channel, &cq, &arg), 0);
			ibv_ack_cq_events(cq, 1);
			assert_int_equal(ibv_req_notify_cq(ep->cq, 0), 0);
		}
		assert_int_equal(wc.opcode, IBV_WC_RECV);
	}
	vt_hear(fd, &done, 1);
}

/* Takes the last message and is gone, with or without taking its queue pair down. */
static void take_last(struct vt *t, int fd)
{
	struct vt_addr peer;
	struct vt_ep *ep = answerer(t, fd, &peer);

	assert_int_equal(vt_wait(ep).opcode, IBV_WC_RECV);
}

static void role_destroys(struct vt *t, int fd)
{
	char done;

	take_last(t, fd);
	while (t->eps)
		vt_ep_close(t->eps);
	vt_hear(fd, &done, 1);
}

static void role_exits(struct vt *t, int fd)
{
	take_last(t, fd);
	exit(0);
}

static void no_answer(void **state, const char *role, int messages)
{
	struct vt_peer p;
	struct vt_addr peer;
	struct vt_ep *ep = vt_ep(*state);

	vt_peer_start(&p, role);
	meet(ep, p.fd, &peer);
	send_and_hear(ep);
	for (int i = 0; i < messages; i++) {
		vt_post(ep, .op = IBV_WR_SEND, .id = 3000, .len = 8);
		vt_ok(ep, 3000);
	}
	if (strcmp(role, "exits"))
		vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

static void completion_comes_though_the_peer_falls_silent(void **state)
{
	no_answer(state, "falls_silent", 1);
}

static void completion_comes_though_the_peer_only_polls(void **state)
{
	no_answer(state, "only_polls", 1);
}

static void completion_comes_though_the_peer_sleeps_again(void **state)
{
	no_answer(state, "sleeps_again", 2);
}

static void completion_comes_though_the_peer_destroys_its_queue_pair(void **state)
{
	no_answer(state, "destroys", 1);
}

static void completion_comes_though_the_peer_exits(void **state)
{
	no_answer(state, "exits", 1);
}

/* As ib_write_lat does: each waits for its own completion and then for its memory to change. */
static void bounce_writes(struct vt_ep *ep, const struct vt_addr *peer, bool first)
{
	volatile uint8_t *in = ep->buf;
	uint8_t *out = ep->buf + 64;

	for (int i = 1; i <= 200; i++) {
		double end = vt_deadline();

		while (!first && *in != (uint8_t)i)
			assert_true(vt_now() < end);
		*out = (uint8_t)i;
		vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = i, .off = 64, .len = 1, .raddr = peer->addr,
			.rkey = peer->rkey);
		vt_ok(ep, i);
		while (first && *in != (uint8_t)i)
			assert_true(vt_now() < end);
	}
}

static void role_bounces(struct vt *t, int fd)
{
	struct vt_addr peer;
	struct vt_ep *ep = vt_ep(t);
	char done;

	meet(ep, fd, &peer);
	bounce_writes(ep, &peer, false);
	vt_hear(fd, &done, 1);
}

static void writes_bounce_between_programs_that_watch_memory(void **state)
{
	struct vt_peer p;
	struct vt_addr peer;
	struct vt_ep *ep = vt_ep(*state);

	vt_peer_start(&p, "bounces");
	meet(ep, p.fd, &peer);
	bounce_writes(ep, &peer, true);
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

static const struct vt_role roles[] = {
	{"falls_silent", role_falls_silent},
	{"only_polls", role_only_polls},
	{"sleeps_again", role_sleeps_again},
	{"destroys", role_destroys},
	{"exits", role_exits},
	{"bounces", role_bounces},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(completion_comes_though_the_peer_falls_silent),
	VT_TEST(completion_comes_though_the_peer_only_polls),
	VT_TEST(completion_comes_though_the_peer_sleeps_again),
	VT_TEST(completion_comes_though_the_peer_destroys_its_queue_pair),
	VT_TEST(completion_comes_though_the_peer_exits),
	VT_TEST(writes_bounce_between_programs_that_watch_memory),
};

VT_MAIN("reply", tests, roles)
