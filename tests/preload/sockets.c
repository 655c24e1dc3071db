/* SPDX-License-Identifier: MIT */
/* A program with ordinary sockets, which knows nothing of RDMA, under the preload library (LD_PRELOAD). Both
 * ends are in one process, in a network namespace of its own where that is allowed. What must hold: sockets
 * behave as the kernel's do, and no TCP connection is made but where one is meant. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BIG = 3 << 20 };

/* ---- a connection
 * -------------------------------------------------------------------------------------------------- */

struct ends {
	int listener, client, server;
	struct sockaddr_in at;
};

static long tcp_opens(void)
{
	FILE *f = fopen("/proc/self/net/snmp", "r");
	char line[512];
	long opens = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tcp: %*d %*d %*d %*d %ld", &opens) == 1)
			break;
	fclose(f);
	return opens;
}

static void listen_somewhere(struct ends *e)
{
	socklen_t len = sizeof(e->at);

	e->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	e->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_true(e->listener >= 0);
	assert_int_equal(bind(e->listener, (struct sockaddr *)&e->at, sizeof(e->at)), 0);
	assert_int_equal(listen(e->listener, 8), 0);
	assert_int_equal(getsockname(e->listener, (struct sockaddr *)&e->at, &len), 0);
	assert_int_not_equal(e->at.sin_port, 0);
}

static void *connect_thread(void *arg)
{
	struct ends *e = arg;

	return (void *)(intptr_t)connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at));
}

static void join(struct ends *e)
{
	pthread_t thread;
	void *result;

	listen_somewhere(e);
	e->client = socket(AF_INET, SOCK_STREAM, 0);
	pthread_create(&thread, NULL, connect_thread, e);
	e->server = accept(e->listener, NULL, NULL);
	assert_true(e->server >= 0);
	pthread_join(thread, &result);
	assert_null(result);
}

static void part(struct ends *e)
{
	close(e->client);
	close(e->server);
	close(e->listener);
}

static int set_up(void **state)
{
	static struct ends e;

	join(&e);
	*state = &e;
	return 0;
}

static int tear_down(void **state)
{
	part(*state);
	return 0;
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

static void *send_big(void *arg)
{
	int fd = (int)(intptr_t)arg;
	uint8_t *buf = malloc(BIG);
	size_t done = 0;

	for (size_t i = 0; i < BIG; i++)
		buf[i] = byte_at(i);
	while (done < BIG) {
		ssize_t n = write(fd, buf + done, BIG - done < 70001 ? BIG - done : 70001);

		assert_true(n > 0);
		done += (size_t)n;
	}
	shutdown(fd, SHUT_WR);
	free(buf);
	return NULL;
}

/* Reads to the end and compares. */
static void receive_big(int fd)
{
	uint8_t buf[40000];
	size_t at = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < n; i++, at++)
			assert_int_equal(buf[i], byte_at(at));
	assert_int_equal(n, 0);
	assert_int_equal(at, BIG);
}

static void assert_reads(int fd, const char *text)
{
	char buf[64] = "";

	assert_int_equal(recv(fd, buf, strlen(text), MSG_WAITALL), strlen(text));
	assert_string_equal(buf, text);
}

/* ---- data
 * ----------------------------------------------------------------------------------------------------------
 */

static void data_arrives_both_ways_and_ends(void **state)
{
	struct ends *e = *state;
	pthread_t threads[2];

	pthread_create(&threads[0], NULL, send_big, (void *)(intptr_t)e->client);
	receive_big(e->server);
	pthread_create(&threads[1], NULL, send_big, (void *)(intptr_t)e->server);
	receive_big(e->client);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}

static void *answer_all(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buf[50000];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		assert_int_equal(send(fd, buf, (size_t)n, 0), n);
	shutdown(fd, SHUT_WR);
	return NULL;
}

/* Each client has a thread that sends and one that receives; none of the two may miss what the other one woke
 * for. */
