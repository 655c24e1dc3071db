/* SPDX-License-Identifier: MIT */
/*
 * One side is a process that is killed at a step of the handshake. The other must learn of it as far as
 * anybody can tell it: a dead process says nothing, but any other of its host answers for it. Nothing stays
 * taken.
 */
#include "world.h"

#include <signal.h>
#include <sys/wait.h>

enum step { RESOLVED, ASKED, ANSWERED, ESTABLISHED };

static struct rdma_conn_param no_qp = {.qp_num = 4711, .responder_resources = 1, .initiator_depth = 1};

/* ---- the one that will be killed ---- */
static struct victim {
	pid_t pid;
	int says;
} victim;

/* Says its port and waits for the end. */
static void reached(int fd, struct rdma_cm_id *id)
{
	__be16 port = rdma_get_src_port(id);

	assert_int_equal(write(fd, &port, sizeof(port)), sizeof(port));
	for (;;)
		pause();
}

static void be_client(int fd, enum step step, __be16 port)
{
	resolve_to(port);
	if (step == RESOLVED)
		reached(fd, w.client);
	assert_int_equal(rdma_connect(w.client, &no_qp), 0);
	if (step == ASKED)
		reached(fd, w.client);
	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, w.client);
	if (step == ANSWERED)
		reached(fd, w.client);
	assert_int_equal(rdma_establish(w.client), 0);
	reached(fd, w.client);
}

static void be_server(int fd, enum step step, __be16 port)
{
	port = rdma_get_src_port(w.listener);
	assert_int_equal(write(fd, &port, sizeof(port)), sizeof(port));
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	if (step == ASKED)
		reached(fd, w.server);
	assert_int_equal(rdma_accept(w.server, &no_qp), 0);
	if (step == ANSWERED)
		reached(fd, w.server);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	reached(fd, w.server);
}

/* A process of its own, with a world of its own. */
static void begin(void (*be)(int, enum step, __be16), enum step step)
{
	__be16 port = rdma_get_src_port(w.listener);
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	victim.pid = fork();
	assert_true(victim.pid >= 0);
	if (!victim.pid) {
		alarm(100);
		setup(NULL);
		be(pipes[1], step, port);
		_exit(1);
	}
	close(pipes[1]);
	victim.says = pipes[0];
}

static __be16 hear(void)
{
	__be16 port;

	assert_int_equal(read(victim.says, &port, sizeof(port)), sizeof(port));
	return port;
}

static void kill_it(void)
{
	int status;

	assert_int_equal(kill(victim.pid, SIGKILL), 0);
	assert_int_equal(waitpid(victim.pid, &status, 0), victim.pid);
	assert_true(WIFSIGNALED(status));
	close(victim.says);
}

/* ---- what the other side has to see ---- */
static void can_be_bound(__be16 port)
{
	struct sockaddr_in sa = loopback(port);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(w.channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&sa), 0);
	destroy(&id);
}

static void accept_the_dead(void)
{
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	assert_int_equal(rdma_accept(w.server, &no_qp), 0);
}

static void the_next_client_is_served(void)
{
	destroy(&w.server);
	destroy(&w.client);
	cycle();
}

static void a_client_after_resolving(void **state)
{
	__be16 port;

	begin(be_client, RESOLVED);
	port = hear();
	kill_it();
	can_be_bound(port);
	the_next_client_is_served();
}

static void a_client_that_has_asked(void **state)
{
	__be16 port;

	begin(be_client, ASKED);
	port = hear();
	kill_it();
	accept_the_dead();
	expect(RDMA_CM_EVENT_REJECTED, w.server);
	can_be_bound(port);
	the_next_client_is_served();
}

/* The REP comes again after some seconds, and is refused in the dead one's name. */
static void a_client_that_was_accepted(void **state)
{
	begin(be_client, ANSWERED);
	accept_the_dead();
	hear();
	kill_it();
	expect(RDMA_CM_EVENT_REJECTED, w.server);
	the_next_client_is_served();
}

static void a_connected_client(void **state)
{
	begin(be_client, ESTABLISHED);
	accept_the_dead();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	hear();
	kill_it();
	assert_int_equal(rdma_disconnect(w.server), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.server);
	assert_int_equal(w.last.status, 0);
	the_next_client_is_served();
}

static __be16 ask_the_victim(enum step step)
{
	__be16 port;

	begin(be_server, step);
	port = hear();
	resolve_to(port);
	assert_int_equal(rdma_connect(w.client, &no_qp), 0);
	return port;
}

/* The REQ comes again after some seconds, and nobody listens. */
static void a_server_that_was_asked(void **state)
{
	__be16 port = ask_the_victim(ASKED);

	hear();
	kill_it();
	can_be_bound(port);
	expect(RDMA_CM_EVENT_REJECTED, w.client);
	assert_int_equal(w.last.status, 8);
	the_next_client_is_served();
}

static void a_server_that_has_accepted(void **state)
{
	__be16 port = ask_the_victim(ANSWERED);

	hear();
	kill_it();
	can_be_bound(port);
	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, w.client);
	assert_int_equal(rdma_establish(w.client), 0);
	assert_int_equal(rdma_disconnect(w.client), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.client);
	assert_int_equal(w.last.status, 0);
	the_next_client_is_served();
}

static void a_connected_server(void **state)
{
	__be16 port = ask_the_victim(ESTABLISHED);

	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, w.client);
	assert_int_equal(rdma_establish(w.client), 0);
	hear();
	kill_it();
	can_be_bound(port);
	assert_int_equal(rdma_disconnect(w.client), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.client);
	assert_int_equal(w.last.status, 0);
	the_next_client_is_served();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_client_after_resolving),
		TEST(a_client_that_has_asked),
		TEST(a_client_that_was_accepted),
		TEST(a_connected_client),
		TEST(a_server_that_was_asked),
		TEST(a_server_that_has_accepted),
		TEST(a_connected_server),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
