/* SPDX-License-Identifier: MIT */
/* A fabric that ends, is stopped, or is started again, under programs that do not notice. */
#include "world.h"

#include "fabric/client.h"
#include "fabricd/umad_parts.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int send_ping(int port, int agent, uint32_t tid, int ms)
{
	struct message *m = message_to(2, PING, GET, tid, MAD);
	int err = umad_send(port, agent, m, MAD, ms, 0);

	free(m);
	return err;
}

/* Until a ping of `port` reaches the agent of `other`: the connections come back one by one. */
static void ping_arrives(int port, int agent, int other)
{
	static uint32_t tid = 1000;

	for (uint64_t until = milliseconds() + 10000; milliseconds() < until;) {
		struct message *m = message_new(MAD);
		int len = MAD, got;

		assert_int_equal(send_ping(port, agent, tid++, 50), 0);
		got = umad_recv(other, m, &len, 50);
		free(m);
		if (got >= 0)
			return;
		assert_int_equal(got, -ETIMEDOUT);
		m = message_new(MAD);
		len = MAD;
		umad_recv(port, m, &len, 100); /* the timeout, if it was that */
		free(m);
	}
	fail_msg("nothing arrives");
}

static void agents_are_there_again_after_a_restart(void **state)
{
	int p = world_open("node1"), q = world_open("node2"), ask = world_agent(p, PING, 0);

	assert_int_equal(world_agent(q, PING, 1 << GET), 0);
	ping_arrives(p, ask, q);
	world_kill();
	world_start();
	ping_arrives(p, ask, q);
	umad_close_port(p);
	umad_close_port(q);
}

static void requests_on_their_way_time_out(void **state)
{
	int p = world_open("node1"), q = world_open("node2"), a = world_agent(p, PING, 0), len = MAD;
	struct message *m;

	assert_int_equal(world_agent(q, PING, 1 << GET), 0);
	assert_int_equal(send_ping(p, a, 7, 60000), 0);
	assert_int_equal(receive(q, &m, &len), 0);
	free(m);
	world_kill();
	assert_int_equal(receive(p, &m, &len), a);
	assert_int_equal(umad_status(m), ETIMEDOUT);
	assert_int_equal(tid_of(m), 7);
	assert_int_equal(len, 24);
	free(m);
	/* Those of the time without a fabric, too. */
	assert_int_equal(send_ping(p, a, 8, 100), 0);
	len = MAD;
	assert_int_equal(receive(p, &m, &len), a);
	assert_true(umad_status(m) == ETIMEDOUT && tid_of(m) == 8);
	free(m);
	umad_close_port(p);
	umad_close_port(q);
}

static atomic_int returned;

static void *receive_once(void *arg)
{
	struct message *m = message_new(MAD);
	int len = MAD;

	umad_recv(*(int *)arg, m, &len, -1);
	atomic_fetch_add(&returned, 1);
	free(m);
	return NULL;
}

/* OpenSM would call again at once, and write a line to its log each time. */
static void receiving_waits_while_there_is_no_fabric(void **state)
{
	int p = world_open("node1"), q = world_open("node2"), a = world_agent(p, PING, 0);
	uint64_t until;
	pthread_t t;

	atomic_store(&returned, 0);
	assert_int_equal(world_agent(q, PING, 1 << GET), 0);
	pthread_create(&t, NULL, receive_once, &q);
	world_kill();
	usleep(500000);
	assert_int_equal(atomic_load(&returned), 0);
	world_start();
	until = milliseconds() + 10000;
	for (uint32_t i = 0; !atomic_load(&returned); i++) {
		struct message *m = message_new(MAD);
		int len = MAD;

		assert_true(milliseconds() < until);
		assert_int_equal(send_ping(p, a, i, 20), 0);
		umad_recv(p, m, &len, 100);
		free(m);
	}
	pthread_join(t, NULL);
	umad_close_port(p);
	umad_close_port(q);
}

/* A descriptor that says it is readable, when there is nothing to be had, would keep a program busy. */
static void the_descriptor_is_quiet_while_there_is_no_fabric(void **state)
{
	int p = world_open("node1"), len = MAD, wakes = 0;
	struct pollfd f = {.fd = umad_get_fd(p), .events = POLLIN};
	uint64_t until;

	world_kill();
	for (until = milliseconds() + 1000; milliseconds() < until;) {
		if (poll(&f, 1, 100) > 0) {
			struct message *m = message_new(MAD);

			wakes++;
			len = MAD;
			assert_int_equal(umad_recv(p, m, &len, 0), -EAGAIN);
			free(m);
		}
	}
	assert_true(wakes < 20);
	umad_close_port(p);
}

