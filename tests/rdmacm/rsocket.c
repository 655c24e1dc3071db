/* SPDX-License-Identifier: MIT */
/* Stream rsockets through their public calls: both ends are of one process, on the loopback device. */
#include "rsocket.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { CYCLES = 1000 };

struct rsocket_world w;

static char pattern(uint64_t at)
{
	return (char)(at * 7 + at / 251);
}

/* ---- contents ---- */
struct flow {
	int fd;
	uint64_t total;
	unsigned seed;
	bool poll; /* waits by rpoll, not in the call */
};

static unsigned chunk(struct flow *f, uint64_t done)
{
	unsigned len = rand_r(&f->seed) % 4 ? rand_r(&f->seed) % 300 : rand_r(&f->seed) % 20000;

	return len < f->total - done ? len + (len == 0) : (unsigned)(f->total - done);
}

static void wait_by_poll(const struct flow *f, short events)
{
	struct pollfd p = {.fd = f->fd, .events = events};

	if (f->poll)
		assert_int_equal(rpoll(&p, 1, -1), 1);
}

static void *send_flow(void *arg)
{
	struct flow *f = arg;
	char buf[20000];

	for (uint64_t done = 0; done < f->total;) {
		unsigned len = chunk(f, done);
		ssize_t n;

		for (unsigned i = 0; i < len; i++)
			buf[i] = pattern(done + i);
		wait_by_poll(f, POLLOUT);
		n = rsend(f->fd, buf, len, f->poll ? MSG_DONTWAIT : 0);
		assert_true(n > 0 || (f->poll && errno == EAGAIN));
		done += n > 0 ? (uint64_t)n : 0;
	}
	return NULL;
}

static void *recv_flow(void *arg)
{
	struct flow *f = arg;
	char buf[20000];

	for (uint64_t done = 0; done < f->total;) {
		ssize_t n;

		wait_by_poll(f, POLLIN);
		n = rrecv(f->fd, buf, chunk(f, done), f->poll ? MSG_DONTWAIT : 0);
		assert_true(n > 0 || (f->poll && errno == EAGAIN));
		for (ssize_t i = 0; i < n; i++)
			assert_int_equal(buf[i], pattern(done + (uint64_t)i));
		done += n > 0 ? (uint64_t)n : 0;
	}
	return NULL;
}

