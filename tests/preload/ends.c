/* SPDX-License-Identifier: MIT */
#include "ends.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

long tcp_opens(void)
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

void listen_somewhere(struct ends *e)
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

void *connect_thread(void *arg)
{
	struct ends *e = arg;

	return (void *)(intptr_t)connect(e->client, (struct sockaddr *)&e->at, sizeof(e->at));
}

void join(struct ends *e)
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

void part(struct ends *e)
{
	close(e->client);
	close(e->server);
	close(e->listener);
}

int set_up(void **state)
{
	static struct ends e;

	join(&e);
	*state = &e;
	return 0;
}

int tear_down(void **state)
{
	part(*state);
	return 0;
}

uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

void *send_big(void *arg)
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
void receive_big(int fd)
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

void assert_reads(int fd, const char *text)
{
	char buf[64] = "";

	assert_int_equal(recv(fd, buf, strlen(text), MSG_WAITALL), strlen(text));
	assert_string_equal(buf, text);
}

int wait_one(int epfd, struct epoll_event *event, int timeout)
{
	int n = epoll_wait(epfd, event, 1, timeout);

	assert_true(n >= 0);
	return n;
}

bool enter_own_network(void)
{
	return !unshare(CLONE_NEWNET) && !system("LD_PRELOAD= ip link set lo up");
}

int ends_run(const struct CMUnitTest *tests, size_t n, long tcp_meant)
{
	bool alone = enter_own_network(); /* elsewhere others use TCP, too */
	long before = tcp_opens(), opens;
	int failed = _cmocka_run_group_tests("sockets", tests, n, NULL, NULL);

	opens = tcp_opens() - before;
	if (!alone)
		skip_part("no network namespace of its own: TCP connections are not counted");
	if (alone && opens != tcp_meant) {
		fprintf(stderr, "%ld TCP connections were opened, not %ld\n", opens, tcp_meant);
		failed++;
	}
	return failed;
}
