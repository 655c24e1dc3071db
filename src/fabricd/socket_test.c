/* SPDX-License-Identifier: MIT */
#include "fabricd/fabricd.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int call(const struct fabricd *d, const char *name)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int at = open(d->dir, O_PATH | O_DIRECTORY), fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", at, name);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(at);
	return fd;
}

/* A path longer than the name of a socket may be, and a socket that a killed one left there. */
static void sockets_lie_in_any_directory(void **state)
{
	static struct fabricd d;
	char top[] = "/tmp/socket-test-XXXXXX", path[PATH_MAX + 16];
	int listener, again, fd, peer;

	assert_non_null(mkdtemp(top));
	snprintf(d.dir, sizeof(d.dir), "%s/%0150d", top, 1);
	assert_int_equal(mkdir(d.dir, 0700), 0);
	listener = fabricd_listen(&d, "console", SOCK_STREAM);
	assert_true(listener >= 0);
	assert_int_equal(fabricd_accept(listener), -EAGAIN);
	again = fabricd_listen(&d, "console", SOCK_STREAM);
	assert_true(again >= 0);
	fd = call(&d, "console");
	peer = fabricd_accept(again);
	assert_true(peer >= 0);
	assert_true(fcntl(peer, F_GETFL) & O_NONBLOCK);
	close(fd);
	close(peer);
	close(again);
	close(listener);
	snprintf(path, sizeof(path), "%s/console", d.dir);
	unlink(path);
	rmdir(d.dir);
	rmdir(top);
}

/* The caller is hung up on, and the listener is quiet again: a loop would spin otherwise. */
static void caller_is_turned_away_when_no_descriptor_is_left(void **state)
{
	static struct fabricd d;
	char top[] = "/tmp/socket-test-XXXXXX", path[PATH_MAX + 16], c;
	const struct rlimit few = {.rlim_cur = 64, .rlim_max = 64};
	int listener, fd, taken[64], n = 0;

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_non_null(mkdtemp(top));
	strcpy(d.dir, top);
	listener = fabricd_listen(&d, "umad", SOCK_STREAM);
	assert_true(listener >= 0);
	fd = call(&d, "umad");
	while ((taken[n] = dup(fd)) >= 0)
		n++;
	assert_int_equal(fabricd_accept(listener), -EAGAIN);
	assert_int_equal(fabricd_accept(listener), -EAGAIN);
	while (n)
		close(taken[--n]);
	assert_int_equal(recv(fd, &c, 1, 0), 0);
	close(fd);
	close(listener);
	snprintf(path, sizeof(path), "%s/umad", d.dir);
	unlink(path);
	rmdir(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sockets_lie_in_any_directory),
		cmocka_unit_test(caller_is_turned_away_when_no_descriptor_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
