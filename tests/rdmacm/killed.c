/* SPDX-License-Identifier: MIT */
/*
 * One side is a process that is killed at a step of the handshake. The other must learn of it as far as
 * anybody can tell it: a dead process says nothing, but any other of its host answers for it. One that exits
 * with its connections open disconnects them. Nothing stays taken.
 */
#include "world.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum step { RESOLVED, ASKED, ANSWERED, ESTABLISHED, GONE, LEFT, REJECTED };

static struct rdma_conn_param no_qp = {.qp_num = 4711, .responder_resources = 1, .initiator_depth = 1};

#define LAST_WORDS "not today"

static const char *program; /* not /proc/self/exe, which under valgrind is valgrind */

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
	if (step == GONE) {
		assert_int_equal(rdma_disconnect(w.client), 0);
		exit(0);
	}
	if (step == LEFT)
		exit(0);
	reached(fd, w.client);
}

static void be_server(int fd, enum step step)
{
	__be16 port = rdma_get_src_port(w.listener);

	assert_int_equal(write(fd, &port, sizeof(port)), sizeof(port));
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	if (step == REJECTED) {
		assert_int_equal(rdma_reject(w.server, LAST_WORDS, sizeof(LAST_WORDS)), 0);
		_exit(0);
	}
	if (step == ASKED)
		reached(fd, w.server);
	assert_int_equal(rdma_accept(w.server, &no_qp), 0);
	if (step == ANSWERED)
		reached(fd, w.server);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	reached(fd, w.server);
}

/* A program of its own, with a world of its own: this one, called by its role. */
static void begin(const char *role, enum step step)
{
	char text[3][16];
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	snprintf(text[0], 16, "%d", step);
	snprintf(text[1], 16, "%d", rdma_get_src_port(w.listener));
	snprintf(text[2], 16, "%d", pipes[1]);
	victim.pid = fork();
	assert_true(victim.pid >= 0);
	if (!victim.pid) {
		execl(program, program, role, text[0], text[1], text[2], NULL);
		_exit(1);
	}
	close(pipes[1]);
	victim.says = pipes[0];
}

static int be_victim(char **argv)
{
	enum step step = (enum step)atoi(argv[2]);
	__be16 port = (__be16)atoi(argv[3]);

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever is to kill it may not live to do so */
	setup(NULL);
	if (!strcmp(argv[1], "client"))
		be_client(atoi(argv[4]), step, port);
	else
		be_server(atoi(argv[4]), step);
	return 1;
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

static void is_asked(void)
{
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
}

static void accepts(void)
{
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

	begin("client", RESOLVED);
	port = hear();
	kill_it();
	can_be_bound(port);
	the_next_client_is_served();
}

static void a_client_that_has_asked(void **state)
{
	__be16 port;

	begin("client", ASKED);
	port = hear();
	is_asked(); /* what it sent may have come back to itself, and would die with it */
	kill_it();
	accepts();
	expect(RDMA_CM_EVENT_REJECTED, w.server);
	can_be_bound(port);
	the_next_client_is_served();
}

/* The REP comes again after some seconds, and is refused in the dead one's name. */
static void a_client_that_was_accepted(void **state)
{
	begin("client", ANSWERED);
	is_asked();
	accepts();
	hear();
	kill_it();
	expect(RDMA_CM_EVENT_REJECTED, w.server);
	the_next_client_is_served();
}

static void a_connected_client(void **state)
{
	begin("client", ESTABLISHED);
	is_asked();
	accepts();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	hear();
	kill_it();
	assert_int_equal(rdma_disconnect(w.server), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.server);
	assert_int_equal(w.last.status, 0);
	the_next_client_is_served();
}

static void client_that_ends_is_heard(enum step how, int times)
{
	enum { PATIENCE_MS = 20000 };
	struct pollfd p = {.fd = w.channel->fd, .events = POLLIN};
	int status;

	for (int i = 0; i < times; i++) {
		begin("client", how);
		is_asked();
		accepts();
		expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
		assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
		expect(RDMA_CM_EVENT_DISCONNECTED, w.server);
		assert_int_equal(waitpid(victim.pid, &status, 0), victim.pid);
		assert_int_equal(status, 0);
		close(victim.says);
		destroy(&w.server);
	}
}

/* What it said last may have come back to itself, and must not die with it. */
static void a_client_that_disconnects_and_exits(void **state)
{
	client_that_ends_is_heard(GONE, 30);
}

/* It returns from main() with the connection open: the library says it in its name. */
static void a_client_that_exits_without_a_word(void **state)
{
	client_that_ends_is_heard(LEFT, 3);
}

static __be16 ask_the_victim(enum step step)
{
	__be16 port;

	begin("server", step);
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
	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, w.client);
	kill_it();
	can_be_bound(port);
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

/* It says no, and is gone without a destructor: what it said must not have come back to itself. */
static void a_server_that_rejects_and_is_gone(void **state)
{
	enum { TIMES = 50 };
	int status;

	for (int i = 0; i < TIMES; i++) {
		ask_the_victim(REJECTED);
		expect(RDMA_CM_EVENT_REJECTED, w.client);
		assert_memory_equal(w.priv, LAST_WORDS, sizeof(LAST_WORDS));
		assert_int_equal(waitpid(victim.pid, &status, 0), victim.pid);
		assert_int_equal(status, 0);
		close(victim.says);
		destroy(&w.client);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_client_after_resolving),
		TEST(a_client_that_has_asked),
		TEST(a_client_that_was_accepted),
		TEST(a_connected_client),
		TEST(a_client_that_disconnects_and_exits),
		TEST(a_client_that_exits_without_a_word),
		TEST(a_server_that_was_asked),
		TEST(a_server_that_has_accepted),
		TEST(a_connected_server),
		TEST(a_server_that_rejects_and_is_gone),
	};

	program = argv[0];
	if (argc == 5)
		return be_victim(argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
