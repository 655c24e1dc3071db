/* SPDX-License-Identifier: MIT */
/*
 * One-sided means one-sided: the target is another process that, once connected, never calls verbs again; it
 * sleeps, computes, or is killed. Also two processes in ordinary conversation, and what idleness costs.
 */
#include "fixture.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 4 << 20 };

/* Connected, then deaf: only the socket's end ends it. */
static void role_sleeper(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = LEN);
	struct vt_addr peer;
	char byte;

	vt_fill(ep->buf, LEN, 11);
	vt_meet(ep, fd, NULL, &peer);
	while (read(fd, &byte, 1) > 0)
		;
}

/* The same, but it never gives up the processor. */
static void role_computer(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = LEN);
	struct pollfd p = {.fd = fd};
	struct vt_addr peer;
	volatile uint64_t n = 0;

	vt_fill(ep->buf, LEN, 11);
	vt_meet(ep, fd, NULL, &peer);
	do
		for (int i = 0; i < 100000000; i++)
			n += i;
	while (n && poll(&p, 1, 0) == 0);
}

static void *wait_for_ever(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	ibv_get_cq_event(channel, &cq, &context);
	return NULL;
}

/* Sleeps, having cancelled a thread that waited for a completion: who waits drives, and that one is gone. */
static void role_canceller(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = LEN, .channel = true);
	struct vt_addr peer;
	pthread_t waiter;
	void *end;
	char byte;

	vt_fill(ep->buf, LEN, 11);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_ever, ep->channel), 0);
	vt_meet(ep, fd, NULL, &peer);
	vt_hear(fd, &byte, 1); /* it waits by now: it has answered for us */
	assert_int_equal(pthread_cancel(waiter), 0);
	assert_int_equal(pthread_join(waiter, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	vt_tell(fd, &byte, 1);
	while (read(fd, &byte, 1) > 0)
		;
}

/* Many connections of one sleeping process. */
static void role_many(struct vt *t, int fd)
{
	struct vt_addr peer;
	char byte;

	for (int i = 0; i < 8; i++)
		vt_meet(vt_ep(t), fd, NULL, &peer);
	while (read(fd, &byte, 1) > 0)
		;
}

/* Sends back what comes, until a message of no bytes; two buffers take turns. */
static void role_echo(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = 2 << 20);
	struct vt_addr peer;
	size_t at = 0;

	vt_meet(ep, fd, NULL, &peer);
	vt_recv(ep, 1, at, 1 << 20);
	for (;;) {
		struct ibv_wc wc = vt_wait(ep);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id != 1)
			continue;
		if (!wc.byte_len)
			break;
		vt_recv(ep, 1, at ^ (1 << 20), 1 << 20);
		vt_post(ep, .op = IBV_WR_SEND, .id = 2, .off = at, .len = wc.byte_len);
		at ^= 1 << 20;
	}
}

/* Writes rising numbers to a place it is told of until it is refused, again and again. */
static void role_writer(struct vt *t, int fd)
{
	struct vt_addr peer, place;
	char byte;

	while (read(fd, &byte, 1) == 1) {
		struct vt_ep *ep = vt_ep(t);
		struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

		vt_meet(ep, fd, NULL, &peer);
		vt_hear(fd, &place, sizeof(place));
		for (uint64_t n = 1; wc.status == IBV_WC_SUCCESS; n++) {
			memcpy(ep->buf, &n, sizeof(n));
			vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = sizeof(n), .raddr = place.addr,
				.rkey = place.rkey);
			wc = vt_wait(ep);
		}
		vt_tell(fd, &wc.status, sizeof(wc.status));
		vt_ep_close(ep);
	}
}

static const uint32_t lengths[] = {1, 8, 100, 1024, 4096, 4097, 65536, 1000003};

static void exercise(struct vt_ep *a, const struct vt_addr *to)
{
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		uint32_t len = lengths[i];

		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = len, .raddr = to->addr, .rkey = to->rkey);
		vt_ok(a, 1);
		vt_check(a->buf, len, 11);
		vt_fill(a->buf, len, i);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = len, .raddr = to->addr + (2 << 20),
			.rkey = to->rkey);
		vt_ok(a, 2);
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 3, .off = 2 << 20, .len = len,
			.raddr = to->addr + (2 << 20), .rkey = to->rkey);
		vt_ok(a, 3);
		vt_check(a->buf + (2 << 20), len, i);
	}
}

