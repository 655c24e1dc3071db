/* SPDX-License-Identifier: MIT */
/* Sending and receiving: requests, responses, timeouts, long messages. */
#include "world.h"

#include "base/bytes.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static int send_and_free(int port, int agent, struct message *m, size_t len, int ms, int retries)
{
	int err = umad_send(port, agent, m, (int)len, ms, retries);

	free(m);
	return err;
}

/* The requests that came to a port are sent back as responses, with as many bytes as this. */
static void answer(int port, size_t len)
{
	struct message *m, *r;
	int n = MAD, agent = receive(port, &m, &n);

	r = message_new(len);
	memcpy(r, m, sizeof(*m) + (len < MAD ? len : MAD));
	r->mad[3] |= RESPONSE;
	if (len > MAD)
		r->mad[26] = 1; /* RMPP, active */
	for (size_t i = 56; i < len; i++)
		r->mad[i] = (uint8_t)(i * 3);
	assert_int_equal(send_and_free(port, agent, r, len, 0, 3), 0);
	free(m);
}

static void a_directed_route_comes_back(void **state)
{
	int p = world_open("node1"), a = world_agent(p, SMP_DIRECTED, 0), len = MAD;
	struct message *m = message_to(0, SMP_DIRECTED, GET, 7, MAD);

	m->mad[7] = 1;   /* one hop, */
	m->mad[129] = 1; /* by port 1 */
	assert_int_equal(send_and_free(p, a, m, MAD, 1000, 0), 0);
	assert_int_equal(receive(p, &m, &len), a);
	assert_int_equal(umad_status(m), 0);
	assert_int_equal(tid_of(m), 7);
	assert_int_equal(m->mad[3], GET | RESPONSE);
	assert_int_equal(m->mad[64 + 2], 1); /* NodeInfo: an adapter */
	assert_int_equal(len, MAD);
	assert_int_equal(m->umad.length, umad_size() + MAD);
	free(m);
	umad_close_port(p);
}

static void a_request_finds_its_agent_and_the_response_its_asker(void **state)
{
	int p = world_open("node1"), q = world_open("node2"), len = MAD;
	int first = world_agent(p, PING, 0), asker = world_agent(p, PING, 0);
	struct message *m;

	assert_true(first != asker && world_agent(q, PING, 1 << GET) == 0);
	assert_int_equal(send_and_free(p, asker, message_to(2, PING, GET, 42, MAD), MAD, 1000, 0), 0);
	answer(q, MAD);
	assert_int_equal(receive(p, &m, &len), asker);
	assert_int_equal(tid_of(m), 42);
	assert_int_equal(be16toh(umad_get_mad_addr(m)->lid), 2);
	assert_int_equal(be32toh(umad_get_mad_addr(m)->qpn), 1);
	free(m);
	umad_close_port(p);
	umad_close_port(q);
}

static void a_request_that_nobody_wants_is_refused(void **state)
{
	int p = world_open("node1"), a = world_agent(p, PING, 0), len = MAD;
	struct message *m;

	for (unsigned lid = 1; lid <= 2; lid++) {
		assert_int_equal(send_and_free(p, a, message_to(lid, PING, GET, lid, MAD), MAD, 1000, 0), 0);
		receive(p, &m, &len);
		assert_int_equal(umad_status(m), 0);
		assert_int_equal(get_be16(m->mad + 4), 0x000c);
		free(m);
	}
	umad_close_port(p);
}

static void no_answer_gives_back_the_header(void **state)
{
	int p = world_open("node1"), a = world_agent(p, PING, 0), len = MAD;
	uint64_t before = milliseconds(), took;
	struct message *m;

	assert_int_equal(send_and_free(p, a, message_to(77, PING, GET, 42, MAD), MAD, 50, 2), 0);
	assert_int_equal(receive(p, &m, &len), a);
	took = milliseconds() - before;
	assert_int_equal(umad_status(m), ETIMEDOUT);
	assert_int_equal(len, 24);
	assert_int_equal(tid_of(m), 42);
	assert_true(took >= 149 && took < 5000);
	free(m);
	umad_close_port(p);
}

static void a_number_in_use_is_refused(void **state)
{
	int p = world_open("node1"), a = world_agent(p, PING, 0), b = world_agent(p, PING, 0), len = MAD;
	struct message *m;

	assert_int_equal(send_and_free(p, a, message_to(77, PING, GET, 42, MAD), MAD, 100, 0), 0);
	assert_int_equal(send_and_free(p, a, message_to(77, PING, GET, 42, MAD), MAD, 100, 0), -EIO);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(send_and_free(p, b, message_to(77, PING, GET, 42, MAD), MAD, 100, 0), 0);
	receive(p, &m, &len);
	free(m);
	receive(p, &m, &len);
	free(m);
	assert_int_equal(send_and_free(p, a, message_to(77, PING, GET, 42, MAD), MAD, 1, 0), 0);
	receive(p, &m, &len);
	free(m);
	umad_close_port(p);
}

