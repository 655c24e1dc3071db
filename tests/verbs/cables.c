/* SPDX-License-Identifier: MIT */
/*
 * Cables that are cut and mended under traffic, a port that is cut off, a fabric that stands still. The
 * device is that of subnet.c, under the built-in subnet manager; VERBS_TOOL is the command that cuts,
 * VERBS_FABRIC the process that is the subnet (on_fabric.sh).
 */
#include "fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What joins the switch of the first port to the rest. */
static const char *const uplink[] = {"leaf1[1]", "leaf1[2]"};

static void fabric(const char *word, const char *port)
{
	char command[4200];

	assert_true((size_t)snprintf(command, sizeof(command), "'%s' fabric %s '%s' >/dev/null",
			    getenv("VERBS_TOOL"), word, port) < sizeof(command));
	assert_int_equal(system(command), 0);
}

static void pair(struct vt *t, uint8_t timeout, struct vt_ep **a, struct vt_ep **b)
{
	struct vt_conn c = vt_conn(t);

	c.timeout = timeout;
	*a = vt_ep(t);
	*b = vt_ep(t);
	vt_connect(*a, *b, &c);
}

/* ---- a stream of messages, each with contents of its own ---- */
enum { LENGTH = 3000, IN_FLIGHT = 16 };

struct stream {
	struct vt_ep *a, *b;
	unsigned posted, arrived;
};

static void post_next(struct stream *s)
{
	unsigned at = s->posted++;
	size_t off = at % IN_FLIGHT * 4096;

	vt_recv(s->b, at, off, LENGTH);
	vt_fill(s->a->buf + off, LENGTH, at);
	vt_post(s->a, .op = IBV_WR_SEND, .id = at, .off = off, .len = LENGTH);
}

static void take_next(struct stream *s)
{
	unsigned at = s->arrived++;

	assert_int_equal(vt_ok(s->b, at).byte_len, LENGTH);
	vt_check(s->b->buf + at % IN_FLIGHT * 4096, LENGTH, at);
	vt_ok(s->a, at);
}

/* So many more, and as many as before are still on their way. */
static void go_on(struct stream *s, unsigned messages)
{
	for (unsigned i = 0; i < messages; i++) {
		while (s->posted - s->arrived < IN_FLIGHT)
			post_next(s);
		take_next(s);
	}
}

static void stream_survives_cut_cables(void **state)
{
	struct stream s = {0};

	pair(*state, VT_MORTAL, &s.a, &s.b);
	go_on(&s, 100);
	for (unsigned i = 0; i < 4; i++) {
		fabric("cut", uplink[i % 2]);
		go_on(&s, 100);
		fabric("mend", uplink[i % 2]);
		go_on(&s, 100);
	}
	while (s.arrived < s.posted)
		take_next(&s);
	vt_ping_pong(s.a, s.b);
}

/* ---- a port that is cut off ---- */
/* 8.4 ms, eight times, of which each may be up to four times as long (IBA 9.7.6.1.3), and through a fabric
 * is. */
enum { TIMEOUT = 11, TRIES = 8 };
static const double silence = TRIES * 4 * 4.096e-6 * (1 << TIMEOUT);

static void await_event(struct vt *t, enum ibv_event_type type, int port)
{
	struct ibv_async_event ev;

	do {
		assert_true(vt_readable_soon(t->ctx->async_fd));
		assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
		ibv_ack_async_event(&ev);
	} while (ev.event_type != type || ev.element.port_num != port);
}

static enum ibv_port_state state_of(struct vt *t, uint8_t port)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(t->ctx, port, &attr), 0);
	return attr.state;
}

static void cut_off_port_says_so_and_comes_back(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	double before;

	pair(t, TIMEOUT, &a, &b);
	vt_ping_pong(a, b);
	fabric("cut", "node1[2]");
	await_event(t, IBV_EVENT_PORT_ERR, 2);
	assert_int_equal(state_of(t, 2), IBV_PORT_DOWN);
	assert_int_equal(state_of(t, 1), IBV_PORT_ACTIVE);
	vt_recv(b, 2, 0, 100);
	before = vt_now();
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100);
	vt_expect(a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(vt_now() - before >= silence);
	vt_cq_is_empty(b);
	vt_post(b, .op = IBV_WR_SEND, .id = 3, .len = 100); /* nor is anybody reached from there */
	vt_expect(b, 3, IBV_WC_RETRY_EXC_ERR);
	fabric("mend", "node1[2]");
	await_event(t, IBV_EVENT_PORT_ACTIVE, 2);
	assert_int_equal(state_of(t, 2), IBV_PORT_ACTIVE);
	pair(t, VT_PATIENT, &a, &b);
	vt_ping_pong(a, b);
}