static void count_up(struct vt_ep *a, const struct vt_addr *to, int n)
{
	uint64_t at = to->addr + LEN - 8, first = 0;

	for (int i = 0; i < n; i++) {
		vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = i, .len = 8, .raddr = at,
			.rkey = to->rkey, .add = 1);
		vt_ok(a, i);
		if (!i)
			memcpy(&first, a->buf, 8);
		assert_true(*(uint64_t *)a->buf == first + i);
	}
	vt_post(a, .op = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 1, .len = 8, .raddr = at, .rkey = to->rkey,
		.add = first + n, .swap = 7);
	vt_ok(a, 1);
	assert_true(*(uint64_t *)a->buf == first + n);
}

static void target(void **state, const char *role)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = LEN);
	struct vt_addr to;
	struct vt_peer p;

	vt_peer_start(&p, role);
	vt_meet(a, p.fd, NULL, &to);
	exercise(a, &to);
	if (vt_can("ATOMIC"))
		count_up(a, &to, 200);
	vt_peer_finish(&p);
}

static void target_that_sleeps_is_read_and_written(void **state)
{
	target(state, "sleeper");
}

static void target_that_computes_is_read_and_written(void **state)
{
	target(state, "computer");
}

/* The target has slept for longer than any helper's patience before the request comes. */
static void target_that_slept_long_answers(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = LEN);
	struct vt_addr to;
	struct vt_peer p;

	vt_peer_start(&p, "sleeper");
	vt_meet(a, p.fd, NULL, &to);
	for (int i = 0; i < 3; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
		exercise(a, &to);
	}
	vt_peer_finish(&p);
}

static void target_that_cancelled_a_waiting_thread_answers(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = LEN);
	struct vt_addr to;
	struct vt_peer p;
	char byte = 0;

	vt_peer_start(&p, "canceller");
	vt_meet(a, p.fd, NULL, &to);
	exercise(a, &to);
	vt_tell(p.fd, &byte, 1);
	vt_hear(p.fd, &byte, 1);
	exercise(a, &to);
	vt_peer_finish(&p);
}

static void sleeping_target_serves_many_connections(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a[8];
	struct vt_addr to[8];
	struct vt_peer p;

	vt_peer_start(&p, "many");
	for (int i = 0; i < 8; i++) {
		a[i] = vt_ep(t);
		vt_meet(a[i], p.fd, NULL, &to[i]);
	}
	for (int k = 0; k < 50; k++) {
		for (int i = 0; i < 8; i++) {
			vt_fill(a[i]->buf, 5000, 8 * k + i);
			vt_post(a[i], .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 5000, .raddr = to[i].addr,
				.rkey = to[i].rkey, .quiet = true);
			vt_post(a[i], .op = IBV_WR_RDMA_READ, .id = 2, .off = 8192, .len = 5000,
				.raddr = to[i].addr, .rkey = to[i].rkey);
		}
		for (int i = 0; i < 8; i++) {
			vt_ok(a[i], 2);
			vt_check(a[i]->buf + 8192, 5000, 8 * k + i);
		}
	}
	vt_peer_finish(&p);
}

static void wait_for_both(struct vt_ep *a, uint32_t len)
{
	for (int seen = 0; seen != 3;) {
		struct ibv_wc wc = vt_wait(a);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id == 1)
			assert_int_equal(wc.byte_len, len);
		seen |= (int)wc.wr_id;
	}
}

static void two_processes_converse(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = 2 << 20);
	struct vt_addr to;
	struct vt_peer p;

	vt_peer_start(&p, "echo");
	vt_meet(a, p.fd, NULL, &to);
	for (int k = 0; k < 50; k++) {
		uint32_t len = lengths[k % ARRAY_LEN(lengths)];

		vt_fill(a->buf, len, k);
		vt_recv(a, 1, 1 << 20, 1 << 20);
		vt_post(a, .op = IBV_WR_SEND, .id = 2, .len = len, .quiet = k % 8 != 0);
		if (k % 8 == 0) /* the answer may overtake the acknowledgement */
			wait_for_both(a, len);
		else
			assert_int_equal(vt_ok(a, 1).byte_len, len);
		vt_check(a->buf + (1 << 20), len, k);
	}
	vt_post(a, .op = IBV_WR_SEND, .id = 3);
	vt_ok(a, 3);
	vt_peer_finish(&p);
}

enum { VICTIMS = 2, WORK = 32 };

struct victim {
	struct vt_ep *ep;
	struct vt_peer peer;
	struct vt_addr to;
};

