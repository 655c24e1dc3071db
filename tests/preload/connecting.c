/* SPDX-License-Identifier: MIT */
/* Connects that wait, do not wait, and are refused. */
#include "ends.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void connect_without_waiting(void **state)
{
	struct ends e;
	socklen_t len = sizeof(int);
	int error = -1, epfd = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLOUT};

	listen_somewhere(&e);
	e.client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e.client, &event), 0);
	if (connect(e.client, (struct sockaddr *)&e.at, sizeof(e.at)))
		assert_int_equal(errno, EINPROGRESS);
	assert_int_equal(wait_one(epfd, &event, -1), 1);
	assert_int_equal(getsockopt(e.client, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	assert_int_equal(error, 0);
	e.server = accept4(e.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(e.server >= 0);
	assert_true(fcntl(e.server, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(e.server, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(write(e.server, "hello", 5), 5);
	fcntl(e.client, F_SETFL, 0);
	assert_reads(e.client, "hello");
	assert_int_equal(fcntl(e.listener, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(accept(e.listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	close(epfd);
	part(&e);
}

static void nobody_listens(void **state)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), error = 0;
	socklen_t len = sizeof(error);
	struct pollfd p = {.events = POLLOUT};

	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	p.fd = fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_int_equal(poll(&p, 1, -1), 1);
	assert_true(p.revents & POLLERR);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	assert_int_equal(error, ECONNREFUSED);
	close(fd);
}

/* Several threads wait for the same connects, and go to TCP with them. */
enum { REFUSED = 48, WAITERS = 8, ROUNDS = 4 };

struct refused {
	int fds[REFUSED];
	atomic_int told[REFUSED];
	atomic_int left, waiters;
};

static void ask_for_refusals(struct refused *r)
{
	socklen_t len = sizeof(int);
	int error;

	for (int i = 0; i < REFUSED; i++)
		if (!getsockopt(r->fds[i], SOL_SOCKET, SO_ERROR, &error, &len) && error) {
			r->told[i] += error == ECONNREFUSED ? 1 : 100;
			r->left--;
		}
}

/* Every second one sleeps, the others ask again and again. */
static void *wait_for_refusals(void *arg)
{
	struct refused *r = arg;
	bool sleeps = r->waiters++ % 2;
	struct pollfd p[REFUSED];

	for (int i = 0; i < REFUSED; i++)
		p[i] = (struct pollfd){.fd = r->fds[i], .events = POLLOUT};
	while (r->left > 0) {
		if (sleeps)
			poll(p, REFUSED, 100); /* the last may be told to another */
		ask_for_refusals(r);
	}
	return NULL;
}

static void wait_together(void)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct refused r = {.left = REFUSED};
	pthread_t threads[WAITERS];

	for (int i = 0; i < REFUSED; i++) {
		r.fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		assert_int_equal(connect(r.fds[i], (struct sockaddr *)&at, sizeof(at)), -1);
		assert_int_equal(errno, EINPROGRESS);
	}
	for (int i = 0; i < WAITERS; i++)
		pthread_create(&threads[i], NULL, wait_for_refusals, &r);
	for (int i = 0; i < WAITERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < REFUSED; i++) {
		assert_int_equal(r.told[i], 1);
		close(r.fds[i]);
	}
}

static void many_threads_wait_for_one_connect(void **state)
{
	for (int i = 0; i < ROUNDS; i++)
		wait_together();
}

static void an_ipv6_socket_serves_ipv4(void **state)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6}, peer;
	struct ends e = {.listener = socket(AF_INET6, SOCK_STREAM, 0)};
	socklen_t len = sizeof(at);
	pthread_t thread;
	void *result;

	assert_int_equal(bind(e.listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(e.listener, 1), 0);
	assert_int_equal(getsockname(e.listener, (struct sockaddr *)&at, &len), 0);
	e.at = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = at.sin6_port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	e.client = socket(AF_INET, SOCK_STREAM, 0);
	pthread_create(&thread, NULL, connect_thread, &e);
	len = sizeof(peer);
	e.server = accept(e.listener, (struct sockaddr *)&peer, &len);
	assert_true(e.server >= 0);
	pthread_join(thread, &result);
	assert_null(result);
	assert_int_equal(peer.sin6_family, AF_INET6);
	assert_true(IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr));
	part(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connect_without_waiting),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(many_threads_wait_for_one_connect),
		cmocka_unit_test(an_ipv6_socket_serves_ipv4),
	};

	return RUN(tests, 2 + REFUSED * ROUNDS /* those that were refused have tried TCP */);
}