/* What was on its way when a cable was cut and mended at once is asked for again. */
static void connection_outlives_a_short_cut(void **state)
{
	struct stream s = {0};

	pair(*state, VT_MORTAL, &s.a, &s.b);
	for (unsigned i = 0; i < 3; i++) {
		go_on(&s, 20);
		fabric("cut", "node1[2]");
		fabric("mend", "node1[2]");
	}
	go_on(&s, 100);
	while (s.arrived < s.posted)
		take_next(&s);
}

/* ---- a fabric that stands still ---- */
static void connection_outlives_a_fabric_that_stands_still(void **state)
{
	pid_t fabric = atoi(getenv("VERBS_FABRIC"));
	struct stream s = {0};

	pair(*state, VT_PATIENT, &s.a, &s.b);
	go_on(&s, 50);
	assert_int_equal(kill(fabric, SIGSTOP), 0);
	while (s.posted - s.arrived < IN_FLIGHT)
		post_next(&s);
	sleep(1); /* this long it stands */
	assert_int_equal(kill(fabric, SIGCONT), 0);
	go_on(&s, 100);
	while (s.arrived < s.posted)
		take_next(&s);
}

/* ---- one that is good enough for shared memory at one moment, and not at the next ---- */
enum { MESSAGE = 8, LAST = 4 }; /* lengths */

/* A process that makes our cables so, and writes something when it has done. */
static FILE *begin_flapping(void)
{
	char command[4200];
	FILE *f;

	assert_true((size_t)snprintf(command, sizeof(command),
			    "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do for fault in loss=0.001%% none; do "
			    "for port in 1 2; do '%s' fabric inject \"node1[$port]\" $fault >/dev/null; "
			    "done; done; done; echo",
			    getenv("VERBS_TOOL")) < sizeof(command));
	f = popen(command, "r");
	assert_non_null(f);
	return f;
}

static void meet(struct vt_ep *ep, int fd)
{
	struct vt_conn c = vt_conn(ep->t);
	struct vt_addr peer;

	vt_meet(ep, fd, &c, &peer);
}

static void role_echoes(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	uint32_t len = MESSAGE;
	char done;

	meet(ep, fd);
	vt_recv(ep, 2000, 0, 64);
	while (len == MESSAGE) {
		len = vt_ok(ep, 2000).byte_len;
		vt_recv(ep, 2000, 0, 64);
		vt_post(ep, .op = IBV_WR_SEND, .id = 1000, .len = MESSAGE);
		vt_ok(ep, 1000);
	}
	vt_hear(fd, &done, 1);
}

/* The completion of what was answered comes before the answer, whichever way either takes. */
static void ask(struct vt_ep *ep, uint32_t len)
{
	vt_recv(ep, 2000, 0, 64);
	vt_post(ep, .op = IBV_WR_SEND, .id = 1000, .len = len);
	vt_ok(ep, 1000);
	vt_ok(ep, 2000);
}

static void reply_comes_after_the_completion_while_the_path_changes(void **state)
{
	struct vt_peer p;
	struct vt_ep *ep = vt_ep(*state);
	FILE *flapping;

	vt_peer_start(&p, "echoes");
	meet(ep, p.fd);
	flapping = begin_flapping();
	while (!vt_readable_now(fileno(flapping)))
		for (unsigned i = 0; i < 100; i++)
			ask(ep, MESSAGE);
	assert_int_equal(pclose(flapping), 0);
	ask(ep, LAST);
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

static const struct vt_role roles[] = {
	{"echoes", role_echoes},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(reply_comes_after_the_completion_while_the_path_changes),
	VT_TEST(stream_survives_cut_cables),
	VT_TEST(cut_off_port_says_so_and_comes_back),
	VT_TEST(connection_outlives_a_short_cut),
	VT_TEST(connection_outlives_a_fabric_that_stands_still),
};

VT_MAIN("cables", tests, roles)