static void what_is_no_message_is_refused(void **state)
{
	int p = world_open("node1"), a = world_agent(p, PING, 0);

	assert_int_equal(send_and_free(p, a + 1, message_to(1, PING, GET, 1, MAD), MAD, 100, 0), -EIO);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(send_and_free(p, 32, message_to(1, PING, GET, 1, MAD), MAD, 100, 0), -EIO);
	assert_int_equal(send_and_free(p, a, message_to(1, PING, GET, 1, MAD), 35, 100, 0), -EIO);
	assert_int_equal(umad_send(p, a, NULL, MAD, 0, 0), -EIO);
	umad_close_port(p);
}

static struct message *active(uint8_t mgmt_class, size_t len)
{
	struct message *m = message_to(1, mgmt_class, GET_TABLE, 1, len < MAD ? MAD : len);

	m->mad[26] = 1;
	return m;
}

/* As ib_create_send_mad() has it. */
static void only_who_has_segments_made_sends_more_than_a_mad(void **state)
{
	int p = world_open("node1"), ping = world_agent(p, PING, 0), sa = world_agent(p, SA, 0);

	assert_int_equal(send_and_free(p, ping, message_to(1, PING, GET, 1, 512), 512, 100, 0), -EIO);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(send_and_free(p, ping, active(PING, 512), 512, 100, 0), -EIO);
	assert_int_equal(send_and_free(p, sa, message_to(1, SA, GET_TABLE, 1, 512), 512, 100, 0), -EIO);
	assert_int_equal(send_and_free(p, sa, active(SA, 55), 55, 100, 0), -EIO);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(send_and_free(p, sa, active(SA, 512), 512, 100, 0), 0);
	umad_close_port(p);
}

static void a_request_that_the_fabric_refuses_times_out(void **state)
{
	enum { TOO_LONG = (32 << 20) + 1 };
	int p = world_open("node1"), a = world_agent(p, SA, 0);

	for (int i = 0; i < 2; i++) { /* its number is free again */
		struct message *m;
		int len = MAD;

		assert_int_equal(send_and_free(p, a, active(SA, TOO_LONG), TOO_LONG, 60000, 0), 0);
		assert_int_equal(receive(p, &m, &len), a);
		assert_int_equal(umad_status(m), ETIMEDOUT);
		assert_int_equal(len, 24);
		assert_int_equal(tid_of(m), 1);
		free(m);
	}
	umad_close_port(p);
}

static void receiving_waits_as_long_as_it_is_told(void **state)
{
	struct message *m = message_new(MAD);
	int p = world_open("node1"), len = MAD;
	uint64_t before = milliseconds();

	assert_int_equal(umad_recv(p, m, &len, 0), -EAGAIN);
	assert_int_equal(umad_poll(p, 0), -ETIMEDOUT);
	assert_int_equal(umad_recv(p, m, &len, 30), -ETIMEDOUT);
	assert_int_equal(errno, ETIMEDOUT);
	assert_int_equal(umad_poll(p, 30), -ETIMEDOUT);
	assert_true(milliseconds() - before >= 60);
	assert_int_equal(umad_recv(p, NULL, &len, 0), -EINVAL);
	assert_int_equal(umad_recv(p, m, NULL, 0), -EINVAL);
	free(m);
	umad_close_port(p);
}

static void on_alarm(int sig)
{
}

/* Also when the handler has SA_RESTART, as signal() gives it: poll() knows no restart. */
static void a_signal_ends_the_waiting(void **state)
{
	const struct itimerval soon = {.it_value.tv_usec = 50000};
	struct message *m = message_new(MAD);
	int p = world_open("node1"), len = MAD;

	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &soon, NULL);
	assert_int_equal(umad_recv(p, m, &len, 10000), -EIO);
	assert_int_equal(errno, EINTR);
	setitimer(ITIMER_REAL, &soon, NULL);
	assert_int_equal(umad_poll(p, 10000), -EIO);
	assert_int_equal(errno, EINTR);
	signal(SIGALRM, SIG_DFL);
	free(m);
	umad_close_port(p);
}

static bool readable(int port)
{
	struct pollfd f = {.fd = umad_get_fd(port), .events = POLLIN};

	return poll(&f, 1, 5000) == 1;
}