static void begin(struct vt *t, struct victim *v)
{
	struct vt_conn c = vt_conn(t);

	c.timeout = VT_MORTAL;
	v->ep = vt_ep(t, .len = LEN);
	vt_peer_start(&v->peer, "sleeper");
	vt_meet(v->ep, v->peer.fd, &c, &v->to);
	for (int i = 0; i < WORK; i++)
		vt_post(v->ep, .op = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, .id = i, .len = 1 << 20,
			.raddr = v->to.addr, .rkey = v->to.rkey);
	vt_ok(v->ep, 0);
	kill(v->peer.pid, SIGKILL);
}

/* Successes, then one error that says why, then nothing but what is flushed. */
static void reap(struct victim *v)
{
	enum ibv_wc_status why = vt_can("MODIFY") ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR;
	bool failed = false;

	for (int i = 1; i < WORK; i++) {
		struct ibv_wc wc = vt_wait(v->ep);

		assert_int_equal(wc.wr_id, i);
		if (wc.status == IBV_WC_SUCCESS) {
			assert_false(failed);
			continue;
		}
		assert_int_equal(wc.status, failed ? IBV_WC_WR_FLUSH_ERR : why);
		failed = true;
	}
	vt_peer_kill(&v->peer); /* it is dead now, and not only about to die */
	vt_post(v->ep, .op = IBV_WR_RDMA_READ, .id = 99, .len = 8, .raddr = v->to.addr, .rkey = v->to.rkey);
	vt_expect_either(v->ep, 99, IBV_WC_WR_FLUSH_ERR, IBV_WC_RETRY_EXC_ERR);
	vt_ep_close(v->ep);
}

/* The survivor learns of it by its own timeouts, has its work back, and the next peer finds all in order. */
static void killed_peer_leaves_errors_and_no_trace(void **state)
{
	struct victim v[VICTIMS];

	for (int i = 0; i < VICTIMS; i++)
		begin(*state, &v[i]);
	for (int i = 0; i < VICTIMS; i++)
		reap(&v[i]);
	target(state, "sleeper");
}

/* Whether a request is done before its target, which is stopped meanwhile, goes on. */
static bool ends_while_stopped(
	struct vt_ep *a, const struct vt_peer *p, const struct vt_addr *to, enum ibv_wr_opcode op)
{
	double until; /* what needs nobody at the other end takes microseconds */
	struct ibv_wc wc;
	int n = 0, status;

	kill(p->pid, SIGSTOP);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
	until = vt_now() + 0.5;
	vt_post(a, .op = op, .id = 1, .len = 4096, .raddr = to->addr, .rkey = to->rkey);
	while (!n && vt_now() < until)
		n = ibv_poll_cq(a->cq, 1, &wc);
	kill(p->pid, SIGCONT);
	if (n)
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	else
		vt_ok(a, 1);
	return n;
}

/* The first requests may still need somebody: two processes come to know each other while they go on. */
static bool serves_while_stopped(struct vt *t)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct vt_ep *a = vt_ep(t, .len = LEN);
	unsigned done = 0;
	struct vt_addr to;
	struct vt_peer p;

	vt_peer_start(&p, "sleeper");
	vt_meet(a, p.fd, NULL, &to);
	for (int times = 0; times < 20 && done < ARRAY_LEN(ops); times++)
		done += ends_while_stopped(a, &p, &to, ops[done]);
	vt_peer_finish(&p);
	vt_ep_close(a);
	return done == ARRAY_LEN(ops);
}

/*
 * Where processes of one host act in each other's memory, nobody at the other end is needed. A queue pair
 * whose handshake took more than 100 ms goes by packets, and chaos makes some handshakes late: then it is
 * tried with another process.
 */
static void stopped_target_is_read_and_written(void **state)
{
	const char *way = getenv("ANYRDMA_LOCAL");
	int processes = getenv("ANYRDMA_CHAOS_SEED") ? 4 : 1;

	if (way && strcmp(way, "copy") && strcmp(way, "map"))
		skip_because("a stopped target answers no packets");
	while (processes && !serves_while_stopped(*state))
		processes--;
	assert_int_not_equal(processes, 0);
}

static void role_late(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = LEN);
	struct vt_addr peer;

	vt_meet(ep, fd, NULL, &peer);
	vt_recv(ep, 1, 0, 64);
	vt_tell(fd, "", 1);
	vt_ok(ep, 1);
}

