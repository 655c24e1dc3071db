/* SPDX-License-Identifier: MIT */
/* poll, select, epoll. */
#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void poll_and_select_mix_sockets_and_pipes(void **state)
{
	struct ends *e = *state;
	int pipes[2];
	struct timeval moment = {0};
	fd_set in;

	assert_int_equal(pipe(pipes), 0);
	struct pollfd fds[3] = {
		{e->server, POLLIN, 0}, {pipes[0], POLLIN, 0}, {e->client, POLLIN | POLLOUT, 0}};

	assert_int_equal(poll(fds, 2, 0), 0);
	assert_int_equal(poll(fds, 3, -1), 1);
	assert_int_equal(fds[2].revents, POLLOUT);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(poll(fds, 2, -1), 1);
	assert_int_equal(fds[1].revents, POLLIN);
	assert_int_equal(write(e->client, "y", 1), 1);
	do
		assert_true(ppoll(fds, 2, NULL, NULL) > 0);
	while (!fds[0].revents);
	FD_ZERO(&in);
	FD_SET(e->server, &in);
	FD_SET(pipes[0], &in);
	FD_SET(e->client, &in);
	assert_int_equal(select(FD_SETSIZE, &in, NULL, NULL, &moment), 2);
	assert_true(FD_ISSET(e->server, &in) && FD_ISSET(pipes[0], &in) && !FD_ISSET(e->client, &in));
	close(pipes[0]);
	close(pipes[1]);
}

static void select_says_how_much_time_was_left(void **state)
{
	static const time_t limits[] = {60, 100 * 86400, INT32_MAX, (time_t)INT32_MAX * 2};
	struct ends *e = *state;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct timeval left = {.tv_sec = limits[i]};
		fd_set out;

		FD_ZERO(&out);
		FD_SET(e->client, &out);
		assert_int_equal(select(e->client + 1, NULL, &out, NULL, &left), 1);
		assert_in_range(left.tv_sec, limits[i] - 60, limits[i]);
		assert_in_range(left.tv_usec, 0, 999999);
	}
}

static void epoll_by_level_and_by_edge(void **state)
{
	struct ends *e = *state;
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
	int epfd = epoll_create1(0);
	char buf[8];

	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &event), 0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &event), -1);
	assert_int_equal(errno, EEXIST);
	assert_int_equal(wait_one(epfd, &event, 0), 0);
	assert_int_equal(write(e->client, "abc", 3), 3);
	assert_int_equal(wait_one(epfd, &event, -1), 1);
	assert_int_equal(event.data.u32, 7);
	assert_int_equal(epoll_pwait2(epfd, &event, 1, &(struct timespec){.tv_sec = 60}, NULL), 1);
	assert_int_equal(wait_one(epfd, &event, -1), 1); /* still there */

	event = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET};
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_MOD, e->server, &event), 0);
	assert_int_equal(wait_one(epfd, &event, -1), 1);
	assert_int_equal(event.events, EPOLLIN | EPOLLOUT);
	assert_int_equal(wait_one(epfd, &event, 20), 0); /* nothing new */
	assert_int_equal(read(e->server, buf, sizeof(buf)), 3);
	assert_int_equal(wait_one(epfd, &event, 20), 0);
	assert_int_equal(write(e->client, "d", 1), 1);
	assert_int_equal(wait_one(epfd, &event, -1), 1);

	event.events = EPOLLIN | EPOLLONESHOT;
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_MOD, e->server, &event), 0);
	assert_int_equal(wait_one(epfd, &event, -1), 1);
	assert_int_equal(wait_one(epfd, &event, 20), 0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_DEL, e->server, NULL), 0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_DEL, e->server, NULL), -1);
	close(epfd);
}

static void *write_later(void *arg)
{
	usleep(20000);
	assert_int_equal(write((int)(intptr_t)arg, "late", 4), 4);
	return NULL;
}

/* The socket goes after one of its sets: the other must not take the next one for it. */
static void a_socket_leaves_all_its_epoll_sets(void **state)
{
	struct ends *e = *state, next;
	int first = epoll_create1(0), second = epoll_create1(0), was = e->server;
	int null = open("/dev/null", O_RDWR);
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};

	assert_int_equal(epoll_ctl(first, EPOLL_CTL_ADD, e->server, &event), 0);
	assert_int_equal(epoll_ctl(second, EPOLL_CTL_ADD, e->server, &event), 0);
	close(first);
	close(e->client);
	dup2(null, was); /* closes it, and keeps the number from our own libraries */
	e->client = socket(AF_INET, SOCK_STREAM, 0); /* has the record of the one that was closed last */
	assert_int_equal(connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at)), 0);
	e->server = accept(e->listener, NULL, NULL);
	next = *e;
	e->client = dup2(next.client, was);
	assert_int_equal(write(e->server, "x", 1), 1);
	assert_int_equal(epoll_wait(second, &event, 1, 200), 0);
	close(next.client);
	close(null);
	close(second);
}

static void epoll_has_pipes_and_sockets(void **state)
{
	struct ends *e = *state;
	int epfd = epoll_create1(0), pipes[2];
	struct epoll_event event = {.events = EPOLLIN, .data.fd = e->server};
	pthread_t thread;

	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &event), 0);
	event.data.fd = pipes[0];
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, pipes[0], &event), 0);
	for (int i = 0; i < 2; i++) {
		int from = i ? pipes[1] : e->client, to = i ? pipes[0] : e->server;
		char buf[4];

		pthread_create(&thread, NULL, write_later, (void *)(intptr_t)from);
		assert_int_equal(wait_one(epfd, &event, -1), 1);
		assert_int_equal(event.data.fd, to);
		assert_int_equal(read(to, buf, 4), 4);
		pthread_join(thread, NULL);
	}
	close(epfd);
	close(pipes[0]);
	close(pipes[1]);
}