static void both_directions_at_once(void **state)
{
	enum { PAIRS = 6 };
	struct ends e[PAIRS];
	pthread_t senders[PAIRS], servers[PAIRS];

	for (int i = 0; i < PAIRS; i++) {
		join(&e[i]);
		pthread_create(&servers[i], NULL, answer_all, (void *)(intptr_t)e[i].server);
		pthread_create(&senders[i], NULL, send_big, (void *)(intptr_t)e[i].client);
	}
	for (int i = 0; i < PAIRS; i++) {
		receive_big(e[i].client);
		pthread_join(senders[i], NULL);
		pthread_join(servers[i], NULL);
		part(&e[i]);
	}
}

static void pieces_and_flags(void **state)
{
	struct ends *e = *state;
	char a[3] = "", b[5] = "";
	struct iovec out[2] = {{"abc", 3}, {"defgh", 5}}, in[2] = {{a, 2}, {b, 4}};
	struct msghdr msg = {.msg_iov = in, .msg_iovlen = 2};
	int waiting = 0;

	assert_int_equal(writev(e->client, out, 2), 8);
	assert_int_equal(recv(e->server, b, 1, MSG_PEEK), 1);
	do
		assert_int_equal(ioctl(e->server, FIONREAD, &waiting), 0);
	while (waiting < 8);
	assert_int_equal(recvmsg(e->server, &msg, 0), 6);
	assert_memory_equal(a, "ab", 2);
	assert_memory_equal(b, "cdef", 4);
	assert_int_equal(readv(e->server, in, 2), 2);
	assert_memory_equal(a, "gh", 2);
	assert_int_equal(recv(e->server, b, 4, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(preadv2(e->server, in, 2, -1, RWF_NOWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(pwritev2(e->client, out, 1, -1, 0), 3);
	assert_int_equal(preadv2(e->server, in, 1, -1, 0), 2);
	assert_memory_equal(a, "ab", 2);
}

static void a_file_is_sent(void **state)
{
	struct ends *e = *state;
	FILE *f = tmpfile();
	pthread_t thread;
	off_t at = 1000;
	ssize_t n = 0;
	uint8_t *buf = malloc(BIG);

	for (size_t i = 0; i < 1000 + BIG; i++)
		fputc(i < 1000 ? 0 : byte_at(i - 1000), f);
	fflush(f);
	/* somebody must read meanwhile: the other way round, from a thread */
	pthread_create(&thread, NULL, send_big, (void *)(intptr_t)e->server);
	receive_big(e->client);
	pthread_join(thread, NULL);
	fcntl(e->client, F_SETFL, O_NONBLOCK);
	fcntl(e->server, F_SETFL, O_NONBLOCK);
	for (size_t got = 0; got < BIG;) {
		if (at < 1000 + BIG)
			n = sendfile(e->client, fileno(f), &at, (size_t)(1000 + BIG - at));
		assert_true(n > 0 || errno == EAGAIN);
		n = read(e->server, buf + got, BIG - got);
		assert_true(n > 0 || errno == EAGAIN);
		got += n > 0 ? (size_t)n : 0;
	}
	for (size_t i = 0; i < BIG; i++)
		assert_int_equal(buf[i], byte_at(i));
	free(buf);
	fclose(f);
}

static void a_write_that_nobody_reads_is_told(void **state)
{
	struct ends *e = *state;
	ssize_t n;

	signal(SIGPIPE, SIG_IGN);
	close(e->server);
	e->server = -1;
	do
		n = send(e->client, "x", 1, 0);
	while (n > 0);
	assert_true(errno == EPIPE || errno == ECONNRESET);
}

static void a_receive_has_its_time_limit(void **state)
{
	struct ends *e = *state;
	struct timeval limit = {.tv_usec = 50000};
	char c;

	assert_int_equal(setsockopt(e->client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(read(e->client, &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

/* ---- what it is
 * ---------------------------------------------------------------------------------------------------- */

static void it_looks_like_a_socket(void **state)
{
	struct ends *e = *state;
	struct sockaddr_in a, b;
	socklen_t alen = sizeof(a), blen = sizeof(b), len = sizeof(int);
	struct stat st;
	int value = 0;

	assert_int_equal(fstat(e->client, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(getsockopt(e->client, SOL_SOCKET, SO_TYPE, &value, &len), 0);
	assert_int_equal(value, SOCK_STREAM);
	assert_int_equal(getpeername(e->client, (struct sockaddr *)&a, &alen), 0);
	assert_int_equal(a.sin_port, e->at.sin_port);
	assert_int_equal(getsockname(e->client, (struct sockaddr *)&a, &alen), 0);
	assert_int_equal(getpeername(e->server, (struct sockaddr *)&b, &blen), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(setsockopt(e->client, IPPROTO_TCP, TCP_NODELAY, &value, sizeof(value)), 0);
	assert_int_equal(connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at)), -1);
	assert_int_equal(errno, EISCONN);
}

static void duplicates_are_the_same_socket(void **state)
{
	struct ends *e = *state;
	int copy = dup(e->client), other = fcntl(e->client, F_DUPFD_CLOEXEC, 100);

	assert_true(copy >= 0 && other >= 100);
	close(e->client);
	assert_int_equal(write(copy, "one", 3), 3);
	assert_int_equal(dup2(other, copy), copy);
	assert_int_equal(write(copy, "two", 3), 3);
	assert_reads(e->server, "onetwo");
	close(other);
	e->client = copy;
	assert_int_equal(write(e->server, "three", 5), 5);
	assert_reads(copy, "three");
}

static void a_refused_duplicate_closes_nothing(void **state)
{
	struct ends *e = *state;

	assert_int_equal(dup3(e->listener, e->client, 1 << 20), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(write(e->client, "z", 1), 1);
	assert_reads(e->server, "z");
}

/* Whatever closes it: the number leads to a file then, and the peer sees the end. */
static void assert_closed(struct ends *e)
{
	int zero = open("/dev/zero", O_RDONLY);
	char c = 'x';

	assert_int_equal(zero, e->client);
	assert_int_equal(read(zero, &c, 1), 1);
	assert_int_equal(c, 0);
	assert_int_equal(read(e->server, &c, 1), 0);
}

static void a_range_is_closed(void **state)
{
	struct ends *e = *state;
	unsigned fd = (unsigned)e->client;

	assert_int_equal(write(e->server, "y", 1), 1);
	assert_int_equal(close_range(fd, fd, 1 << 20), -1);
	assert_int_equal(close_range(fd, fd, CLOSE_RANGE_CLOEXEC), 0);
	assert_reads(e->client, "y");
	assert_int_equal(write(e->server, "y", 1), 1);
	assert_int_equal(close_range(fd, fd, 0), 0);
	assert_closed(e);
}

static void all_from_a_number_are_closed(void **state)
{
	struct ends *e = *state;

	close(e->client);
	e->client = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at)), 0);
	assert_int_equal(dup2(e->client, 1000), 1000);
	close(e->client);
	e->client = 1000;
	close(e->server);
	e->server = accept(e->listener, NULL, NULL);
	closefrom(1000);
	assert_int_equal(read(e->server, &(char){0}, 1), 0);
	assert_int_equal(fcntl(1000, F_GETFD), -1);
}

static void a_stream_of_stdio_is_closed(void **state)
{
	struct ends *e = *state;
	FILE *f = fdopen(e->client, "r");

	assert_int_equal(write(e->server, "y", 1), 1);
	assert_int_equal(fclose(f), 0);
	assert_closed(e);
}

/* ---- waiting
 * ------------------------------------------------------------------------------------------------------- */

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

static int wait_one(int epfd, struct epoll_event *event, int timeout)
{
	int n = epoll_wait(epfd, event, 1, timeout);

	assert_true(n >= 0);
	return n;
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
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};

	assert_int_equal(epoll_ctl(first, EPOLL_CTL_ADD, e->server, &event), 0);
	assert_int_equal(epoll_ctl(second, EPOLL_CTL_ADD, e->server, &event), 0);
	close(first);
	close(e->client);
	close(e->server);
	e->client = socket(AF_INET, SOCK_STREAM, 0); /* has the record of the one that was closed last */
	assert_int_equal(connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at)), 0);
	e->server = accept(e->listener, NULL, NULL);
	next = *e;
	if (e->client != was && e->server != was)
		e->client = dup2(next.client, was);
	assert_int_equal(write(e->server, "x", 1), 1);
	assert_int_equal(epoll_wait(second, &event, 1, 200), 0);
	if (e->client != next.client)
		close(next.client);
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

/* ---- connecting
 * ---------------------------------------------------------------------------------------------------- */

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

/* ---- processes
 * ----------------------------------------------------------------------------------------------------- */

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

	assert_int_equal(epoll_ctl(r.epfd, EPOLL_CTL_ADD, e->server, &event), 0);
	pthread_create(&thread, NULL, change_set, &r);
	for (int i = 0; i < 50 && !status; i++) {
		pid_t pid = fork();

		if (!pid) {
			alarm(10); /* a deadlock ends it */
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

/* ---- all of it
 * ----------------------------------------------------------------------------------------------------- */

static int enter_own_network(void)
{
	return unshare(CLONE_NEWNET) ? -1 : system("ip link set lo up");
}

static long opens_before;

static void no_tcp_was_used(void **state)
{
	/* those that were refused have tried TCP */
	assert_int_equal(tcp_opens() - opens_before, 2 + REFUSED * ROUNDS);
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
	int status = -1, left = 100;
	pid_t client;

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

#define WITH_ENDS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WITH_ENDS(data_arrives_both_ways_and_ends),
		cmocka_unit_test(both_directions_at_once),
		WITH_ENDS(pieces_and_flags),
		WITH_ENDS(a_file_is_sent),
		WITH_ENDS(a_write_that_nobody_reads_is_told),
		WITH_ENDS(a_receive_has_its_time_limit),
		WITH_ENDS(it_looks_like_a_socket),
		WITH_ENDS(duplicates_are_the_same_socket),
		WITH_ENDS(a_refused_duplicate_closes_nothing),
		WITH_ENDS(a_range_is_closed),
		WITH_ENDS(all_from_a_number_are_closed),
		WITH_ENDS(a_stream_of_stdio_is_closed),
		WITH_ENDS(poll_and_select_mix_sockets_and_pipes),
		WITH_ENDS(select_says_how_much_time_was_left),
		WITH_ENDS(epoll_by_level_and_by_edge),
		WITH_ENDS(a_socket_leaves_all_its_epoll_sets),
		WITH_ENDS(epoll_has_pipes_and_sockets),
		cmocka_unit_test(connect_without_waiting),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(many_threads_wait_for_one_connect),
		cmocka_unit_test(an_ipv6_socket_serves_ipv4),
		WITH_ENDS(a_child_serves_the_connection),
		WITH_ENDS(a_started_program_serves_the_connection),
		WITH_ENDS(a_child_has_an_epoll_set_that_another_thread_changed),
		WITH_ENDS(a_parent_goes_on_beside_its_child),
		WITH_ENDS(what_a_vforked_child_closes_stays_the_parents),
		cmocka_unit_test(a_process_ends_though_its_peer_does_not_close),
		cmocka_unit_test(no_tcp_was_used),
	};
	size_t n = sizeof(tests) / sizeof(tests[0]);

	if (enter_own_network()) /* others use TCP here, too */
		n--;
	opens_before = tcp_opens();
	return _cmocka_run_group_tests("sockets", tests, n, NULL, NULL);
}