/* saquery and OpenSM try again with a longer buffer; others look by poll() first. */
static void a_message_that_does_not_fit_stays(void **state)
{
	enum { LONG = 70000 };
	int p = world_open("node1"), q = world_open("node2"), a = world_agent(p, SA, 0), len = MAD;
	struct message *m = message_new(MAD);

	assert_int_equal(world_agent(q, SA, 1 << GET_TABLE), 0);
	assert_int_equal(send_and_free(p, a, message_to(2, SA, GET_TABLE, 5, MAD), MAD, 5000, 0), 0);
	answer(q, LONG);
	assert_int_equal(umad_poll(p, 5000), 0);
	for (int i = 0; i < 2; i++) {
		assert_true(readable(p));
		len = MAD;
		assert_int_equal(umad_recv(p, m, &len, 1000), -ENOSPC);
		assert_int_equal(errno, ENOSPC);
		assert_int_equal(len, LONG);
		assert_int_equal(tid_of(m), 5); /* the first segment is there */
		len = MAD - 1;
		assert_int_equal(umad_recv(p, m, &len, 1000), -EINVAL);
	}
	free(m);
	len = LONG;
	assert_int_equal(receive(p, &m, &len), a);
	assert_int_equal(len, LONG);
	for (size_t i = 56; i < LONG; i++)
		assert_int_equal(m->mad[i], (uint8_t)(i * 3));
	free(m);
	assert_int_equal(umad_poll(p, 0), -ETIMEDOUT);
	umad_close_port(p);
	umad_close_port(q);
}

static void megabytes_arrive(void **state)
{
	enum { LONG = 8 << 20 };
	int p = world_open("node1"), q = world_open("node2"), a = world_agent(p, SA, 0), len = LONG;
	struct message *m;

	assert_int_equal(world_agent(q, SA, 1 << GET_TABLE), 0);
	assert_int_equal(send_and_free(p, a, message_to(2, SA, GET_TABLE, 5, MAD), MAD, 5000, 0), 0);
	answer(q, LONG);
	assert_int_equal(receive(p, &m, &len), a);
	assert_int_equal(len, LONG);
	assert_int_equal(m->mad[LONG - 1], (uint8_t)((LONG - 1u) * 3));
	free(m);
	umad_close_port(p);
	umad_close_port(q);
}

/* ---- threads ---- */
enum { THREADS = 4, EACH = 500 };
static int threads_port, threads_agent;

static void *send_many(void *arg)
{
	for (uint32_t i = 0; i < EACH; i++) {
		struct message *m = message_to(0, SMP_DIRECTED, GET, (uint32_t)(uintptr_t)arg << 16 | i, MAD);

		if (send_and_free(threads_port, threads_agent, m, MAD, 10000, 0))
			abort();
	}
	return NULL;
}

static void many_threads_send_while_one_receives(void **state)
{
	static bool seen[THREADS][EACH];
	pthread_t t[THREADS];

	threads_port = world_open("node1");
	threads_agent = world_agent(threads_port, SMP_DIRECTED, 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, send_many, (void *)i), 0);
	for (int i = 0; i < THREADS * EACH; i++) {
		int len = MAD;
		struct message *m = message_new(MAD);

		assert_int_equal(umad_recv(threads_port, m, &len, -1), threads_agent);
		assert_int_equal(umad_status(m), 0);
		assert_false(seen[tid_of(m) >> 16][tid_of(m) & 0xffff]);
		seen[tid_of(m) >> 16][tid_of(m) & 0xffff] = true;
		free(m);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	umad_close_port(threads_port);
}

static void *receive_for_ever(void *arg)
{
	static struct {
		struct ib_user_mad umad;
		uint8_t mad[MAD];
	} buffer;
	int len = MAD;

	umad_recv(threads_port, &buffer, &len, -1);
	return NULL;
}

/* As OpenSM does when it ends. */
static void a_receiver_may_be_cancelled(void **state)
{
	for (int i = 0; i < 20; i++) {
		void *result;
		struct message *m;
		int len = MAD;
		pthread_t t;

		threads_port = world_open("node1");
		threads_agent = world_agent(threads_port, SMP_DIRECTED, 0);
		pthread_create(&t, NULL, receive_for_ever, NULL);
		if (i % 2)
			usleep(2000);
		pthread_cancel(t);
		pthread_join(t, &result);
		assert_ptr_equal(result, PTHREAD_CANCELED);
		m = message_to(0, SMP_DIRECTED, GET, 1, MAD);
		assert_int_equal(send_and_free(threads_port, threads_agent, m, MAD, 1000, 0), 0);
		assert_int_equal(receive(threads_port, &m, &len), threads_agent);
		free(m);
		umad_close_port(threads_port);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_up, world_down)
	const struct CMUnitTest tests[] = {
		TEST(a_directed_route_comes_back),
		TEST(a_request_finds_its_agent_and_the_response_its_asker),
		TEST(a_request_that_nobody_wants_is_refused),
		TEST(no_answer_gives_back_the_header),
		TEST(a_number_in_use_is_refused),
		TEST(what_is_no_message_is_refused),
		TEST(only_who_has_segments_made_sends_more_than_a_mad),
		TEST(a_request_that_the_fabric_refuses_times_out),
		TEST(receiving_waits_as_long_as_it_is_told),
		TEST(a_signal_ends_the_waiting),
		TEST(a_message_that_does_not_fit_stays),
		TEST(megabytes_arrive),
		TEST(many_threads_send_while_one_receives),
		TEST(a_receiver_may_be_cancelled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