static void *wait_for_one(void *epfd)
{
	struct epoll_event event;

	return (void *)(intptr_t)(wait_one((int)(intptr_t)epfd, &event, -1) == 1 ? event.data.fd : -1);
}

/* Nothing of ours is in the set when the wait begins. */
static void a_socket_joins_a_set_that_is_waited_for(void **state)
{
	struct ends *e = *state;
	struct epoll_event event = {.events = EPOLLIN, .data.fd = e->server};
	int epfd = epoll_create1(0);
	pthread_t thread;
	void *ready;

	alarm(30); /* it waits for ever */
	assert_int_equal(pthread_create(&thread, NULL, wait_for_one, (void *)(intptr_t)epfd), 0);
	usleep(20000); /* by then it waits, most likely */
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &event), 0);
	assert_int_equal(write(e->client, "x", 1), 1);
	assert_int_equal(pthread_join(thread, &ready), 0);
	assert_int_equal((intptr_t)ready, e->server);
	alarm(0);
	close(epfd);
}

/* Each has to hear of it: by level, for nobody reads. */
static void a_socket_joins_a_set_that_many_wait_for(void **state)
{
	enum { THREADS = 8 };
	struct ends *e = *state;
	struct epoll_event event = {.events = EPOLLIN, .data.fd = e->client};
	int epfd = epoll_create1(0);
	pthread_t threads[THREADS];

	alarm(30); /* they wait for ever */
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->client, &event), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, wait_for_one, (void *)(intptr_t)epfd), 0);
	usleep(50000); /* by then they wait, most likely */
	assert_int_equal(write(e->client, "x", 1), 1);
	event.data.fd = e->server;
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &event), 0);
	for (int i = 0; i < THREADS; i++) {
		void *ready;

		assert_int_equal(pthread_join(threads[i], &ready), 0);
		assert_int_equal((intptr_t)ready, e->server);
	}
	alarm(0);
	close(epfd);
}

static void *receive_all(void *fd)
{
	char byte = 0;

	while (byte != 'x')
		recv((int)(intptr_t)fd, &byte, 1, MSG_DONTWAIT);
	return NULL;
}

static void a_socket_joins_and_leaves_while_it_is_read(void **state)
{
	struct ends *e = *state;
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	int epfd = epoll_create1(0);
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, receive_all, (void *)(intptr_t)e->server), 0);
	for (int i = 0; i < 200; i++) {
		assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &event), 0);
		assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_DEL, e->server, NULL), 0);
	}
	assert_int_equal(write(e->client, "x", 1), 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	close(epfd);
}

static void *have_sockets(void *arg)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	struct ends e;

	for (int i = 0; i < 4; i++) {
		int epfd = epoll_create1(0);

		join(&e);
		assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e.server, &event), 0);
		assert_int_equal(write(e.client, "mine", 4), 4);
		assert_int_equal(wait_one(epfd, &event, -1), 1);
		assert_reads(e.server, "mine");
		part(&e);
		close(epfd);
	}
	return arg;
}

static void threads_have_sockets_and_sets_of_their_own(void **state)
{
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, have_sockets, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* Daemons close whatever they do not know; what they open next has the numbers of descriptors of ours. */
static int close_all_but(int keep)
{
	enum { MANY = 64 };
	struct epoll_event event;
	int ends[2], far;

	alarm(30);
	for (int fd = 3; fd < MANY; fd++)
		if (fd != keep)
			syscall(SYS_close, fd);
	if (wait_one(keep, &event, 0) || wait_one(keep, &event, 20) ||
		socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		return 1;
	far = fcntl(ends[1], F_DUPFD, MANY);
	for (int fd = 3; fd < MANY; fd++)
		if (fd != keep && dup2(ends[0], fd) != fd)
			return 2;
	if (write(far, "x", 1) != 1 || wait_one(keep, &event, 0) || wait_one(keep, &event, 20))
		return 3;
	close(keep);
	for (int fd = 3; fd < MANY; fd++)
		if (fd != keep && fcntl(fd, F_GETFD) < 0)
			return 4;
	return recv(far, ends, 1, MSG_DONTWAIT) < 0 ? 0 : 5; /* nothing of ours was written there */
}

static void set_survives_that_all_others_are_closed(void **state)
{
	int epfd = epoll_create1(0), status = -1;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		status = close_all_but(epfd);
		if (!status)
			kill(getpid(),
				SIGKILL); /* valgrind would find what the parent's threads hold lost in it */
		_exit(status);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, SIGKILL);
	close(epfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(poll_and_select_mix_sockets_and_pipes),
		WITH_ENDS(select_says_how_much_time_was_left),
		WITH_ENDS(epoll_by_level_and_by_edge),
		WITH_ENDS(a_socket_leaves_all_its_epoll_sets),
		WITH_ENDS(epoll_has_pipes_and_sockets),
		WITH_ENDS(a_socket_joins_a_set_that_is_waited_for),
		WITH_ENDS(a_socket_joins_a_set_that_many_wait_for),
		WITH_ENDS(a_socket_joins_and_leaves_while_it_is_read),
		cmocka_unit_test(threads_have_sockets_and_sets_of_their_own),
		cmocka_unit_test(set_survives_that_all_others_are_closed),
	};

	return RUN(tests, 0);
}