static void a_fabric_that_is_stopped_goes_on(void **state)
{
	int p = world_open("node1"), a = world_agent(p, SMP_DIRECTED, 0), len = MAD;
	struct message *m = message_to(0, SMP_DIRECTED, GET, 1, MAD);

	world_stop();
	assert_int_equal(umad_send(p, a, m, MAD, 10000, 0), 0);
	free(m);
	m = message_new(MAD);
	assert_int_equal(umad_recv(p, m, &len, 100), -ETIMEDOUT);
	world_continue();
	assert_int_equal(umad_recv(p, m, &len, 5000), a);
	assert_int_equal(umad_status(m), 0);
	free(m);
	umad_close_port(p);
}

enum { CONNECTIONS = 20 };

static unsigned count_ended(const int fd[CONNECTIONS])
{
	unsigned ended = 0;

	for (int i = 0; i < CONNECTIONS; i++) {
		char byte;

		ended += recv(fd[i], &byte, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN;
	}
	return ended;
}

/* Each announces a message of 32 MB, and is silent: seven are within the bound, and for ten seconds. */
static void who_promises_much_and_says_nothing_is_hung_up_on(void **state)
{
	struct fabric_msg m = {FABRIC_MESSAGE_MAX, FABRIC_UMAD_VERSION, FABRIC_LIST};
	char name[FABRIC_NAME] = "";
	int fd[CONNECTIONS], p;

	world_be("node1");
	world_clock_stop();
	for (int i = 0; i < CONNECTIONS; i++) {
		fd[i] = fabric_connect(name);
		assert_true(fd[i] >= 0);
		assert_int_equal(send(fd[i], &m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	}
	umad_close_port(world_open("node1")); /* what came before it was read */
	for (int i = 0; i < CONNECTIONS; i++)
		assert_int_equal(send(fd[i], "", 1, MSG_NOSIGNAL), 1);
	p = world_open("node1"); /* there is still room for others */
	assert_int_equal(count_ended(fd), CONNECTIONS - 7);
	world_clock_go(9999);
	assert_int_equal(count_ended(fd), CONNECTIONS - 7);
	world_clock_go(1);
	assert_int_equal(count_ended(fd), CONNECTIONS);
	assert_int_equal(world_agent(p, PING, 0), 0); /* who has a port may be silent */
	umad_close_port(p);
	for (int i = 0; i < CONNECTIONS; i++)
		close(fd[i]);
}

/* More than a fabric takes, and silent: those who came first make room, but not who has an agent. */
static void who_has_no_agent_makes_room(void **state)
{
	enum { MANY = UMAD_CONNS + 10 };
	static int fd[MANY];
	char name[FABRIC_NAME] = "", byte;
	struct message *m;
	int p, a, len = MAD;

	p = world_open("node1");
	a = world_agent(p, SMP_DIRECTED, 0);
	for (int i = 0; i < MANY; i++) {
		fd[i] = fabric_connect(name);
		assert_true(fd[i] >= 0);
	}
	umad_close_port(world_open("node2"));
	assert_int_equal(recv(fd[0], &byte, 1, 0), 0);
	assert_int_equal(recv(fd[MANY - 1], &byte, 1, MSG_DONTWAIT), -1);
	m = message_to(0, SMP_DIRECTED, GET, 1, MAD);
	assert_int_equal(umad_send(p, a, m, MAD, 10000, 0), 0);
	assert_int_equal(umad_recv(p, m, &len, 10000), a);
	assert_int_equal(umad_status(m), 0);
	free(m);
	umad_close_port(p);
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
}

static void raise_limit(void)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_up, world_down)
	const struct CMUnitTest tests[] = {
		TEST(agents_are_there_again_after_a_restart),
		TEST(requests_on_their_way_time_out),
		TEST(receiving_waits_while_there_is_no_fabric),
		TEST(the_descriptor_is_quiet_while_there_is_no_fabric),
		TEST(a_fabric_that_is_stopped_goes_on),
		TEST(who_promises_much_and_says_nothing_is_hung_up_on),
		TEST(who_has_no_agent_makes_room),
	};

	raise_limit(); /* here, and in the fabric */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