/* Whether a request is not given up while the peer gets no processor for longer than its timers. */
static bool late_peer_answers(struct vt *t)
{
	struct vt_conn c = vt_conn(t);
	struct vt_ep *a = vt_ep(t, .len = LEN);
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	struct vt_addr to;
	struct vt_peer p;
	double until;
	char byte;
	int status, n = 0;

	c.timeout = 10; /* 4 ms, twice */
	c.retry = 1;
	vt_peer_start(&p, "late");
	vt_meet(a, p.fd, &c, &to);
	vt_hear(p.fd, &byte, 1);
	kill(p.pid, SIGSTOP);
	assert_int_equal(waitpid(p.pid, &status, WUNTRACED), p.pid);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 64);
	for (until = vt_now() + 0.2; !n && vt_now() < until;)
		n = ibv_poll_cq(a->cq, 1, &wc);
	kill(p.pid, SIGCONT);
	if (n) {
		assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		vt_peer_kill(&p);
	} else {
		vt_ok(a, 1);
		vt_peer_finish(&p);
	}
	vt_ep_close(a);
	return !n;
}

/* What lies in memory is not lost: who is alive is waited for. Some handshakes are late, see above. */
static void late_peer_is_waited_for(void **state)
{
	const char *way = getenv("ANYRDMA_LOCAL");
	int processes = 4;

	if (way && !strcmp(way, "off"))
		skip_because("a stopped target answers no packets");
	while (processes && !late_peer_answers(*state))
		processes--;
	assert_int_not_equal(processes, 0);
}

/* Whatever way the bytes take: once ibv_dereg_mr has returned, none come any more. */
static void nothing_lands_after_deregistration(void **state)
{
	enum { ROUNDS = 25 };
	struct vt *t = *state;
	volatile uint64_t *word = calloc(1, 4096);
	struct vt_peer p;

	vt_peer_start(&p, "writer");
	for (int round = 0; round < ROUNDS; round++) {
		struct vt_ep *a = vt_ep(t);
		struct ibv_mr *mr = ibv_reg_mr(
			a->pd, (void *)word, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		struct vt_addr peer, place = {0};
		enum ibv_wc_status status;
		uint64_t last;

		assert_non_null(mr);
		place.addr = (uintptr_t)word;
		place.rkey = mr->rkey;
		*word = 0;
		vt_tell(p.fd, "", 1);
		vt_meet(a, p.fd, NULL, &peer);
		vt_tell(p.fd, &place, sizeof(place));
		while (*word < (uint64_t)round * 10 + 1)
			sched_yield();
		assert_int_equal(ibv_dereg_mr(mr), 0);
		last = *word;
		vt_hear(p.fd, &status, sizeof(status));
		/* Without acknowledges the WRITE that was refused may have been completed before. */
		if (vt_can("ACK") || status != IBV_WC_WR_FLUSH_ERR)
			assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(*word, last);
		vt_ep_close(a);
	}
	vt_peer_finish(&p);
	free((void *)word);
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Connected, with receives posted and a channel armed, but nothing to do: under half a percent of a core. */
static void idle_connections_cost_nothing(void **state)
{
	struct vt *t = *state;
	double cpu, wall;

	for (int i = 0; i < 8; i++) {
		struct vt_ep *a, *b;

		vt_pair(t, IBV_QPT_RC, &a, &b);
		vt_ping_pong(a, b);
		vt_recv(a, 1, 0, 100);
		vt_recv(b, 1, 0, 100);
		assert_int_equal(ibv_req_notify_cq(a->cq, 0), 0);
	}
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	cpu = cpu_seconds();
	wall = vt_now();
	nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
	cpu = cpu_seconds() - cpu;
	wall = vt_now() - wall;
	if (cpu / wall >= 0.005)
		fail_msg("idle for %.1f s took %.1f ms of CPU", wall, cpu * 1000);
}

static const struct vt_role roles[] = {
	{"sleeper", role_sleeper},
	{"computer", role_computer},
	{"canceller", role_canceller},
	{"many", role_many},
	{"echo", role_echo},
	{"writer", role_writer},
	{"late", role_late},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(target_that_sleeps_is_read_and_written),
	VT_TEST(target_that_computes_is_read_and_written),
	VT_TEST(target_that_slept_long_answers),
	VT_TEST(target_that_cancelled_a_waiting_thread_answers),
	VT_TEST(sleeping_target_serves_many_connections),
	VT_TEST(two_processes_converse),
	VT_TEST(killed_peer_leaves_errors_and_no_trace),
	VT_TEST(stopped_target_is_read_and_written),
	VT_TEST(late_peer_is_waited_for),
	VT_TEST(nothing_lands_after_deregistration),
	VT_TEST(idle_connections_cost_nothing),
};

VT_MAIN("onesided", tests, roles)
