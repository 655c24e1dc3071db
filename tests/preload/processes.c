/* SPDX-License-Identifier: MIT */
/* fork, vfork, exec. */
#include "ends.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void skip_if_children_have_no_threads(void)
{
#ifdef __SANITIZE_THREAD__
	skip_because("a child starts a thread, which the thread sanitizer does not allow");
#endif
}

static void a_child_serves_the_connection(void **state)
{
	struct ends *e = *state;
	pid_t pid = fork();
	int status;

	if (!pid) {
		char buf[5];
		struct sockaddr_in peer;
		socklen_t len = sizeof(peer);

		if (getpeername(e->server, (struct sockaddr *)&peer, &len) || peer.sin_family != AF_INET)
			_exit(1);
		if (read(e->server, buf, 5) != 5 || write(e->server, buf, 5) != 5)
			_exit(2);
		_exit(0);
	}
	close(e->server);
	e->server = -1;
	assert_int_equal(write(e->client, "child", 5), 5);
	assert_reads(e->client, "child");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(read(e->client, &status, 1), 0); /* and closed it */
}

/* As inetd does: the program that is started has the connection as its standard input and output. */
static void a_started_program_serves_the_connection(void **state)
{
	struct ends *e = *state;
	pid_t pid = fork();
	pthread_t thread;

	if (!pid) {
		dup2(e->server, 0);
		dup2(e->server, 1);
		unsetenv("LD_PRELOAD");
		execlp("cat", "cat", NULL);
		_exit(1);
	}
	close(e->server);
	e->server = -1;
	pthread_create(&thread, NULL, send_big, (void *)(intptr_t)e->client);
	receive_big(e->client);
	pthread_join(thread, NULL);
	waitpid(pid, NULL, 0);
}

struct restless {
	int epfd, fd;
	atomic_bool stop;
};

/* Is in the set's lock nearly always. */
static void *change_set(void *arg)
{
	struct restless *r = arg;
	struct epoll_event event = {.events = EPOLLIN};

	while (!r->stop)
		epoll_ctl(r->epfd, EPOLL_CTL_MOD, r->fd, &event);
	return NULL;
}

static void a_child_has_an_epoll_set_that_another_thread_changed(void **state)
{
	struct ends *e = *state;
	struct restless r = {.epfd = epoll_create1(0), .fd = e->server};
	struct epoll_event event = {.events = EPOLLIN};
	pthread_t thread;
	int status = 0;

	skip_if_children_have_no_threads();
	assert_int_equal(epoll_ctl(r.epfd, EPOLL_CTL_ADD, e->server, &event), 0);
	pthread_create(&thread, NULL, change_set, &r);
	for (int i = 0; i < 50 && !status; i++) {
		pid_t pid = fork();

		if (!pid) {
			alarm(60); /* a deadlock ends it */
			epoll_ctl(r.epfd, EPOLL_CTL_ADD, e->listener, &event);
			_exit(epoll_wait(r.epfd, &event, 1, 0));
		}
		waitpid(pid, &status, 0);
	}
	r.stop = true;
	pthread_join(thread, NULL);
	assert_int_equal(status, 0);
	close(r.epfd);
}

static void a_parent_goes_on_beside_its_child(void **state)
{
	struct ends *e = *state;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(write(e->client, "parent", 6), 6);
	assert_reads(e->server, "parent");
	waitpid(pid, NULL, 0);
}
/* Until it calls exec() the child of a vfork() has its parent's memory, but descriptors of its own. */
static void what_a_vforked_child_closes_stays_the_parents(void **state)
{
	struct ends *e = *state;
	pid_t child = vfork();
	int status;
	char c;

	if (!child) {
		close(e->client);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(send(e->client, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(read(e->server, &c, 1), 1);
}

/* Connects, has a child for a moment, closes, and returns from main. */
static void client_with_a_child(const struct sockaddr_in *at)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);
	pid_t helper;

	if (connect(s, (const struct sockaddr *)at, sizeof(*at)))
		_exit(1);
	helper = fork();
	if (!helper)
		_exit(0);
	waitpid(helper, NULL, 0);
	close(s);
	exit(0);
}

/* The peer keeps the connection: nobody is there for what it may still send. */
static void a_process_ends_though_its_peer_does_not_close(void **state)
{
	struct ends e;
	int status = -1, left = 600;
	pid_t client;

	skip_if_children_have_no_threads();
	listen_somewhere(&e);
	client = fork();
	if (!client)
		client_with_a_child(&e.at);
	e.server = accept(e.listener, NULL, NULL);
	assert_true(e.server >= 0);
	while (waitpid(client, &status, WNOHANG) == 0 && left--)
		usleep(100 * 1000);
	if (left < 0)
		kill(client, SIGKILL);
	assert_int_equal(status, 0);
	close(e.server);
	close(e.listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(a_child_serves_the_connection),
		WITH_ENDS(a_started_program_serves_the_connection),
		WITH_ENDS(a_child_has_an_epoll_set_that_another_thread_changed),
		WITH_ENDS(a_parent_goes_on_beside_its_child),
		WITH_ENDS(what_a_vforked_child_closes_stays_the_parents),
		cmocka_unit_test(a_process_ends_though_its_peer_does_not_close),
	};

	return RUN(tests, 0);
}
