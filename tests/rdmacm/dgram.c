/* SPDX-License-Identifier: MIT */
/*
 * Datagram rsockets through their public calls, all in one process on the loopback; and UDP packets, right
 * and wrong, to their UDP socket, written here byte by byte.
 */
#include "../skip.h"
#include "../surroundings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <rdma/rsocket.h>

enum { PATIENCE_MS = 20000 };

union addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* ---- helpers ---- */

static socklen_t addr_len(const union addr *a)
{
	return a->sa.sa_family == AF_INET ? sizeof(a->in) : sizeof(a->in6);
}

static union addr loopback(int family)
{
	union addr a = {.sa.sa_family = (sa_family_t)family};

	if (family == AF_INET)
		a.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		a.in6.sin6_addr = in6addr_loopback;
	return a;
}

static int open_at(int family, union addr *at)
{
	int fd = rsocket(family, SOCK_DGRAM, 0);
	socklen_t len = sizeof(*at);

	assert_true(fd >= 0);
	*at = loopback(family);
	assert_int_equal(rbind(fd, &at->sa, addr_len(at)), 0);
	assert_int_equal(rgetsockname(fd, &at->sa, &len), 0);
	assert_int_not_equal(at->in.sin_port, 0);
	return fd;
}

static uint8_t byte_of(size_t i, size_t len)
{
	return (uint8_t)(i * 13 + len);
}

static void send_one(int fd, size_t len, const union addr *to)
{
	uint8_t buf[2048];

	for (size_t i = 0; i < len; i++)
		buf[i] = byte_of(i, len);
	assert_int_equal(rsendto(fd, buf, len, 0, &to->sa, addr_len(to)), len);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return rpoll(&p, 1, ms) == 1 && p.revents & POLLIN;
}

/* The next message has that length, its contents, and comes from there. */
static void receive_one(int fd, size_t len, const union addr *from)
{
	uint8_t buf[2048];
	union addr a;
	socklen_t alen = sizeof(a);

	assert_true(readable(fd, PATIENCE_MS));
	assert_int_equal(rrecvfrom(fd, buf, sizeof(buf), 0, &a.sa, &alen), len);
	assert_int_equal(alen, addr_len(from));
	assert_memory_equal(&a, from, alen);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(buf[i], byte_of(i, len));
}

/* ---- between rsockets ---- */

static void exchange(int family, size_t most)
{
	union addr here, there;
	int a = open_at(family, &here), b = open_at(family, &there);
	size_t sizes[] = {1, 0, 64, 1000, 1500, most};
	uint8_t buf[2048] = {0};

	for (int round = 0; round < 3; round++) /* the first by UDP, the others by the QPs */
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			send_one(a, sizes[i], &there);
			receive_one(b, sizes[i], &here);
			send_one(b, sizes[i], &here);
			receive_one(a, sizes[i], &there);
		}
	assert_int_equal(rsendto(a, buf, most + 1, 0, &there.sa, addr_len(&there)), -1);
	assert_int_equal(errno, EMSGSIZE);
	rclose(a);
	rclose(b);
}

static void messages_of_all_sizes(void **state)
{
	exchange(AF_INET, 2048 - 16);
}

static void messages_of_all_sizes_by_ipv6(void **state)
{
	if (!surroundings_ipv6())
		skip_because("there is no IPv6 here");
	exchange(AF_INET6, 2048 - 28);
}

static void calls_that_would_wait(void **state)
{
	union addr here, there;
	int a = open_at(AF_INET, &here), b = open_at(AF_INET, &there);
	char buf[8];

	assert_int_equal(rrecv(a, buf, sizeof(buf), MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(rfcntl(a, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rrecv(a, buf, sizeof(buf), 0), -1);
	assert_int_equal(errno, EAGAIN);
	assert_false(readable(a, 0));
	assert_int_equal(rsend(a, "x", 1, 0), -1);
	assert_int_equal(errno, EDESTADDRREQ);
	send_one(b, 5, &here);
	assert_true(readable(a, PATIENCE_MS));
	assert_int_equal(rrecv(a, buf, 2, MSG_PEEK), 2);
	assert_int_equal(rrecv(a, buf, 2, MSG_TRUNC), 5); /* the rest is gone */
	assert_false(readable(a, 0));
	rclose(a);
	rclose(b);
}

static void *receive_later(void *arg)
{
	char buf[8];

	return (void *)(intptr_t)rrecv((int)(intptr_t)arg, buf, sizeof(buf), 0);
}

/* Threads that sleep in rrecv are woken by what comes by UDP and by the QP, each by one message. */
static void sleepers_wake(void **state)
{
	enum { SLEEPERS = 4 };
	union addr here, there;
	int a = open_at(AF_INET, &here), b = open_at(AF_INET, &there);
	pthread_t threads[SLEEPERS];
	void *got;

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < SLEEPERS; i++)
			pthread_create(&threads[i], NULL, receive_later, (void *)(intptr_t)a);
		for (int i = 0; i < SLEEPERS; i++)
			send_one(b, 3, &here);
		for (int i = 0; i < SLEEPERS; i++) {
			pthread_join(threads[i], &got);
			assert_int_equal((intptr_t)got, 3);
		}
	}
	rclose(a);
	rclose(b);
}

static void many_peers(void **state)
{
	enum { PEERS = 12 };
	union addr here, theirs[PEERS];
	int a = open_at(AF_INET, &here), fds[PEERS];

	for (int i = 0; i < PEERS; i++)
		fds[i] = open_at(AF_INET, &theirs[i]);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < PEERS; i++) {
			send_one(fds[i], 100 + (size_t)i, &here);
			receive_one(a, 100 + (size_t)i, &theirs[i]);
			send_one(a, 200 + (size_t)i, &theirs[i]);
			receive_one(fds[i], 200 + (size_t)i, &here);
		}
	for (int i = 0; i < PEERS; i++)
		rclose(fds[i]);
	rclose(a);
}

