/* SPDX-License-Identifier: MIT */
/* What the link says of connections that did not come about. */
#include "link/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct sockaddr_in loopback(in_port_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A port that is ours and where nobody listens; the socket that holds it. */
static int hold_port(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*at = loopback(0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)at, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
	return fd;
}

/* Who tries again must not insist on the port of the first try, which may be somebody else's by then. */
static void refused_connection_had_no_port(void **state)
{
	struct sockaddr_in to, from = loopback(0);
	struct sockaddr_storage local = {0};
	int holder = hold_port(&to), fd;

	memcpy(&local, &from, sizeof(from));
	fd = link_tcp_connect((struct sockaddr *)&local, (struct sockaddr *)&to, 0);
	if (fd >= 0) {
		struct pollfd p = {.fd = fd, .events = POLLOUT};

		assert_int_equal(poll(&p, 1, -1), 1);
		assert_int_equal(link_tcp_connected(fd, &local), -ECONNREFUSED);
		close(fd);
	}
	assert_memory_equal(&local, &from, sizeof(from));
	close(holder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(refused_connection_had_no_port)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
