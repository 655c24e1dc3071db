/* SPDX-License-Identifier: MIT */
/* Data, and what the descriptor of a socket is. */
#include "ends.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

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

static void *read_until_the_end(void *fd)
{
	assert_true(read((int)(intptr_t)fd, &(char){0}, 1) < 1);
	return NULL;
}

static void *poll_until_the_end(void *fd)
{
	struct pollfd p = {.fd = (int)(intptr_t)fd, .events = POLLIN};

	/* Who began late may find another file at the number of the connection. */
	return (void *)(intptr_t)poll(&p, 1, 1000);
}

/* How programs end a thread that reads. It must not find the connection freed under it. */
static void a_connection_is_closed_under_its_reader(void **state)
{
	void *(*const readers[])(void *) = {read_until_the_end, poll_until_the_end};
	int null = open("/dev/null", O_RDWR), woken = 0;

	(void)state;
	for (int i = 0; i < 24; i++) {
		struct ends e;
		pthread_t reader;
		void *polled;

		join(&e);
		assert_int_equal(
			pthread_create(&reader, NULL, readers[i % 2], (void *)(intptr_t)e.server), 0);
		usleep(i % 3 * 500);
		assert_int_equal(shutdown(e.server, SHUT_RDWR), 0);
		dup2(null, e.server); /* closes it; a reader that has not begun finds an end too */
		assert_int_equal(pthread_join(reader, &polled), 0);
		woken += i % 2 && polled;
		part(&e);
	}
	assert_true(woken > 0);
	close(null);
}

int main(void)
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
		cmocka_unit_test(a_connection_is_closed_under_its_reader),
	};

	return RUN(tests, 0);
}
