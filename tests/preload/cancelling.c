/* SPDX-License-Identifier: MIT */
/*
 * Threads that are cancelled: where they wait, as in libc, and nowhere else. A cancel that is pending before
 * the call meets the first place where it may act, however short a time that takes.
 */
#include "ends.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* By then a lock has died with a thread; SIGALRM ends the process, for which no handler could run. */
enum { HANGS_S = 30 };

static void end_cancelled(pthread_t thread)
{
	void *result;

	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* ---- a cancel that is pending ---- */
struct call {
	void (*run)(struct ends *e);
	struct ends *e;
};

static void *run_cancelled(void *arg)
{
	struct call *c = arg;

	pthread_cancel(pthread_self());
	c->run(c->e);
	pthread_testcancel();
	return NULL;
}

static void cancel_in(void (*run)(struct ends *e), struct ends *e)
{
	struct call c = {run, e};
	pthread_t thread;

	alarm(HANGS_S);
	assert_int_equal(pthread_create(&thread, NULL, run_cancelled, &c), 0);
	end_cancelled(thread);
}

static int epfd;

static void *wait_for_events(void *arg)
{
	struct epoll_event event;

	assert_int_equal(epoll_wait(epfd, &event, 1, -1), 1);
	assert_int_equal(event.events, EPOLLIN);
	return arg;
}

static void leave_set(struct ends *e)
{
	epoll_ctl(epfd, EPOLL_CTL_DEL, e->client, NULL); /* and tells who waits */
}

/* Whether its lock, and that of the socket, can be had by others. */
static void set_is_left_by_a_cancelled_thread(void **state)
{
	struct ends *e = *state;
	struct epoll_event in = {.events = EPOLLIN};
	pthread_t waits;

	epfd = epoll_create1(0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &in), 0);
	assert_int_equal(pthread_create(&waits, NULL, wait_for_events, NULL), 0);
	for (int i = 0; i < 100; i++) { /* by then it waits */
		if (epoll_ctl(epfd, EPOLL_CTL_ADD, e->client, &in))
			assert_int_equal(errno, EEXIST);
		cancel_in(leave_set, e);
		usleep(1000);
	}
	assert_int_equal(write(e->client, "x", 1), 1);
	assert_int_equal(pthread_join(waits, NULL), 0);
	close(epfd);
	alarm(0);
}

/* Without waiting; at last it goes to TCP, which nobody accepts either. */
static void connect_to_nobody(struct ends *e)
{
	do
		sched_yield();
	while (connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at)) &&
		(errno == EALREADY || errno == EINPROGRESS));
}

static void connect_is_refused_in_a_cancelled_thread(void **state)
{
	struct ends e = {.at = {.sin_family = AF_INET,
				 .sin_port = htons(9),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	int error = 0;
	socklen_t len = sizeof(error);

	e.client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	cancel_in(connect_to_nobody, &e);
	assert_int_equal(getsockopt(e.client, SOL_SOCKET, SO_ERROR, &error, &len), 0);
	close(e.client);
	alarm(0);
}

static pid_t child;

/* Its cancel is pending in the child, too, which has handlers of fork() to run before it is here. It is
 * killed, so that no tool asks after the memory of threads that it has not. */
static void fork_one(struct ends *e)
{
	(void)e;
	child = fork();
	if (!child)
		raise(SIGKILL);
}

static void end_child(void)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, SIGKILL);
}

/* The second one closes what the first one got. */
static void cancelled_thread_forks(void **state)
{
	struct ends *e = *state;

	fork_one(e);
	end_child();
	cancel_in(fork_one, e);
	end_child();
	assert_int_equal(write(e->client, "x", 1), 1);
	assert_reads(e->server, "x");
	alarm(0);
}

/* ---- where they wait ---- */
static void wait_in_read(struct ends *e)
{
	char byte;

	(void)!read(e->server, &byte, 1);
}

static void wait_in_poll(struct ends *e)
{
	struct pollfd p[2] = {{.fd = e->server, .events = POLLIN}, {.fd = e->listener, .events = POLLIN}};

	poll(p, 2, -1);
}

static void wait_in_ppoll(struct ends *e)
{
	struct pollfd p = {.fd = e->server, .events = POLLIN};
	sigset_t none;

	sigemptyset(&none);
	ppoll(&p, 1, NULL, &none);
}

static void wait_in_select(struct ends *e)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(e->server, &in);
	select(e->server + 1, &in, NULL, NULL, NULL);
}

static void wait_in_epoll(struct ends *e)
{
	struct epoll_event event;

	(void)e;
	epoll_wait(epfd, &event, 1, -1);
}

static void wait_in_accept(struct ends *e)
{
	accept(e->listener, NULL, NULL);
}

/* They would wait for ever, and hold nothing afterwards. */
static void who_waits_is_cancelled(void **state)
{
	static void (*const waits[])(struct ends *) = {
		wait_in_read, wait_in_poll, wait_in_ppoll, wait_in_select, wait_in_epoll, wait_in_accept};
	struct ends *e = *state, other = *e;
	struct epoll_event in = {.events = EPOLLIN};
	pthread_t thread;

#ifdef __SANITIZE_THREAD__
	skip_because("the thread sanitizer is blind after a cancelled wait");
#endif
	epfd = epoll_create1(0);
	assert_int_equal(epoll_ctl(epfd, EPOLL_CTL_ADD, e->server, &in), 0);
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		cancel_in(waits[i], e);
	assert_int_equal(write(e->client, "x", 1), 1);
	assert_int_equal(wait_one(epfd, &in, -1), 1);
	wait_in_poll(e);
	assert_reads(e->server, "x");
	other.client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(pthread_create(&thread, NULL, connect_thread, &other), 0);
	other.server = accept(e->listener, NULL, NULL);
	assert_true(other.server >= 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	close(other.client);
	close(other.server);
	close(epfd);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(set_is_left_by_a_cancelled_thread),
		cmocka_unit_test(connect_is_refused_in_a_cancelled_thread),
		WITH_ENDS(cancelled_thread_forks),
		WITH_ENDS(who_waits_is_cancelled),
	};

	return RUN(tests, 1); /* that nobody accepted */
}