static void a_connected_one_hears_its_peer_alone(void **state)
{
	union addr here, there, other, named;
	int a = open_at(AF_INET, &here), b = open_at(AF_INET, &there), c = open_at(AF_INET, &other);
	socklen_t len = sizeof(named);

	/* c knows a's QP already */
	send_one(c, 7, &here);
	receive_one(a, 7, &other);
	send_one(a, 7, &other);
	receive_one(c, 7, &here);

	assert_int_equal(rgetpeername(a, &named.sa, &len), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(rconnect(a, &there.sa, addr_len(&there)), 0);
	assert_int_equal(rgetpeername(a, &named.sa, &len), 0);
	assert_memory_equal(&named, &there, len);
	for (int round = 0; round < 3; round++) {
		send_one(c, 9, &here);
		assert_int_equal(rsend(a, "hello", 5, 0), 5);
		assert_true(readable(b, PATIENCE_MS));
		assert_int_equal(rrecv(b, &named, sizeof(named), 0), 5);
		send_one(b, 11, &here);
		receive_one(a, 11, &there);
	}
	rclose(a);
	rclose(b);
	rclose(c);
}

static void nobody_is_there(void **state)
{
	union addr here, there;
	int a = open_at(AF_INET, &here), b = open_at(AF_INET, &there);
	struct pollfd p = {.fd = a, .events = POLLIN};
	char c;

	rclose(b);
	assert_int_equal(rconnect(a, &there.sa, addr_len(&there)), 0);
	assert_int_equal(rsend(a, "x", 1, 0), 1);
	assert_int_equal(rpoll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(rrecv(a, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNREFUSED);
	rclose(a);
}

/* ---- errors while others wait ---- */

static struct {
	int fd;
	atomic_bool stop;
	atomic_int left; /* threads */
} busy;

/* Messages go by the QP; the only send buffer is often in use. */
static void *send_on(void *arg)
{
	while (!busy.stop)
		assert_true(rsend(busy.fd, "x", 1, 0) == 1 || errno == ECONNREFUSED);
	busy.left--;
	return NULL;
}

static void *receive_on(void *arg)
{
	char c;

	while (!busy.stop) {
		assert_int_equal(rrecv(busy.fd, &c, 1, 0), -1);
		assert_int_equal(errno, ECONNREFUSED);
	}
	busy.left--;
	return NULL;
}

/* The peer is gone: its host tells it to our UDP socket, and one of us takes the error. */
static void an_error_is_one_callers(void **state)
{
	enum { SENDERS = 2, RECEIVERS = 2, THREADS = SENDERS + RECEIVERS };
	union addr here, there;
	int b = open_at(AF_INET, &there), one = 1;
	pthread_t threads[THREADS];
	char c;

	busy.fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(rsetsockopt(busy.fd, SOL_RDMA, RDMA_SQSIZE, &one, sizeof(one)), 0);
	here = loopback(AF_INET);
	assert_int_equal(rbind(busy.fd, &here.sa, sizeof(here.in)), 0);
	assert_int_equal(rconnect(busy.fd, &there.sa, sizeof(there.in)), 0);
	for (int i = 0; i < 10; i++) { /* its QP is known by then */
		assert_int_equal(rsend(busy.fd, "x", 1, 0), 1);
		assert_int_equal(rrecv(b, &c, 1, 0), 1);
	}
	rclose(b);
	busy.stop = false;
	busy.left = THREADS;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, i < SENDERS ? send_on : receive_on, NULL);
	for (int i = 0; busy.left; i++) { /* the UDP socket has the rsocket's number */
		(void)!send(busy.fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		busy.stop = i >= 20000;
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	rclose(busy.fd);
}

/* ---- strangers ---- */

static int open_udp(union addr *at)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(*at);

	*at = loopback(AF_INET);
	assert_int_equal(bind(fd, &at->sa, addr_len(at)), 0);
	assert_int_equal(getsockname(fd, &at->sa, &len), 0);
	return fd;
}

/* A header of the stock library: tag, IP version, op, length, -, QP number, address; then two bytes. */
static const uint8_t data_packet[] = {
	0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 127, 0, 0, 1, 'h', 'i'};

/* A peer that speaks UDP alone, as the stock library would: our answer has its layout. */
static void the_answer_to_a_packet(void **state)
{
	union addr here, there;
	int a = open_at(AF_INET, &here), udp = open_udp(&there);
	uint8_t answer[64];
	union addr from;
	socklen_t len = sizeof(from);

	assert_int_equal(sendto(udp, data_packet, sizeof(data_packet), 0, &here.sa, sizeof(here.in)),
		sizeof(data_packet));
	assert_int_equal(recv(udp, answer, sizeof(answer), 0), 16);
	assert_memory_equal(answer, data_packet, 5);
	assert_int_equal(answer[5], 7); /* CTRL */
	assert_memory_equal(answer + 6, data_packet + 6, 3);
	assert_memory_equal(answer + 12, data_packet + 12, 4);
	assert_true(readable(a, PATIENCE_MS));
	assert_int_equal(rrecvfrom(a, answer, sizeof(answer), 0, &from.sa, &len), 2);
	assert_memory_equal(answer, "hi", 2);
	assert_int_equal(from.in.sin_port, there.in.sin_port);
	rclose(a);
	close(udp);
}

static const struct {
	const char *what;
	size_t at;
	uint8_t value;
	size_t len;
} wrong[] = {
	{"nothing", 0, 0x55, 0},
	{"one byte", 0, 0x55, 1},
	{"half a header", 0, 0x55, 15},
	{"another tag", 0, 0x54, 18},
	{"IPv6 from an IPv4 address", 4, 6, 18},
	{"no version", 4, 0, 18},
	{"no such op", 5, 1, 18},
	{"no such op", 5, 255, 18},
	{"a length of nothing", 6, 0, 18},
	{"a length beyond the packet", 6, 255, 18},
	{"the length of IPv6", 6, 28, 18},
	{"longer than any buffer", 4, 6, 4000},
	{"longer than any buffer, else right", 4, 4, 4000},
};

static void wrong_packets_do_nothing(void **state)
{
	union addr here, there, stranger;
	int a = open_at(AF_INET, &here), b = open_at(AF_INET, &there), udp = open_udp(&stranger);
	uint8_t packet[4000], answer[16];

	/* by the QPs from now on: the flood may fill the UDP socket */
	send_one(b, 22, &here);
	receive_one(a, 22, &there);
	send_one(a, 22, &there);
	receive_one(b, 22, &here);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		memset(packet, 0, sizeof(packet));
		memcpy(packet, data_packet, sizeof(data_packet));
		packet[wrong[i].at] = wrong[i].value;
		assert_int_equal(
			sendto(udp, packet, wrong[i].len, 0, &here.sa, sizeof(here.in)), wrong[i].len);
	}
	for (uint32_t i = 0, seed = 1; i < 20000; i++) { /* and at random, some with a right tag */
		size_t len = (seed = seed * 1103515245 + 12345) >> 16 & 63;

		for (size_t k = 0; k < len; k++)
			packet[k] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
		if (i & 1)
			memset(packet, 0x55, 4);
		(void)!sendto(udp, packet, len, MSG_DONTWAIT, &here.sa, sizeof(here.in));
	}
	/* still at work, and the strangers got nothing in and nothing back */
	send_one(b, 33, &here);
	receive_one(a, 33, &there);
	send_one(a, 44, &there);
	receive_one(b, 44, &here);
	assert_int_equal(recv(udp, answer, sizeof(answer), MSG_DONTWAIT), -1);
	assert_false(readable(a, 0));
	rclose(a);
	rclose(b);
	close(udp);
}

/* More strangers than are remembered: those that are in use go on. */
static void a_crowd_of_strangers(void **state)
{
	union addr here, there, stranger;
	int a = open_at(AF_INET, &here), b = open_at(AF_INET, &there);

	for (int i = 0; i < 1200; i++) {
		int udp = open_udp(&stranger);
		uint8_t answer[16];

		assert_int_equal(sendto(udp, data_packet, 16, 0, &here.sa, sizeof(here.in)), 16);
		assert_int_equal(recv(udp, answer, sizeof(answer), 0), 16);
		receive_one(a, 0, &stranger);
		close(udp);
	}
	send_one(a, 10, &there);
	receive_one(b, 10, &here);
	send_one(b, 20, &here);
	receive_one(a, 20, &there);
	rclose(a);
	rclose(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_all_sizes),
		cmocka_unit_test(messages_of_all_sizes_by_ipv6),
		cmocka_unit_test(calls_that_would_wait),
		cmocka_unit_test(sleepers_wake),
		cmocka_unit_test(many_peers),
		cmocka_unit_test(a_connected_one_hears_its_peer_alone),
		cmocka_unit_test(nobody_is_there),
		cmocka_unit_test(an_error_is_one_callers),
		cmocka_unit_test(the_answer_to_a_packet),
		cmocka_unit_test(wrong_packets_do_nothing),
		cmocka_unit_test(a_crowd_of_strangers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