/* Both directions at once, a thread for each end of each. */
static void exchange(bool poll)
{
	struct flow flows[] = {
		{w.client, 2000000, 1, poll},
		{w.server, 2000000, 2, poll},
		{w.server, 1500000, 3, poll},
		{w.client, 1500000, 4, poll},
	};
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, i % 2 ? recv_flow : send_flow, &flows[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void bytes_arrive_both_ways_by_four_threads(void **state)
{
	connect_pair();
	exchange(false);
}

static void bytes_arrive_both_ways_by_four_threads_that_poll(void **state)
{
	connect_pair();
	exchange(true);
}

static void tiny_buffers_and_queues_do(void **state)
{
	int few = 16, small = 1;

	assert_int_equal(rsetsockopt(w.listener, SOL_RDMA, RDMA_RQSIZE, &few, sizeof(few)), 0);
	assert_int_equal(rsetsockopt(w.listener, SOL_RDMA, RDMA_SQSIZE, &few, sizeof(few)), 0);
	assert_int_equal(rsetsockopt(w.listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(rsetsockopt(w.listener, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	connect_pair();
	exchange(false);
}

static void vectors_are_one_stream(void **state)
{
	char a[] = "one ", b[] = "stream", in[2][6] = {{0}};
	struct iovec out[] = {{a, 4}, {NULL, 0}, {b, 6}}, into[] = {{in[0], 3}, {in[1], 6}};
	struct msghdr msg = {.msg_iov = into, .msg_iovlen = 2};

	connect_pair();
	assert_int_equal(rwritev(w.client, out, 3), 10);
	assert_int_equal(rrecvmsg(w.server, &msg, MSG_WAITALL), 9);
	assert_memory_equal(in[0], "one", 3);
	assert_memory_equal(in[1], " strea", 6);
	assert_int_equal(rread(w.server, in[0], 6), 1);
	msg.msg_iov = out;
	msg.msg_iovlen = 1;
	assert_int_equal(rsendmsg(w.server, &msg, 0), 4);
	assert_int_equal(rreadv(w.client, into, 2), 4);
}

static void peeking_takes_nothing(void **state)
{
	char buf[8] = {0};

	connect_pair();
	assert_int_equal(rwrite(w.client, "abcdef", 6), 6);
	wait_readable(w.server);
	assert_int_equal(rrecv(w.server, buf, 3, MSG_PEEK), 3);
	assert_memory_equal(buf, "abc", 3);
	assert_int_equal(rrecv(w.server, buf, 8, MSG_PEEK), 6);
	assert_int_equal(rrecv(w.server, buf, 8, 0), 6);
	assert_memory_equal(buf, "abcdef", 6);
	assert_int_equal(rrecv(w.server, buf, 8, MSG_PEEK | MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

/* ---- without waiting ---- */
static void nothing_to_read_and_no_room_are_eagain(void **state)
{
	static char buf[100000];
	size_t sent = 0, got = 0;
	ssize_t n;

	connect_pair();
	assert_int_equal(rfcntl(w.client, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(rfcntl(w.client, F_SETFL, O_NONBLOCK), 0);
	assert_true(rfcntl(w.client, F_GETFL) & O_NONBLOCK);
	assert_int_equal(rrecv(w.client, buf, 1, 0), -1);
	assert_int_equal(errno, EAGAIN);
	while ((n = rsend(w.client, buf, sizeof(buf), 0)) > 0)
		sent += (size_t)n;
	assert_int_equal(errno, EAGAIN);
	assert_true(sent >= 1 << 16);
	while (got < sent) {
		n = rrecv(w.server, buf, sizeof(buf), 0);
		assert_true(n > 0);
		got += (size_t)n;
	}
	assert_int_equal(got, sent);
	assert_int_equal(events_of(w.client, POLLOUT, -1), POLLOUT);
	assert_int_equal(rsend(w.client, buf, 1, 0), 1);
}

static void connecting_without_waiting(void **state)
{
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(rfcntl(s, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rconnect(s, (struct sockaddr *)&w.address, sizeof(w.address)), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_int_equal(events_of(s, POLLOUT, -1), POLLOUT);
	assert_int_equal(error_of(s), 0);
	assert_int_equal(rconnect(s, (struct sockaddr *)&w.address, sizeof(w.address)), 0);
	assert_int_equal(rconnect(s, (struct sockaddr *)&w.address, sizeof(w.address)), -1);
	assert_int_equal(errno, EISCONN);
	assert_int_equal(rclose(s), 0);
}

static void accepting_without_waiting(void **state)
{
	assert_int_equal(rfcntl(w.listener, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(raccept(w.listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(events_of(w.listener, POLLIN, 0), 0);
	w.client = connect_to(&w.address);
	assert_int_equal(events_of(w.listener, POLLIN, -1), POLLIN);
	w.server = raccept(w.listener, NULL, NULL);
	assert_true(w.server >= 0);
	assert_int_equal(rfcntl(w.server, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(events_of(w.listener, POLLIN, 0), 0);
}

static void nobody_listening_is_econnrefused(void **state)
{
	struct sockaddr_in nobody = w.address;
	int s = rsocket(AF_INET, SOCK_STREAM, 0);

	rclose(w.listener);
	w.listener = -1;
	assert_int_equal(rconnect(s, (struct sockaddr *)&nobody, sizeof(nobody)), -1);
	assert_int_equal(errno, ECONNREFUSED);
	assert_int_equal(rsend(s, "x", 1, 0), -1);
	rclose(s);

	s = rsocket(AF_INET, SOCK_STREAM, 0);
	rfcntl(s, F_SETFL, O_NONBLOCK);
	assert_int_equal(rconnect(s, (struct sockaddr *)&nobody, sizeof(nobody)), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_true(events_of(s, POLLOUT, -1) & POLLERR);
	assert_int_equal(error_of(s), ECONNREFUSED);
	assert_int_equal(error_of(s), 0);
	rclose(s);
}

/* ---- poll and select ---- */
static void poll_tells_what_is(void **state)
{
	char c;

	connect_pair();
	assert_int_equal(events_of(w.client, POLLIN | POLLOUT, -1), POLLOUT);
	assert_int_equal(events_of(w.client, POLLIN, 0), 0);
	assert_int_equal(events_of(w.client, POLLIN, 20), 0);
	assert_int_equal(rsend(w.server, "x", 1, 0), 1);
	assert_int_equal(events_of(w.client, POLLIN, -1), POLLIN);
	assert_int_equal(rrecv(w.client, &c, 1, 0), 1);
	assert_int_equal(events_of(w.client, POLLIN, 0), 0);
	assert_int_equal(rclose(w.server), 0);
	w.server = -1;
	assert_int_equal(events_of(w.client, POLLIN, -1), POLLIN | POLLHUP);
	assert_int_equal(rrecv(w.client, &c, 1, 0), 0);
}

static void *write_later(void *arg)
{
	struct timespec t = {.tv_nsec = 20000000};

	nanosleep(&t, NULL);
	if (arg)
		assert_int_equal(write(*(int *)arg, "x", 1), 1);
	else
		assert_int_equal(rsend(w.server, "x", 1, 0), 1);
	return NULL;
}

static void rsockets_and_others_in_one_set(void **state)
{
	struct pollfd p[3];
	int pipe_fds[2];
	pthread_t t;

	connect_pair();
	assert_int_equal(pipe(pipe_fds), 0);
	p[0] = (struct pollfd){.fd = w.client, .events = POLLIN};
	p[1] = (struct pollfd){.fd = -1, .events = POLLIN};
	p[2] = (struct pollfd){.fd = pipe_fds[0], .events = POLLIN};
	pthread_create(&t, NULL, write_later, &pipe_fds[1]);
	assert_int_equal(rpoll(p, 3, -1), 1);
	assert_true(!p[0].revents && !p[1].revents && p[2].revents == POLLIN);
	pthread_join(t, NULL);
	pthread_create(&t, NULL, write_later, NULL);
	p[2].events = 0;
	assert_int_equal(rpoll(p, 3, -1), 1);
	assert_true(p[0].revents == POLLIN && !p[1].revents && !p[2].revents);
	pthread_join(t, NULL);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void select_does_as_poll(void **state)
{
	struct timeval soon = {.tv_usec = 10000};
	fd_set rd, wr;
	pthread_t t;

	connect_pair();
	FD_ZERO(&rd);
	FD_ZERO(&wr);
	FD_SET(w.client, &rd);
	FD_SET(w.client, &wr);
	assert_int_equal(rselect(w.client + 1, &rd, &wr, NULL, NULL), 1);
	assert_true(!FD_ISSET(w.client, &rd) && FD_ISSET(w.client, &wr));
	FD_SET(w.client, &rd);
	assert_int_equal(rselect(w.client + 1, &rd, NULL, NULL, &soon), 0);
	FD_SET(w.client, &rd);
	pthread_create(&t, NULL, write_later, NULL);
	assert_int_equal(rselect(w.client + 1, &rd, NULL, NULL, NULL), 1);
	assert_true(FD_ISSET(w.client, &rd));
	pthread_join(t, NULL);
}

/* ---- ends ---- */
static void each_direction_ends_by_itself(void **state)
{
	char buf[8];

	connect_pair();
	assert_int_equal(rsend(w.client, "last", 4, 0), 4);
	assert_int_equal(rshutdown(w.client, SHUT_WR), 0);
	assert_int_equal(rsend(w.client, "x", 1, 0), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(rrecv(w.server, buf, 8, MSG_WAITALL), 4);
	assert_int_equal(rrecv(w.server, buf, 8, 0), 0);
	assert_int_equal(rsend(w.server, "more", 4, 0), 4);
	assert_int_equal(rrecv(w.client, buf, 8, 0), 4);
	assert_int_equal(rshutdown(w.server, SHUT_WR), 0);
	assert_int_equal(rrecv(w.client, buf, 8, 0), 0);
	assert_true(events_of(w.client, POLLIN, -1) & POLLHUP);
}

static void what_was_sent_before_the_end_is_read_after_it(void **state)
{
	static char buf[70000];
	size_t got = 0;
	ssize_t n;

	connect_pair();
	assert_int_equal(rsend(w.client, buf, 60000, 0), 60000);
	assert_int_equal(rclose(w.client), 0);
	w.client = -1;
	while ((n = rrecv(w.server, buf, 1000, 0)) > 0)
		got += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(got, 60000);
	assert_int_equal(rsend(w.server, "x", 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void *receive_one(void *arg)
{
	char c;

	return (void *)(intptr_t)rrecv(w.server, &c, 1, 0);
}

static void who_waits_is_woken_by_the_end(void **state)
{
	void *got;
	pthread_t t;

	connect_pair();
	pthread_create(&t, NULL, receive_one, NULL);
	rclose(w.client);
	w.client = -1;
	pthread_join(t, &got);
	assert_int_equal((intptr_t)got, 0);

	w.client = connect_to(&w.address);
	rclose(w.server);
	w.server = raccept(w.listener, NULL, NULL);
	pthread_create(&t, NULL, receive_one, NULL);
	assert_int_equal(rshutdown(w.server, SHUT_RDWR), 0);
	pthread_join(t, &got);
	assert_int_equal((intptr_t)got, 0);
}

static void *poll_one(void *arg)
{
	struct pollfd p = {.fd = w.server, .events = POLLIN};

	return (void *)(intptr_t)rpoll(&p, 1, 1000); /* who began late may find another file at the number */
}

/* Who has not begun yet finds no rsocket there. */
static void who_waits_is_woken_when_its_own_side_is_closed(void **state)
{
	void *(*const waits[])(void *) = {receive_one, poll_one};
	unsigned woken = 0;

	for (unsigned i = 0; i < 24; i++) {
		pthread_t t;
		void *got;

		connect_pair();
		pthread_create(&t, NULL, waits[i % 2], NULL);
		usleep(i % 3 * 500);
		assert_int_equal(rclose(w.server), 0);
		pthread_join(t, &got);
		woken += i % 2 && got;
		assert_int_equal(rclose(w.server), -1);
		assert_int_equal(errno, EBADF);
		rclose(w.client);
	}
	assert_true(woken > 0);
	w.client = w.server = -1;
}

static unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void a_thousand_connections_leave_nothing(void **state)
{
	unsigned before = 0;
	char c;

	for (int i = 0; i < CYCLES; i++) {
		connect_pair();
		assert_int_equal(rsend(w.client, "x", 1, 0), 1);
		assert_int_equal(rrecv(w.server, &c, 1, 0), 1);
		rclose(i % 2 ? w.client : w.server);
		rclose(i % 2 ? w.server : w.client);
		w.client = w.server = -1;
		if (i == 10)
			before = open_descriptors();
	}
	assert_true(open_descriptors() <= before);
}

static void a_listener_ends_with_connections_nobody_took(void **state)
{
	int clients[5];
	char c;

	for (int i = 0; i < 5; i++)
		clients[i] = connect_to(&w.address);
	assert_int_equal(rclose(w.listener), 0);
	w.listener = -1;
	for (int i = 0; i < 5; i++) {
		assert_true(rrecv(clients[i], &c, 1, 0) <= 0);
		assert_int_equal(rclose(clients[i]), 0);
	}
}

static void a_child_does_not_touch_its_parents(void **state)
{
	char c;
	int status;
	pid_t pid;

	connect_pair();
	pid = fork();
	if (!pid) {
		bool ok = rsend(w.client, "x", 1, 0) == -1 && errno == EBADF && !rclose(w.client) &&
			  rclose(w.client) == -1;

		_exit(ok ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(rsend(w.client, "y", 1, 0), 1);
	assert_int_equal(rrecv(w.server, &c, 1, 0), 1);
	assert_int_equal(c, 'y');
}

static int open_epolls(void)
{
	char path[64], to[64];
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, to, sizeof(to) - 1);
		to[len < 0 ? 0 : len] = 0;
		n += !strcmp(to, "anon_inode:[eventpoll]");
	}
	return n;
}

static void a_child_has_not_what_its_parents_thread_waits_on(void **state)
{
	int before, status;
	pid_t pid;

	connect_pair();
	before = open_epolls();
	pid = fork();
	if (!pid)
		_exit(open_epolls() < before ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- mappings ---- */
static void mapped_memory_is_written_to(void **state)
{
	static char memory[100000], data[sizeof(memory)];
	off_t offset;
	char c;

	connect_pair();
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = pattern(i);
	assert_int_equal(riowrite(w.client, data, 10, 5000, 0), 0); /* nothing is there yet */
	offset = riomap(w.server, memory, sizeof(memory), PROT_WRITE, 0, 5000);
	assert_int_equal(offset, 5000);
	assert_int_equal(rsend(w.server, "m", 1, 0), 1);
	assert_int_equal(rrecv(w.client, &c, 1, 0), 1);
	assert_int_equal(riowrite(w.client, data, 60000, 5000, 0), 60000);
	assert_int_equal(riowrite(w.client, data + 60000, sizeof(data), 65000, 0), sizeof(data) - 60000);
	assert_int_equal(rsend(w.client, "w", 1, 0), 1);
	assert_int_equal(rrecv(w.server, &c, 1, 0), 1);
	assert_memory_equal(memory, data, sizeof(data));

	/* the table has one entry */
	assert_int_equal(riomap(w.server, data, 100, PROT_WRITE, 0, -1), -1);
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(riounmap(w.server, memory, 1), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(riounmap(w.server, memory, sizeof(memory)), 0);
	assert_true(riomap(w.server, data, 100, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)data);
	assert_int_equal(riomap(w.server, data, 100, PROT_READ, 0, -1), -1);
	assert_int_equal(errno, EINVAL);
}

static void *say_and_go(void *arg)
{
	int s = connect_to(&w.address);

	assert_int_equal(rsend(s, "hello", 5, 0), 5);
	assert_int_equal(rclose(s), 0);
	return NULL;
}

/* And the listener may go as soon as its connection was taken. */
static void who_is_gone_before_it_was_accepted_is_still_heard(void **state)
{
	for (int i = 0; i < 20; i++) {
		pthread_t client;
		char got[8] = "";

		if (w.listener < 0)
			rsocket_setup(state);
		pthread_create(&client, NULL, say_and_go, NULL);
		assert_true(events_of(w.listener, POLLIN, 10000) & POLLIN);
		w.server = raccept(w.listener, NULL, NULL);
		assert_true(w.server >= 0);
		rclose(w.listener);
		w.listener = -1;
		assert_int_equal(rrecv(w.server, got, sizeof(got), MSG_WAITALL), 5);
		assert_string_equal(got, "hello");
		rclose(w.server);
		w.server = -1;
		pthread_join(client, NULL);
	}
}

static void *read_to_the_end(void *arg)
{
	static char room[1 << 16];

	while (rrecv(*(int *)arg, room, sizeof(room), 0) > 0)
		;
	return NULL;
}

static void who_polls_beside_a_sleeping_reader_does_not_wait_for_it(void **state)
{
	enum { ALL = 16 << 20 };
	static const char some[1 << 16];
	pthread_t idle, reader;
	time_t begin = time(NULL);

	connect_pair();
	pthread_create(&idle, NULL, read_to_the_end, &w.client);
	pthread_create(&reader, NULL, read_to_the_end, &w.server);
	for (size_t sent = 0; sent < ALL;) {
		ssize_t n = rsend(w.client, some, sizeof(some), MSG_DONTWAIT);

		if (n > 0)
			sent += (size_t)n;
		else
			events_of(w.client, POLLOUT, 1000);
	}
	assert_true(time(NULL) - begin < 30);
	assert_int_equal(rshutdown(w.client, SHUT_RDWR), 0);
	pthread_join(idle, NULL);
	pthread_join(reader, NULL);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, rsocket_setup, rsocket_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WORLD_TEST(bytes_arrive_both_ways_by_four_threads),
		WORLD_TEST(bytes_arrive_both_ways_by_four_threads_that_poll),
		WORLD_TEST(tiny_buffers_and_queues_do),
		WORLD_TEST(vectors_are_one_stream),
		WORLD_TEST(peeking_takes_nothing),
		WORLD_TEST(nothing_to_read_and_no_room_are_eagain),
		WORLD_TEST(connecting_without_waiting),
		WORLD_TEST(accepting_without_waiting),
		WORLD_TEST(nobody_listening_is_econnrefused),
		WORLD_TEST(poll_tells_what_is),
		WORLD_TEST(rsockets_and_others_in_one_set),
		WORLD_TEST(select_does_as_poll),
		WORLD_TEST(each_direction_ends_by_itself),
		WORLD_TEST(what_was_sent_before_the_end_is_read_after_it),
		WORLD_TEST(who_waits_is_woken_by_the_end),
		WORLD_TEST(who_waits_is_woken_when_its_own_side_is_closed),
		WORLD_TEST(who_is_gone_before_it_was_accepted_is_still_heard),
		WORLD_TEST(who_polls_beside_a_sleeping_reader_does_not_wait_for_it),
		WORLD_TEST(a_thousand_connections_leave_nothing),
		WORLD_TEST(a_listener_ends_with_connections_nobody_took),
		WORLD_TEST(a_child_does_not_touch_its_parents),
		WORLD_TEST(a_child_has_not_what_its_parents_thread_waits_on),
		WORLD_TEST(mapped_memory_is_written_to),
		WORLD_TEST(names_are_the_addresses),
		WORLD_TEST(an_unbound_name_is_its_family_alone),
		WORLD_TEST(options_are_remembered),
		WORLD_TEST(the_path_of_a_connection_can_be_read),
		WORLD_TEST(mistakes_are_told_as_sockets_tell_them),
		WORLD_TEST(ipv6_too),
	};

	if (argc == 2)
		cmocka_set_skip_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
