/* SPDX-License-Identifier: MIT */
/*
 * pthread_cancel in the middle of rdma_* and rsocket calls: no lock dies with the thread, and everybody else
 * goes on. Those that wait (rdma_get_cm_event, raccept, rrecv, rpoll ...) are cancelled where they wait, and
 * what they waited on is as good as before. tests/verbs/cancel.c has the verbs.
 */
#include "rsocket.h"

#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

enum { CANCELS = 150, MOST_NS = 100 * 1000, ALARM_S = 60 };

struct rsocket_world w;

static const char *volatile doing = "";
static volatile int cancelled;

static void on_alarm(int sig)
{
	char text[200];
	int n = snprintf(text, sizeof(text), "%s hangs after %d threads that did it were cancelled\n", doing,
		cancelled);

	(void)!write(STDERR_FILENO, text, (size_t)n);
	_exit(1);
}

static void begin(const char *what)
{
	doing = what;
	cancelled = 0;
	signal(SIGALRM, on_alarm);
	alarm(ALARM_S);
}

/* The same moments in every run. */
static void wait_a_moment(uint32_t *seed)
{
	struct timespec t = {0};

	*seed = *seed * 1664525 + 1013904223;
	t.tv_nsec = *seed % MOST_NS;
	nanosleep(&t, NULL);
}

/* ---- calls in a loop ---- */
static atomic_uint rounds;

static void ids(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1}};
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 4), 0);
	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

/* One that nobody answers, and so never waits for its end. */
static void connects(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = {.qp_num = 77, .retry_count = 1};
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&w.address, 2000), 0);
	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_resolve_route(id, 2000), 0);
	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

static void sockets(void)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0), on = 1;

	assert_true(s >= 0);
	assert_int_equal(rsetsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)), 0);
	assert_int_equal(rclose(s), 0);
}

static void *go_round(void *arg)
{
	void (*round)(void) = *(void (**)(void))arg;

	for (;;) {
		round();
		atomic_fetch_add(&rounds, 1);
		pthread_testcancel();
	}
	return NULL;
}

static void cancel_one(void *(*run)(void *), void *arg, bool in_round, uint32_t *seed)
{
	pthread_t thread;
	void *end;

	atomic_store(&rounds, 0);
	assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
	while (in_round && !atomic_load(&rounds))
		sched_yield();
	wait_a_moment(seed);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	cancelled++;
	alarm(ALARM_S);
}

static void cancel_calls(const char *what, void (*round)(void))
{
	uint32_t seed = 4711;

	begin(what);
	for (int i = 0; i < CANCELS; i++) {
		cancel_one(go_round, &round, true, &seed);
		round();
	}
	alarm(0);
}

static void calls_leave_no_lock(void **state)
{
	cancel_calls("rdma_create_id, rdma_bind_addr, rdma_listen, rdma_create_qp", ids);
	cancel_calls("rdma_resolve_addr, rdma_connect", connects);
	cancel_calls("rsocket, rclose", sockets);
}

/* ---- waiting ---- */
static void *wait_for_event(void *channel)
{
	struct rdma_cm_event *e;

	rdma_get_cm_event(channel, &e);
	return NULL;
}

static void *wait_for_connection(void *arg)
{
	raccept(w.listener, NULL, NULL);
	return NULL;
}

static void *wait_for_data(void *arg)
{
	char byte;

	rrecv(w.server, &byte, 1, 0);
	return NULL;
}

static void *wait_for_readable(void *arg)
{
	struct pollfd p = {.fd = w.server, .events = POLLIN};

	rpoll(&p, 1, -1);
	return NULL;
}

/* Until nothing fits any more, and then for room. */
static void *send_for_ever(void *arg)
{
	static char bytes[65536];

	while (rsend(w.client, bytes, sizeof(bytes), 0) > 0)
		;
	return NULL;
}

static void cancel_waits(const char *what, void *(*wait)(void *), void *arg)
{
	uint32_t seed = 4712;

	begin(what);
	for (int i = 0; i < CANCELS; i++)
		cancel_one(wait, arg, false, &seed);
	alarm(0);
}

static void channel_is_as_good_after_a_cancelled_wait(void **state)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	cancel_waits("rdma_get_cm_event", wait_for_event, ch);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&w.address, 2000), 0);
	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	assert_int_equal(e->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

static void rsocket_is_as_good_after_a_cancelled_wait(void **state)
{
	char byte = 7;

	cancel_waits("raccept", wait_for_connection, NULL);
	begin("raccept");
	connect_pair();
	cancel_waits("rrecv", wait_for_data, NULL);
	cancel_waits("rpoll", wait_for_readable, NULL);
	begin("rrecv");
	assert_int_equal(rsend(w.client, &byte, 1, 0), 1);
	byte = 0;
	assert_int_equal(rrecv(w.server, &byte, 1, 0), 1);
	assert_int_equal(byte, 7);
	cancel_waits("rsend", send_for_ever, NULL);
	begin("rsend");
	while (rrecv(w.server, (char[65536]){0}, 65536, MSG_DONTWAIT) > 0)
		;
	assert_true(events_of(w.client, POLLOUT, -1) & POLLOUT);
	assert_int_equal(rsend(w.client, &byte, 1, 0), 1);
	alarm(0);
}

/* ---- fork() ---- */
/* The child is killed, so that no tool asks after the memory of threads that it has not. */
static void *fork_one(void *arg)
{
	pid_t *child = arg;

	pthread_cancel(pthread_self());
	*child = fork();
	if (!*child)
		raise(SIGKILL);
	pthread_testcancel();
	return NULL;
}

static void cancelled_thread_forks(void **state)
{
	pthread_t thread;
	pid_t child;
	int status;

	begin("fork");
	assert_int_equal(pthread_create(&thread, NULL, fork_one, &child), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, SIGKILL);
	alarm(0);
}

/* Of the handlers of fork() those of rsockets come last then, with nobody's around them. */
static int use_verbs_first(void **state)
{
	ibv_free_device_list(ibv_get_device_list(NULL));
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(calls_leave_no_lock, rsocket_setup, rsocket_teardown),
		cmocka_unit_test_setup_teardown(
			channel_is_as_good_after_a_cancelled_wait, rsocket_setup, rsocket_teardown),
		cmocka_unit_test_setup_teardown(
			rsocket_is_as_good_after_a_cancelled_wait, rsocket_setup, rsocket_teardown),
		cmocka_unit_test_setup_teardown(cancelled_thread_forks, rsocket_setup, rsocket_teardown),
	};

	return cmocka_run_group_tests(tests, use_verbs_first, NULL);
}
